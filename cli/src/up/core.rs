//! The core of `up`. Its end is not that of the rest: no other process can lead in this data directory, so another one is started,
//! which leads in a new term. That is what a crash and a start of `up` do, and drivers and machines get through it as through these.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use kube::Client;
use ostler_server::{
    AdminListener, AutoscalerListener, Core, CoreOptions, ListenAddress, listen_for_drivers,
};
use ostler_sessions::Listeners;
use prometheus_client::registry::Registry;
use tokio::time::{Instant, sleep_until};

use super::narrate::Story;
use crate::data_dir::{read_private, write_private};

/// Between the ends of a core that does not stay: first none, then growing.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A core that stayed so long began well.
const BEGAN_WELL: Duration = Duration::from_mins(1);

/// The parts for cores of a data directory.
pub(super) struct Parts {
    pub(super) client: Client,
    /// All but the identity, which no two cores share.
    pub(super) options: CoreOptions,
    /// The file with the name of the last core.
    pub(super) identity: PathBuf,
    /// Where drivers dial in.
    pub(super) listen: Vec<ListenAddress>,
    pub(super) admin: PathBuf,
    /// Connections of people.
    pub(super) people: usize,
    /// Where autoscalers dial in, if they do.
    pub(super) autoscaler: Option<ListenAddress>,
    /// Where metrics are shown, if they are.
    pub(super) metrics: Option<SocketAddr>,
    pub(super) story: Story,
}

/// The core, and what the next one is made of.
pub(super) struct Embedded {
    parts: Parts,
    /// `None`: it ended, and another one is about to start.
    core: Option<Core>,
    started: Instant,
    pause: Duration,
}

impl Embedded {
    /// Starts the first core, which takes drivers at `drivers`.
    pub(super) async fn start(parts: Parts, drivers: Listeners) -> anyhow::Result<Self> {
        let core = Some(parts.core(drivers).await?);
        Ok(Self { parts, core, started: Instant::now(), pause: Duration::ZERO })
    }

    /// The core; `None`: it ended, and another one is about to start.
    pub(super) const fn core(&self) -> Option<&Core> {
        self.core.as_ref()
    }

    /// Returns when the core ended and another one was started. `trouble` may give the cause. Cancelling the wait loses
    /// nothing.
    pub(super) async fn outlive(&mut self, trouble: impl Fn() -> Option<Arc<str>>) {
        if let Some(core) = &mut self.core {
            let error = core.failure().await;
            self.tell(&error, trouble());
        }
        if let Some(core) = self.core.take() {
            core.abandon().await;
        }
        loop {
            sleep_until(self.started + self.pause).await;
            self.started = Instant::now();
            match self.parts.again().await {
                Ok(core) => {
                    self.core = Some(core);
                    return;
                }
                Err(error) => self.tell(&error, trouble()),
            }
        }
    }

    fn tell(&mut self, error: &anyhow::Error, trouble: Option<Arc<str>>) {
        let stayed = self.started.elapsed() >= BEGAN_WELL;
        self.started = Instant::now();
        self.pause = match self.pause {
            _ if stayed => Duration::ZERO,
            Duration::ZERO => Duration::from_secs(1),
            pause => (pause * 2).min(LONGEST_PAUSE),
        };
        let trouble = trouble.map(|it| format!("; {it}")).unwrap_or_default();
        let next = match self.pause.as_secs() {
            0 => "immediately".to_owned(),
            seconds => format!("in {seconds}s"),
        };
        self.parts.story.tell(format_args!(
            "the core stopped, and another one starts {next}: {error:#}{trouble}"
        ));
    }

    /// Ends the core immediately, if there is one.
    pub(super) async fn abandon(self) {
        if let Some(core) = self.core {
            core.abandon().await;
        }
    }

    /// Stops the core in order, if there is one.
    pub(super) async fn stop(self) {
        if let Some(core) = self.core {
            core.stop().await;
        }
        self.parts.options.traces.finish().await;
    }
}

/// A new name for the core, and the name of the last one of the file. The holder of the lock knows that the last one is dead.
fn next_identity(file: &Path) -> anyhow::Result<(String, Option<String>)> {
    let predecessor = read_private(file)?.map(|identity| identity.trim().to_owned());
    let identity = format!("ostler-up_{}", uuid::Uuid::new_v4());
    write_private(file, &identity)?;
    Ok((identity, predecessor.filter(|identity| !identity.is_empty())))
}

impl Parts {
    async fn again(&self) -> anyhow::Result<Core> {
        self.core(listen_for_drivers(&self.listen, None).await?).await
    }

    async fn core(&self, drivers: Listeners) -> anyhow::Result<Core> {
        let mut options = self.options.clone();
        (options.settings.identity, options.settings.predecessor) = next_identity(&self.identity)?;
        let (client, incoming) = (self.client.clone(), drivers.incoming());
        let mut registry = Registry::default();
        let core = Core::start(client, incoming, options, &mut registry).await;
        let mut core = core.context("the core cannot start")?;
        self.open_admin(&mut core).await;
        if let Some(address) = &self.autoscaler {
            match AutoscalerListener::bind(address, None).await {
                Ok(listener) => core.serve_autoscaler(listener),
                // Machines do not need it, and another `up` may have the port.
                Err(error) => self.story.tell(format_args!("no autoscaler is served: {error:#}")),
            }
        }
        if let Some(address) = self.metrics
            && let Err(error) = core.serve_metrics(address, self.people, registry).await
        {
            self.story.tell(format_args!("no metrics are served: {error:#}"));
        }
        Ok(core)
    }

    /// Lets `ostler drivers` and grpcurl look into the core. Machines do not need it, so a path that is too long for a
    /// socket is no reason to stop.
    async fn open_admin(&self, core: &mut Core) {
        let address = ListenAddress::Unix { path: self.admin.clone(), mode: 0o600 };
        match AdminListener::bind(&address, None).await {
            Ok(listener) => {
                core.serve_admin(listener.with_connections(self.people));
                self.story.tell(format_args!("ostler drivers ls --admin {address}"));
            }
            Err(error) => {
                self.story.tell(format_args!("`ostler drivers` cannot be used: {error:#}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::Lease;
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use ostler_api::names::LEADER_LEASE;
    use ostler_controllers::EnabledControllers;
    use ostler_server::Shares;
    use serde_json::json;
    use tokio::time::{sleep, timeout};
    use tokio_util::sync::CancellationToken;

    use super::super::{CoreMode, Options, System, TargetMode};
    use super::*;
    use crate::data_dir::DataDir;
    use crate::driver_choice::DriverChoice;

    fn options() -> Options {
        Options {
            api_listen: "127.0.0.1:0".parse().unwrap(),
            drivers_listen: "127.0.0.1:0".parse().unwrap(),
            autoscaler_listen: None,
            metrics_listen: None,
            drivers: vec![DriverChoice::None],
            driver_env: Vec::new(),
            aliases: std::collections::BTreeMap::new(),
            core: CoreMode::Embedded,
            namespaces: ostler_controllers::Namespaces::one("default"),
            target: TargetMode::Own,
            controllers: EnabledControllers::default(),
            shares: Shares { api: 8, gateway: 1, drivers: 8, people: 8 },
            gateway_port: None,
            node_grace: None,
            ends: false,
            traces: <_>::default(),
        }
    }

    /// The Lease once another process than `holder` has it.
    async fn led_by_another_than(leases: &Api<Lease>, holder: &str) -> Lease {
        loop {
            let lease = leases.get_opt(LEADER_LEASE).await.unwrap();
            let spec = lease.as_ref().and_then(|it| it.spec.clone()).unwrap_or_default();
            let now = spec.holder_identity.unwrap_or_default();
            if let Some(lease) = lease.filter(|_| !now.is_empty() && now != holder) {
                return lease;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn term(lease: &Lease) -> i32 {
        lease.spec.as_ref().unwrap().lease_transitions.unwrap()
    }

    #[test]
    fn each_core_has_a_name_of_its_own_and_knows_the_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let file = DataDir::open(dir.path()).unwrap().core_identity();
        let (first, before) = next_identity(&file).unwrap();
        let (second, predecessor) = next_identity(&file).unwrap();
        assert_eq!(before, None);
        assert_ne!(first, second);
        assert_eq!(predecessor, Some(first));
    }

    #[tokio::test]
    async fn a_core_that_lost_its_lease_is_followed_by_another_that_leads_in_a_later_term() {
        let home = tempfile::tempdir().unwrap();
        let data = DataDir::open(home.path()).unwrap();
        let system = Box::pin(System::start(options(), &data, Story::quiet())).await;
        let mut system = system.unwrap();
        let limit = Duration::from_mins(1);
        timeout(limit, system.ready(Story::quiet())).await.unwrap().unwrap();
        let leases = Api::<Lease>::default_namespaced(system.client());
        for _ in 0..2 {
            let before = led_by_another_than(&leases, "").await;
            let holder = before.spec.as_ref().unwrap().holder_identity.clone().unwrap();
            // Another core held the Lease and gave it up.
            let lost =
                json!({ "spec": { "holderIdentity": "", "leaseTransitions": term(&before) + 1 } });
            let (params, lost) = (PatchParams::default(), Patch::Merge(lost));
            leases.patch(LEADER_LEASE, &params, &lost).await.unwrap();
            let next = async {
                tokio::select! {
                    error = system.failure() => panic!("{error:#}"),
                    next = led_by_another_than(&leases, &holder) => next,
                }
            };
            let next = timeout(limit, next).await.unwrap();
            assert!(term(&next) > term(&before) + 1);
        }
        timeout(limit, system.ready(Story::quiet())).await.unwrap().unwrap();
        system.stop(&CancellationToken::new(), Story::quiet()).await;
    }
}

//! All kubelets: one for each instance, begun and ended with it.

use std::collections::HashMap;
use std::fs::{OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use ostler_kubelet::KubeletApi;
use ostler_kubelet::node::RENEWAL;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;

use super::cache::KeyedCache;
use super::life::{Behaviour, Kubelet, Shared};
use super::watch::{watch_pods, watch_tokens};
use crate::cloud::{Changes, Cloud, Instance, JournalError};
use crate::control::{Control, ControlFile};

/// How soon a change of the control file, or of the cloud by another process, is seen. Changes by
/// this process are seen immediately.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Enough to keep an API server busy, and few enough not to overload it.
const CONCURRENT_REQUESTS: usize = 64;

/// The kubelets of a cloud.
pub struct Kubelets {
    cloud: Cloud,
    client: Client,
    control: Option<ControlFile>,
    renewal: Duration,
}

impl std::fmt::Debug for Kubelets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kubelets").field("control", &self.control).finish_non_exhaustive()
    }
}

impl Kubelets {
    /// The kubelets of `cloud`, which use `client` for all they do.
    pub fn new(cloud: Cloud, client: Client) -> Self {
        Self { cloud, client, control: None, renewal: RENEWAL }
    }

    /// Reads deviations of kubelets from their class from `control`.
    #[must_use]
    pub fn control_file(mut self, control: ControlFile) -> Self {
        self.control = Some(control);
        self
    }

    /// How often each renews its Lease, which lasts for 40 s; by default every 10 s, as a real
    /// one does.
    #[must_use]
    pub fn renew_every(mut self, renewal: Duration) -> Self {
        self.renewal = renewal;
        self
    }

    /// Runs the kubelets until `shutdown` is cancelled; then their nodes fall silent. Waits while another process runs
    /// the kubelets of the same state file.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), JournalError> {
        tokio::select! {
            outcome = self.run_alone() => outcome,
            () = shutdown.cancelled() => Ok(()),
        }
    }

    async fn run_alone(self) -> Result<(), JournalError> {
        let _turn = wait_for_turn(&self.cloud).await?;
        let shared = Shared {
            cloud: self.cloud,
            api: KubeletApi::new(self.client.clone()).concurrency(CONCURRENT_REQUESTS),
            pods: Arc::new(KeyedCache::new()),
            tokens: Arc::new(KeyedCache::new()),
            renewal: self.renewal,
        };
        let mut watches = JoinSet::new();
        watches.spawn(watch_pods(self.client.clone(), Arc::clone(&shared.pods)));
        watches.spawn(watch_tokens(self.client, Arc::clone(&shared.tokens)));
        let fleet = Fleet {
            shared,
            control: Control::default(),
            kubelets: HashMap::new(),
            tasks: JoinSet::new(),
            seen: 0,
        };
        fleet.run(self.control).await
    }
}

/// Holds the file for as long as this process runs the kubelets.
async fn wait_for_turn(cloud: &Cloud) -> Result<Option<std::fs::File>, JournalError> {
    let Some(path) = cloud.state_file() else { return Ok(None) };
    let mut lock = path.clone().into_os_string();
    lock.push(".kubelets");
    let failed = |source| JournalError::Io { path: path.clone(), what: "lock it", source };
    let file =
        OpenOptions::new().create(true).append(true).mode(0o600).open(lock).map_err(failed)?;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::WouldBlock) => sleep(LOOK_INTERVAL).await,
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
    }
}

struct Fleet {
    shared: Shared,
    control: Control,
    kubelets: HashMap<String, Running>,
    tasks: JoinSet<()>,
    /// Revision of the cloud that was looked at.
    seen: u64,
}

struct Running {
    task: AbortHandle,
    behaviour: watch::Sender<Behaviour>,
    instance: Instance,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fleet {
    async fn run(mut self, control: Option<ControlFile>) -> Result<(), JournalError> {
        let mut changes = self.shared.cloud.subscribe();
        let mut look = interval(LOOK_INTERVAL);
        let looks = control.is_some() || self.shared.cloud.state_file().is_some();
        self.take_control(control.as_ref());
        self.follow(true)?;
        loop {
            tokio::select! {
                // The sender lives in the cloud, which lives here.
                _ = changes.changed() => {}
                _ = look.tick(), if looks => self.take_control(control.as_ref()),
            }
            // The nodes that are there go on while the state file cannot be read.
            if let Err(error) = self.follow(false) {
                tracing::debug!(%error, "no node joins or leaves");
            }
            while self.tasks.try_join_next().is_some() {}
        }
    }

    /// Begins and ends kubelets as the cloud has changed.
    fn follow(&mut self, recovered: bool) -> Result<(), JournalError> {
        let seen = self.seen;
        let (revision, changed) = self.shared.cloud.with(|state| {
            let touched = |ids: Vec<String>| -> Vec<(String, Option<Instance>)> {
                ids.into_iter().map(|id| (id.clone(), state.instance(&id).cloned())).collect()
            };
            let changed = match state.changes_since(seen) {
                Changes::These(ids) => touched(ids),
                Changes::All => {
                    let known = self.kubelets.keys().cloned();
                    let present = state.instances().map(|i| i.provider_id.clone());
                    touched(known.chain(present).collect())
                }
            };
            (state.revision(), changed)
        })?;
        self.seen = revision;
        for (id, instance) in changed {
            match instance.filter(|instance| !instance.deleting) {
                Some(instance) => self.keep(instance, recovered),
                // Dropping the kubelet cuts its power.
                None => drop(self.kubelets.remove(&id)),
            }
        }
        Ok(())
    }

    /// Begins the kubelet of an instance, or tells it how to behave from now on.
    fn keep(&mut self, instance: Instance, recovered: bool) {
        let behaviour = behaviour(&self.control, &instance);
        if let Some(running) = self.kubelets.get_mut(&instance.provider_id) {
            running.behave(behaviour);
            running.instance = instance;
            return;
        }
        let (sender, receiver) = watch::channel(behaviour);
        let kubelet = Kubelet::new(self.shared.clone(), instance.clone(), receiver, recovered);
        let running =
            Running { task: self.tasks.spawn(kubelet.run()), behaviour: sender, instance };
        self.kubelets.insert(running.instance.provider_id.clone(), running);
    }

    /// Reads the control file, if there is one. A wrong one changes nothing.
    fn take_control(&mut self, file: Option<&ControlFile>) {
        let Some(file) = file else { return };
        match file.read() {
            Ok(control) if control == self.control => {}
            Ok(control) => {
                self.control = control;
                for running in self.kubelets.values_mut() {
                    running.behave(behaviour(&self.control, &running.instance));
                }
            }
            Err(error) => tracing::debug!(%error, "control file is not used"),
        }
    }
}

impl Running {
    fn behave(&self, wanted: Behaviour) {
        self.behaviour.send_if_modified(|present| {
            let changed = *present != wanted;
            *present = wanted;
            changed
        });
    }
}

fn behaviour(control: &Control, instance: &Instance) -> Behaviour {
    let machine = &instance.identity.machine_name;
    let (spec, ready) = control.kubelet(machine, &instance.class, instance.kubelet.clone());
    Behaviour { spec, ready }
}

//! The command `ostler-server`: the core alone, against any Kubernetes API server.

mod serve;

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Parser;
use ostler_controllers::{ApiCheck, GivenIds, Namespaces, Settings};
use ostler_lifecycle::{cluster, orphans, snapshot};
use ostler_sessions::{ListenAddress, Rate};
use ostler_trace::TraceArgs;
use tracing_subscriber::EnvFilter;

use crate::clusters::ClusterArgs;
use crate::duration::{duration, positive};
use crate::election::ElectionArgs;
use crate::fleet::FleetArgs;
use crate::klog::LogFormat;
use crate::legacy::LegacyArgs;
use crate::listen::{AutoscalerListenArgs, DriverListenArgs};
use crate::upstream::UpstreamArgs;
use crate::{AuditArgs, CoreOptions, DriverToken, Log, LogStyle, TOKEN_AUDIENCE};

/// The core of Ostler: machine controllers, and the gRPC service that drivers dial in to.
///
/// Needs the CRDs in the cluster: `ostler crds | kubectl apply -f -`. Several replicas may run; the holder of the Lease
/// `machine-controller` acts. Names and defaults of the machine flags are machine-controller-manager's.
#[derive(Debug, Parser)]
#[command(name = "ostler-server", version = crate::version::VERSION.as_str(), max_term_width = 110)]
pub struct Args {
    #[command(flatten)]
    clusters: ClusterArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    /// The namespaces whose machines, classes and secrets are served: a name, a list a,b, or a prefix with a star
    ///
    /// Each namespace of a list is watched by itself, so rights in these are enough. For a prefix the whole cluster is
    /// watched.
    #[arg(long, value_name = "NAME[,NAME]|PREFIX*", default_value = "default")]
    namespace: Namespaces,
    /// The namespace of the Lease and of ConfigMap ostler-cluster-id; the first of --namespace by default
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_namespace: Option<String>,
    /// The id that every instance is tagged with; the core deletes only instances that carry it. By default the UID of kube-system and the namespace
    #[arg(long, value_name = "ID")]
    cluster_id: Option<String>,
    /// Ids that this cluster had before, at most 8: after a restore or a migration of the control plane; repeatable
    ///
    /// Instances with one of them are taken over and tagged anew, and the id that is written down in ConfigMap
    /// ostler-cluster-id may be one of them. Stop the old core first. The core remembers them: the flag may go once
    /// the core has run with it.
    #[arg(long, value_name = "ID[,ID]", value_delimiter = ',')]
    previous_cluster_ids: Vec<String>,
    #[command(flatten)]
    drivers: DriverListenArgs,
    /// Serve the debug API for people (gRPC: DriverDebugService) at unix:PATH or an address on loopback; off by default
    #[arg(long, value_name = "unix:PATH|ADDR")]
    admin_listen: Option<ListenAddress>,
    /// The token that callers of an admin listener on loopback must show
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    #[command(flatten)]
    autoscaler: AutoscalerListenArgs,
    /// /metrics, /healthz and /readyz (HTTP, loopback only)
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10259")]
    metrics_listen: SocketAddr,
    /// Who may serve which provider, as ServiceAccount, client certificate, unix user or token file (YAML)
    ///
    /// Read again when it changes. One binding for each kind of credential:
    ///
    ///   bindings:
    ///   - serviceAccount: NAMESPACE/NAME
    ///     providers: [aws.example.com]
    ///   - certificate: spiffe://example.com/driver/aws
    ///     providers: [aws.example.com]
    ///   - unixUser: 1000
    ///     providers: [fake.ostler.dev]
    ///   - tokenFile: /run/ostler/token
    ///     providers: [fake.ostler.dev]
    #[arg(long, value_name = "FILE", verbatim_doc_comment)]
    driver_access: Option<PathBuf>,
    /// The audience that a driver's ServiceAccount token must have
    #[arg(long, value_name = "NAME", default_value = TOKEN_AUDIENCE)]
    token_audience: String,
    /// A provider, and the file with the token of its driver; repeatable. Short for a tokenFile in --driver-access
    #[arg(long = "driver-token", value_name = "PROVIDER=FILE")]
    driver_tokens: Vec<DriverToken>,
    /// Another name that classes use for a provider, e.g. AWS=aws.example.com; repeatable
    #[arg(long = "provider-alias", value_name = "NAME=PROVIDER", value_parser = alias)]
    provider_aliases: Vec<(String, String)>,
    #[command(flatten)]
    legacy: LegacyArgs,
    /// Limit the operations per second of a provider, e.g. aws.example.com=20:50; no limit by default; repeatable
    #[arg(long = "provider-rate", value_name = "PROVIDER=QPS[:BURST]", value_parser = rate)]
    provider_rates: Vec<(String, Rate)>,
    /// How many machines, sets, deployments and pools to reconcile in parallel, each
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..))]
    concurrent_syncs: u16,
    /// How long creating a machine may take, from the first operation to a healthy Node
    #[arg(long, value_name = "DURATION", default_value = "20m", value_parser = positive)]
    machine_creation_timeout: Duration,
    /// How long a Node may be unhealthy before its machine becomes Failed
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = positive)]
    machine_health_timeout: Duration,
    /// How long to drain a Node gracefully before the drain is forced: pods are deleted without grace
    #[arg(long, value_name = "DURATION", default_value = "2h", value_parser = duration)]
    machine_drain_timeout: Duration,
    /// How long a drain waits for the volumes of pods that left before it evicts the next ones, and an update in place for
    /// all volumes; a deletion waits for them until the drain timeout
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = duration)]
    machine_pv_detach_timeout: Duration,
    /// How long a drain waits for a volume to be attached where another pod waits for it
    #[arg(long, value_name = "DURATION", default_value = "90s", value_parser = duration)]
    machine_pv_reattach_timeout: Duration,
    /// How many evictions of a pod may fail before the pod is deleted; at most one for each 20 s of the drain timeout
    #[arg(long, default_value_t = 360, value_parser = clap::value_parser!(i32).range(0..))]
    machine_max_evict_retries: i32,
    /// Stop waiting for pods that have been terminating longer than this; 0s: wait for ever
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    machine_skip_wait_for_delete_timeout: Duration,
    /// Freeze health timeouts when an API server has not answered for this long, as machine-controller-manager does
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive)]
    machine_safety_apiserver_statuscheck_timeout: Duration,
    /// How often to check API servers that answer
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration)]
    machine_safety_apiserver_statuscheck_period: Duration,
    /// How long an update in place may take once the Node is ready for it
    #[arg(long, value_name = "DURATION", default_value = "20m", value_parser = duration)]
    machine_inplace_update_timeout: Duration,
    /// How long to keep a machine with the annotation node.machine.sapcloud.io/preserve
    #[arg(long, value_name = "DURATION", default_value = "96h", value_parser = duration)]
    machine_preserve_timeout: Duration,
    /// How often to look for instances without a machine (orphans)
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = positive)]
    machine_safety_orphan_vms_period: Duration,
    /// How long an instance must have had no machine before it counts as an orphan
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    machine_safety_orphan_vms_grace: Duration,
    /// Delete orphans, or only report them by event and metric
    #[arg(long, value_name = "delete|report", default_value_t = orphans::Mode::Delete)]
    machine_safety_orphan_vms_mode: orphans::Mode,
    /// Also delete orphans that carry only machine-controller-manager's tags
    ///
    /// Such tags name no namespace, so the core needs the right to list machines in all namespaces, and keeps what has
    /// the name or the provider id of any of them. Without this flag the core only reports such instances.
    #[arg(long)]
    delete_untagged_orphans: bool,
    /// Node conditions that must be False
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable"
    )]
    node_conditions: Vec<String>,
    /// Groups of the bootstrap tokens, separated by commas
    #[arg(long, default_value = "")]
    bootstrap_token_auth_extra_groups: String,
    /// How long to wait after a driver reports that quota or capacity is exhausted; 0s means 10m, as upstream
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    resource_exhausted_retry: Duration,
    /// Whether machines take over instances that have their name and no UID, as machine-controller-manager made
    /// them: where the class is annotated ostler.dev/adopt-by-name "true", or as said here for all classes
    #[arg(long, value_enum, default_value_t)]
    adopt_by_name: AdoptByName,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    audit: AuditArgs,
    #[command(flatten)]
    traces: TraceArgs,
    #[command(flatten)]
    pub(crate) upstream: UpstreamArgs,
}

/// The whole program: reads the command line, and runs until SIGINT or SIGTERM, or until the core fails.
///
/// It owns the runtime, since asynchronous code is compiled where it is polled: with this here, the binary compiles nothing.
#[tokio::main]
pub async fn main() -> ExitCode {
    let args = Args::parse_from(crate::normal(std::env::args()));
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new(args.upstream.filter()));
    let style = match args.upstream.format() {
        LogFormat::Text => LogStyle::lines(std::io::stderr().is_terminal()),
        LogFormat::Json => LogStyle::Json,
    };
    let outcome = match Log::start(filter, std::io::stderr, style, &args.audit) {
        Ok(log) => {
            let outcome = Box::pin(serve::serve(args)).await;
            log.finish();
            outcome
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _closed = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Which classes adopt by name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AdoptByName {
    /// None.
    Never,
    /// Machines whose class has the annotation.
    #[default]
    Annotated,
    /// All.
    Always,
}

impl AdoptByName {
    /// The setting for all classes, whatever a class says.
    pub const fn for_all(self) -> Option<bool> {
        match self {
            Self::Never => Some(false),
            Self::Annotated => None,
            Self::Always => Some(true),
        }
    }
}

impl Args {
    /// Where the Lease and the cluster id are.
    fn home(&self) -> Option<&str> {
        let given = self.leader_elect_resource_namespace.as_deref();
        given.or_else(|| self.namespace.first())
    }
}

fn check(args: &Args) -> anyhow::Result<()> {
    agree(args)?;
    args.upstream.tell();
    let serves_drivers = args.fleet.controllers.run_machines();
    if serves_drivers && args.driver_tokens.is_empty() && args.driver_access.is_none() {
        tracing::warn!(
            "neither --driver-access nor --driver-token is given: no driver can connect"
        );
    }
    Ok(())
}

/// Whether the flags go together.
pub(crate) fn agree(args: &Args) -> anyhow::Result<()> {
    args.upstream.check()?;
    args.election.check()?;
    cluster::check(args.cluster_id.as_deref(), &args.previous_cluster_ids)?;
    if args.home().is_none() {
        bail!(
            "--namespace {} names no namespace for the Lease; give --leader-elect-resource-namespace",
            args.namespace
        );
    }
    let (timeout, period) = (
        args.machine_safety_apiserver_statuscheck_timeout,
        args.machine_safety_apiserver_statuscheck_period,
    );
    if timeout > period {
        bail!(
            "--machine-safety-apiserver-statuscheck-timeout ({timeout:?}) must be at most --machine-safety-apiserver-statuscheck-period ({period:?})"
        );
    }
    Ok(())
}

fn options(args: Args) -> CoreOptions {
    let home = args.home().unwrap_or_default().to_owned();
    let lifecycle = snapshot::Settings {
        creation_timeout: args.machine_creation_timeout,
        health_timeout: args.machine_health_timeout,
        drain_timeout: args.machine_drain_timeout,
        in_place_timeout: args.machine_inplace_update_timeout,
        preserve_timeout: args.machine_preserve_timeout,
        detach_timeout: args.machine_pv_detach_timeout,
        reattach_timeout: args.machine_pv_reattach_timeout,
        max_evict_retries: args.machine_max_evict_retries,
        skip_wait_for_delete: Some(args.machine_skip_wait_for_delete_timeout),
        resource_exhausted_retry: match args.resource_exhausted_retry {
            Duration::ZERO => snapshot::Settings::default().resource_exhausted_retry,
            given => given,
        },
        node_conditions: args.node_conditions,
        bootstrap_token_groups: args.bootstrap_token_auth_extra_groups,
        adopt_by_name: args.adopt_by_name.for_all(),
        ..snapshot::Settings::default()
    };
    let settings = Settings {
        controllers: args.fleet.controllers,
        fleet: args.fleet.settings(),
        home,
        namespaces: args.namespace,
        lease: args.election.limits(),
        concurrent_syncs: usize::from(args.concurrent_syncs),
        api_check: ApiCheck {
            timeout: args.machine_safety_apiserver_statuscheck_timeout,
            period: args.machine_safety_apiserver_statuscheck_period,
        },
        lifecycle,
        orphans: orphans::Rules {
            mode: args.machine_safety_orphan_vms_mode,
            period: args.machine_safety_orphan_vms_period,
            grace: args.machine_safety_orphan_vms_grace,
            delete_untagged: args.delete_untagged_orphans,
        },
        aliases: args
            .provider_aliases
            .into_iter()
            .map(|(alias, name)| (alias.into(), name.into()))
            .collect(),
        lease_at_once: !args.upstream.leader_elect,
        ..Settings::default()
    };
    CoreOptions {
        settings,
        cluster: GivenIds { id: args.cluster_id, previous: args.previous_cluster_ids },
        tokens: args.driver_tokens,
        access_file: args.driver_access,
        token_audience: args.token_audience,
        rates: args.provider_rates.into_iter().map(|(name, rate)| (name.into(), rate)).collect(),
        ..CoreOptions::default()
    }
}

/// Reads `NAME=PROVIDER`: another name that classes use for a provider.
///
/// # Errors
/// The text is no alias.
pub fn alias(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((name, provider)) if !name.is_empty() && !provider.is_empty() => {
            Ok((name.to_owned(), provider.to_owned()))
        }
        _ => bail!("`{text}` is not NAME=PROVIDER, e.g. AWS=aws.example.com"),
    }
}

fn rate(text: &str) -> anyhow::Result<(String, Rate)> {
    match text.split_once('=') {
        Some((provider, rate)) if !provider.is_empty() => Ok((provider.to_owned(), rate.parse()?)),
        _ => bail!("`{text}` is not PROVIDER=QPS[:BURST], e.g. aws.example.com=20:50"),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::Args;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    /// Every flag of machine-controller, with its default.
    const UPSTREAM: &str = "--port=10259 --address=127.0.0.1 --cloud-provider=x --concurrent-syncs=50 \
        --min-resync-period=12h --profiling=false --contention-profiling=false --namespace=shoot \
        --target-kubeconfig=target --control-kubeconfig=inClusterConfig \
        --kube-api-content-type=application/vnd.kubernetes.protobuf --kube-api-qps=20 --kube-api-burst=30 \
        --controller-start-interval=0s --leader-elect=true --leader-elect-lease-duration=15s \
        --leader-elect-renew-deadline=10s --leader-elect-retry-period=2s --leader-elect-resource-lock=leases \
        --v=3 --machine-creation-timeout=20m --machine-health-timeout=10m --machine-drain-timeout=2h \
        --machine-inplace-update-timeout=20m --machine-max-evict-retries=360 --machine-pv-detach-timeout=2m \
        --machine-pv-reattach-timeout=90s --machine-safety-apiserver-statuscheck-timeout=30s \
        --machine-safety-apiserver-statuscheck-period=1m --machine-safety-orphan-vms-period=15m \
        --node-conditions=KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable \
        --bootstrap-token-auth-extra-groups= --machine-preserve-timeout=96h --resource-exhausted-retry=10m \
        --vmodule=machine=5 --log-flush-frequency=5s";

    #[test]
    fn classes_adopt_by_name_where_they_say_so_unless_the_core_is_told_otherwise() {
        let decided = |flag: &[&str]| {
            let line = ["ostler-server", "--namespace", "a"].iter().chain(flag);
            let args = Args::try_parse_from(line)?;
            Ok::<_, clap::Error>(super::options(args).settings.lifecycle.adopt_by_name)
        };
        assert_eq!(decided(&[]).unwrap(), None);
        assert_eq!(decided(&["--adopt-by-name=annotated"]).unwrap(), None);
        assert_eq!(decided(&["--adopt-by-name=never"]).unwrap(), Some(false));
        assert_eq!(decided(&["--adopt-by-name=always"]).unwrap(), Some(true));
        decided(&["--adopt-by-name=yes"]).unwrap_err();
    }

    #[test]
    fn the_command_line_of_upstream_is_understood() {
        let line = ["ostler-server"].into_iter().chain(UPSTREAM.split_whitespace());
        let args = Args::try_parse_from(line).unwrap();
        super::check(&args).unwrap();
        let lifecycle = super::options(args).settings.lifecycle;
        assert_eq!(lifecycle.in_place_timeout.as_secs(), 1200);
        assert_eq!(lifecycle, ostler_lifecycle_defaults(&lifecycle));
    }

    #[test]
    fn previous_cluster_ids_are_told_as_a_list_or_one_by_one_and_cannot_be_that_of_today() {
        let line = |flags: &[&str]| {
            let line = ["ostler-server"].iter().chain(flags);
            Args::try_parse_from(line).unwrap()
        };
        let args = line(&["--previous-cluster-ids=a,b", "--previous-cluster-ids", "c"]);
        super::agree(&args).unwrap();
        assert_eq!(super::options(args).cluster.previous, ["a", "b", "c"]);
        for (flags, part) in [
            (vec!["--cluster-id=a", "--previous-cluster-ids=b,a"], "\"a\""),
            (vec!["--previous-cluster-ids=1,2,3,4,5,6,7,8,9"], "9 ids"),
            (vec!["--previous-cluster-ids=a, b"], "\" b\""),
        ] {
            let refused = super::agree(&line(&flags)).unwrap_err().to_string();
            assert!(refused.contains(part), "{flags:?}: {refused}");
        }
    }

    /// Every flag of machine-controller-manager's own binary besides the common flags, with its default.
    const UPSTREAM_SETS: &str = "--port=10258 --concurrent-syncs=10 --safety-up=2 --safety-down=1 \
        --machine-safety-overshooting-period=1m --autoscaler-scaledown-annotation-during-rollout=true \
        --leader-elect=true --leader-elect-resource-lock=leases --v=3";

    #[test]
    fn the_command_line_of_the_second_binary_of_upstream_is_understood() {
        let line = ["ostler-server"].into_iter().chain(UPSTREAM_SETS.split_whitespace());
        let args = Args::try_parse_from(line).unwrap();
        super::check(&args).unwrap();
        let settings = super::options(args).settings;
        assert_eq!(settings.fleet, ostler_controllers::FleetSettings::default());
    }

    #[test]
    fn the_flags_of_sets_reach_what_they_name() {
        let line = "ostler-server --controllers -machine,* --safety-up=5 --machine-safety-down=3 \
            --machine-safety-overshooting-period=7s --autoscaler-scaledown-annotation-during-rollout=false";
        let args = Args::try_parse_from(line.split_whitespace()).unwrap();
        super::check(&args).unwrap();
        let settings = super::options(args).settings;
        assert_eq!(settings.controllers.to_string(), "machineset,machinedeployment");
        let fleet = settings.fleet;
        assert_eq!((fleet.margins.up, fleet.margins.down), (5, 3));
        assert_eq!((fleet.overshooting_period.as_secs(), fleet.keep_autoscaler_away), (7, false));
        let refused = Args::try_parse_from(["ostler-server", "--controllers=machines"]);
        assert!(refused.unwrap_err().to_string().contains("\"machines\""));
    }

    #[test]
    fn the_flags_of_upstream_reach_what_they_name() {
        let line = "ostler-server --concurrent-syncs=7 --machine-creation-timeout=1m \
            --machine-health-timeout=2m --machine-drain-timeout=3m --machine-inplace-update-timeout=4m \
            --machine-max-evict-retries=5 --machine-pv-detach-timeout=6m --machine-pv-reattach-timeout=7m \
            --machine-preserve-timeout=8m --resource-exhausted-retry=9m --node-conditions=A,B \
            --machine-safety-apiserver-statuscheck-timeout=10m \
            --machine-safety-apiserver-statuscheck-period=11m --machine-safety-orphan-vms-period=12m \
            --leader-elect-lease-duration=17m --leader-elect-renew-deadline=16m \
            --leader-elect-retry-period=13m --bootstrap-token-auth-extra-groups=g";
        let args = Args::try_parse_from(line.split_whitespace()).unwrap();
        super::check(&args).unwrap();
        let settings = super::options(args).settings;
        let lifecycle = &settings.lifecycle;
        let (renew, retry) = (settings.lease.1, settings.lease.2);
        let minutes = [
            lifecycle.creation_timeout,
            lifecycle.health_timeout,
            lifecycle.drain_timeout,
            lifecycle.in_place_timeout,
            lifecycle.detach_timeout,
            lifecycle.reattach_timeout,
            lifecycle.preserve_timeout,
            lifecycle.resource_exhausted_retry,
            settings.api_check.timeout,
            settings.api_check.period,
            settings.orphans.period,
            retry,
            renew,
            settings.lease.0,
        ]
        .map(|wait| wait.as_secs() / 60);
        assert_eq!(minutes, [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17]);
        assert_eq!((settings.concurrent_syncs, lifecycle.max_evict_retries), (7, 5));
        assert_eq!(lifecycle.node_conditions, ["A", "B"]);
        assert_eq!(lifecycle.bootstrap_token_groups, "g");
    }

    #[test]
    fn a_retry_of_zero_is_the_default_and_no_hot_loop() {
        let args =
            Args::try_parse_from(["ostler-server", "--resource-exhausted-retry=0s"]).unwrap();
        let wait = super::options(args).settings.lifecycle.resource_exhausted_retry;
        assert_eq!(wait.as_secs(), 600);
    }

    /// The same but for what upstream has no flag for.
    fn ostler_lifecycle_defaults(given: &super::snapshot::Settings) -> super::snapshot::Settings {
        super::snapshot::Settings {
            skip_wait_for_delete: given.skip_wait_for_delete,
            ..super::snapshot::Settings::default()
        }
    }

    #[test]
    fn durations_are_written_as_go_does() {
        let args =
            Args::try_parse_from(["ostler-server", "--machine-drain-timeout", "1h30m"]).unwrap();
        assert_eq!(args.machine_drain_timeout.as_secs(), 5400);
    }

    #[test]
    fn a_time_that_cannot_be_meant_is_refused_with_its_flag() {
        let refused = |flags: &str| {
            let line = ["ostler-server"].into_iter().chain(flags.split_whitespace());
            match Args::try_parse_from(line) {
                Ok(args) => super::agree(&args).err().map(|why| why.to_string()),
                Err(why) => Some(why.to_string()),
            }
        };
        for (flag, value, part) in [
            ("--machine-drain-timeout", "soon", "20m"),
            ("--machine-drain-timeout", "-10m", "negative"),
            ("--machine-drain-timeout", "10000000000000000h", "20m"),
            ("--machine-creation-timeout", "0s", "20m"),
            ("--machine-health-timeout", "0", "20m"),
            ("--machine-safety-orphan-vms-period", "0s", "20m"),
            ("--machine-safety-overshooting-period", "0s", "20m"),
            ("--leader-elect-retry-period", "0s", "90s"),
            ("--leader-elect-retry-period", "8.5s", "1.2 times"),
            ("--leader-elect-renew-deadline", "15s", "below"),
            ("--leader-elect-lease-duration", "900ms", "whole seconds"),
            ("--leader-elect-lease-duration", "15.5s", "whole seconds"),
            ("--machine-safety-apiserver-statuscheck-timeout", "61s", "at most"),
        ] {
            let why = refused(&format!("{flag}={value}")).unwrap_or_default();
            assert!([flag, value, part].iter().all(|it| why.contains(it)), "{flag}={value}: {why}");
        }
        for fine in ["--machine-drain-timeout=0s", "--leader-elect-retry-period=8.3s"] {
            assert_eq!(refused(fine), None, "{fine}");
        }
    }
}

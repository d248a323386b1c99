//! The flags of machine-controller-manager besides the machine flags, so that its command lines go on working. Flags
//! without an effect here are reported at the start; flags that would have one are refused.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::bail;
use clap::{ArgAction, Args};
use ostler_sessions::Rate;

use crate::klog::{KlogArgs, LogFormat};
use crate::throttle;

/// Flags under upstream's names.
#[derive(Debug, Clone, Args)]
pub(crate) struct UpstreamArgs {
    /// The port of /metrics, /healthz and /readyz; with --address in place of --metrics-listen
    ///
    /// Without --address all addresses, as upstream: a probe of the kubelet comes from outside the pod.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The address of /metrics, /healthz and /readyz, plain HTTP; one that is no loopback opens them to the network
    ///
    /// 0.0.0.0 with --port. They show names and numbers, and no secrets.
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// Requests a second of each client, on average; no limit by default, 20 with --kube-api-burst alone
    ///
    /// The clients that upstream has: for machines and classes, for other objects of the control cluster, for the
    /// target cluster, for events. The Lease has no limit.
    #[arg(long, value_name = "NUMBER")]
    kube_api_qps: Option<f64>,
    /// Burst of requests of each client; 30 with --kube-api-qps alone
    #[arg(long, value_name = "NUMBER")]
    kube_api_burst: Option<u32>,
    /// How much is logged: up to 3 what happens, 4 why, 5 and more everything. RUST_LOG wins
    #[arg(long, short, value_name = "LEVEL")]
    v: Option<u8>,
    /// Whether to wait for the Lease. With false the core takes it from its holder, and that holder ends
    ///
    /// The Lease is kept all the same: drivers tell an old core from a new one by it.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    pub(crate) leader_elect: bool,
    /// Must be leases
    #[arg(long, value_name = "KIND", default_value = "leases")]
    leader_elect_resource_lock: String,
    /// Must be false: there is no Go profiler here
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    profiling: bool,
    /// Must be false, as --profiling
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true")]
    contention_profiling: bool,
    /// Has no effect, as upstream
    #[arg(long, value_name = "NAME")]
    cloud_provider: Option<String>,
    /// Has no effect: caches need no resync
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::duration)]
    min_resync_period: Option<Duration>,
    /// Has no effect, as upstream: requests are JSON
    #[arg(long, value_name = "TYPE")]
    kube_api_content_type: Option<String>,
    /// Has no effect, as upstream
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::duration)]
    controller_start_interval: Option<Duration>,
    #[command(flatten)]
    klog: KlogArgs,
}

impl UpstreamArgs {
    /// Refuses what would mean something else here.
    ///
    /// # Errors
    /// A flag asks for something missing.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if self.leader_elect_resource_lock != "leases" {
            let lock = &self.leader_elect_resource_lock;
            bail!("--leader-elect-resource-lock {lock} is not possible; give leases, or nothing");
        }
        if self.profiling || self.contention_profiling {
            bail!("--profiling is not possible: there is no Go profiler here; see /metrics");
        }
        if self.kube_api_qps.is_some_and(|qps| !qps.is_finite() || qps <= 0.0) {
            bail!("--kube-api-qps must be over 0; leave it out for no limit");
        }
        Ok(())
    }

    /// Reports flags without effect.
    pub(crate) fn tell(&self) {
        for flag in self.without_effect() {
            tracing::warn!(flag, "this flag has no effect");
        }
    }

    /// Flags that were given and change nothing.
    pub(crate) fn without_effect(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.cloud_provider.is_some(), "--cloud-provider"),
            (self.min_resync_period.is_some(), "--min-resync-period"),
            (self.kube_api_content_type.is_some(), "--kube-api-content-type"),
            (self.controller_start_interval.is_some(), "--controller-start-interval"),
        ]
        .into_iter()
        .filter_map(|(given, flag)| given.then_some(flag))
        .chain(self.klog.without_effect())
    }

    /// Where metrics and health are shown, and whether that may be open to the network.
    pub(crate) fn metrics(&self, otherwise: SocketAddr) -> (SocketAddr, bool) {
        let ip = self.address.or_else(|| self.port.map(|_| Ipv4Addr::UNSPECIFIED.into()));
        let port = self.port.unwrap_or_else(|| otherwise.port());
        (SocketAddr::new(ip.unwrap_or_else(|| otherwise.ip()), port), ip.is_some())
    }

    /// How fast the API servers are asked.
    pub(crate) fn rate(&self) -> Option<Rate> {
        match (self.kube_api_qps, self.kube_api_burst) {
            (None, None) => None,
            (qps, burst) => throttle::rate(qps.unwrap_or(20.0), burst.unwrap_or(30)),
        }
    }

    /// How log lines are written.
    pub(crate) const fn format(&self) -> LogFormat {
        self.klog.logging_format
    }

    /// The log filter if RUST_LOG does not say. The library's line for each failed request is in the core's own.
    pub(crate) const fn filter(&self) -> &'static str {
        match self.v {
            None | Some(0..=3) => "info,kube_client::client::builder=off",
            Some(4) => "info,ostler=debug",
            Some(_) => "info,ostler=trace",
        }
    }
}

/// The command line with the underscores of flags turned into hyphens, as upstream's flags may be
/// written; values stay as they are.
pub fn normal(args: impl IntoIterator<Item = String>) -> impl Iterator<Item = String> {
    args.into_iter().map(|arg| {
        if !arg.starts_with("--") {
            return arg;
        }
        match arg.split_once('=') {
            Some((flag, value)) => format!("{}={value}", flag.replace('_', "-")),
            None => arg.replace('_', "-"),
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        upstream: UpstreamArgs,
    }

    fn upstream(args: &[&str]) -> UpstreamArgs {
        let line = ["x"].iter().chain(args).map(|arg| (*arg).to_owned());
        Line::try_parse_from(normal(line)).unwrap().upstream
    }

    #[test]
    fn flags_may_be_written_with_underscores_and_values_keep_theirs() {
        let args = upstream(&["--cloud_provider=a_b", "--leader_elect=true"]);
        assert_eq!(args.cloud_provider.as_deref(), Some("a_b"));
        args.check().unwrap();
    }

    #[test]
    fn what_would_mean_something_else_is_refused_with_a_reason() {
        for (args, why) in [
            (["--leader-elect-resource-lock=endpoints"], "leases"),
            (["--profiling"], "/metrics"),
            (["--contention-profiling=true"], "/metrics"),
        ] {
            let refused = upstream(&args).check().unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        upstream(&["--leader-elect", "--profiling=false"]).check().unwrap();
    }

    #[test]
    fn metrics_are_open_to_the_network_if_upstreams_flags_are_given_and_not_otherwise() {
        let usual: SocketAddr = "127.0.0.1:10259".parse().unwrap();
        assert_eq!(upstream(&[]).metrics(usual), (usual, false));
        assert_eq!(upstream(&["--port=1"]).metrics(usual), ("0.0.0.0:1".parse().unwrap(), true));
        let closed = upstream(&["--port=1", "--address=127.0.0.1"]).metrics(usual);
        assert_eq!(closed, ("127.0.0.1:1".parse().unwrap(), true));
        let open = upstream(&["--address=0.0.0.0"]).metrics(usual);
        assert_eq!(open, ("0.0.0.0:10259".parse().unwrap(), true));
    }

    #[test]
    fn either_flag_of_the_rate_may_be_given_alone_and_none_is_no_limit() {
        let rate = |args: &[&str]| format!("{:?}", upstream(args).rate());
        assert_eq!(rate(&[]), "None");
        assert_eq!(rate(&["--kube-api-qps=5"]), format!("{:?}", throttle::rate(5.0, 30)));
        assert_eq!(rate(&["--kube-api-burst=5"]), format!("{:?}", throttle::rate(20.0, 5)));
    }

    #[test]
    fn the_level_of_klog_is_understood() {
        assert!(!upstream(&["--v=3"]).filter().contains("ostler"));
        assert!(upstream(&["-v", "4"]).filter().contains("debug"));
        assert!(upstream(&["--v=9"]).filter().contains("trace"));
    }
}

//! The flags that machine-controller-manager has besides those of the machines, so that its command
//! lines go on working. What has no effect here is said at the start, what would is refused.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::bail;
use clap::{ArgAction, Args};

use crate::throttle::Rate;

/// Flags under upstream's names.
#[derive(Debug, Clone, Args)]
pub(crate) struct UpstreamArgs {
    /// The port of /metrics, /healthz and /readyz; with --address in place of --metrics-listen
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// The address of /metrics, /healthz and /readyz, plain HTTP; one that is no loopback opens them to the network
    ///
    /// They show names and numbers, and no secrets. Whoever scrapes or probes from outside the pod needs this.
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// Requests a second to each API server, on average; no limit by default
    #[arg(long, value_name = "NUMBER", requires = "kube_api_burst")]
    kube_api_qps: Option<f64>,
    /// Requests to each API server at once
    #[arg(long, value_name = "NUMBER", requires = "kube_api_qps")]
    kube_api_burst: Option<u32>,
    /// How much is logged: up to 3 what happens, 4 why, 5 and more everything. RUST_LOG wins
    #[arg(long, short, value_name = "LEVEL")]
    v: Option<u8>,
    /// Must be true: drivers tell an old core from a new one by the Lease
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = true, default_missing_value = "true")]
    leader_elect: bool,
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
    /// Has no effect: mirrors need no resync
    #[arg(long, value_name = "DURATION", value_parser = crate::command::duration)]
    min_resync_period: Option<Duration>,
    /// Has no effect, as upstream: requests are JSON
    #[arg(long, value_name = "TYPE")]
    kube_api_content_type: Option<String>,
    /// Has no effect, as upstream
    #[arg(long, value_name = "DURATION", value_parser = crate::command::duration)]
    controller_start_interval: Option<Duration>,
}

impl UpstreamArgs {
    /// Refuses what would mean something else here, and says what has no effect.
    ///
    /// # Errors
    /// A flag asks for what is not there.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        if !self.leader_elect {
            bail!("--leader-elect=false is not possible: drivers tell cores apart by the Lease");
        }
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
        for flag in self.without_effect() {
            tracing::warn!(flag, "this flag has no effect");
        }
        Ok(())
    }

    fn without_effect(&self) -> impl Iterator<Item = &'static str> {
        [
            (self.cloud_provider.is_some(), "--cloud-provider"),
            (self.min_resync_period.is_some(), "--min-resync-period"),
            (self.kube_api_content_type.is_some(), "--kube-api-content-type"),
            (self.controller_start_interval.is_some(), "--controller-start-interval"),
        ]
        .into_iter()
        .filter_map(|(given, flag)| given.then_some(flag))
    }

    /// Where metrics and health are shown, and whether that may be open to the network.
    pub(crate) fn metrics(&self, otherwise: SocketAddr) -> (SocketAddr, bool) {
        let ip = self.address.unwrap_or_else(|| otherwise.ip());
        let port = self.port.unwrap_or_else(|| otherwise.port());
        (SocketAddr::new(ip, port), self.address.is_some())
    }

    /// How fast the API servers are asked.
    pub(crate) fn rate(&self) -> Option<Rate> {
        Rate::new(self.kube_api_qps?, self.kube_api_burst?)
    }

    /// What is logged if RUST_LOG does not say.
    pub(crate) const fn filter(&self) -> &'static str {
        match self.v {
            None | Some(0..=3) => "info",
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
            (["--leader-elect=false"], "Lease"),
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
    fn only_an_address_that_is_given_opens_metrics_to_the_network() {
        let usual: SocketAddr = "127.0.0.1:10259".parse().unwrap();
        assert_eq!(upstream(&["--port=1"]).metrics(usual), ("127.0.0.1:1".parse().unwrap(), false));
        let open = upstream(&["--address=0.0.0.0"]).metrics(usual);
        assert_eq!(open, ("0.0.0.0:10259".parse().unwrap(), true));
    }

    #[test]
    fn the_level_of_klog_is_understood() {
        assert_eq!(upstream(&["--v=3"]).filter(), "info");
        assert!(upstream(&["-v", "4"]).filter().contains("debug"));
        assert!(upstream(&["--v=9"]).filter().contains("trace"));
    }
}

//! Options from flags and environment.

use std::path::PathBuf;
use std::time::Duration;

use ostler_trace::{TraceArgs, Traces};
use tokio_util::sync::CancellationToken;

use crate::connect::{Connector, Cutter};

/// The flags and variables of every driver; flatten them into your own with `#[command(flatten)]`.
#[derive(Debug, Clone, clap::Args)]
pub struct DriverArgs {
    /// Where the core listens: https://HOST:PORT, unix:PATH, or http://HOST:PORT on loopback
    #[arg(
        long,
        env = "OSTLER_ENDPOINT",
        value_name = "URL",
        default_value = "http://127.0.0.1:5000"
    )]
    pub endpoint: String,

    /// File with the token to show to the core; read again for every connection
    #[arg(long, env = "OSTLER_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// File with the certificates (PEM) to trust for https; read again for every connection
    #[arg(long, env = "OSTLER_CA_FILE", value_name = "FILE")]
    pub ca_file: Option<PathBuf>,

    /// File with a certificate (PEM) to show to the core instead of a token; read again for every connection
    #[arg(long, env = "OSTLER_CERT_FILE", value_name = "FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,

    /// File with the private key (PEM) of that certificate
    #[arg(long, env = "OSTLER_KEY_FILE", value_name = "FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,

    /// User id that the core runs as on this host, if it is not that of the driver: no other user is shown the token
    #[arg(long, env = "OSTLER_CORE_UID", value_name = "UID")]
    pub core_uid: Option<u32>,

    /// Dial http:// beyond loopback all the same, e.g. through an encrypting proxy, and any user that listens on loopback: everything
    /// on the way can read token and secrets
    #[arg(
        long,
        env = "OSTLER_ALLOW_PLAINTEXT",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub allow_plaintext: bool,

    /// How long to finish running operations after SIGTERM, e.g. 25s or 5m
    #[arg(
        long,
        env = "OSTLER_DRAIN_TIMEOUT",
        value_name = "TIME",
        default_value = "25s",
        value_parser = parse_duration
    )]
    pub drain_timeout: Duration,

    /// Name of this process, e.g. its pod; the host name, if left out. Processes that run at the same time
    /// need different ones: a new one is taken for the successor of the one of its name
    #[arg(long, env = "OSTLER_INSTANCE_NAME", value_name = "NAME")]
    pub instance_name: Option<String>,

    /// Treat the end of standard input like SIGTERM, so that the driver ends with its supervisor
    #[arg(
        long,
        env = "OSTLER_EXIT_ON_STDIN_EOF",
        action = clap::ArgAction::SetTrue,
        value_parser = clap::builder::BoolishValueParser::new()
    )]
    pub exit_on_stdin_eof: bool,

    /// Where spans go.
    #[command(flatten)]
    pub traces: TraceArgs,
}

/// As without flags and variables.
impl Default for DriverArgs {
    fn default() -> Self {
        Self {
            endpoint: "http://127.0.0.1:5000".to_owned(),
            token_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            core_uid: None,
            allow_plaintext: false,
            drain_timeout: Duration::from_secs(25),
            instance_name: None,
            exit_on_stdin_eof: false,
            traces: TraceArgs::default(),
        }
    }
}

/// How to run a driver inside another program.
#[derive(Debug, Clone)]
#[must_use]
pub struct Options {
    pub(crate) connector: Connector,
    pub(crate) shutdown: CancellationToken,
    pub(crate) hurry: CancellationToken,
    pub(crate) drain_timeout: Duration,
    pub(crate) instance_name: String,
    pub(crate) cutter: Cutter,
    pub(crate) traces: Traces,
}

impl Options {
    /// Connects with `connector`, runs until cancelled, and then drains for at most 25 s.
    pub fn new(connector: Connector) -> Self {
        Self {
            connector,
            shutdown: CancellationToken::new(),
            hurry: CancellationToken::new(),
            drain_timeout: Duration::from_secs(25),
            instance_name: String::new(),
            cutter: Cutter::default(),
            traces: Traces::default(),
        }
    }

    /// Cancel it to drain and end.
    pub fn shutdown(mut self, token: CancellationToken) -> Self {
        self.shutdown = token;
        self
    }

    /// The token from [`shutdown`](Self::shutdown).
    pub fn shutdown_token(&self) -> CancellationToken {
        self.shutdown.clone()
    }

    /// Cancel it to cut the drain: what still runs is given up, and the core is told so.
    pub fn hurry(mut self, token: CancellationToken) -> Self {
        self.hurry = token;
        self
    }

    /// How long to finish running operations after that.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Sends a span of each operation of a core that sends spans, too.
    pub fn traces(mut self, traces: Traces) -> Self {
        self.traces = traces;
        self
    }

    /// Whatever connects the driver to the core from now on, made of what did so far.
    pub fn map_connector(mut self, map: impl FnOnce(Connector) -> Connector) -> Self {
        self.connector = map(self.connector);
        self
    }

    /// Lets `cutter` cut the connection.
    pub fn cutter(mut self, cutter: Cutter) -> Self {
        self.cutter = cutter;
        self
    }

    /// The name of this process. Processes that run at the same time have different names: the core takes a new process
    /// for the successor of the process with the same name. Without a name the process is the successor of none.
    pub fn instance_name(mut self, name: impl Into<String>) -> Self {
        self.instance_name = name.into();
        self
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let count: u64 = number.parse().map_err(|_| bad_duration(text))?;
    match unit {
        "ms" => Ok(Duration::from_millis(count)),
        "" | "s" => Ok(Duration::from_secs(count)),
        "m" => Ok(Duration::from_secs(count.saturating_mul(60))),
        _ => Err(bad_duration(text)),
    }
}

fn bad_duration(text: &str) -> String {
    format!("{text:?} is not a time: write e.g. 25s, 500ms or 5m")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn times_are_read_with_their_unit() {
        for (text, millis) in [("25s", 25_000), ("25", 25_000), ("500ms", 500), ("5m", 300_000)] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: DriverArgs,
    }

    #[test]
    fn without_flags_a_driver_looks_for_a_core_on_its_own_host() {
        let args = Cli::parse_from(["driver"]).args;
        assert_eq!(args.endpoint, "http://127.0.0.1:5000");
        assert_eq!(args.drain_timeout, Duration::from_secs(25));
        assert!(!args.exit_on_stdin_eof);
        assert!(Cli::parse_from(["driver", "--exit-on-stdin-eof"]).args.exit_on_stdin_eof);
    }

    #[test]
    fn a_wrong_time_is_named_and_a_right_one_shown() {
        for text in ["", "s", "5h", "-1s", "1.5s"] {
            let error = parse_duration(text).unwrap_err();
            assert!(error.contains("25s") && error.contains(text), "{error}");
        }
    }
}

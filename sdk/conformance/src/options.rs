//! What is checked, against what, and how patiently.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ostler_local::Keeper;
use regex::Regex;
use tokio_util::sync::CancellationToken;

use crate::adapters::is_of_the_stream;
use crate::cloud::Faults;
use crate::manifest::{ClassManifest, SecretManifest};
use crate::verdict::CheckResult;

/// The driver under test.
#[derive(Clone)]
pub enum Target {
    /// A command line. It is run by `sh -c` with `OSTLER_ENDPOINT` and `OSTLER_TOKEN_FILE` set.
    Command(String),
    /// A driver inside this process: called for every start, runs until
    /// [`Invitation::shutdown`] is cancelled and its drain is over. Dropped when it shall crash.
    InProcess(Factory),
    /// A driver that the suite does not start, and that dials in here, with the token of this file.
    /// Checks that start and end the process are skipped.
    Listen {
        /// Where to listen.
        address: SocketAddr,
        /// The file with the token that the driver shows.
        token_file: PathBuf,
    },
}

/// Starts a driver inside this process.
pub type Factory = Arc<dyn Fn(Invitation) -> BoxFuture<'static, ()> + Send + Sync>;

/// What a driver inside this process needs to dial in.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// The endpoint, `http://127.0.0.1:PORT`.
    pub url: String,
    /// The file with the token.
    pub token_file: PathBuf,
    /// Cancelled when the driver shall drain and end.
    pub shutdown: CancellationToken,
}

/// A driver that serves unary calls, and its adapter as a process of its own.
#[derive(Debug, Clone)]
pub struct Unary {
    /// Starts the driver, with `OSTLER_DRIVER_SOCKET` set. It is run by `sh -c`.
    pub driver: String,
    /// Starts an adapter that expects the driver on the socket whose path is added.
    pub adapter: String,
    /// Where sockets are made. A short path: a socket takes at most 107 bytes.
    pub sockets: PathBuf,
    /// Checks what the adapter does, too. Else that is left to its own tests.
    pub with_adapter: bool,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Command(command) => f.debug_tuple("Command").field(command).finish(),
            Self::InProcess(_) => f.write_str("InProcess"),
            Self::Listen { address, .. } => f.debug_tuple("Listen").field(address).finish(),
        }
    }
}

/// Called as each check ends.
pub type Observer = Arc<dyn Fn(&CheckResult) + Send + Sync>;

/// What to check with. Only the class is needed.
#[derive(Clone)]
pub struct Options {
    /// A class that the driver can make instances of.
    pub class: ClassManifest,
    /// The secret of all classes.
    pub secret: Option<SecretManifest>,
    /// A class that differs from `class` in something that a running instance cannot change.
    pub alt_class: Option<ClassManifest>,
    /// A class that the driver must refuse as invalid.
    pub bad_class: Option<ClassManifest>,
    /// A class that differs from `class` only in what a running instance can change.
    pub hot_class: Option<ClassManifest>,
    /// A class whose provider spec has the tags by which machine-controller-manager knows the
    /// instances of its cluster.
    pub mcm_class: Option<ClassManifest>,
    /// A class whose instances take some seconds to make, for checks that interrupt that.
    pub slow_class: Option<ClassManifest>,
    /// Credentials that the infrastructure refuses.
    pub bad_secret: Option<SecretManifest>,
    /// So many instances are made together to see long lists; above 500 to see pages.
    pub many: usize,
    /// How often operations are repeated that may be repeated.
    pub idempotent_count: u32,
    /// Only checks whose name matches.
    pub focus: Option<Regex>,
    /// No checks whose name matches.
    pub skip: Option<Regex>,
    /// Skip everything that makes instances.
    pub no_create: bool,
    /// So many checks run at the same time.
    pub parallel: usize,
    /// All limits of time are multiplied by this.
    pub timeout_scale: f64,
    /// Names of machines begin with this.
    pub name_prefix: String,
    /// Looks into the cloud; see the README of the crate.
    pub probe_cmd: Option<String>,
    /// How the faults of the cloud are caused.
    pub faults: Faults,
    /// Starts the driver's processes.
    pub keeper: Keeper,
    /// The driver is unary and stands behind an adapter, which the report says.
    pub unary: Option<Unary>,
    /// Cancel it to stop early and clean up.
    pub interrupt: CancellationToken,
    /// Hears of every result as it comes.
    pub observer: Option<Observer>,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("focus", &self.focus)
            .field("skip", &self.skip)
            .field("parallel", &self.parallel)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// All checks that need nothing but this class, one after the other.
    pub fn new(class: ClassManifest) -> Self {
        Self {
            class,
            secret: None,
            alt_class: None,
            bad_class: None,
            hot_class: None,
            mcm_class: None,
            slow_class: None,
            bad_secret: None,
            many: 0,
            idempotent_count: 10,
            focus: None,
            skip: None,
            no_create: false,
            parallel: 1,
            timeout_scale: 1.0,
            name_prefix: "conformance".to_owned(),
            probe_cmd: None,
            faults: Faults::default(),
            keeper: Keeper::default(),
            unary: None,
            interrupt: CancellationToken::new(),
            observer: None,
        }
    }

    /// A limit of time for this driver.
    pub(crate) fn scaled(&self, time: Duration) -> Duration {
        let scale = if self.timeout_scale.is_finite() { self.timeout_scale } else { 1.0 };
        time.mul_f64(scale.clamp(0.1, 1000.0))
    }

    /// What a driver does first.
    pub(crate) fn expected_at_start(&self) -> &'static str {
        if self.unary.is_some() {
            "a driver that answers GetInfo on the socket of OSTLER_DRIVER_SOCKET"
        } else {
            "a driver that dials in and sends Hello"
        }
    }

    /// Whether a check is wanted by its name. What the adapter does is left to its own tests.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let adapters =
            self.unary.as_ref().is_some_and(|it| !it.with_adapter) && is_of_the_stream(name);
        !adapters
            && self.focus.as_ref().is_none_or(|focus| focus.is_match(name))
            && !self.skip.as_ref().is_some_and(|skip| skip.is_match(name))
    }
}

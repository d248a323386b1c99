//! The core's choices about sessions: identity, limits, timers.

use ostler_api::ProviderName;
use std::collections::BTreeMap;
use std::time::Duration;

use ostler_trace::Traces;

use crate::Rate;

/// How sessions behave. `Default` is what production uses.
#[derive(Debug, Clone)]
pub struct SessionsOptions {
    /// Sent with every operation; drivers touch nothing that is not tagged with it.
    pub cluster_id: String,
    /// Ids that the cluster had before; sent with every operation. A driver that does not know them is
    /// not taken if there are any.
    pub previous_cluster_ids: Vec<String>,
    /// Name of this process of the core, for people.
    pub core_instance: String,
    /// Other names of a provider, e.g. `AWS` → `aws.example.com`. Keys are the names in classes, values the names that
    /// drivers use.
    pub aliases: BTreeMap<ProviderName, ProviderName>,
    /// How many operations a second are sent, by provider or alias; without limit for others.
    pub rates: BTreeMap<ProviderName, Rate>,
    /// Limits on stored state.
    pub limits: Limits,
    /// Timers, all on tokio's clock.
    pub timing: Timing,
    /// Where the spans of operations go.
    pub traces: Traces,
}

impl Default for SessionsOptions {
    fn default() -> Self {
        Self {
            cluster_id: String::new(),
            previous_cluster_ids: Vec::new(),
            core_instance: uuid::Uuid::new_v4().to_string(),
            aliases: BTreeMap::new(),
            rates: BTreeMap::new(),
            limits: Limits::default(),
            timing: Timing::default(),
            traces: Traces::default(),
        }
    }
}

impl SessionsOptions {
    /// The name that drivers use for a provider.
    pub(crate) fn canonical(&self, provider: &str) -> ProviderName {
        self.aliases.get(provider).cloned().unwrap_or_else(|| provider.into())
    }

    /// How many operations a second are sent to the driver of `provider`.
    pub(crate) fn rate(&self, provider: &ProviderName) -> Option<Rate> {
        let of =
            |name: &ProviderName| name == provider || self.canonical(name.as_str()) == *provider;
        self.rates.iter().find(|(name, _)| of(name)).map(|(_, rate)| *rate)
    }
}

/// Limits on stored state; nothing grows past them.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Operations in flight on one session; the driver's own number may be smaller.
    pub in_flight: u32,
    /// Operations that wait for credit, for each provider.
    pub queued: usize,
    /// Bytes of the operations that wait for credit, for each provider.
    pub queued_bytes: usize,
    /// Bytes of the operations that a driver was sent and has not accepted. A driver accepts immediately after reading,
    /// so this is the cost of a driver that does not read.
    pub unaccepted_bytes: usize,
    /// Targets with an operation in flight or a result not acknowledged.
    pub targets: usize,
    /// Live sessions of a provider, active or standby.
    pub sessions_per_provider: usize,
    /// Live and lost sessions of all providers.
    pub sessions: usize,
    /// Concurrent connections of drivers, on all listeners; see [`crate::GateRules`].
    pub connections: usize,
    /// Known drivers that have not sent Hello yet, at the same time; the core asks the others to come later.
    pub arrivals: usize,
    /// Streams that a principal may open in a row; then one in [`Timing::connect_interval`].
    pub connect_burst: u32,
    /// Most held operations in a Hello.
    pub held: usize,
    /// Records of a paged list.
    pub list_records: usize,
    /// Bytes of memory for the records of a paged list.
    pub list_bytes: usize,
    /// The same for all unfinished lists of a session.
    pub lists_bytes: usize,
    /// Frames of one sort waiting for a driver to read: the core's own frames, and answers to the driver's calls.
    pub outbox: usize,
    /// Served revisions of classes that are kept though no operation needs them.
    pub class_revisions: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // With at most half as many results waiting for their acknowledgement, a Hello lists everything.
            in_flight: 640,
            // With the work queue of the controllers bounded as well, more waiting only adds age.
            queued: 4096,
            queued_bytes: 64 << 20,
            // A few frames of the largest kind; a round trip later there is room again.
            unaccepted_bytes: 4 << 20,
            // Ten times the 10k machines of the measurements.
            targets: 100_000,
            sessions_per_provider: 8,
            // A thousand providers, each with a standby.
            sessions: 2048,
            // Two for each session.
            connections: 4096,
            // The Hello follows within milliseconds. The gate limits connections without a known principal.
            arrivals: 256,
            // All sessions of a provider, twice.
            connect_burst: 16,
            // The operations that a driver may retain. A Hello with so many has room in the largest frame.
            held: 1000,
            list_records: 100_000,
            list_bytes: 64 << 20,
            // The core asks for two lists of instances at the same time, and for a list of each pool.
            lists_bytes: 256 << 20,
            outbox: 64,
            class_revisions: 256,
        }
    }
}

/// Timers, all on tokio's clock.
#[derive(Debug, Clone)]
pub struct Timing {
    /// From the start of the stream to Hello.
    pub hello: Duration,
    /// From sending an operation to its acceptance.
    pub accept: Duration,
    /// For how long the acknowledgement of a result waits for another frame to go with.
    pub acknowledge: Duration,
    /// Added to the timeout of an operation before the core gives up on it.
    pub grace: Duration,
    /// How often one principal may open a stream in the long run.
    pub connect_interval: Duration,
    /// For how long after the start of leadership drivers may come back with operations of the
    /// core that led before.
    pub adoption: Duration,
    /// Between two heartbeats of the core.
    pub heartbeat: Duration,
    /// Unanswered heartbeats after which a session is lost.
    pub heartbeats_missed: u32,
    /// For how long operations of a lost session wait for the driver's return.
    pub resume_window: Duration,
    /// For how long a frame may wait for the driver to read it.
    pub not_reading: Duration,
    /// For how long an active session may be not ready while a ready standby waits.
    pub not_ready: Duration,
    /// For how long a result waits for its acknowledgement before it is dropped.
    pub unclaimed: Duration,
    /// For how long an operation of an earlier core may still run.
    pub adopted: Duration,
    /// How often a driver says how far a long operation is.
    pub progress: Duration,
    /// Intervals without progress after which an operation counts as stalled.
    pub progress_missed: u32,
    /// At most this often the controllers get a new checkpoint of an operation.
    pub checkpoint: Duration,
    /// For how long creates pause when the infrastructure throttles and the driver names no time.
    pub throttled: Duration,
    /// The longest pause after an answer of a driver.
    pub throttled_longest: Duration,
    /// A driver is slow when an operation waits longer than this for its credit.
    pub slow: Duration,
    /// Drivers spread their return over this time when the core goes.
    pub reconnect_spread: Duration,
    /// For how long a session lives, give or take a tenth; then its driver shows again who it is.
    pub max_age: Duration,
    /// How long before the end of its token a session ends.
    pub token_margin: Duration,
    /// For how long a session that is too old may go on with what runs.
    pub aged_close: Duration,
    /// For how long a session that is drained by hand may go on with what runs.
    pub drain: Duration,
    /// Added to a driver's own time to end.
    pub drain_grace: Duration,
    /// For how long drivers may go on with their look-ups when the core goes.
    pub finish: Duration,
    /// For how long connections may take to end when the core goes.
    pub shutdown: Duration,
    /// For how long a driver may keep a secret.
    pub secret_cache: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(10),
            accept: Duration::from_secs(15),
            // Longer than the controllers take to send the next operation, and nothing to a driver that
            // keeps the result for minutes.
            acknowledge: Duration::from_millis(5),
            grace: Duration::from_secs(15),
            connect_interval: Duration::from_secs(1),
            // The longest wait of a driver between two attempts.
            adoption: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
            heartbeats_missed: 3,
            resume_window: Duration::from_mins(1),
            not_reading: Duration::from_secs(10),
            not_ready: Duration::from_mins(1),
            unclaimed: Duration::from_mins(15),
            // Longer than the timeout of any operation.
            adopted: Duration::from_mins(30),
            progress: Duration::from_secs(30),
            progress_missed: 3,
            checkpoint: Duration::from_secs(5),
            throttled: Duration::from_secs(30),
            throttled_longest: Duration::from_mins(15),
            slow: Duration::from_secs(30),
            reconnect_spread: Duration::from_secs(3),
            max_age: Duration::from_hours(1),
            token_margin: Duration::from_mins(2),
            // The driver comes back immediately, and resumes.
            aged_close: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            drain_grace: Duration::from_secs(5),
            // A cloud answers a question within a second or two. With the last passes and the end of the
            // connections it stays below the 20 s after which a core breaks off.
            finish: Duration::from_secs(5),
            shutdown: Duration::from_secs(5),
            secret_cache: Duration::from_mins(5),
        }
    }
}

//! The state of a pod's containers. Pure.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use super::spec::{PodSpec, ReportedContainer, Restart};
use crate::machine::PODS;

/// As a kubelet: a container that ran this long has a clean record.
const CLEAN_RECORD: Duration = Duration::from_mins(10);
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_mins(5);

/// A process of ours that has not been waited for, so that no other process has its number.
pub(super) type ProcessId = i32;

/// The containers of a pod, in the order of its spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodState {
    pub(super) started: Timestamp,
    pub(super) containers: Vec<ContainerState>,
    /// When its containers were told to end.
    pub(super) told: Option<Instant>,
    /// Since when it has been ready, or not.
    pub(super) ready: (bool, Timestamp),
    /// It ended, or was refused, and does not start again.
    pub(super) over: Option<Over>,
}

/// How a pod ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// All containers ended for good.
    Ran,
    /// The API says so since before this agent started.
    Before,
    /// The pod asks for a feature that this agent lacks.
    Unsupported(&'static str),
    /// The node has as many pods as it takes.
    NoRoom,
}

/// One container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerState {
    pub(super) restarts: u32,
    /// Starts in a row that did not last.
    pub(super) crashes: u32,
    pub(super) phase: Phase,
    /// How it ended the time before.
    pub(super) last: Option<Ended>,
}

/// The phase of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// It was not started yet.
    Waiting,
    /// `None`: a pause.
    Running { process: Option<ProcessId>, since: Instant, at: Timestamp },
    /// It ended.
    Ended(Ended),
}

/// The end of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) exit: Exit,
    pub(super) started: Timestamp,
    pub(super) at: Timestamp,
    pub(super) since: Instant,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Exit {
    /// With this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
    /// It could not be started.
    NotStarted(String),
    /// It was gone when the machine came back.
    Lost,
}

impl Exit {
    /// The exit code that Kubernetes shows.
    pub(super) fn code(&self) -> i32 {
        match self {
            Self::Code(code) => *code,
            Self::Signal(signal) => 128 + signal,
            Self::NotStarted(_) => 128,
            Self::Lost => 137,
        }
    }
}

/// The current time, by the wall clock for people and by the monotonic clock for measuring.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    pub(super) at: Timestamp,
    pub(super) since: Instant,
}

/// Whether the node takes one more pod. Pods that are over take no room.
pub(super) fn has_room<'a>(pods: impl Iterator<Item = &'a PodState>) -> bool {
    pods.filter(|pod| pod.over.is_none()).count() < PODS
}

impl PodState {
    /// The state of a pod that the agent sees for the first time.
    pub(super) fn new(spec: &PodSpec, room: bool, now: Now) -> Self {
        let over = if spec.reported.ended {
            Some(Over::Before)
        } else if let Some(what) = spec.unsupported {
            Some(Over::Unsupported(what))
        } else {
            (!room).then_some(Over::NoRoom)
        };
        let containers = spec.containers.iter().map(|container| {
            let known = spec.reported.containers.get(&container.name);
            ContainerState::new(known, spec.restart, now)
        });
        Self {
            started: spec.reported.started.unwrap_or(now.at),
            containers: containers.collect(),
            told: None,
            ready: (false, now.at),
            over,
        }
    }

    /// Notes that a container was started.
    pub(super) fn started(&mut self, index: usize, process: Option<ProcessId>, now: Now) {
        let Some(container) = self.containers.get_mut(index) else { return };
        if let Phase::Ended(ended) = &container.phase {
            container.last = Some(ended.clone());
            container.restarts = container.restarts.saturating_add(1);
        }
        container.phase = Phase::Running { process, since: now.since, at: now.at };
    }

    /// Notes that a container ended, or failed to start.
    pub(super) fn ended(&mut self, index: usize, exit: Exit, now: Now) {
        let Some(container) = self.containers.get_mut(index) else { return };
        let (started, ran) = match &container.phase {
            Phase::Running { since, at, .. } => (*at, now.since.duration_since(*since)),
            Phase::Ended(ended) => {
                container.last = Some(ended.clone());
                container.restarts = container.restarts.saturating_add(1);
                (now.at, Duration::ZERO)
            }
            Phase::Waiting => (now.at, Duration::ZERO),
        };
        container.crashes =
            if ran >= CLEAN_RECORD { 1 } else { container.crashes.saturating_add(1) };
        container.phase = Phase::Ended(Ended { exit, started, at: now.at, since: now.since });
    }

    /// The container of the process `wanted`.
    pub(super) fn container_of(&self, wanted: ProcessId) -> Option<usize> {
        self.containers.iter().position(|container| container.process() == Some(wanted))
    }

    /// Notes since when the pod is ready, or not.
    pub(super) fn note_readiness(&mut self, at: Timestamp) {
        let ready = self.over.is_none() && self.containers.iter().all(ContainerState::is_running);
        if ready != self.ready.0 {
            self.ready = (ready, at);
        }
    }
}

impl ContainerState {
    fn new(known: Option<&ReportedContainer>, restart: Restart, now: Now) -> Self {
        let fresh = Self { restarts: 0, crashes: 0, phase: Phase::Waiting, last: None };
        let Some(known) = known else { return fresh };
        let ended = match &known.end {
            Some(end) => Ended {
                exit: Exit::Code(end.code),
                started: end.started.unwrap_or(now.at),
                at: end.at.unwrap_or(now.at),
                since: now.since,
            },
            None => Ended { exit: Exit::Lost, started: now.at, at: now.at, since: now.since },
        };
        // What is started again is started without a wait: that the machine stopped was not its fault.
        if restarts(restart, &ended.exit) {
            let restarts = known.restarts.saturating_add(1);
            Self { restarts, last: Some(ended), ..fresh }
        } else {
            Self { restarts: known.restarts, phase: Phase::Ended(ended), ..fresh }
        }
    }

    /// The process of the container, if the container runs.
    pub(super) fn process(&self) -> Option<ProcessId> {
        match &self.phase {
            Phase::Running { process, .. } => *process,
            Phase::Waiting | Phase::Ended(_) => None,
        }
    }

    /// Whether it runs.
    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// When an ended container is started again; `None`: never, or the container has not ended.
    pub(super) fn restart_at(&self, policy: Restart) -> Option<Instant> {
        match &self.phase {
            Phase::Ended(ended) if restarts(policy, &ended.exit) => {
                Some(ended.since + backoff(self.crashes))
            }
            Phase::Waiting | Phase::Running { .. } | Phase::Ended(_) => None,
        }
    }
}

/// Whether a container that ended so is started again.
fn restarts(policy: Restart, exit: &Exit) -> bool {
    match policy {
        Restart::Always => true,
        Restart::OnFailure => exit.code() != 0,
        Restart::Never => false,
    }
}

/// The first restart has no wait, then waits double.
fn backoff(crashes: u32) -> Duration {
    match crashes {
        0 | 1 => Duration::ZERO,
        more => FIRST_BACKOFF
            .saturating_mul(1_u32.checked_shl(more - 2).unwrap_or(u32::MAX))
            .min(LONGEST_BACKOFF),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::super::spec::{Command, ContainerSpec, Reported, ReportedEnd};
    use super::*;

    pub(crate) fn spec(restart: Restart, containers: &[&str]) -> PodSpec {
        let container = |name: &&str| ContainerSpec {
            name: (*name).to_owned(),
            image: "i".to_owned(),
            command: (!name.starts_with("pause")).then(|| Command {
                program: "x".to_owned(),
                args: Vec::new(),
                env: Vec::new(),
                directory: None,
                user: None,
                group: None,
            }),
            problem: None,
        };
        PodSpec {
            namespace: "ns".to_owned(),
            name: "p".to_owned(),
            uid: "u".to_owned(),
            restart,
            containers: containers.iter().map(container).collect(),
            unsupported: None,
            grace: Duration::from_secs(30),
            deleted: None,
            reported: Reported::default(),
        }
    }

    pub(crate) fn now() -> Now {
        Now { at: Timestamp::from_second(1000).unwrap(), since: Instant::now() }
    }

    pub(crate) fn after(now: Now, seconds: u64) -> Now {
        let by = Duration::from_secs(seconds);
        Now { at: now.at + by, since: now.since + by }
    }

    #[test]
    fn restarts_are_counted_and_wait_longer_and_longer_until_one_lasts() {
        let mut now = now();
        let mut state = PodState::new(&spec(Restart::Always, &["c"]), true, now);
        let mut waits = Vec::new();
        for _ in 0..8 {
            state.started(0, Some(7), now);
            state.ended(0, Exit::Code(1), now);
            let due = state.containers[0].restart_at(Restart::Always).unwrap();
            waits.push(due.duration_since(now.since).as_secs());
            now = Now { since: due, ..now };
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(state.containers[0].restarts, 7);
        state.started(0, Some(8), now);
        let later = after(now, 600);
        state.ended(0, Exit::Code(1), later);
        let due = state.containers[0].restart_at(Restart::Always).unwrap();
        assert_eq!(due, later.since, "it lasted");
    }

    #[test]
    fn the_policy_says_what_is_started_again() {
        use Restart::{Always, Never, OnFailure};
        for (policy, code, expected) in [
            (Always, 0, true),
            (Always, 1, true),
            (OnFailure, 0, false),
            (OnFailure, 1, true),
            (Never, 0, false),
            (Never, 1, false),
        ] {
            assert_eq!(restarts(policy, &Exit::Code(code)), expected, "{policy:?} {code}");
        }
        assert!(restarts(OnFailure, &Exit::Lost));
    }

    #[test]
    fn after_a_restart_of_the_machine_its_containers_go_on_by_their_policy() {
        let end = |code| ReportedEnd { code, started: None, at: None };
        let ran = ReportedContainer { restarts: 2, end: None };
        let told = ReportedContainer { restarts: 2, end: Some(end(143)) };
        let done = ReportedContainer { restarts: 2, end: Some(end(0)) };
        for (policy, known, restarts, ended) in [
            (Restart::Always, &ran, 3, None),
            (Restart::Always, &done, 3, None),
            (Restart::OnFailure, &told, 3, None),
            (Restart::OnFailure, &done, 2, Some(0)),
            (Restart::Never, &ran, 2, Some(137)),
            (Restart::Never, &told, 2, Some(143)),
        ] {
            let mut spec = spec(policy, &["c"]);
            spec.reported.containers = BTreeMap::from([("c".to_owned(), known.clone())]);
            let state = PodState::new(&spec, true, now());
            let container = &state.containers[0];
            let code = match &container.phase {
                Phase::Ended(ended) => Some(ended.exit.code()),
                Phase::Waiting | Phase::Running { .. } => None,
            };
            assert_eq!((container.restarts, code), (restarts, ended), "{policy:?} {known:?}");
        }
    }

    #[test]
    fn a_pod_that_is_over_leaves_its_place_to_another_one() {
        let spec = spec(Restart::Never, &["c"]);
        let mut pods = vec![PodState::new(&spec, true, now()); PODS];
        assert!(!has_room(pods.iter()));
        pods[0].over = Some(Over::Ran);
        assert!(has_room(pods.iter()));
    }

    #[test]
    fn a_pod_is_ready_while_all_its_containers_run() {
        let start = now();
        let mut state = PodState::new(&spec(Restart::Always, &["a", "pause"]), true, start);
        state.started(0, Some(1), start);
        state.note_readiness(start.at);
        assert_eq!(state.ready, (false, start.at));
        let later = after(start, 5);
        state.started(1, None, later);
        state.note_readiness(later.at);
        state.note_readiness(after(later, 5).at);
        assert_eq!(state.ready, (true, later.at), "since it was");
        assert_eq!((state.container_of(1), state.container_of(2)), (Some(0), None));
    }
}

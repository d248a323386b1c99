//! What the driver holds: operations that run, and results that the core has not acknowledged.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::{HeldOperation, HeldState, OperationKind, OperationProgress};
use tokio::time::Instant;

use super::completion::Completion;

/// Results that are kept for a core that does not come back.
const RESULTS: usize = 1000;
const RESULTS_AGE: Duration = Duration::from_mins(15);
const RESULTS_BYTES: usize = 64 * 1024 * 1024;
/// The core's limit for a Hello or a heartbeat. With the longest names that Kubernetes allows one is below 900 bytes,
/// so all of them fit the largest frame.
pub(super) const MOST_HELD: usize = 1000;

/// The operations of a process, over all its sessions.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    running: BTreeMap<String, Running>,
    /// Oldest first. No cache: age and bytes limit it too, and the Hello lists it in order.
    done: VecDeque<Done>,
    /// Of all of them.
    done_bytes: usize,
}

#[derive(Debug)]
struct Running {
    held: HeldOperation,
    /// The last word of the verb, which a new session has not heard.
    progress: Option<OperationProgress>,
    /// The core does not want to hear of it any more.
    forgotten: bool,
    /// It may change something.
    mutates: bool,
    /// Start of the operation, until the core hears that it runs.
    unnamed: Option<Instant>,
}

#[derive(Debug)]
struct Done {
    held: HeldOperation,
    completion: Completion,
    bytes: usize,
    since: Instant,
}

/// The state of an operation in the ledger.
#[derive(Debug)]
pub(crate) enum Known<'a> {
    Running,
    Done(&'a Completion),
}

impl Ledger {
    /// With operations that were started by an earlier process.
    pub(crate) fn holding(held: Vec<HeldOperation>) -> Self {
        let running = held.into_iter().map(|held| {
            let running =
                Running { held, progress: None, forgotten: false, mutates: true, unnamed: None };
            (running.held.operation_id.clone(), running)
        });
        Self { running: running.collect(), ..Self::default() }
    }

    pub(crate) fn find(&self, operation_id: &str) -> Option<Known<'_>> {
        if self.running.contains_key(operation_id) {
            return Some(Known::Running);
        }
        let done = self.done.iter().find(|done| done.held.operation_id == operation_id)?;
        Some(Known::Done(&done.completion))
    }

    pub(crate) fn start(
        &mut self,
        operation: &proto::Operation,
        kind: OperationKind,
        now: Instant,
    ) {
        let held = held(operation, kind);
        let mutates = operation.is_mutation();
        let running =
            Running { held, progress: None, forgotten: false, mutates, unnamed: Some(now) };
        self.running.insert(running.held.operation_id.clone(), running);
    }

    /// Records the end of a running operation; the completion, unless it was forgotten.
    pub(crate) fn finish(
        &mut self,
        operation_id: &str,
        completion: Completion,
        now: Instant,
    ) -> Option<&Completion> {
        let running = self.running.remove(operation_id)?;
        if running.forgotten {
            return None;
        }
        Some(self.retain(running.held, completion, now))
    }

    /// Records an operation that was answered without being started.
    pub(crate) fn refuse(
        &mut self,
        operation: &proto::Operation,
        completion: Completion,
        now: Instant,
    ) -> &Completion {
        self.retain(held(operation, OperationKind::Unspecified), completion, now)
    }

    fn retain(&mut self, held: HeldOperation, completion: Completion, now: Instant) -> &Completion {
        let held = HeldOperation { state: HeldState::Completed.into(), ..held };
        let bytes = completion.bytes();
        while let Some(oldest) = self.done.front() {
            let old = now.saturating_duration_since(oldest.since) >= RESULTS_AGE;
            let fits = self.done_bytes + bytes <= RESULTS_BYTES && self.done.len() < RESULTS;
            if !old && fits {
                break;
            }
            tracing::warn!(operation = %oldest.held.operation_id, "result dropped, never acknowledged");
            self.remove(0);
        }
        self.done_bytes += bytes;
        &self.done.push_back_mut(Done { held, completion, bytes, since: now }).completion
    }

    /// The core has the result.
    pub(crate) fn acknowledge(&mut self, operation_id: &str) {
        // Results are acknowledged in about the order in which they were made: it is among the first.
        if let Some(index) = self.done.iter().position(|it| it.held.operation_id == operation_id) {
            self.remove(index);
        }
    }

    fn remove(&mut self, index: usize) {
        let gone = self.done.remove(index);
        self.done_bytes -= gone.map_or(0, |done| done.bytes);
    }

    /// The core does not want it. Says whether it runs.
    pub(crate) fn forget(&mut self, operation_id: &str) -> bool {
        self.acknowledge(operation_id);
        let running = self.running.get_mut(operation_id);
        running.map(|running| running.forgotten = true).is_some()
    }

    /// The core wants it after all.
    pub(crate) fn recall(&mut self, operation_id: &str) {
        if let Some(running) = self.running.get_mut(operation_id) {
            running.forgotten = false;
        }
    }

    /// Keeps the last word of a running verb; whether a caller wants to hear it.
    pub(crate) fn keep_progress(&mut self, progress: &OperationProgress) -> bool {
        let running = self.running.get_mut(&progress.operation_id);
        let Some(running) = running.filter(|running| !running.forgotten) else { return false };
        running.progress = Some(progress.clone());
        running.unnamed = None;
        true
    }

    /// Since when the oldest operation runs of which the core was not told.
    pub(crate) fn unnamed_since(&self) -> Option<Instant> {
        self.running.values().filter_map(|running| running.unnamed).min()
    }

    /// Ids of at most so many operations of which the core was not told, and which started by `until`. It is
    /// told now.
    pub(crate) fn unnamed(&mut self, until: Option<Instant>, most: usize) -> Vec<String> {
        let of = |running: &&mut Running| {
            running.unnamed.is_some_and(|since| until.is_none_or(|until| since <= until))
        };
        let told = self.running.values_mut().filter(of).take(most).map(|running| {
            running.unnamed = None;
            running.held.operation_id.clone()
        });
        told.collect()
    }

    /// Whether a mutation of the target runs, wanted or not.
    pub(crate) fn is_changing(&self, target: &proto::Target) -> bool {
        let mutations = self.running.values().filter(|running| running.mutates);
        let mut targets = mutations.filter_map(|running| running.held.target.as_ref());
        targets.any(|it| it.uid == target.uid)
    }

    /// The last words of everything that runs and is wanted.
    pub(crate) fn progress(&self) -> impl Iterator<Item = &OperationProgress> {
        let wanted = self.running.values().filter(|running| !running.forgotten);
        wanted.filter_map(|running| running.progress.as_ref())
    }

    /// Ids of what runs and is wanted.
    pub(crate) fn running(&self) -> impl Iterator<Item = &str> {
        let wanted = self.running.values().filter(|running| !running.forgotten);
        wanted.map(|running| running.held.operation_id.as_str())
    }

    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = &Completion> {
        self.done.iter().map(|done| &done.completion)
    }

    /// Nothing runs and nothing waits for its acknowledgement.
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty() && self.done.is_empty()
    }

    /// For the Hello.
    pub(crate) fn held(&mut self) -> Vec<HeldOperation> {
        self.unnamed(None, MOST_HELD);
        let running = self.running.values().filter(|running| !running.forgotten);
        let running = running.map(|running| running.held.clone());
        let done = self.done.iter().rev().map(|done| done.held.clone());
        running.chain(done).take(MOST_HELD).collect()
    }
}

fn held(operation: &proto::Operation, kind: OperationKind) -> HeldOperation {
    HeldOperation {
        operation_id: operation.operation_id.clone(),
        idempotency_key: operation.idempotency_key.clone(),
        target: operation.target.clone(),
        state: HeldState::Running.into(),
        kind: kind.into(),
        machine_class: operation.machine_class.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriverError;

    fn operation(id: &str) -> proto::Operation {
        proto::Operation { operation_id: id.to_owned(), ..Default::default() }
    }

    fn completion(id: &str) -> Completion {
        Completion::new(id, Err(DriverError::internal("x")), None)
    }

    fn run(ledger: &mut Ledger, id: &str, now: Instant) {
        ledger.start(&operation(id), OperationKind::CreateMachine, now);
        ledger.finish(id, completion(id), now);
    }

    #[test]
    fn a_result_is_kept_until_it_is_acknowledged() {
        let mut ledger = Ledger::default();
        run(&mut ledger, "a", Instant::now());
        assert!(matches!(ledger.find("a"), Some(Known::Done(_))));
        ledger.acknowledge("a");
        assert!(ledger.find("a").is_none());
        assert!(ledger.is_empty());
    }

    #[test]
    fn the_oldest_result_leaves_after_a_thousand() {
        let mut ledger = Ledger::default();
        let now = Instant::now();
        for index in 0..=RESULTS {
            run(&mut ledger, &index.to_string(), now);
        }
        assert!(ledger.find("0").is_none());
        assert!(ledger.find("1").is_some());
        assert_eq!(ledger.unacknowledged().count(), RESULTS);
    }

    #[test]
    fn a_result_leaves_after_a_quarter_of_an_hour() {
        let mut ledger = Ledger::default();
        let now = Instant::now();
        run(&mut ledger, "old", now);
        run(&mut ledger, "new", now + RESULTS_AGE);
        assert!(ledger.find("old").is_none());
        assert!(ledger.find("new").is_some());
    }

    #[test]
    fn a_forgotten_operation_leaves_no_result() {
        let mut ledger = Ledger::default();
        ledger.start(&operation("a"), OperationKind::CreateMachine, Instant::now());
        assert!(ledger.forget("a"));
        assert_eq!(ledger.running().count(), 0);
        assert!(!ledger.is_empty(), "it still runs");
        assert!(ledger.finish("a", completion("a"), Instant::now()).is_none());
        assert!(ledger.is_empty());
    }

    #[test]
    fn the_hello_lists_what_runs_before_what_is_done() {
        let mut ledger = Ledger::default();
        for index in 0..RESULTS {
            run(&mut ledger, &format!("done-{index}"), Instant::now());
        }
        ledger.start(&operation("runs"), OperationKind::CreateMachine, Instant::now());
        let held = ledger.held();
        assert_eq!(held.len(), MOST_HELD);
        assert_eq!((held[0].operation_id.as_str(), held[0].state()), ("runs", HeldState::Running));
        assert_eq!(held[1].operation_id, "done-999");
        assert_eq!(held[1].state(), HeldState::Completed);
    }
}

//! Facts about a group beside the status of its pool: results of reads, repeated absences, and the last finished
//! operation. Plain data: the caller adds a recorded fact, and a plan adds facts about to be recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::{
    Machine, MachinePool, OperationId, ProviderId,
    driver::OperationKind,
    names::MACHINE_POOL,
    operation::{Failure, PoolInstance},
};

use super::{
    ending::has_drained,
    group::{GroupView, Reading, is_absent},
    target_of,
};
use crate::{
    class_facts::ClassFacts,
    operation::{Dispatch, Finished, Outcome, Request, Success, Target},
};

/// How often in a row something has to be missed before it is gone. Looks that count are apart.
pub const SEEN_TWICE: u32 = 2;

/// The knowledge about a group.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The last read.
    pub view: GroupView,
    /// The last operation that the driver reported as done.
    pub done: Option<Done>,
    /// By UID of the Machine: how many reads in a row did not name its instance.
    absent: BTreeMap<String, u32>,
    /// How often in a row the driver said that there is no group.
    nothing: u32,
    /// The operation that was counted last in `done`.
    counted: Option<OperationId>,
    /// Instances of which the driver said everything since the last read began.
    told: Vec<PoolInstance>,
}

/// Successive successes of operations with the same content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The common idempotency key.
    pub key: String,
    /// How many.
    pub times: i32,
    /// When the last operation ended.
    pub at: Timestamp,
}

/// The result of a read of a group.
#[derive(Debug)]
pub enum Read {
    /// The group as read.
    Found(Reading),
    /// There is none.
    Missed,
    /// The group could not be read.
    Failed(Failure),
}

impl Read {
    /// From the answer of a driver to a read that was begun then.
    pub fn of(answer: Outcome, began: Timestamp) -> Self {
        match answer {
            Ok(Success::PoolRead { pool, instances }) if !pool.provider_id.is_empty() => {
                Self::Found(Reading::new(pool, instances, began))
            }
            Ok(_) => Self::Failed(Failure::wrong_answer()),
            Err(failure) if is_absent(&failure) => Self::Missed,
            Err(failure) => Self::Failed(failure),
        }
    }
}

/// The request for a read of a pool's group.
pub fn read(pool: &MachinePool, class: &ClassFacts, id: OperationId) -> Dispatch {
    let status = pool.status.as_ref();
    let provider_id = status.and_then(|status| status.provider_id.clone()).unwrap_or_default();
    let request = Request::PoolStatus { provider_id, with_instances: true };
    class.dispatch(id, target_of(pool), request, OperationKind::GetPoolStatus.usual_time())
}

/// The request to a driver about the group of a deleted pool: does the group exist?
pub fn look(
    (namespace, name, uid): (&str, &str, &str),
    class: &ClassFacts,
    id: OperationId,
) -> Dispatch {
    let (kind, provider_id) = (MACHINE_POOL.to_owned(), ProviderId::default());
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let target = Target { kind, namespace, name, uid: uid.into() };
    let request = Request::PoolStatus { provider_id, with_instances: false };
    class.dispatch(id, target, request, OperationKind::GetPoolStatus.usual_time())
}

/// The Machines whose instances a read is to name, of a pool before and after: a driver may remake a Machine's instance
/// during its update.
pub fn expected<'a>(pool: [&MachinePool; 2], machines: &'a [Arc<Machine>]) -> Vec<&'a Machine> {
    let operations = pool.into_iter().filter_map(|it| it.status.as_ref()?.operation.as_ref());
    let kind = Some(OperationKind::UpdatePoolMachine);
    let updates = operations.filter(|it| it.intent.operation_kind() == kind);
    let updated: Vec<_> = updates.flat_map(|it| &it.provider_ids).collect();
    let is_expected = |it: &&Machine| it.instance_id().is_none_or(|id| !updated.contains(&id));
    machines.iter().map(AsRef::as_ref).filter(is_expected).collect()
}

impl Known {
    /// Knowledge from a read and from finished operations.
    pub fn of(view: GroupView, done: Option<Done>) -> Self {
        Self { view, done, ..Self::default() }
    }

    /// Knowledge including the driver's latest success, before it is recorded.
    pub(super) fn after(
        &self,
        finished: &Finished,
        of: (&MachinePool, &[Arc<Machine>]),
        now: Timestamp,
    ) -> Self {
        let mut known = self.clone();
        known.succeeded(finished, of, now);
        known
    }

    /// The driver reported a success. The reported deletion of an instance that the last read did not name counts as a
    /// read without the instance: the next read may name none, which alone proves nothing.
    pub fn succeeded(
        &mut self,
        finished: &Finished,
        (pool, machines): (&MachinePool, &[Arc<Machine>]),
        now: Timestamp,
    ) {
        let Ok(success) = &finished.outcome else { return };
        if self.counted.as_ref() == Some(&finished.id) {
            return;
        }
        self.counted = Some(finished.id.clone());
        if let Success::PoolMachineUpdated(told) = success {
            self.view.learn(told.clone());
            self.told.push(told.clone());
        }
        let intent = pool.status.as_ref().and_then(|status| status.operation.as_ref());
        if let Success::PoolMachinesDeleted { not_deleted, .. } = success
            && let Some(intent) = intent.filter(|it| it.intent.id == finished.id)
        {
            let is_deleted = |id: &ProviderId| {
                intent.provider_ids.contains(id) && not_deleted.iter().all(|(other, _)| other != id)
            };
            // For an existing instance, the driver accepted the deletion, which goes on.
            let is_gone = |id: &ProviderId| is_deleted(id) && !self.view.names(id);
            let gone = machines.iter().filter(|it| it.instance_id().is_some_and(is_gone));
            let gone: Vec<_> = gone.map(|machine| machine.uid().to_owned()).collect();
            for uid in gone {
                self.absent.entry(uid).or_insert(1);
            }
        }
        let same = self.done.take().filter(|it| it.key == finished.idempotency_key);
        let times = same.map_or(1, |it| it.times.saturating_add(1));
        self.done = Some(Done { key: finished.idempotency_key.clone(), times, at: now });
    }

    /// Discards earlier reads. A group that cannot be read stays unreadable.
    pub fn outdate(&mut self) {
        if !matches!(self.view, GroupView::Unreadable(_)) {
            self.view = GroupView::Unknown;
        }
    }

    /// A read begins.
    pub fn begin(&mut self) {
        self.told.clear();
    }

    /// A read ended, for a group that should have the instances of these Machines. `soon`: a look counted within a
    /// moment, and two such looks count once. Returns whether the read counts.
    pub fn take(&mut self, read: Read, machines: &[&Machine], soon: bool) -> bool {
        match read {
            Read::Found(reading) => self.found(reading, machines, soon),
            Read::Missed => self.missed(soon),
            Read::Failed(failure) => {
                self.view = GroupView::Unreadable(Box::new(failure));
                false
            }
        }
    }

    fn found(&mut self, reading: Reading, machines: &[&Machine], soon: bool) -> bool {
        self.nothing = 0;
        let mut reading = reading.counted(&self.absent, machines);
        if soon {
            // An instance missed the first time is missed by the next look that counts. A drained Machine needs no
            // second look.
            let drained = |uid: &str| machines.iter().any(|it| it.uid() == uid && has_drained(it));
            let before = &self.absent;
            reading.absent.retain(|uid, looks| {
                *looks = before.get(uid).copied().unwrap_or_else(|| drained(uid).into());
                *looks > 0
            });
        }
        let counts = !soon && !reading.absent.is_empty();
        self.absent.clone_from(&reading.absent);
        self.view = GroupView::Known(Arc::new(reading));
        for told in self.told.drain(..) {
            self.view.learn(told);
        }
        counts
    }

    fn missed(&mut self, soon: bool) -> bool {
        let counts = self.nothing == 0 || !soon;
        self.nothing = self.nothing.saturating_add(counts.into());
        self.view = GroupView::Absent(self.nothing);
        counts
    }
}

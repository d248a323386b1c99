//! The driver under test, as checks use it.

use std::sync::Arc;
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::register_request::Frame;
use proto::{MachineRecord, ObjectRevision, Operation, OperationKind, RoleKind, Welcome};
use tokio::time::Instant;

use crate::answer::{Answer, collect};
use crate::bench::Bench;
use crate::core::library::CallKind;
use crate::core::session::{Session, heartbeat};
use crate::core::within;
use crate::listed;
use crate::machine::{self, Machine, in_time, title};
use crate::observation::Rule;
use crate::outcome::{Outcome, ensure, failed};

/// For an operation that changes things, unless a check says.
const MUTATION: Duration = Duration::from_mins(1);
/// For an operation that reads.
const READ: Duration = Duration::from_secs(20);
/// As the contract says.
pub(crate) const ACCEPT: Duration = Duration::from_secs(15);
/// For a list to show what was made: none says less than that.
const LATE: Duration = Duration::from_secs(5);
/// What a core waits longer than the operation may take.
const GRACE: Duration = Duration::from_secs(15);

/// A driver in a session.
#[derive(Debug, Clone)]
pub(crate) struct Driver<'a> {
    pub(crate) bench: &'a Bench,
    pub(crate) session: Arc<Session>,
}

/// An operation that was sent.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    bench: &'a Bench,
    session: Arc<Session>,
    pub(crate) operation: Operation,
    from: usize,
    pub(crate) sent: Instant,
    limit: Duration,
}

impl Bench {
    /// The driver in a session that serves.
    pub(crate) async fn connect(&self) -> Outcome<Driver<'_>> {
        let session = self.harness.session().await?;
        Ok(Driver { bench: self, session })
    }

    /// The next stream of the driver, welcomed as a core in good health does.
    pub(crate) async fn reconnected(&self) -> Outcome<Driver<'_>> {
        self.welcomed(RoleKind::Active, |_| {}).await
    }

    /// The next stream of the driver, with a Welcome that the check changes first.
    pub(crate) async fn welcomed(
        &self,
        role: RoleKind,
        change: impl FnOnce(&mut Welcome),
    ) -> Outcome<Driver<'_>> {
        let session = self.harness.arrival().await?;
        self.admit(session, role, change).await
    }

    /// Welcomes a stream.
    pub(crate) async fn admit(
        &self,
        session: Arc<Session>,
        role: RoleKind,
        change: impl FnOnce(&mut Welcome),
    ) -> Outcome<Driver<'_>> {
        let mut welcome = self.harness.core().greeting(&session, role);
        change(&mut welcome);
        self.harness.admit(&session, welcome).await?;
        self.step("the driver dialed in and was welcomed");
        Ok(Driver { bench: self, session })
    }
}

impl<'a> Driver<'a> {
    /// Whether it has an operation that not all have.
    pub(crate) fn offers(&self, kind: OperationKind) -> bool {
        self.session.hello.operation_kinds.contains(&kind.into())
    }

    /// An operation with what the check left open: time and term.
    pub(crate) fn complete(&self, operation: Operation) -> Operation {
        let time = if operation.is_mutation() { MUTATION } else { READ };
        let time = self.bench.scaled(time);
        let operation =
            if operation.timeout.is_none() { in_time(operation, time) } else { operation };
        if operation.fencing_term > 0 {
            return operation;
        }
        Operation { fencing_term: self.bench.harness.core().term(), ..operation }
    }

    /// Sends an operation.
    pub(crate) fn start(&self, operation: Operation) -> Outcome<Asked<'a>> {
        let operation = self.complete(operation);
        self.bench.step(format_args!("sent {}", title(&operation)));
        let asked = self.asked(operation);
        self.bench.harness.core().dispatch(&self.session, &asked.operation)?;
        Ok(asked)
    }

    /// An operation that was sent before, in this session or another one.
    pub(crate) fn asked(&self, operation: Operation) -> Asked<'a> {
        self.bench.track(&operation);
        let time = operation.timeout.and_then(|time| Duration::try_from(time).ok());
        Asked {
            bench: self.bench,
            session: Arc::clone(&self.session),
            from: self.session.log.len(),
            sent: Instant::now(),
            limit: time.unwrap_or(MUTATION) + GRACE,
            operation,
        }
    }

    /// Sends an operation, and sends it again as a core would; its last end.
    pub(crate) async fn ask(&self, operation: Operation) -> Outcome<Answer> {
        let operation = self.complete(operation);
        let answer = self.ask_once(operation.clone()).await?;
        self.settle(&operation, answer).await
    }

    /// As [`Self::ask`], but sends it once. The status that a driver does not have is looked up in its list.
    pub(crate) async fn ask_once(&self, operation: Operation) -> Outcome<Answer> {
        let Some(list) = listed::in_place_of(&operation) else {
            return self.start(operation)?.answer().await;
        };
        if listed::reads_one(&self.session.hello) {
            let answer = self.start(operation.clone())?.answer().await?;
            if !listed::is_unsaid(&operation, &answer) {
                return Ok(answer);
            }
        }
        listed::answer(&operation, self.start(list)?.answer().await?)
    }

    /// Creates an instance.
    pub(crate) async fn create(&self, machine: &Machine) -> Outcome<MachineRecord> {
        let record = self.ask(machine.create()).await?.machine()?;
        ensure(
            !record.provider_id.is_empty(),
            "CreateMachine: a provider_id that is not empty",
            "an empty provider_id",
        )?;
        Ok(record)
    }

    /// Deletes an instance by identity.
    pub(crate) async fn delete(&self, machine: &Machine) -> Outcome {
        self.ask(machine.delete("")).await?.result().map(drop)
    }

    /// The status of an instance by identity.
    pub(crate) async fn status(&self, machine: &Machine) -> Outcome<MachineRecord> {
        self.ask(machine.status("")).await?.machine()
    }

    /// All instances of the check's cluster.
    pub(crate) async fn list(&self) -> Outcome<Vec<MachineRecord>> {
        self.list_of(&self.bench.class(), self.bench.cluster_id()).await
    }

    /// All instances of a cluster.
    pub(crate) async fn list_of(
        &self,
        class: &ObjectRevision,
        cluster_id: &str,
    ) -> Outcome<Vec<MachineRecord>> {
        self.ask(machine::list(class, cluster_id)).await?.machines()
    }

    /// The records of one machine in the list.
    pub(crate) async fn listed(&self, machine: &Machine) -> Outcome<Vec<MachineRecord>> {
        let all = self.ask(machine.list()).await?.machines()?;
        Ok(all.into_iter().filter(|record| record.machine_uid == machine.uid).collect())
    }

    /// How late the list may be.
    pub(crate) fn list_lag(&self) -> Duration {
        let told = self.session.hello.list_lag.and_then(|it| Duration::try_from(it).ok());
        self.bench.options().faults.list_lag.or(told).unwrap_or_default()
    }

    /// The records of one machine once there are so many, or when the list has had its time. A list that is late without
    /// saying so is noted once, and is not what other checks are about.
    pub(crate) async fn listed_once(
        &self,
        machine: &Machine,
        count: usize,
    ) -> Outcome<Vec<MachineRecord>> {
        let (setup, told) = (&self.bench.harness.setup, self.list_lag());
        let patience = told.max(self.bench.scaled(LATE));
        let (began, mut first) = (Instant::now(), true);
        loop {
            let records = self.listed(machine).await?;
            let late = began.elapsed();
            if records.len() == count {
                // A list that is slow to answer is not late.
                if !first && late > told {
                    let came = format!(
                        "the list shows after {late:.1?} what was made or deleted: wait for it in create and delete, or \
                         say how late in `list_lag`"
                    );
                    setup.observations.add(Rule::ListAtOnce, came);
                }
                return Ok(records);
            }
            first = false;
            if records.len() > count && count > 0 || setup.marks.is_list_wrong() {
                return Ok(records);
            }
            if late >= patience {
                setup.marks.list_is_wrong();
                return Ok(records);
            }
            tokio::time::sleep(LOOK * 5).await;
        }
    }

    /// Exactly one instance of a machine must be listed.
    pub(crate) async fn has_one(&self, machine: &Machine) -> Outcome<MachineRecord> {
        let mut records = self.listed_once(machine, 1).await?;
        let count = records.len();
        match (records.pop(), count) {
            (Some(record), 1) => Ok(record),
            (_, count) => Err(failed(
                format_args!("exactly one instance of {} in the list", machine.name),
                format_args!("{count}"),
            )),
        }
    }

    /// No instance of a machine may be listed.
    pub(crate) async fn has_none(&self, machine: &Machine) -> Outcome {
        let records = self.listed_once(machine, 0).await?;
        let ids: Vec<&str> = records.iter().map(|record| record.provider_id.as_str()).collect();
        let expected = format!("no instance of {} in the list", machine.name);
        ensure(ids.is_empty(), expected, format_args!("{ids:?}"))
    }

    /// Waits for a frame from `from` on.
    pub(crate) async fn expect<T>(
        &self,
        from: usize,
        limit: Duration,
        expected: &str,
        mut pick: impl FnMut(&Frame) -> Option<T>,
    ) -> Outcome<T> {
        let found = self.session.log.find(from, |entry| entry.frame.as_ref().and_then(&mut pick));
        let found = within(self.bench.scaled(limit), expected, found).await?;
        found.map_err(|how| failed(expected, format_args!("the session ended: {how}")))
    }
}

impl Asked<'_> {
    /// Waits until the driver says that it has the operation; how long that took. Heartbeats ask the driver, so that
    /// the answer comes soon.
    pub(crate) async fn accepted(&self) -> Outcome<Duration> {
        let id = &self.operation.operation_id;
        let accepted = self.session.log.find(self.from, |entry| {
            let hit = entry.frame.as_ref().is_some_and(|frame| speaks_of(frame, id));
            hit.then_some(entry.at)
        });
        let expected = format!("a frame that names {}", title(&self.operation));
        let accepted = within(self.bench.scaled(ACCEPT), &expected, accepted);
        let asking = async {
            while self.session.send(heartbeat()).is_ok() {
                tokio::time::sleep(LOOK).await;
            }
            std::future::pending().await
        };
        let at = tokio::select! {
            at = accepted => at?,
            never = asking => never,
        };
        let at = at.map_err(|how| failed(&expected, format_args!("the session ended: {how}")))?;
        Ok(at.saturating_duration_since(self.sent))
    }

    /// Waits until the driver accepted the operation and has fetched the class and the secret for it:
    /// from here on it needs the core no more. A driver that has them cached is not waited for long.
    pub(crate) async fn under_way(&self) -> Outcome {
        const FETCH: Duration = Duration::from_millis(500);
        self.accepted().await?;
        let fetched = async {
            while !self.has_fetched() && !self.is_completed() {
                tokio::time::sleep(LOOK).await;
            }
        };
        // Cached: nothing is fetched.
        drop(tokio::time::timeout(FETCH, fetched).await);
        // The last answer is on its way.
        tokio::time::sleep(LOOK * 2).await;
        Ok(())
    }

    fn has_fetched(&self) -> bool {
        let core = self.bench.harness.core();
        let library = core.library();
        let class = self.operation.machine_class.as_ref().map(|class| class.name.as_str());
        let class = class.unwrap_or_default();
        let calls = || library.calls().iter().filter(|call| call.wanted.name == class);
        let secret = CallKind::Secret { operation_id: self.operation.operation_id.clone() };
        let needs_secret = library.has_secret(class);
        calls().any(|call| call.kind == CallKind::Class)
            && (!needs_secret || calls().any(|call| call.kind == secret))
    }

    /// Waits for the end.
    pub(crate) async fn answer(&self) -> Outcome<Answer> {
        self.answer_within(self.limit).await
    }

    /// Waits for the end, and asks again as a core would: see [`Driver::settle`].
    pub(crate) async fn settled(&self) -> Outcome<Answer> {
        let driver = Driver { bench: self.bench, session: Arc::clone(&self.session) };
        driver.settle(&self.operation, self.answer().await?).await
    }

    /// Waits for the end for so long, which is not scaled.
    pub(crate) async fn answer_within(&self, limit: Duration) -> Outcome<Answer> {
        let mut answer = collect(&self.session, self.from, &self.operation, limit).await?;
        self.bench.identify(&self.session, &mut answer);
        let took = self.ended().unwrap_or_else(|| self.sent.elapsed());
        Ok(Answer { took, ..answer })
    }

    /// Whether it is over.
    pub(crate) fn is_completed(&self) -> bool {
        self.ended().is_some()
    }

    /// How long it took, if it is over.
    fn ended(&self) -> Option<Duration> {
        let id = &self.operation.operation_id;
        let is_end =
            |frame: &Frame| matches!(frame, Frame::Completed(done) if done.operation_id == *id);
        let all = self.session.log.since(self.from);
        let end = all.iter().find(|entry| entry.frame.as_ref().is_some_and(is_end))?;
        Some(end.at.saturating_duration_since(self.sent))
    }
}

/// How often to look whether something happened.
const LOOK: Duration = Duration::from_millis(20);

/// Whether a frame says that an operation was accepted or is over.
pub(crate) fn speaks_of(frame: &Frame, operation_id: &str) -> bool {
    match frame {
        Frame::Accepted(accepted) => accepted.operation_ids.iter().any(|id| id == operation_id),
        Frame::Heartbeat(echo) => echo.running.iter().any(|id| id == operation_id),
        Frame::Completed(done) => done.operation_id == operation_id,
        Frame::Progress(progress) => progress.operation_id == operation_id,
        Frame::Page(page) => page.operation_id == operation_id,
        Frame::Hello(_) | Frame::State(_) | Frame::Event(_) => false,
    }
}

//! The Machine controller: observe → plan → execute → record, then, only if that was accepted,
//! send. Every decision is made by [`ostler_lifecycle`].

mod execute;
mod observe;
mod operation;
mod send_away;
mod token;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use ostler_api::Machine;
use ostler_lifecycle::machine::plan;
use ostler_lifecycle::operation::{Dispatch, OperationView};
use ostler_lifecycle::orphans::calls_for_a_look;
use ostler_lifecycle::plan::{Action, Event, Need, Next, Plan};
use ostler_lifecycle::record::record;
use ostler_lifecycle::snapshot::{ClassView, NodeView, Snapshot};
use ostler_sessions::{Sessions, SubmitError};
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use crate::bootstrap::Configs;
use crate::clock::DebugClock;
use crate::election::Term;
use crate::events::{Occurrence, Recorder, Severity};
use crate::hot_update::Reviewer;
use crate::memory::Memory;
use crate::metrics::{ReconcileMetrics, Shape, StepMetrics};
use crate::orphans::Looks;
use crate::queue::{Lane, Outcome, Queue};
use crate::reachability::Reach;
use crate::schemas::Schemas;
use crate::settings::Settings;
use crate::stores::{MachineIndex, Stores, deployment};
use crate::watch::ObjectName;
use crate::writes::{WriteError, Writer};

/// A machine that still writes after this many passes in a row has to wait for its next turn.
const PASSES_IN_A_ROW: usize = 8;
/// How soon to look again when something outside did not take what was meant for it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How soon to look whether the finalizer of a class could be written, if its event does not say so first.
const HOLD_PATIENCE: Duration = Duration::from_secs(5);

/// Brings machines to where they are to be.
pub(crate) struct Machines {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) sessions: Sessions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: DebugClock,
    pub(crate) recorder: Recorder,
    pub(crate) memory: Arc<Memory>,
    pub(crate) configs: Arc<Configs>,
    pub(crate) metrics: ReconcileMetrics,
    pub(crate) looks: Looks,
    pub(crate) steps: StepMetrics,
    pub(crate) term: Term,
    pub(crate) reach: Arc<Reach>,
    pub(crate) schemas: Arc<Schemas>,
    pub(crate) reviewer: Arc<Reviewer>,
    /// The queue of machines, for those whose turn has come.
    pub(crate) queue: Arc<Queue<ObjectName>>,
}

/// Why a pass broke off. Nothing was sent.
#[derive(Debug, thiserror::Error)]
enum Broken {
    /// Planned from what is not so any more; the next pass plans anew.
    #[error("something changed meanwhile")]
    Outdated,
    /// The Machine is gone.
    #[error("the machine is gone")]
    Gone,
    /// The finalizer of the class is being written.
    #[error("the class is not held yet")]
    NotHeldYet,
    /// The API server took the status, and dropped the operation that was to be sent.
    #[error("the definition of machines lacks fields")]
    Pruned,
    /// The API server did not take a write or answer a read.
    #[error("{what}")]
    Api {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        #[source]
        source: WriteError,
    },
}

/// How a pass went.
struct Passed {
    /// Something other than the status was written: what was observed is different now.
    changed: bool,
    outcome: Outcome,
}

impl Machines {
    /// Passes until there is nothing more to write.
    pub(crate) async fn reconcile(&self, name: ObjectName) -> Outcome {
        for _ in 0..PASSES_IN_A_ROW {
            match self.pass(&name).await {
                Ok(Passed { changed: true, .. }) => {}
                Ok(Passed { changed: false, outcome }) => return self.metrics.passed(outcome),
                Err(broken) => return self.broken_off(&name, &broken),
            }
        }
        warn!(machine = %name, "still writing after {PASSES_IN_A_ROW} passes");
        self.metrics.passed(Outcome::Again(LOOK_AGAIN))
    }

    fn broken_off(&self, name: &ObjectName, broken: &Broken) -> Outcome {
        match broken {
            Broken::Gone => self.metrics.passed(Outcome::Done),
            Broken::NotHeldYet => self.metrics.passed(Outcome::Again(HOLD_PATIENCE)),
            Broken::Outdated => self.metrics.broken("outdated"),
            Broken::Pruned => {
                self.schemas.doubt();
                self.metrics.broken("pruned")
            }
            Broken::Api { what, source } => {
                warn!(machine = %name, error = %source, "{what}");
                self.reach.doubt();
                self.metrics.broken("api")
            }
        }
    }

    async fn pass(&self, name: &ObjectName) -> Result<Passed, Broken> {
        let Some(mut snapshot) = self.observe(name).await? else {
            return Ok(Passed { changed: false, outcome: Outcome::Done });
        };
        let plan = self.plan(&mut snapshot);
        let actions: Vec<_> = plan.actions.iter().map(Action::name).collect();
        debug!(machine = %name, ?actions, next = ?plan.next, "planned");
        let done = self.execute(&snapshot, &plan).await?;
        let recorded = record(&snapshot, &plan, &done.performed);
        let written = self.write_status(&done.machine, recorded.status.as_ref()).await;
        self.settle_claim(&snapshot, &plan, recorded.proceed, written.as_ref().err());
        written?;
        self.call_next(&snapshot);
        if recorded.proceed {
            self.measure(&snapshot, &plan);
        }
        self.tell(&snapshot, recorded.events);
        let refused = if recorded.proceed { self.send(&snapshot, &plan) } else { None };
        let sent = refused.is_none();
        let outcome = match (refused, done.failed) {
            (None, false) => self.until(&recorded.next, snapshot.now),
            (Some(later), _) => later,
            (None, true) => Outcome::Failed,
        };
        let over = recorded.next == Next::Done;
        Ok(Passed { changed: done.changed && sent && !done.failed && !over, outcome })
    }

    /// Plans, with everything that plans need and few of them do.
    fn plan(&self, snapshot: &mut Snapshot) -> Plan {
        let mut planned = plan(snapshot);
        // Each need is met once, so this ends.
        while let Some(need) = planned.need.take() {
            let ClassView::Known(class) = &snapshot.class else { break };
            match need {
                Need::Review(question) => {
                    let name = ObjectName::new(namespace_of(&snapshot.machine), &class.name);
                    snapshot.review = self.reviewer.look(&name, &question);
                }
                Need::Room => {
                    let name = ObjectName::new(namespace_of(&snapshot.machine), &class.name);
                    let limit = class.max_parallel.limit(self.stores.count_users(&name));
                    snapshot.room = self.memory.rooms.ask(&snapshot.machine, limit);
                }
            }
            planned = plan(snapshot);
        }
        let next = self.memory.rooms.settle(&snapshot.machine, planned.room);
        self.wake(&next);
        planned
    }

    /// Machines whose turn it is.
    fn wake(&self, uids: &[String]) {
        for uid in uids {
            for name in self.stores.machines.find_names(MachineIndex::Uid, uid) {
                self.queue.add(name, Lane::Change);
            }
        }
    }

    fn measure(&self, snapshot: &Snapshot, plan: &Plan) {
        let machine = &snapshot.machine;
        let class = self.class_of(machine);
        let template = class.as_ref().and_then(|class| class.spec.node_template.as_ref());
        let instance_type = template.and_then(|template| template.get("instanceType")?.as_str());
        let shape = Shape { instance_type: instance_type.unwrap_or_default().to_owned() };
        let gone = plan.next == Next::Done;
        self.steps.passed(machine, &plan.status, gone, &shape, snapshot.now);
    }

    /// One patch a pass, and none if nothing changed; on condition of the newest version that the
    /// pass has seen, so that nothing is sent on the strength of an outdated plan.
    async fn write_status(&self, machine: &Machine, status: Option<&Value>) -> Result<(), Broken> {
        let Some(status) = status else { return Ok(()) };
        let version = machine.meta().resource_version.clone();
        let patch = json!({ "metadata": { "resourceVersion": version }, "status": status });
        let api = self.writer.api(namespace_of(machine));
        match self.writer.patch_status::<Machine>(&api, machine.name(), &patch).await {
            Ok(written) => {
                let kept = written.status.as_ref().is_some_and(|it| it.operation.is_some());
                let dropped = status["operation"].is_object() && !kept;
                self.stores.machines.absorb(written);
                if dropped { Err(Broken::Pruned) } else { Ok(()) }
            }
            Err(WriteError::Conflict) => Err(Broken::Outdated),
            Err(WriteError::NotFound) => Err(Broken::Gone),
            Err(source) => Err(Broken::Api { what: "cannot write the status", source }),
        }
    }

    /// A machine that did not fail after all gives its turn back. One of which nobody knows keeps
    /// it: it may have failed.
    fn settle_claim(
        &self,
        snapshot: &Snapshot,
        plan: &Plan,
        proceed: bool,
        broken: Option<&Broken>,
    ) {
        let claim = plan.actions.iter().find_map(|action| {
            if let Action::ClaimReplacement { seen, .. } = action { Some(*seen) } else { None }
        });
        let unknown = matches!(broken, Some(Broken::Api { source: WriteError::NoAnswer, .. }));
        let failed = proceed && broken.is_none();
        if let (Some(seen), Some(deployment)) = (claim, deployment(&snapshot.machine))
            && !failed
            && !unknown
        {
            self.memory.return_claim(&deployment, seen);
        }
    }

    /// Our own writes are no news to the watch: whoever waits for this machine is told here.
    fn call_next(&self, snapshot: &Snapshot) {
        let before = snapshot.machine.as_ref();
        let Some(after) = self.stores.machines.get(&ObjectName::of(before)) else { return };
        let settings = &self.settings.lifecycle;
        if let Some(next) = self.stores.next_in_line(before, Some(&after), settings) {
            self.queue.add(next, Lane::Change);
        }
    }

    /// Hands the sessions what was recorded. An operation that was not taken: when to look again.
    fn send(&self, snapshot: &Snapshot, plan: &Plan) -> Option<Outcome> {
        let uid = snapshot.machine.uid();
        if let Some(id) = &plan.cancel {
            self.sessions.cancel(id, "not wanted any more");
        }
        if let Some(id) = &plan.acknowledge {
            self.memory.drop_refused(uid);
            self.metrics.answered(&snapshot.operation);
            self.ask_for_a_look(snapshot);
            self.sessions.acknowledge(id);
        }
        plan.dispatch.as_ref().and_then(|dispatch| self.submit(&snapshot.machine, dispatch))
    }

    /// A driver that sees several instances for one machine is a reason to look at all of them.
    fn ask_for_a_look(&self, snapshot: &Snapshot) {
        let OperationView::Finished(finished) = &snapshot.operation else { return };
        let Err(failure) = &finished.outcome else { return };
        if calls_for_a_look(failure.code)
            && let Some(class) = snapshot.class.known()
        {
            self.looks.ask(self.settings.driver_name(&class.provider));
        }
    }

    fn submit(&self, machine: &Machine, dispatch: &Dispatch) -> Option<Outcome> {
        let (kind, id) = (dispatch.kind(), dispatch.id.as_str());
        let (uid, machine) = (machine.uid(), machine.name());
        let refused = match self.sessions.submit(dispatch.clone()) {
            Ok(()) => {
                debug!(machine, %kind, operation = id, "handed to the driver");
                return None;
            }
            Err(refused) => refused,
        };
        info!(machine, %kind, reason = %refused, "not handed to the driver");
        if let Some(failed) = operation::never_sent(dispatch, &refused) {
            self.memory.keep_refused(uid, failed);
            return Some(Outcome::Again(Duration::ZERO));
        }
        Some(when_refused(&refused))
    }

    fn until(&self, next: &Next, planned_at: Timestamp) -> Outcome {
        match next {
            Next::OnChange => Outcome::Again(self.settings.resync),
            Next::Done => Outcome::Done,
            Next::Wait { until, .. } => {
                let wait = Duration::try_from(until.duration_since(planned_at));
                Outcome::Again(wait.unwrap_or_default().min(self.settings.resync))
            }
        }
    }

    fn tell(&self, snapshot: &Snapshot, events: Vec<Event>) {
        let node = match &snapshot.node {
            NodeView::Known(node) => Some(node.object_ref(&())),
            NodeView::Unknown | NodeView::Absent | NodeView::Ambiguous(_) => None,
        };
        for event in events {
            if event.warning {
                warn!(
                    machine = snapshot.machine.name(),
                    reason = event.reason.as_str(),
                    "{}",
                    event.message
                );
            }
            let severity = if event.warning { Severity::Warning } else { Severity::Normal };
            let node = node.clone().filter(|_| event.on_node);
            for regarding in std::iter::once(reference(&snapshot.machine)).chain(node) {
                self.recorder.record(Occurrence {
                    regarding,
                    severity,
                    reason: event.reason.as_str(),
                    action: "Reconcile",
                    note: event.message.clone(),
                });
            }
        }
    }
}

/// When to try again what the sessions did not take. A queue that is full gets no fuller by trying
/// often.
fn when_refused(refused: &SubmitError) -> Outcome {
    match refused {
        SubmitError::QueueFull { .. } => Outcome::Failed,
        SubmitError::NoDriver { .. }
        | SubmitError::LooksOnly { .. }
        | SubmitError::TargetBusy { .. }
        | SubmitError::FrameTooLarge { .. }
        | SubmitError::KindUnsupported { .. } => Outcome::Again(LOOK_AGAIN),
    }
}

fn namespace_of(machine: &Machine) -> &str {
    machine.metadata.namespace.as_deref().unwrap_or_default()
}

fn reference(machine: &Machine) -> ObjectReference {
    machine.object_ref(&())
}

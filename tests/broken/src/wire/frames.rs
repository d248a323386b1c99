//! The treatment of each frame.
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a breakage concerns a few frames, all others pass"
)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use parking_lot::Mutex;
use proto::operation::Request;
use proto::operation_completed::Outcome;
use proto::register_request::Frame as Sent;
use proto::register_response::Frame as Received;
use proto::{MachineErrorCode as Code, MachineErrorReason as Reason, RoleKind, Verdict};
use proto::{RegisterRequest, RegisterResponse};
use tokio::time::Instant;

use crate::{Breakage, Reads};

/// Longer than the contract allows for naming an operation.
const LATE: Duration = Duration::from_secs(20);
/// Operations that are remembered, more than any check sends; then all are forgotten.
const MOST_REMEMBERED: usize = 10_000;
/// Results that a core may leave unacknowledged.
const MOST_UNACKNOWLEDGED: usize = 8;
/// One for all processes.
const SAME_INSTANCE: &str = "0a0b0c0d-0000-4000-8000-000000000001";
const OTHER_INSTANCE: &str = "0a0b0c0d-0000-4000-8000-000000000002";

/// Memory beyond one session.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Hello is to have no GetMachineStatus.
    without_status: bool,
    session_id: String,
    /// The secret of the class that was read last.
    pub(super) secret: Option<proto::ObjectRevision>,
    /// The secret that is never asked for again.
    pub(super) kept: Option<proto::GetSecretResponse>,
    /// The core announced its end.
    core_drained: bool,
    /// The core said that another stream took over.
    superseded: bool,
    highest_term: u64,
    /// How often each result was sent.
    results: BTreeMap<String, u32>,
    /// Operations that were delivered.
    delivered: BTreeSet<String>,
    /// Operation ids of the driver, and the core's ids for them.
    renamed: BTreeMap<String, String>,
}

impl Memory {
    /// Of a driver that can tell so much.
    pub(super) fn of(reads: Reads) -> Self {
        Self { without_status: reads == Reads::Nothing, ..Self::default() }
    }

    /// Asks for a secret in the name of an operation that never was.
    pub(super) fn secret_of_no_operation(&self) -> proto::GetSecretRequest {
        proto::GetSecretRequest {
            r#ref: Some(self.secret.clone().unwrap_or_else(|| proto::ObjectRevision {
                uid: String::new(),
                namespace: "default".to_owned(),
                name: "secret".to_owned(),
                revision: String::new(),
            })),
            session_id: self.session_id.clone(),
            operation_id: SAME_INSTANCE.to_owned(),
        }
    }
}

/// The next step of the relay.
#[derive(Debug)]
pub(super) enum Step {
    ToDriver(RegisterResponse),
    ToCore(RegisterRequest),
    Call(Call),
    Close,
}

/// A call that the driver did not ask for.
#[derive(Debug)]
pub(super) enum Call {
    Class(proto::ObjectRevision),
    SecretOfNoOperation,
}

/// One session of the relay.
#[derive(Debug)]
pub(super) struct Tap {
    breakage: Breakage,
    memory: Arc<Mutex<Memory>>,
    /// Operations without a known arm.
    unknown: BTreeSet<String>,
    /// Operations that have less than five seconds.
    hurried: BTreeSet<String>,
    /// Operations of this session.
    seen: BTreeSet<String>,
    /// Results that were sent and not acknowledged.
    unacknowledged: BTreeSet<String>,
    late: VecDeque<(Instant, RegisterRequest)>,
    stands_by: bool,
}

impl Tap {
    pub(super) fn new(breakage: Breakage, memory: Arc<Mutex<Memory>>) -> Self {
        Self {
            breakage,
            memory,
            unknown: BTreeSet::new(),
            hurried: BTreeSet::new(),
            seen: BTreeSet::new(),
            unacknowledged: BTreeSet::new(),
            late: VecDeque::new(),
            stands_by: false,
        }
    }

    /// When the next late frame goes out.
    pub(super) fn due(&self) -> Option<Instant> {
        self.late.front().map(|(at, _)| *at)
    }

    /// The late frames whose time has come.
    pub(super) fn overdue(&mut self, now: Instant) -> Vec<RegisterRequest> {
        let mut due = Vec::new();
        while let Some((_, frame)) = self.late.pop_front_if(|(at, _)| *at <= now) {
            due.push(frame);
        }
        due
    }

    /// A heartbeat that the core never sent.
    pub(super) fn pulse() -> RegisterResponse {
        let frame = Some(Received::Heartbeat(proto::Heartbeat::default()));
        RegisterResponse { frame }
    }

    /// The frames for the core in place of a frame of the driver.
    pub(super) fn outgoing(&mut self, sent: RegisterRequest) -> Vec<RegisterRequest> {
        let Some(frame) = sent.frame else { return Vec::new() };
        let frames = match frame {
            Sent::Hello(hello) => self.hello(hello),
            Sent::Accepted(accepted) => self.accepted(accepted),
            Sent::Page(page) => {
                let again = !self.seen.contains(&page.operation_id);
                let loses = matches!(
                    self.breakage,
                    Breakage::ListPages | Breakage::PoolPages | Breakage::PoolListPages
                );
                let lost =
                    (loses && page.index == 1) || (self.breakage == Breakage::PagesResent && again);
                if lost { Vec::new() } else { vec![Sent::Page(page)] }
            }
            Sent::Completed(completed) => {
                if self.breakage == Breakage::AcceptFast {
                    let late = RegisterRequest { frame: Some(Sent::Completed(completed)) };
                    if self.late.len() < MOST_REMEMBERED {
                        self.late.push_back((Instant::now() + LATE, late));
                    }
                    return Vec::new();
                }
                self.completed(completed)
            }
            Sent::Heartbeat(mut heartbeat) => {
                if self.breakage == Breakage::AcceptFast {
                    heartbeat.running.clear();
                }
                let silent = self.breakage == Breakage::HeartbeatEcho
                    || (self.breakage == Breakage::HeartbeatUnderLoad
                        && !heartbeat.running.is_empty());
                let tells = self.breakage == Breakage::StandbyTells && self.stands_by;
                let event = tells.then(|| Sent::Event(Box::new(event_of_a_standby())));
                let heartbeat = (!silent).then_some(Sent::Heartbeat(heartbeat));
                event.into_iter().chain(heartbeat).collect()
            }
            other => vec![other],
        };
        frames.into_iter().map(|frame| RegisterRequest { frame: Some(frame) }).collect()
    }

    fn hello(&mut self, mut hello: Box<proto::Hello>) -> Vec<Sent> {
        if self.memory.lock().without_status {
            let status = i32::from(proto::OperationKind::GetMachineStatus);
            hello.operation_kinds.retain(|kind| *kind != status);
        }
        match self.breakage {
            Breakage::HelloValid => "instance-1".clone_into(&mut hello.instance_id),
            Breakage::HelloStable => SAME_INSTANCE.clone_into(&mut hello.instance_id),
            Breakage::Superseded if self.memory.lock().superseded => {
                OTHER_INSTANCE.clone_into(&mut hello.instance_id);
            }
            Breakage::DrainCore if self.memory.lock().core_drained => hello.resume = None,
            Breakage::CutMidCreate => {
                if let Some(resume) = &mut hello.resume {
                    resume.operations.clear();
                }
            }
            _ => {}
        }
        let times = if self.breakage == Breakage::HelloFirst { 2 } else { 1 };
        vec![Sent::Hello(hello); times]
    }

    fn accepted(&self, mut accepted: proto::OperationAccepted) -> Vec<Sent> {
        accepted.operation_ids.iter_mut().for_each(|id| self.true_name(id));
        match self.breakage {
            Breakage::AcceptFast => Vec::new(),
            _ => vec![Sent::Accepted(accepted)],
        }
    }

    fn completed(&mut self, mut completed: Box<proto::OperationCompleted>) -> Vec<Sent> {
        self.true_name(&mut completed.operation_id);
        let id = completed.operation_id.clone();
        let times = self.count(&id);
        let error = match &mut completed.outcome {
            Some(Outcome::Error(error)) => Some(error),
            _ => None,
        };
        match (self.breakage, error) {
            (Breakage::ResultResent, _) if !self.seen.contains(&id) => return Vec::new(),
            (Breakage::CoreNotReading, _) if self.unacknowledged.len() > MOST_UNACKNOWLEDGED => {
                return Vec::new();
            }
            (Breakage::AckLoss, _) if times > 2 => return Vec::new(),
            (Breakage::Limits, error) => {
                completed.checkpoint = "c".repeat(5 * 1024);
                if let Some(error) = error {
                    error.message = "m".repeat(3 * 1024);
                }
            }
            (Breakage::LimitsFrame, Some(error)) if error.code() == Code::InvalidArgument => {
                error.violations = many_violations();
            }
            (Breakage::Reasons, Some(error)) if error.code() == Code::NotFound => {
                error.set_typed_reason(Reason::NotOurs);
                Reason::NotOurs.word().clone_into(&mut error.reason);
            }
            (Breakage::ReasonsUnknown, Some(error)) => error.typed_reason = 99,
            (Breakage::ReasonsWord, Some(error)) if error.code() == Code::NotFound => {
                error.code = Code::FailedPrecondition.into();
                error.set_typed_reason(Reason::NotOurs);
            }
            (Breakage::UnknownKind, Some(error)) if self.unknown.contains(&id) => {
                error.code = Code::Internal.into();
            }
            (Breakage::Timeout, _) if self.hurried.contains(&id) => return Vec::new(),
            (Breakage::StaleRevision, Some(error)) if error.reason == "STALE_REVISION" => {
                error.code = Code::Internal.into();
                "INTERNAL".clone_into(&mut error.reason);
            }
            (Breakage::DrainRefusesNew, Some(error)) if error.reason == "DRIVER_DRAINING" => {
                return vec![Sent::Accepted(proto::OperationAccepted { operation_ids: vec![id] })];
            }
            _ => {}
        }
        remember(&mut self.unacknowledged, id);
        vec![Sent::Completed(completed)]
    }

    /// How often this result was sent, including now.
    fn count(&self, id: &str) -> u32 {
        let mut memory = self.memory.lock();
        if memory.results.len() >= MOST_REMEMBERED {
            memory.results.clear();
        }
        let times = memory.results.entry(id.to_owned()).or_default();
        *times += 1;
        *times
    }

    fn true_name(&self, id: &mut String) {
        if let Some(name) = self.memory.lock().renamed.get(id) {
            id.clone_from(name);
        }
    }

    /// What is done in place of handing a frame of the core to the driver.
    pub(super) fn incoming(&mut self, mut received: RegisterResponse) -> Vec<Step> {
        let is_new = self.is_new(&received);
        if self.breakage == Breakage::DuplicateFrames && !is_new {
            return vec![Step::Close];
        }
        let mut calls = Vec::new();
        match &mut received.frame {
            None if self.breakage == Breakage::UnknownFrame => return vec![Step::Close],
            Some(Received::Welcome(welcome)) => {
                self.stands_by = welcome.role() == RoleKind::Standby;
                calls.extend(self.welcome(welcome));
            }
            Some(Received::Operation(operation)) => calls.extend(self.operation(operation)),
            Some(Received::ResultAck(ack)) => {
                ack.operation_ids.iter().for_each(|id| {
                    self.unacknowledged.remove(id);
                });
            }
            Some(Received::Role(_)) if self.breakage == Breakage::PromotedServes => {
                return Vec::new();
            }
            Some(Received::Role(role)) => self.stands_by = role.role() == RoleKind::Standby,
            Some(Received::Draining(draining)) => {
                self.memory.lock().core_drained = true;
                if self.breakage == Breakage::ReconnectAfter {
                    draining.reconnect_after = None;
                }
            }
            Some(Received::ProtocolError(error)) => {
                error.retry |= self.breakage == Breakage::RefusedForGood;
                self.memory.lock().superseded |= error.reason == "SUPERSEDED";
            }
            Some(Received::Invalidate(_)) if self.breakage == Breakage::SecretRefresh => {
                return Vec::new();
            }
            _ => {}
        }
        let calls = calls.into_iter().map(Step::Call);
        calls.chain([Step::ToDriver(received)]).collect()
    }

    /// Whether the frame is anything but a repeated operation.
    fn is_new(&mut self, received: &RegisterResponse) -> bool {
        match &received.frame {
            Some(Received::Operation(operation)) => {
                remember(&mut self.seen, operation.operation_id.clone())
            }
            _ => true,
        }
    }

    fn welcome(&self, welcome: &mut proto::Welcome) -> Option<Call> {
        let mut memory = self.memory.lock();
        memory.session_id.clone_from(&welcome.session_id);
        memory.highest_term = memory.highest_term.max(welcome.fencing_term);
        drop(memory);
        if self.breakage == Breakage::CoreRestart {
            for held in &mut welcome.verdicts {
                held.verdict = Verdict::Keep.into();
            }
        }
        let stands_by = welcome.role() == RoleKind::Standby;
        (self.breakage == Breakage::StandbyQuiet && stands_by).then_some(Call::SecretOfNoOperation)
    }

    fn operation(&mut self, operation: &mut proto::Operation) -> Option<Call> {
        if operation.request.is_none() {
            remember(&mut self.unknown, operation.operation_id.clone());
        }
        if operation.timeout.is_some_and(|time| time.seconds < 5) {
            remember(&mut self.hurried, operation.operation_id.clone());
        }
        let mut memory = self.memory.lock();
        memory.highest_term = memory.highest_term.max(operation.fencing_term);
        match self.breakage {
            Breakage::StaleTerm => operation.fencing_term = memory.highest_term,
            Breakage::OutsideFencing if operation.fencing_term == 0 => {
                operation.fencing_term = memory.highest_term;
            }
            Breakage::SameIdTwice => rename_if_known(&mut memory, operation),
            Breakage::ClassCache => return operation.machine_class.clone().map(Call::Class),
            Breakage::ParallelSameTarget | Breakage::PoolParallel => {
                drop(memory);
                self.part(operation);
            }
            Breakage::TargetBusy => {
                drop(memory);
                self.part_deletion(operation);
            }
            _ => {}
        }
        None
    }

    /// Makes the second create of a machine or pool look like one of another: the session layer would refuse it while the
    /// first one runs.
    fn part(&mut self, operation: &mut proto::Operation) {
        let creates =
            matches!(operation.request, Some(Request::CreateMachine(_) | Request::CreatePool(_)));
        let Some(target) = operation.target.as_mut().filter(|_| creates) else { return };
        if !remember(&mut self.seen, format!("create of {}", target.uid)) {
            target.uid.push_str("-again");
        }
    }

    /// Makes a deletion beside a create look like one of another machine.
    fn part_deletion(&mut self, operation: &mut proto::Operation) {
        let Some(target) = operation.target.as_mut() else { return };
        let creates = format!("create of {}", target.uid);
        match &operation.request {
            Some(Request::CreateMachine(_)) => {
                remember(&mut self.seen, creates);
            }
            Some(Request::DeleteMachine(_)) if self.seen.remove(&creates) => {
                target.uid.push_str("-again");
            }
            _ => {}
        }
    }
}

fn event_of_a_standby() -> proto::DriverEvent {
    let kind = proto::InstanceEvent::Changed.into();
    let provider_id = "fake:///eu-1/i-1".to_owned();
    proto::DriverEvent { kind, provider_id, ..proto::DriverEvent::default() }
}

/// More than a frame may hold.
fn many_violations() -> Vec<proto::FieldViolation> {
    let violation = |number| proto::FieldViolation {
        path: format!("unknown-field-{number}"),
        description: "is not known".to_owned(),
    };
    (0..3000).map(violation).collect()
}

/// Whether `id` is new.
fn remember(ids: &mut BTreeSet<String>, id: String) -> bool {
    if ids.len() >= MOST_REMEMBERED {
        ids.clear();
    }
    ids.insert(id)
}

/// Makes an operation that is delivered again look like a new one.
fn rename_if_known(memory: &mut Memory, operation: &mut proto::Operation) {
    let id = operation.operation_id.clone();
    if remember(&mut memory.delivered, id.clone()) {
        return;
    }
    operation.delivery = operation.delivery.max(2);
    operation.operation_id = format!("{id}-{}", memory.renamed.len());
    if memory.renamed.len() >= MOST_REMEMBERED {
        memory.renamed.clear();
    }
    memory.renamed.insert(operation.operation_id.clone(), id);
}

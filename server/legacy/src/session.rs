//! One driver of the first proposal as a session of the hub.
//!
//! It answers the hub's heartbeats itself: that the driver lives is known by the link's own pings
//! and by the time of the operation. There is nothing to cancel and nothing to resume: whatever is
//! in flight when the stream ends has an unknown outcome, immediately.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc;
use ostler_api::driver::{Certainty, ErrorCode};
use ostler_proto::legacy::infra::{
    DriverSide, MachineClassMeta, McMside, mc_mside::OperationParams,
};
use ostler_proto::v1alpha1::{
    DriverState, Heartbeat, ObjectRevision, Operation, OperationCompleted, OperationResult,
    Readiness, operation, operation_completed, register_request, register_response::Frame,
};
use ostler_sessions::{ClassContent, ClassError, LocalSession, Sessions};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::context::{OperationContext, StreamContext};
use crate::fault::{Fault, failure, later, reasons, scrubbed};
use crate::job::{Ask, Job, Next, Outcome};
use crate::window::ConsistencyWindow;
use crate::{LegacyKind, LegacyMetrics, render};

/// When an operation does not say how long it may take.
const TIMEOUT: Duration = Duration::from_mins(20);
/// Registration is operation 1; drivers count from there.
const FIRST_ID: i32 = 2;

/// The next step of the driver's stream and session; with the status of the stream's end, absent
/// after an orderly end.
type Step = ControlFlow<Option<Status>>;

/// A driver that registered.
pub(crate) struct Session {
    sessions: Sessions,
    metrics: LegacyMetrics,
    kind: LegacyKind,
    link: LocalSession,
    out: mpsc::Sender<Result<McMside, Status>>,
    answers: Streaming<DriverSide>,
    readable: Arc<StreamContext>,
    window: Arc<Mutex<ConsistencyWindow>>,
    provider: String,
    next_id: i32,
    work: Work,
    draining: bool,
}

/// The only work of the driver.
enum Work {
    Idle,
    Busy(Box<Task>),
    /// The time of the task was up; no other question is asked before the answer.
    Overdue {
        id: i32,
        creating: Option<String>,
    },
}

/// An operation in flight.
struct Task {
    operation_id: String,
    uid: String,
    job: Job,
    context: OperationContext,
    user_data: Option<Vec<u8>>,
    /// The id of the last question.
    id: i32,
    deadline: Instant,
}

/// The parts of a session.
pub(crate) struct Parts {
    pub(crate) sessions: Sessions,
    pub(crate) metrics: LegacyMetrics,
    pub(crate) kind: LegacyKind,
    pub(crate) provider: String,
    pub(crate) link: LocalSession,
    pub(crate) out: mpsc::Sender<Result<McMside, Status>>,
    pub(crate) answers: Streaming<DriverSide>,
    pub(crate) readable: Arc<StreamContext>,
    pub(crate) window: Arc<Mutex<ConsistencyWindow>>,
}

impl Session {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { sessions, metrics, kind, provider, link, out, answers, readable, window } =
            parts;
        Self {
            sessions,
            metrics,
            kind,
            link,
            out,
            answers,
            readable,
            window,
            provider,
            next_id: FIRST_ID,
            work: Work::Idle,
            draining: false,
        }
    }

    /// Serves the driver until its stream, its session or `end` comes. Returns the status that ends
    /// the stream.
    pub(crate) async fn run(mut self, end: CancellationToken) -> Option<Status> {
        loop {
            let deadline = self.deadline();
            let step = tokio::select! {
                biased;
                () = end.cancelled() => Step::Break(Some(Status::unavailable("replaced, or the core stops"))),
                frame = self.link.next() => match frame {
                    Ok(frame) => self.on_frame(frame),
                    Err(status) => Step::Break(Some(Status::unavailable(status.message()))),
                },
                answer = self.answers.message() => match answer {
                    Ok(Some(answer)) => self.on_answer(answer),
                    Ok(None) => Step::Break(None),
                    Err(status) => Step::Break(Some(status)),
                },
                () = until(deadline) => {
                    self.overdue();
                    Step::Continue(())
                }
            };
            if let Step::Break(status) = step {
                self.abandon();
                return status;
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.work {
            Work::Busy(task) => Some(task.deadline),
            Work::Idle | Work::Overdue { .. } => None,
        }
    }

    /// A frame of the hub.
    fn on_frame(&mut self, frame: Option<Frame>) -> Step {
        match frame {
            Some(Frame::Welcome(_)) => self.ready(Readiness::Ready, ""),
            Some(Frame::Operation(operation)) => return self.begin(*operation),
            Some(Frame::Heartbeat(beat)) => self.beat(&beat),
            // The driver understands none of these frames, and none needs an answer.
            Some(
                Frame::Cancel(_)
                | Frame::ResultAck(_)
                | Frame::Role(_)
                | Frame::Draining(_)
                | Frame::Invalidate(_)
                | Frame::ProtocolError(_),
            )
            | None => {}
        }
        Step::Continue(())
    }

    fn beat(&mut self, beat: &Heartbeat) {
        let running = match &self.work {
            Work::Busy(task) => vec![task.operation_id.clone()],
            Work::Idle | Work::Overdue { .. } => Vec::new(),
        };
        self.link.send(register_request::Frame::Heartbeat(Heartbeat { running, ..beat.clone() }));
    }

    fn ready(&mut self, readiness: Readiness, reason: &str) {
        let state = DriverState {
            readiness: readiness.into(),
            reason: reason.to_owned(),
            max_in_flight: u32::from(readiness == Readiness::Ready),
            drain_deadline: None,
        };
        self.link.send(register_request::Frame::State(state));
    }

    fn begin(&mut self, operation: Operation) -> Step {
        let operation_id = operation.operation_id.clone();
        if !matches!(self.work, Work::Idle) {
            let busy = later(reasons::BUSY, "the driver does one thing at a time", Duration::ZERO);
            self.complete(operation_id, Err(busy));
            return Step::Continue(());
        }
        match self.prepare(operation) {
            Ok(task) => self.ask(Box::new(task), &Ask::List),
            Err(error) => {
                self.complete(operation_id, Err(error));
                Step::Continue(())
            }
        }
    }

    /// Looks up all data that the driver may ask for, so that answers come immediately.
    fn prepare(&self, operation: Operation) -> Result<Task, Fault> {
        let job = Job::begin(&operation, self.sessions.options().limits.list_records)?;
        let named = operation.machine_class.unwrap_or_default();
        let class = self.class(&named)?;
        let Some(spec) = render::spec(&class) else {
            let message = format!("the providerSpec of class {} is not an object", named.name);
            return Err(refused(ErrorCode::InvalidArgument, "BAD_PROVIDER_SPEC", message));
        };
        if let Some(tag) = render::missing_tag(&spec) {
            let message = format!(
                "providerSpec.tags of class {} has no key with `{tag}`; the driver finds no instance without it: add it",
                named.name
            );
            let reason = reasons::CLUSTER_TAGS_MISSING;
            return Err(refused(ErrorCode::FailedPrecondition, reason, message));
        }
        let timeout = operation.timeout.and_then(|timeout| timeout.try_into().ok());
        Ok(Task {
            context: OperationContext {
                operation_id: operation.operation_id.clone(),
                path: render::path(&self.kind, &named),
                json: render::class(&self.kind, &named, class.secret_revision.is_some(), spec),
                class: named,
                user_data: None,
            },
            operation_id: operation.operation_id,
            uid: operation.target.unwrap_or_default().uid,
            job,
            user_data: match operation.request {
                Some(operation::Request::CreateMachine(create)) => {
                    create.bootstrap.map(|bootstrap| bootstrap.user_data)
                }
                Some(_) | None => None,
            },
            id: 0,
            deadline: Instant::now() + timeout.unwrap_or(TIMEOUT),
        })
    }

    /// The class of an operation, at the revision that the core keeps for it.
    fn class(&self, named: &ObjectRevision) -> Result<Arc<ClassContent>, Fault> {
        match self.sessions.class(named) {
            Ok(Some(class)) => Ok(class),
            Ok(None) | Err(ClassError::NotFound | ClassError::NamespaceDenied) => {
                let message = format!("class {} is not there at that revision", named.name);
                Err(refused(ErrorCode::Aborted, "STALE_REVISION", message))
            }
            Err(ClassError::Unavailable(why)) => {
                let message = format!("class {} cannot be read: {why}", named.name);
                Err(refused(ErrorCode::Unavailable, "CLASS_UNAVAILABLE", message))
            }
        }
    }

    fn ask(&mut self, mut task: Box<Task>, ask: &Ask) -> Step {
        task.id = self.next_id;
        let creating = *ask == Ask::Create;
        let user_data = task.user_data.clone().filter(|_| creating);
        self.readable.set(Some(OperationContext { user_data, ..task.context.clone() }));
        let params = OperationParams {
            machine_class_meta_data: Some(MachineClassMeta {
                name: task.context.path.clone(),
                revision: 1,
            }),
            credentials: String::new(),
            machine_id: match ask {
                Ask::Delete { provider_id } => provider_id.clone(),
                Ask::List | Ask::Create => String::new(),
            },
            machine_name: if creating { task.job.machine().to_owned() } else { String::new() },
        };
        let question = McMside {
            operation_id: task.id,
            operation_type: ask.word().to_owned(),
            operationparams: Some(params),
        };
        self.work = Work::Busy(task);
        let Some(next_id) = self.next_id.checked_add(1) else {
            return Step::Break(Some(Status::unavailable("this stream has no ids left")));
        };
        self.next_id = next_id;
        match self.out.try_send(Ok(question)) {
            Ok(()) => Step::Continue(()),
            Err(_) => Step::Break(Some(Status::unavailable("the driver does not read"))),
        }
    }

    /// A message of the driver.
    fn on_answer(&mut self, answer: DriverSide) -> Step {
        if answer.operation_type == "unregister" {
            self.draining = true;
            self.ready(Readiness::Draining, "the driver unregistered");
            return self.rest();
        }
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Busy(mut task) if task.id == answer.operation_id => {
                let next =
                    task.job.answered(Instant::now(), &mut self.window.lock(), answer.response);
                match next {
                    Next::Ask(ask) => self.ask(task, &ask),
                    Next::Done(outcome) => {
                        self.readable.set(None);
                        let outcome = outcome.map_err(|it| scrubbed(it, task.user_data.as_deref()));
                        self.complete(task.operation_id, outcome);
                        self.rest()
                    }
                }
            }
            Work::Overdue { id, creating } if id == answer.operation_id => {
                self.dropped(&answer);
                if let Some(uid) = creating {
                    // Whatever it made is listed from now on, or a moment later.
                    self.window.lock().unsettled(Instant::now(), &uid);
                }
                if !self.draining {
                    self.ready(Readiness::Ready, "");
                }
                self.rest()
            }
            other @ (Work::Idle | Work::Busy(_) | Work::Overdue { .. }) => {
                self.work = other;
                self.dropped(&answer);
                Step::Continue(())
            }
        }
    }

    fn dropped(&self, answer: &DriverSide) {
        let (provider, id) = (self.provider.as_str(), answer.operation_id);
        tracing::warn!(provider, id, "answer dropped, no caller waits for it");
        self.metrics.dropped(provider);
    }

    /// An unregistered driver goes when it has nothing to do.
    fn rest(&self) -> Step {
        if self.draining && matches!(self.work, Work::Idle) {
            Step::Break(None)
        } else {
            Step::Continue(())
        }
    }

    /// The time of the operation is up. The driver cannot be told, and does nothing else meanwhile.
    fn overdue(&mut self) {
        let Work::Busy(task) = std::mem::replace(&mut self.work, Work::Idle) else { return };
        let creating = (*task.job.asked() == Ask::Create).then(|| task.uid.clone());
        self.work = Work::Overdue { id: task.id, creating };
        if !self.draining {
            self.ready(Readiness::NotReady, "the driver is still busy with an overdue operation");
        }
        let why = (ErrorCode::DeadlineExceeded, reasons::TIMEOUT);
        self.give_up(task, why, "the driver did not answer in time");
    }

    /// The stream is over: no caller waits for its answers any longer.
    fn abandon(&mut self) {
        match std::mem::replace(&mut self.work, Work::Idle) {
            Work::Busy(task) => {
                let why = (ErrorCode::Unavailable, reasons::STREAM_LOST);
                self.give_up(task, why, "the stream of the driver ended before it answered");
            }
            Work::Overdue { creating: Some(uid), .. } => {
                self.window.lock().unsettled(Instant::now(), &uid);
            }
            Work::Idle | Work::Overdue { creating: None, .. } => {}
        }
    }

    fn give_up(&mut self, task: Box<Task>, why: (ErrorCode, &str), message: &str) {
        self.readable.set(None);
        let error = task.job.broken_off(Instant::now(), &mut self.window.lock(), why, message);
        self.complete(task.operation_id, Err(error));
    }

    fn complete(&mut self, operation_id: String, outcome: Outcome) {
        use operation_completed::Outcome as Said;
        let outcome = Some(match outcome {
            Ok(response) => Said::Result(OperationResult { response: Some(*response) }),
            Err(error) => Said::Error(*error),
        });
        let completed = OperationCompleted { operation_id, checkpoint: String::new(), outcome };
        self.link.send(register_request::Frame::Completed(Box::new(completed)));
    }
}

/// The driver was not even asked.
fn refused(code: ErrorCode, reason: &str, message: String) -> Fault {
    failure(code, reason, message, Certainty::NotApplied)
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

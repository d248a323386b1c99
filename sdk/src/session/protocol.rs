//! The rules of a session, without input or output: frames in, frames and effects out.
//!
//! One value lives as long as the process; sessions come and go under it.

use std::time::{Duration, SystemTime};

use ostler_proto::v1alpha1 as proto;
use proto::register_request::Frame as Sent;
use proto::register_response::Frame as Received;
use proto::{DriverState, Readiness, RoleKind, Verdict};
use tokio::time::Instant;

use super::admission::{Refusal, admit};
use super::completion::Completion;
use super::fence::{Fence, Stale};
use super::hello::{Instance, hello};
use super::ledger::{Known, Ledger, MOST_HELD};
use crate::driver::DriverInfo;
use crate::handler::Answer;

/// An operation of which the core has heard nothing for this long is reported as running.
const ACCEPT_AFTER: Duration = Duration::from_secs(1);
/// As the contract has it.
const ACCEPTED_IN_FRAME: usize = 200;
/// How long a core that drains is given if it does not say.
const CLOSE_IN: Duration = Duration::from_secs(5);
/// Longer than anything that the core asks for in earnest; a clock can be set to its end.
const LONGEST: Duration = Duration::from_hours(24);

/// An effect outside of the protocol.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    /// Put a frame into the queue.
    Send(Sent),
    /// Start the verb of an operation.
    Start(Box<proto::Operation>),
    /// Cancel the verb of an operation.
    Cancel(String),
    /// The session is up.
    Welcomed { session_id: String, heartbeat: Option<Duration> },
    /// Drop these from the caches.
    Invalidate(Vec<proto::ObjectRevision>),
    /// Let the connection go within `close_in` and dial again.
    Leave { close_in: Duration, dial: Dial },
}

/// When to dial after a connection ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Dial {
    /// By the usual backoff.
    Backoff,
    /// When the core said.
    After(Duration),
    /// In minutes: the same would happen again.
    Refused,
    /// Soon: another core leads.
    Elsewhere,
    /// By the usual backoff after this time.
    NotBefore(Duration),
}

/// Everything a driver must remember of its sessions.
#[derive(Debug)]
pub(crate) struct Protocol {
    info: DriverInfo,
    instance: Instance,
    ledger: Ledger,
    last_session: Option<String>,
    phase: Phase,
    fence: Fence,
    draining: Option<Duration>,
    /// Why the driver cannot work, if it cannot.
    lack: Option<String>,
    /// Whether the driver tells what happens to instances.
    events: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// No connection, or no Welcome on it yet.
    Unwelcome,
    Live {
        role: RoleKind,
        credit: u32,
    },
}

impl Protocol {
    /// `held`: operations that an earlier process began.
    pub(crate) fn new(
        info: DriverInfo,
        instance: Instance,
        held: Vec<proto::HeldOperation>,
    ) -> Self {
        // Without the name of the session, which was another process's: the core must not send again what the driver
        // does not list, since it may have done it.
        let last_session = (!held.is_empty()).then(String::new);
        Self {
            info,
            instance,
            ledger: Ledger::holding(held),
            last_session,
            phase: Phase::Unwelcome,
            fence: Fence::default(),
            draining: None,
            lack: None,
            events: false,
        }
    }

    /// The driver tells what happens to instances, or does not.
    pub(crate) fn tells_events(&mut self, tells: bool) {
        self.events = tells;
    }

    /// The first frame of a new connection.
    pub(crate) fn hello(&mut self, now: SystemTime) -> Sent {
        self.phase = Phase::Unwelcome;
        let session = self.last_session.as_deref();
        let mut hello = hello(&self.info, &self.instance, session, self.ledger.held(), now);
        if self.events {
            hello.capabilities.push(proto::DriverCapability::Events.into());
        }
        Sent::Hello(Box::new(hello))
    }

    /// The connection is gone.
    pub(crate) fn on_disconnected(&mut self) {
        self.phase = Phase::Unwelcome;
    }

    /// A frame of the core. `None`: a frame of an unknown kind, which is ignored.
    pub(crate) fn on_frame(&mut self, frame: Option<Received>, now: Instant) -> Vec<Effect> {
        let Some(frame) = frame else { return Vec::new() };
        match frame {
            Received::Welcome(welcome) => self.on_welcome(*welcome),
            Received::Operation(operation) => self.on_operation(operation, now),
            Received::Cancel(cancel) => self.on_cancel(&cancel),
            Received::ResultAck(ack) => {
                ack.operation_ids.iter().for_each(|id| self.ledger.acknowledge(id));
                Vec::new()
            }
            Received::Role(role) => self.on_role(&role),
            Received::Draining(draining) => vec![on_core_draining(&draining)],
            Received::Heartbeat(heartbeat) => {
                vec![send(Sent::Heartbeat(self.echo(&heartbeat)))]
            }
            Received::Invalidate(invalidation) => vec![Effect::Invalidate(invalidation.stale)],
            Received::ProtocolError(error) => vec![on_protocol_error(&error)],
        }
    }

    fn on_welcome(&mut self, welcome: proto::Welcome) -> Vec<Effect> {
        if let Err(stale) = self.fence.enter(welcome.fencing_term) {
            let Stale { term, highest } = stale;
            tracing::warn!(term, highest, "a core that lost its leadership; looking for another");
            return vec![Effect::Leave { close_in: Duration::ZERO, dial: Dial::Backoff }];
        }
        let core_credit = if welcome.max_in_flight == 0 { u32::MAX } else { welcome.max_in_flight };
        let role = welcome.role();
        self.phase = Phase::Live { role, credit: core_credit.min(self.info.max_in_flight) };
        // A core that only looks is not the one to come back to.
        if welcome.fencing_term != 0 {
            self.last_session = Some(welcome.session_id.clone());
        }
        let heartbeat = time(welcome.heartbeat_interval);
        let mut effects = vec![Effect::Welcomed { session_id: welcome.session_id, heartbeat }];
        for held in &welcome.verdicts {
            let id = &held.operation_id;
            match held.verdict() {
                // A result that is kept goes out below, like those without a verdict.
                Verdict::Keep | Verdict::Unspecified => {}
                // Of a verb that answered nothing is left to stop; its result goes out too.
                Verdict::Cancel => effects.push(Effect::Cancel(id.clone())),
                Verdict::Forget => {
                    if self.ledger.forget(id) {
                        effects.push(Effect::Cancel(id.clone()));
                    }
                }
            }
        }
        let progress = self.ledger.progress().cloned();
        effects.extend(progress.map(|progress| send(Sent::Progress(Box::new(progress)))));
        effects.extend(self.ledger.unacknowledged().flat_map(Completion::frames).map(send));
        effects.push(send(Sent::State(self.state())));
        effects
    }

    fn on_operation(&mut self, operation: Box<proto::Operation>, now: Instant) -> Vec<Effect> {
        match self.ledger.find(&operation.operation_id) {
            Some(Known::Running) => {
                self.ledger.recall(&operation.operation_id);
                return vec![accepted(vec![operation.operation_id])];
            }
            Some(Known::Done(completion)) => {
                return completion.frames().map(send).collect();
            }
            None => {}
        }
        let fenced = self.fence.enter(operation.fencing_term);
        let unfenced = operation.fencing_term == 0 && operation.is_mutation();
        let refusal = unfenced.then_some(Refusal::OutsideFencing);
        let refusal = refusal.or_else(|| self.refusal()).or_else(|| self.conflict(&operation));
        match admit(&self.info, &operation, fenced, refusal) {
            Ok(kind) => {
                self.ledger.start(&operation, kind, now);
                vec![Effect::Start(operation)]
            }
            Err(error) => {
                tracing::warn!(operation = %operation.operation_id, %error, "operation refused");
                let completion = Completion::new(&operation.operation_id, Err(error), None);
                let completion = self.ledger.refuse(&operation, completion, now);
                completion.frames().map(send).collect()
            }
        }
    }

    /// Why nothing may start now, if so.
    fn refusal(&self) -> Option<Refusal> {
        let Phase::Live { role, credit } = self.phase else { return Some(Refusal::Unwelcome) };
        if self.draining.is_some() {
            return Some(Refusal::Draining);
        }
        if role == RoleKind::Standby {
            return Some(Refusal::Standby);
        }
        // The core does not count what it gave up on, and that may still run here: in limits, as heartbeats name all of it.
        let most = usize::try_from(credit).unwrap_or(usize::MAX).saturating_mul(2);
        (self.ledger.running().count() >= most.min(MOST_HELD)).then_some(Refusal::OverCredit)
    }

    /// Two concurrent mutations of one target are never wanted, but the core may have given one up that
    /// began in the same moment, and does not know that it runs on: instances would be made twice.
    fn conflict(&self, operation: &proto::Operation) -> Option<Refusal> {
        let target = operation.target.as_ref().filter(|_| operation.is_mutation())?;
        self.ledger.is_changing(target).then_some(Refusal::TargetBusy)
    }

    fn on_cancel(&mut self, cancel: &proto::OperationCancel) -> Vec<Effect> {
        let id = &cancel.operation_id;
        match self.ledger.find(id) {
            Some(Known::Running) => vec![Effect::Cancel(id.clone())],
            Some(Known::Done(completion)) => completion.frames().map(send).collect(),
            None => Vec::new(),
        }
    }

    fn on_role(&mut self, session_role: &proto::SessionRole) -> Vec<Effect> {
        let term = session_role.fencing_term;
        if self.fence.enter(term).is_err() {
            tracing::warn!(term, "role of an old term ignored");
            return Vec::new();
        }
        if let Phase::Live { role, .. } = &mut self.phase {
            *role = session_role.role();
        }
        Vec::new()
    }

    fn echo(&mut self, heartbeat: &proto::Heartbeat) -> proto::Heartbeat {
        self.ledger.unnamed(None, usize::MAX);
        let running = self.ledger.running().map(str::to_owned).collect();
        let driver_time = Some(SystemTime::now().into());
        proto::Heartbeat { sent_at: heartbeat.sent_at, running, driver_time }
    }

    fn state(&self) -> DriverState {
        let (readiness, max_in_flight) = match (self.draining, &self.lack) {
            (Some(_), _) => (Readiness::Draining, 0),
            (None, Some(_)) => (Readiness::NotReady, self.info.max_in_flight),
            (None, None) => (Readiness::Ready, self.info.max_in_flight),
        };
        DriverState {
            readiness: readiness.into(),
            reason: crate::limits::cut_word(self.lack.clone().unwrap_or_default()),
            max_in_flight,
            drain_deadline: self.draining.and_then(|time| time.try_into().ok()),
        }
    }

    /// A verb said how far it is.
    pub(crate) fn on_progress(&mut self, progress: proto::OperationProgress) -> Option<Effect> {
        let progress = crate::limits::cut_progress(progress);
        let live = matches!(self.phase, Phase::Live { .. });
        let wanted = self.ledger.keep_progress(&progress);
        (live && wanted).then(|| send(Sent::Progress(Box::new(progress))))
    }

    /// The driver can work, or cannot for the reason given.
    pub(crate) fn on_readiness(&mut self, lack: Option<String>) -> Option<Effect> {
        self.lack = lack;
        let live = matches!(self.phase, Phase::Live { .. });
        live.then(|| send(Sent::State(self.state())))
    }

    /// Something happened to an instance. The core listens to the active session only.
    pub(crate) fn on_event(&self, event: proto::DriverEvent) -> Option<Effect> {
        let active = matches!(self.phase, Phase::Live { role: RoleKind::Active, .. });
        active.then(|| send(Sent::Event(Box::new(event))))
    }

    /// A verb answered.
    pub(crate) fn on_finished(
        &mut self,
        operation_id: &str,
        answer: Answer,
        checkpoint: Option<String>,
        now: Instant,
    ) -> Vec<Effect> {
        let completion = Completion::new(operation_id, answer, checkpoint);
        let live = matches!(self.phase, Phase::Live { .. });
        let completion = self.ledger.finish(operation_id, completion, now);
        // While the link is down the result waits here; the next Welcome sends it.
        let frames = completion.filter(|_| live).map(Completion::frames);
        frames.into_iter().flatten().map(send).collect()
    }

    /// When operations are due of which the core was told nothing since they started.
    pub(crate) fn accept_at(&self) -> Option<Instant> {
        let live = matches!(self.phase, Phase::Live { .. });
        let started = self.ledger.unnamed_since().filter(|_| live)?;
        Some(started + ACCEPT_AFTER)
    }

    /// Tells the core which operations have run for a while.
    pub(crate) fn accept_running(&mut self, now: Instant) -> Option<Effect> {
        let ids = self.ledger.unnamed(now.checked_sub(ACCEPT_AFTER), ACCEPTED_IN_FRAME);
        (!ids.is_empty()).then(|| accepted(ids))
    }

    /// The process is to end: takes nothing new, finishes what runs within `time`.
    pub(crate) fn drain(&mut self, time: Duration) -> Option<Effect> {
        self.draining = Some(time);
        let live = matches!(self.phase, Phase::Live { .. });
        live.then(|| send(Sent::State(self.state())))
    }

    /// Nothing runs and the core has every result.
    pub(crate) fn is_idle(&self) -> bool {
        self.ledger.is_empty()
    }

    /// Ids of the operations that run.
    pub(crate) fn running(&self) -> Vec<String> {
        self.ledger.running().map(str::to_owned).collect()
    }
}

fn send(frame: Sent) -> Effect {
    Effect::Send(frame)
}

fn accepted(operation_ids: Vec<String>) -> Effect {
    send(Sent::Accepted(proto::OperationAccepted { operation_ids }))
}

/// The duration that the core sent, within bounds.
pub(super) fn time(said: Option<prost_types::Duration>) -> Option<Duration> {
    said.and_then(|it| Duration::try_from(it).ok()).map(|it| it.min(LONGEST))
}

fn on_core_draining(draining: &proto::CoreDraining) -> Effect {
    let dial = time(draining.reconnect_after).map_or(Dial::Backoff, Dial::After);
    let close_in = time(draining.close_after).unwrap_or(CLOSE_IN);
    tracing::info!(reason = %draining.reason, ?close_in, "the core is draining");
    Effect::Leave { close_in, dial }
}

fn on_protocol_error(error: &proto::ProtocolError) -> Effect {
    let proto::ProtocolError { reason, message, retry } = error;
    let dial = if *retry {
        tracing::warn!(%reason, %message, "the core closes the session");
        Dial::Backoff
    } else {
        tracing::error!(%reason, %message, "the core refuses this driver");
        Dial::Refused
    };
    Effect::Leave { close_in: Duration::ZERO, dial }
}

#[cfg(test)]
mod tests;

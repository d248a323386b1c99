//! Anything may happen in any order: after each step the hub is consistent, and in the end nothing
//! is left and every operation had its outcome, once.

mod action;
mod told;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_api::driver::OperationKind;
use ostler_api::operation::{self, ClassReference, Dispatch, Lane, Reason, Request};
use ostler_proto::v1alpha1::{
    DriverCapability, DriverState, Heartbeat, HeldOperation, HeldState, Hello, MachineErrorCode,
    OperationAccepted, OperationCompleted, OperationError, OperationProgress, OutcomeCertainty,
    Readiness, Resume, Target, operation_completed, register_request,
};
use proptest::prelude::*;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::action::{Action, Failing, Holds, action};
use self::told::Told;
use super::diagram::{Stage, leads_to};
use super::operations::Place;
use super::timers::Timer;
use super::{Answer, Effect, Hub, Later, Owner, SessionKey};
use crate::record::Records;
use crate::session::Close;
use crate::{
    Principal, Providers, RecordedOperation, SessionEvent, SessionsOptions, Term, convert,
};

const PROVIDER: &str = "fake.ostler.dev";
const TARGETS: u8 = 3;

/// The two ends of a call.
type Call = (oneshot::Sender<Box<Answer>>, oneshot::Receiver<Box<Answer>>);

/// The hub and the observations of the world around it.
struct World {
    hub: Hub,
    now: Instant,
    /// Live streams, and their instances.
    streams: BTreeMap<SessionKey, u8>,
    /// The operations that each instance was sent, without a seen acknowledgement.
    held: BTreeMap<(u8, String), HeldState>,
    /// Every operation that was accepted for dispatch, and how many outcomes it had.
    outcomes: HashMap<String, u32>,
    /// Operations brought along by a driver and recorded by an earlier core.
    strange: HashSet<String>,
    /// The controllers' knowledge of running operations, from events in order.
    told: HashMap<String, Told>,
    /// The recorded operation of the only recorded target.
    recorded: Arc<Mutex<Option<RecordedOperation>>>,
    calls: Vec<(String, oneshot::Receiver<Box<Answer>>)>,
    next: u32,
    /// Where each stream stood after the last step.
    stages: BTreeMap<SessionKey, Stage>,
    /// The operations missing in each session's last answer to a heartbeat.
    unlisted: BTreeMap<SessionKey, HashSet<String>>,
}

impl World {
    fn new() -> Self {
        let mut options = options();
        options.timing.max_age = Duration::from_mins(3);
        options.limits.connect_burst = 1000;
        let recorded = Arc::<Mutex<Option<RecordedOperation>>>::default();
        let looked_up = Arc::clone(&recorded);
        let find = move |uid: &str| looked_up.lock().unwrap().clone().filter(|_| uid == "uid-0");
        let mut hub = Hub::new(options, Records::new(find));
        let now = Instant::now();
        hub.lead(now, Term(1));
        Self {
            hub,
            now,
            streams: BTreeMap::new(),
            held: BTreeMap::new(),
            outcomes: HashMap::new(),
            strange: HashSet::new(),
            told: HashMap::new(),
            recorded,
            calls: Vec::new(),
            next: 0,
            stages: BTreeMap::new(),
            unlisted: BTreeMap::new(),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Dial { instance, retains, holds } => self.dial(instance, retains, holds),
            Action::State { session, readiness, credit } => {
                let state = DriverState {
                    readiness: readiness.into(),
                    max_in_flight: credit.into(),
                    ..DriverState::default()
                };
                self.say(session, register_request::Frame::State(state));
            }
            Action::Beat { session, honest } => self.beat(session, honest),
            Action::Retire { session, at_once } => self.retire(session, at_once),
            Action::Leave { session, seconds } => {
                let drain_deadline = Some(prost_types::Duration { seconds, nanos: 0 });
                let readiness = Readiness::Draining.into();
                let state = DriverState { readiness, drain_deadline, ..DriverState::default() };
                self.say(session, register_request::Frame::State(state));
            }
            Action::Accept { session, operation } => {
                let Some(operation_id) = self.operation(operation) else { return };
                let accepted = OperationAccepted { operation_ids: vec![operation_id] };
                self.say(session, register_request::Frame::Accepted(accepted));
            }
            Action::Progress { session, operation, checkpoint } => {
                let Some(operation_id) = self.operation(operation) else { return };
                let checkpoint = checkpoint.to_string();
                let progress = OperationProgress { operation_id, checkpoint, ..<_>::default() };
                self.say(session, register_request::Frame::Progress(Box::new(progress)));
            }
            Action::Complete { session, operation, error } => {
                let Some(operation_id) = self.operation(operation) else { return };
                let outcome = Some(operation_completed::Outcome::Error(failure(error)));
                let completed =
                    OperationCompleted { operation_id, outcome, ..OperationCompleted::default() };
                self.say(session, register_request::Frame::Completed(Box::new(completed)));
            }
            Action::Break { session, in_order } => {
                if let Some(key) = self.stream(session) {
                    self.streams.remove(&key);
                    if in_order {
                        self.hub.left(self.now, key);
                    } else {
                        self.hub.ended(self.now, key);
                    }
                }
            }
            Action::Submit { target, mutation } => self.submit(target, mutation, None),
            Action::Call { target, mutation } => {
                let (answer, outcome) = oneshot::channel();
                self.submit(target, mutation, Some((answer, outcome)));
            }
            Action::Cancel { operation } => {
                if let Some(id) = self.operation(operation) {
                    self.hub.cancel(self.now, &id.into(), "no");
                }
            }
            Action::Acknowledge { operation } => {
                if let Some(id) = self.operation(operation) {
                    self.hub.acknowledge(self.now, &id.into());
                }
            }
            Action::Abandon { target } => {
                self.abandon(&format!("uid-{target}"));
            }
            Action::Pass { seconds } => {
                self.now += Duration::from_secs(seconds.into());
                self.hub.expire(self.now);
            }
        }
        self.settle();
    }

    fn beat(&mut self, session: u8, honest: bool) {
        let Some(key) = self.stream(session) else { return };
        let Some(instance) = self.streams.get(&key) else { return };
        let own = self.own(*instance).into_iter().map(|held| held.operation_id);
        let running: Vec<String> = if honest { own.collect() } else { Vec::new() };
        let sent = |hub: &Hub| -> HashSet<String> {
            let session = hub.sessions.get(&key);
            let ids = session.into_iter().flat_map(|it| it.in_flight.ids());
            let accepted = ids.filter(|id| hub.operations[*id].accepted());
            accepted.map(ToString::to_string).collect()
        };
        let before = sent(&self.hub);
        let heartbeat = Heartbeat { running: running.clone(), ..Heartbeat::default() };
        self.say(session, register_request::Frame::Heartbeat(heartbeat));
        let after = sent(&self.hub);
        let listed: HashSet<String> = running.into_iter().collect();
        let unlisted: HashSet<String> = before.difference(&listed).cloned().collect();
        let last = self.unlisted.insert(key, unlisted.clone()).unwrap_or_default();
        let expected: HashSet<String> = unlisted.intersection(&last).cloned().collect();
        let lost: HashSet<String> = before.difference(&after).cloned().collect();
        assert_eq!(lost, expected, "only what was not listed twice is lost");
    }

    fn retire(&mut self, session: u8, at_once: bool) {
        let Some(key) = self.stream(session) else { return };
        let Some(id) = self.hub.sessions.get(&key).map(|session| session.id.clone()) else {
            return;
        };
        if at_once {
            self.hub.close(self.now, key, Close::by_hand("no"));
        } else {
            assert!(self.hub.drain_session(self.now, &id, Duration::from_secs(30)));
        }
    }

    fn stream(&self, pick: u8) -> Option<SessionKey> {
        let index = usize::from(pick) % self.streams.len().max(1);
        self.streams.keys().nth(index).copied()
    }

    /// Any operation that was ever submitted or adopted; lately ones are likelier.
    fn operation(&self, pick: u8) -> Option<String> {
        let recent = u32::from(pick) % self.next.clamp(1, 6);
        (self.next > 0).then(|| format!("op-{}", self.next - 1 - recent))
    }

    fn say(&mut self, session: u8, frame: register_request::Frame) {
        let Some(key) = self.stream(session) else { return };
        self.hub.frame(self.now, key, Some(frame));
    }

    fn dial(&mut self, instance: u8, retains: bool, holds: Holds) {
        let operations = match holds {
            Holds::Nothing => {
                self.held.retain(|(holder, _), _| *holder != instance);
                Vec::new()
            }
            Holds::Own => self.own(instance),
            Holds::Strange => {
                let id = format!("op-{}", self.next);
                self.next += 1;
                self.strange.insert(id.clone());
                let held = held(&id, HeldState::Running);
                *self.recorded.lock().unwrap() = Some(recorded(&held));
                vec![held]
            }
            Holds::MadeUp => {
                let id = format!("op-{}", self.next);
                self.next += 1;
                vec![held(&id, HeldState::Running)]
            }
        };
        let capabilities = if retains {
            vec![DriverCapability::ResultRetention.into(), DriverCapability::Progress.into()]
        } else {
            Vec::new()
        };
        let session_id = "earlier".to_owned();
        let hello = Hello {
            provider: PROVIDER.to_owned(),
            instance_id: format!("00000000-0000-4000-8000-0000000000{instance:02x}"),
            capabilities,
            operation_kinds: vec![20, 23, 24, 25],
            max_in_flight: 4,
            resume: Some(Resume { session_id, operations }),
            ..Hello::default()
        };
        let principal = Principal::new("fake", Providers::named([PROVIDER]));
        let open = self.hub.open(self.now, principal, String::new());
        // A core that goes takes no driver.
        assert_eq!(open.is_ok(), self.hub.takes_drivers().is_ok());
        let Ok(key) = open else { return };
        self.streams.insert(key, instance);
        self.hub.frame(self.now, key, Some(register_request::Frame::Hello(Box::new(hello))));
    }

    fn own(&self, instance: u8) -> Vec<HeldOperation> {
        let own = self.held.iter().filter(|((holder, _), _)| *holder == instance);
        own.map(|((_, id), state)| held(id, *state)).collect()
    }

    fn submit(&mut self, target: u8, mutation: bool, call: Option<Call>) {
        let id = format!("op-{}", self.next);
        self.next += 1;
        let provider_id = String::new();
        let request = match (mutation, target) {
            (true, 0) => Request::Delete { provider_id: provider_id.into() },
            (true, _) => Request::Create { user_data: None, provider_id: provider_id.into() },
            (false, _) => Request::Status { provider_id: provider_id.into() },
        };
        let dispatch = Dispatch {
            provider: PROVIDER.into(),
            id: id.clone().into(),
            idempotency_key: id.clone(),
            target: operation::Target { uid: format!("uid-{target}").into(), ..<_>::default() },
            class: None,
            request,
            timeout: Duration::from_secs(150),
            checkpoint: String::new(),
            adopt_by_name: false,
            machine: None,
            lane: Lane::User,
        };
        let (owner, outcome) = match call {
            Some((answer, outcome)) => (Owner::Caller(answer), Some(outcome)),
            None => (Owner::Target, None),
        };
        let order = convert::order(dispatch, "");
        if self.hub.submit(self.now, order, owner).is_ok() {
            self.outcomes.insert(id.clone(), 0);
            self.calls.extend(outcome.map(|outcome| (id, outcome)));
        }
    }

    /// The outcome of what still runs is dropped.
    fn abandon(&mut self, uid: &str) {
        self.hub.abandon(self.now, uid);
        let id = self.hub.slots.get(uid);
        let abandoned = id.filter(|id| !self.hub.operations[*id].is_call());
        abandoned.map(|id| self.outcomes.remove(id.as_str()));
    }

    /// Carries out the hub's requests, with checks.
    fn settle(&mut self) {
        loop {
            let mut effects = Vec::new();
            self.hub.swap_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects {
                self.run(effect);
            }
        }
        for later in self.hub.take_later() {
            if let Later::Answer(operation, outcome) = later {
                operation.answer(outcome);
            }
        }
        for (id, outcome) in &mut self.calls {
            if outcome.try_recv().is_ok() {
                *self.outcomes.get_mut(id).unwrap() += 1;
            }
        }
        self.check();
        self.check_stages();
    }

    /// Every stream went the way of the diagram.
    fn check_stages(&mut self) {
        for key in 1..self.hub.next {
            let now = self.hub.stage(key);
            let before = self.stages.insert(key, now).unwrap_or(Stage::Connected);
            assert!(leads_to(before, now), "{before:?} leads to {now:?}");
        }
    }

    fn run(&mut self, effect: Effect) {
        use crate::session::Frame;
        match effect {
            Effect::Send(key, frame, _) => {
                let Some(instance) = self.streams.get(&key) else { return };
                match frame {
                    Frame::Operation(operation) => {
                        // The operation may have ended with its session within the same step.
                        let known = self.hub.operations.get(operation.operation_id.as_str());
                        let cancelled = known.is_some_and(|known| known.cancelled);
                        assert!(!cancelled, "{operation:?} was cancelled");
                        assert!(self.hub.may_send(self.now), "{operation:?} is sent by no leader");
                        let held = (*instance, operation.operation_id);
                        self.held.insert(held, HeldState::Running);
                    }
                    Frame::ResultAck(ack) => {
                        for id in ack.operation_ids {
                            self.held.remove(&(*instance, id));
                        }
                    }
                    Frame::Welcome(_)
                    | Frame::Cancel(_)
                    | Frame::Role(_)
                    | Frame::Draining(_)
                    | Frame::Heartbeat(_)
                    | Frame::Invalidate(_)
                    | Frame::ProtocolError(_) => {}
                }
            }
            Effect::Close(key, _) => {
                self.streams.remove(&key);
            }
            Effect::Publish(SessionEvent::OutcomeReady { operation_id, .. }) => {
                *self.outcomes.get_mut(operation_id.as_str()).unwrap() += 1;
                self.told.remove(operation_id.as_str());
            }
            Effect::Publish(SessionEvent::Adopted { operation_id, .. }) => {
                assert!(self.strange.contains(operation_id.as_str()), "{operation_id} was made up");
                assert!(self.hub.adoption_open(), "{operation_id} came too late");
                self.outcomes.insert(operation_id.into(), 0);
            }
            Effect::Publish(SessionEvent::Stalled { operation_id, stalled, .. }) => {
                let told = self.tell(operation_id.as_str());
                assert!(!told.lost || !stalled, "{operation_id} is with no session");
                assert_ne!(std::mem::replace(&mut told.stalled, stalled), stalled);
            }
            Effect::Publish(SessionEvent::Lost { operation_id, lost, .. }) => {
                let told = self.tell(operation_id.as_str());
                assert_ne!(std::mem::replace(&mut told.lost, lost), lost, "{operation_id}");
            }
            Effect::Publish(_) | Effect::CheckReading(_) | Effect::Flush(_) => {}
        }
    }

    /// INV-8 and INV-1: every operation is in exactly one place, and a target has one mutation.
    fn check(&self) {
        let hub = &self.hub;
        let mut mutations = HashSet::new();
        let (mut queued, mut sent, mut away) = (0, 0, 0);
        for (id, operation) in &hub.operations {
            match &operation.place {
                Place::Queued(_) => queued += 1,
                Place::Sent(key) => {
                    sent += 1;
                    let work = &hub.sessions[key].in_flight;
                    assert!(work.ids().any(|sent| sent == id), "{id} is not sent");
                }
                Place::Away(lost) => {
                    away += 1;
                    assert!(hub.lost[lost].operations.contains(id), "{id} is not away");
                }
                Place::Finished { .. } => {}
            }
            let uid = &operation.target().uid;
            if operation.kind.is_mutation() {
                assert!(mutations.insert(uid.clone()), "{uid} has two mutations");
            }
            if operation.kind.is_mutation() || matches!(operation.owner, Owner::Target) {
                assert_eq!(hub.slots.get(uid.as_str()), Some(id), "{id} has no slot");
            }
            assert!(hub.timers.is_set(&Timer::Operation(id.clone())), "{id} has no end");
        }
        self.check_flow();
        self.check_told();
        for (key, session) in &hub.sessions {
            let ages = hub.timers.is_set(&Timer::Age(*key)) || session.is_retired();
            assert!(ages == session.driver.retains || session.is_retired(), "{key} never ends");
            let ends = session.closes.into_iter().chain(session.ends).min();
            assert_eq!(hub.timers.due(&Timer::Drained(*key)), ends, "{key} drains");
        }
        let queues: usize = hub.providers.values().map(|provider| provider.queue.len()).sum();
        let in_flight: usize = hub.sessions.values().map(|session| session.in_flight.len()).sum();
        let lost: usize = hub.lost.values().map(|lost| lost.operations.len()).sum();
        assert_eq!((queues, in_flight, lost), (queued, sent, away));
        assert!(hub.slots.values().all(|id| hub.operations.contains_key(id)));
        for provider in hub.providers.values() {
            let active = provider.active.map(|key| &hub.sessions[&key]);
            assert!(active.is_none_or(|session| !session.is_draining()));
            let shown = active.map(|session| (session.is_ready(), session.reason.as_str()));
            let told = (provider.announced, provider.reason.as_str());
            assert_eq!(told, shown.unwrap_or_default());
        }
        assert!(self.outcomes.values().all(|count| *count <= 1), "{:?}", self.outcomes);
    }

    /// No more is unread than may be, nothing waits without a reason, and only what runs is watched.
    fn check_flow(&self) {
        let hub = &self.hub;
        let window = hub.options.limits.unaccepted_bytes;
        for session in hub.sessions.values() {
            let operations = session.in_flight.ids().map(|id| &hub.operations[id]);
            let unread: Vec<usize> =
                operations.filter(|it| !it.accepted()).map(|it| it.bytes).collect();
            assert_eq!(unread.iter().sum::<usize>(), session.unaccepted);
            let last = unread.iter().max().copied().unwrap_or_default();
            assert!(session.unaccepted < window + last, "{unread:?}");
        }
        for (name, provider) in &hub.providers {
            let active = provider.active.map(|key| &hub.sessions[&key]);
            let free = active.is_some_and(|session| session.has_credit(window));
            let held = active.map(|session| provider.held(self.now, session));
            let waits = held.is_some_and(|held| provider.queue.peek_oldest(held).is_some());
            let by_rate = provider.pace.next(self.now).is_some();
            let sends = hub.may_send(self.now);
            let has_reason = by_rate || !sends;
            assert!(!(free && waits) || has_reason, "{name} has credit, and something waits");
            if sends && free && by_rate && provider.queue.len() > 0 {
                assert!(hub.timers.is_set(&Timer::Rate(name.clone())), "{name} is never woken");
            }
            if provider.pace.paused_until(self.now).is_some() {
                assert!(hub.timers.is_set(&Timer::Pause(name.clone())), "{name} pauses for ever");
            }
        }
        for (id, operation) in &hub.operations {
            let watched = hub.timers.is_set(&Timer::Stall(id.clone()));
            let runs = matches!(operation.place, Place::Sent(_)) && operation.accepted();
            let asked = operation.interval.is_some() && !operation.stalled;
            assert!(watched == (runs && asked) || !runs && !watched, "{id}: {:?}", operation.place);
        }
    }

    /// The core is about to go: it sends nothing any more.
    fn finish(&mut self) {
        self.hub.wind_down(self.now);
        let calls = self.hub.operations.values().filter(|it| it.is_call());
        let queued = calls.filter(|it| matches!(it.place, Place::Queued(_))).count();
        assert_eq!(queued, 0, "an operation waits that is never sent");
        self.settle();
    }

    /// Everybody goes, and a long time passes.
    fn end(mut self) {
        for key in std::mem::take(&mut self.streams).into_keys() {
            self.hub.ended(self.now, key);
        }
        self.settle();
        self.now += Duration::from_hours(3);
        while self.hub.next_deadline().is_some_and(|next| next <= self.now) {
            self.hub.expire(self.now);
            self.settle();
            self.now += Duration::from_hours(3);
        }
        assert!(self.hub.operations.is_empty() && self.hub.slots.is_empty());
        assert!(self.hub.lost.is_empty() && self.hub.providers.is_empty());
        assert!(self.hub.guests.is_empty() && self.hub.sessions.is_empty());
        assert!(self.hub.timers.none_is_set());
        assert!(self.outcomes.values().all(|count| *count == 1), "{:?}", self.outcomes);
    }
}

/// A slow provider, and room for one operation that was not accepted.
fn options() -> SessionsOptions {
    let rates = BTreeMap::from([(PROVIDER.into(), "0.1:4".parse().unwrap())]);
    let mut options = SessionsOptions { rates, ..SessionsOptions::default() };
    options.limits.unaccepted_bytes = 1;
    options
}

fn failure(failing: Failing) -> OperationError {
    let (code, reason) = match failing {
        Failing::Somehow => return OperationError::default(),
        Failing::Throttled => (MachineErrorCode::ResourceExhausted, Reason::Throttled),
        Failing::Draining => (MachineErrorCode::Unavailable, Reason::DriverDraining),
    };
    OperationError {
        code: code.into(),
        reason: reason.into(),
        certainty: OutcomeCertainty::NotApplied.into(),
        ..OperationError::default()
    }
}

fn held(id: &str, state: HeldState) -> HeldOperation {
    HeldOperation {
        operation_id: id.to_owned(),
        idempotency_key: id.to_owned(),
        target: Some(Target { uid: "uid-0".to_owned(), ..Target::default() }),
        state: state.into(),
        kind: OperationKind::DeleteMachine.number(),
        machine_class: None,
    }
}

fn recorded(held: &HeldOperation) -> RecordedOperation {
    RecordedOperation {
        operation_id: held.operation_id.clone().into(),
        kind: OperationKind::DeleteMachine,
        idempotency_key: held.idempotency_key.clone(),
        term: Term(0),
        target: operation::Target { uid: "uid-0".into(), ..<_>::default() },
        class: ClassReference::default(),
        provider: PROVIDER.into(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_every_operation_has_one_outcome_and_nothing_is_left(
        actions in prop::collection::vec(action(), 1..80),
        // While the core goes, if it goes in order.
        last in prop::option::of(prop::collection::vec(action(), 0..20)),
    ) {
        let mut world = World::new();
        for action in actions {
            world.act(action);
        }
        if let Some(last) = last {
            world.finish();
            for action in last {
                world.act(action);
            }
        }
        world.end();
    }
}

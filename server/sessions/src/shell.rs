//! Around the hub: lock, clock, and execution of effects.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, broadcast, watch};
use tokio::time::Instant;

use crate::hub::{Effect, Hub, Later, Map, SessionKey};
use crate::metrics::Metrics;
use crate::record::Records;
use crate::revisions::RevisionCache;
use crate::session::Close;
use crate::session::outbox::Outbox;
use crate::tail::{Tail, Tap};
use crate::{
    Authenticator, ClassSource, Gate, GateRules, Principal, SessionEvent, SessionsOptions, Term,
};

/// Most events that a subscriber may lag behind before looking for itself.
const EVENTS: usize = 4096;

/// Room for effects that is kept between calls; a burst may need more for a moment.
const EFFECTS: usize = 256;

/// Everything behind [`crate::Sessions`].
pub(crate) struct Shell {
    pub(crate) options: SessionsOptions,
    pub(crate) classes: Arc<dyn ClassSource>,
    pub(crate) tokens: Arc<dyn Authenticator>,
    pub(crate) revisions: RevisionCache,
    pub(crate) events: broadcast::Sender<SessionEvent>,
    pub(crate) metrics: Metrics,
    pub(crate) tail: Arc<Tail>,
    /// Of the listeners for drivers.
    pub(crate) gate: Gate,
    /// Whether this core leads.
    pub(crate) leading: watch::Sender<bool>,
    /// Whether this core goes, and no driver looks anything up for it.
    finished: watch::Sender<bool>,
    state: Mutex<State>,
    /// Rings when the next deadline is earlier than the clock knows, and when the shell is gone.
    alarm: Arc<Notify>,
}

struct State {
    hub: Hub,
    outboxes: Map<SessionKey, Outbox>,
    /// Empty between calls.
    effects: Vec<Effect>,
    /// The clock's next wake-up.
    armed: Option<Instant>,
    /// Whether the end was reported.
    finished: bool,
}

impl Shell {
    /// Starts the clock; must be called on a tokio runtime.
    pub(crate) fn start(
        options: SessionsOptions,
        classes: Arc<dyn ClassSource>,
        tokens: Arc<dyn Authenticator>,
    ) -> Arc<Self> {
        let source = Arc::clone(&classes);
        let records = Records::new(move |target_uid| source.recorded(target_uid));
        let state = State {
            hub: Hub::new(options.clone(), records),
            outboxes: Map::default(),
            effects: Vec::new(),
            armed: None,
            finished: false,
        };
        let shell = Arc::new(Self {
            revisions: RevisionCache::new(options.limits.class_revisions),
            classes,
            tokens,
            events: broadcast::channel(EVENTS).0,
            metrics: Metrics::default(),
            tail: Arc::default(),
            gate: Gate::new(GateRules::new(options.limits.connections)),
            leading: watch::Sender::new(false),
            finished: watch::Sender::new(false),
            state: Mutex::new(state),
            alarm: Arc::new(Notify::new()),
            options,
        });
        shell.start_clock();
        shell
    }

    /// Calls `act` with the hub, and then carries out the hub's effects.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Hub, Instant) -> R) -> R {
        self.locked(|state, now| act(&mut state.hub, now))
    }

    /// The core leads from now on.
    pub(crate) fn lead(&self, term: Term) {
        self.with(|hub, now| hub.lead(now, term));
        self.leading.send_replace(true);
    }

    /// The core asks drivers, and leads nothing.
    pub(crate) fn look(&self) {
        self.with(|hub, _| hub.look());
        self.leading.send_replace(true);
    }

    /// Nothing is sent any more. Waits until no driver looks anything up for this core, for a while.
    pub(crate) async fn finish(&self) {
        self.with(Hub::wind_down);
        let mut finished = self.finished.subscribe();
        let all = finished.wait_for(|finished| *finished);
        if tokio::time::timeout(self.options.timing.finish, all).await.is_err() {
            tracing::info!("drivers look something up for too long; it is given up");
        }
    }

    /// Nothing is sent any more, and every stream ends.
    pub(crate) fn stop(&self) {
        self.with(Hub::stop);
        self.leading.send_replace(false);
    }

    /// Opens a stream: returns its key, and the source of its frames.
    pub(crate) fn open(
        &self,
        principal: Principal,
        peer: String,
    ) -> Result<(SessionKey, Outbox), Close> {
        let outbox = Outbox::tapped(self.options.limits.outbox, Tap::new(&self.tail));
        self.locked(|state, now| {
            let key = state.hub.open(now, principal, peer)?;
            state.outboxes.insert(key, outbox.clone());
            Ok((key, outbox))
        })
    }

    /// The stream ended by itself: in order by the driver, or broken.
    pub(crate) fn ended(&self, key: SessionKey, in_order: bool) {
        self.locked(|state, now| {
            state.outboxes.remove(&key);
            if in_order { state.hub.left(now, key) } else { state.hub.ended(now, key) }
        });
    }

    fn locked<R>(&self, act: impl FnOnce(&mut State, Instant) -> R) -> R {
        let mut state = self.state.lock();
        let now = Instant::now();
        let result = act(&mut state, now);
        let mut effects = std::mem::take(&mut state.effects);
        loop {
            state.hub.swap_effects(&mut effects);
            if effects.is_empty() {
                break;
            }
            for effect in effects.drain(..) {
                self.run(&mut state, now, effect);
            }
        }
        effects.shrink_to(EFFECTS);
        state.effects = effects;
        let finished = state.hub.is_wound_down();
        if std::mem::replace(&mut state.finished, finished) != finished {
            self.finished.send_replace(finished);
        }
        let next = state.hub.next_deadline();
        if next.is_some_and(|next| state.armed.is_none_or(|armed| next < armed)) {
            state.armed = next;
            self.alarm.notify_one();
        }
        let later = state.hub.take_later();
        drop(state);
        for later in later {
            match later {
                Later::Count(count) => self.metrics.count(count),
                Later::Answer(operation, answer) => operation.answer(answer),
                Later::Span(span) => self.options.traces.record(*span),
                Later::Forget(operation) => drop(operation),
            }
        }
        result
    }

    fn run(&self, state: &mut State, now: Instant, effect: Effect) {
        match effect {
            Effect::Send(key, frame, room) => {
                let room = state.outboxes.get(&key).is_none_or(|outbox| outbox.push(frame, room));
                if !room {
                    state.hub.close(now, key, Close::not_reading());
                }
            }
            Effect::Flush(key) => {
                if let Some(outbox) = state.outboxes.get(&key) {
                    outbox.flush();
                }
            }
            Effect::CheckReading(key) => {
                let limit = self.options.timing.not_reading;
                if state.outboxes.get(&key).is_some_and(|outbox| outbox.stalled(limit)) {
                    state.hub.close(now, key, Close::not_reading());
                }
            }
            Effect::Close(key, close) => {
                if let Some(outbox) = state.outboxes.remove(&key) {
                    outbox.close(&close);
                }
            }
            // There may be no subscriber; the views show the same.
            Effect::Publish(event) => drop(self.events.send(event)),
        }
    }

    /// Lets the hub expire due timers, for as long as the shell lives.
    fn start_clock(self: &Arc<Self>) {
        let shell = Arc::downgrade(self);
        let alarm = Arc::clone(&self.alarm);
        tokio::spawn(async move {
            loop {
                let Some(next) = shell.upgrade().map(|shell| shell.arm()) else { return };
                let due = async {
                    match next {
                        Some(next) => tokio::time::sleep_until(next).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = due => {}
                    () = alarm.notified() => continue,
                }
                let Some(shell) = shell.upgrade() else { return };
                shell.with(Hub::expire);
            }
        });
    }

    fn arm(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        state.armed = state.hub.next_deadline();
        state.armed
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.alarm.notify_one();
    }
}

impl fmt::Debug for Shell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shell").finish_non_exhaustive()
    }
}

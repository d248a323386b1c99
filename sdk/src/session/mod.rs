//! A driver's side of the session.
//!
//! [`protocol`] holds every rule and does no input or output; [`link`] holds the connection; the
//! [`Shell`] here carries frames and answers between them and the verbs.

mod admission;
mod backoff;
mod completion;
mod dispatch;
mod fence;
#[cfg(any(feature = "fuzz", test))]
pub mod fuzz;
mod hello;
mod ledger;
mod link;
mod outbox;
mod protocol;
mod traced;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ostler_proto::v1alpha1 as proto;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::dispatch::{Dispatcher, Finished};
use self::hello::Instance;
use self::link::{Event, Link};
use self::protocol::{Effect, Protocol};
use crate::connect::Cutter;
use crate::context::Report;
use crate::error::DriverError;
use crate::events::Events;
use crate::handler::Handler;
use crate::library::{Client, Library, Session};
use crate::options::Options;
use crate::readiness::Readiness;

/// Progress on its way from the verbs; more is dropped.
const REPORTS: usize = 256;
/// Frames and answers that are handled before anything else has its turn.
const AT_ONCE: usize = 32;
/// For the acknowledgement of results that were made by the end of the drain.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Serves until `options.shutdown` is cancelled and the drain is over.
pub(crate) async fn serve<H: Handler>(handler: H, options: Options) {
    let Options { connector, shutdown, hurry, drain_timeout, instance_name, cutter, traces } =
        options;
    let id = handler.instance_id().unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let instance = Instance { id, name: instance_name };
    let (session, sessions) = watch::channel(None);
    let (reports, inbox) = mpsc::channel(REPORTS);
    let held = handler.held();
    let running: Vec<String> = held.iter().map(|held| held.operation_id.clone()).collect();
    let mut protocol = Protocol::new(handler.info(), instance, held);
    let (readiness, events) = (handler.readiness(), handler.events());
    protocol.tells_events(events.is_some());
    let mut lack = readiness.watch();
    // There is no session yet that could be told.
    let _unsaid = protocol.on_readiness(lack.borrow_and_update().clone());
    let library = Arc::new(Library::new(sessions));
    let dispatcher = Dispatcher { handler: Arc::new(handler), library, reports, traces };
    let mut shell = Shell {
        dispatcher,
        protocol,
        link: Link::new(connector),
        cutter,
        client: None,
        session,
        inbox,
        _readiness: readiness,
        lack,
        events,
        tasks: JoinSet::new(),
        cancels: HashMap::new(),
        drain: None,
    };
    for operation_id in running {
        let token = CancellationToken::new();
        shell.cancels.insert(operation_id.clone(), token.clone());
        shell.tasks.spawn(shell.dispatcher.resume(operation_id, token));
    }
    shell.serve(shutdown, hurry, drain_timeout).await;
}

struct Shell<H> {
    dispatcher: Dispatcher<H>,
    protocol: Protocol,
    link: Link,
    cutter: Cutter,
    client: Option<Client>,
    session: watch::Sender<Option<Session>>,
    inbox: mpsc::Receiver<Report>,
    /// Keeps `lack` open if the driver keeps no handle of its own.
    _readiness: Readiness,
    lack: watch::Receiver<Option<String>>,
    events: Option<Events>,
    tasks: JoinSet<Finished>,
    /// One for each running operation.
    cancels: HashMap<String, CancellationToken>,
    drain: Option<Drain>,
}

/// The end of the process, once it was asked for.
#[derive(Debug, Clone, Copy)]
enum Drain {
    /// Verbs may finish until then.
    Finishing { until: Instant },
    /// All verbs are gone; the core may acknowledge until then.
    Parting { until: Instant },
}

impl<H: Handler> Shell<H> {
    async fn serve(
        mut self,
        shutdown: CancellationToken,
        hurry: CancellationToken,
        drain_timeout: Duration,
    ) {
        while !self.is_over() {
            let deadline = self.drain.map(Drain::until);
            let accept = self.protocol.accept_at();
            tokio::select! {
                event = self.link.next() => {
                    self.on_link(event);
                    self.catch_up();
                }
                Some(joined) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    self.on_joined(joined);
                    self.catch_up();
                }
                Some(report) = self.inbox.recv() => self.on_report(report),
                () = self.cutter.wanted() => self.cut(),
                Ok(()) = self.lack.changed() => self.on_readiness(),
                event = next(self.events.as_ref()) => {
                    let effect = self.protocol.on_event(event);
                    self.apply(effect);
                }
                () = shutdown.cancelled(), if self.drain.is_none() => self.start_drain(drain_timeout),
                () = hurry.cancelled(), if matches!(self.drain, Some(Drain::Finishing { .. })) => {
                    self.end_drain();
                }
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.end_drain();
                }
                () = sleep_until(accept.unwrap_or_else(Instant::now)), if accept.is_some() => {
                    let effect = self.protocol.accept_running(Instant::now());
                    self.apply(effect);
                }
            }
            if self.link.is_leaving() && self.protocol.is_idle() {
                self.link.leave_now();
            }
        }
        self.link.finish().await;
    }

    fn is_over(&self) -> bool {
        match self.drain {
            None => false,
            Some(Drain::Finishing { .. }) => self.protocol.is_idle(),
            Some(Drain::Parting { until }) => self.protocol.is_idle() || Instant::now() >= until,
        }
    }

    fn on_link(&mut self, event: Event) {
        match event {
            Event::Dialed => {
                self.client = self.link.client();
                let hello = self.protocol.hello(SystemTime::now());
                self.link.register(hello);
            }
            Event::Frame(received) => {
                let effects = self.protocol.on_frame(received.frame, Instant::now());
                self.apply(effects);
            }
            Event::Closed => {
                self.protocol.on_disconnected();
                self.session.send_replace(None);
            }
        }
    }

    /// Frames and answers that are there with the first one: they come in bursts, and to wait for everything
    /// else anew takes longer than to handle one.
    fn catch_up(&mut self) {
        for _ in 0..AT_ONCE {
            let frame = self.link.there().map(|event| self.on_link(event));
            let joined = self.tasks.try_join_next().map(|joined| self.on_joined(joined));
            if frame.or(joined).is_none() {
                return;
            }
        }
    }

    fn on_joined(&mut self, joined: Result<Finished, JoinError>) {
        if let Ok(finished) = joined {
            self.on_finished(finished);
        }
    }

    fn cut(&mut self) {
        self.link.cut();
        self.on_link(Event::Closed);
        self.cutter.done();
    }

    fn on_finished(&mut self, finished: Finished) {
        // Reports of the verb from before its answer go first.
        while let Ok(report) = self.inbox.try_recv() {
            self.on_report(report);
        }
        let Finished { operation_id, answer, checkpoint } = finished;
        self.cancels.remove(&operation_id);
        match &answer {
            Ok(_) => tracing::debug!(operation = %operation_id, "operation done"),
            Err(error) => tracing::info!(operation = %operation_id, %error, "operation failed"),
        }
        let effects = self.protocol.on_finished(&operation_id, answer, checkpoint, Instant::now());
        self.apply(effects);
    }

    fn on_readiness(&mut self) {
        let lack = self.lack.borrow_and_update().clone();
        if let Some(reason) = &lack {
            tracing::warn!(reason, "the driver cannot work for now");
        } else {
            tracing::info!("the driver can work");
        }
        let effect = self.protocol.on_readiness(lack);
        self.apply(effect);
    }

    fn on_report(&mut self, report: Report) {
        let Report { operation_id, stage, message, percent, checkpoint } = report;
        let progress =
            proto::OperationProgress { operation_id, stage, message, percent, checkpoint };
        let effect = self.protocol.on_progress(progress);
        self.apply(effect);
    }

    fn apply(&mut self, effects: impl IntoIterator<Item = Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(frame) => self.link.send(frame),
                Effect::Start(operation) => self.start(*operation),
                Effect::Cancel(operation_id) => {
                    if let Some(token) = self.cancels.get(&operation_id) {
                        token.cancel();
                    }
                }
                Effect::Welcomed { session_id, heartbeat } => {
                    tracing::info!(%session_id, "session is up");
                    self.link.welcomed(heartbeat);
                    self.dispatcher.library.clear();
                    let client = self.client.clone();
                    let session = client.map(|client| Session { client, session_id });
                    self.session.send_replace(session);
                }
                Effect::Invalidate(stale) => self.dispatcher.library.invalidate(&stale),
                Effect::Leave { close_in, dial } => self.link.leave(close_in, dial),
            }
        }
    }

    fn start(&mut self, operation: proto::Operation) {
        let target = operation.target.as_ref().map_or("", |target| target.name.as_str());
        tracing::debug!(operation = %operation.operation_id, target, "operation accepted");
        let token = CancellationToken::new();
        self.cancels.insert(operation.operation_id.clone(), token.clone());
        self.tasks.spawn(self.dispatcher.perform(operation, token));
    }

    fn start_drain(&mut self, time: Duration) {
        tracing::info!(running = self.protocol.running().len(), ?time, "draining");
        self.drain = Some(Drain::Finishing { until: Instant::now() + time });
        let effect = self.protocol.drain(time);
        self.apply(effect);
    }

    /// At the end of the drain: ends the verbs and tells the core that the outcome is unknown.
    fn end_drain(&mut self) {
        if matches!(self.drain, Some(Drain::Parting { .. })) {
            return;
        }
        let until = Instant::now() + LAST_WORDS;
        self.drain = Some(Drain::Parting { until });
        self.tasks.abort_all();
        for operation_id in self.protocol.running() {
            let stopped = DriverError::unavailable("the driver had to end before the operation")
                .reason("DRIVER_STOPPED");
            let finished = Finished { operation_id, answer: Err(stopped), checkpoint: None };
            self.on_finished(finished);
        }
    }
}

/// The next event of the driver, if it tells any.
async fn next(events: Option<&Events>) -> proto::DriverEvent {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

impl Drain {
    fn until(self) -> Instant {
        match self {
            Self::Finishing { until } | Self::Parting { until } => until,
        }
    }
}

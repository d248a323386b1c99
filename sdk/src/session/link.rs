//! The connection to the core: dials, registers, sends, receives, and starts again.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use ostler_proto::v1alpha1 as proto;
use proto::driver_service_client::DriverServiceClient;
use proto::register_request::Frame;
use proto::{RegisterRequest, RegisterResponse};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Code, Response, Status, Streaming};
use tonic_types::StatusExt as _;

use super::backoff::{Backoff, LONGEST, SEARCH};
use super::outbox::Outbox;
use super::protocol::Dial;
use crate::connect::{ConnectError, Connection, Connector};
use crate::diagnosis;
use crate::error::chain;
use crate::library::Client;
use crate::limits::MAX_FRAME_BYTES;

/// For the connection, for the headers of the stream, and for the first frame in it.
const DIAL_TIMEOUT: Duration = Duration::from_secs(20);
/// In whose name the core gives reasons in statuses.
const DOMAIN: &str = "ostler.dev";
/// After a refusal that would only be repeated.
const REFUSED_WAIT: Duration = Duration::from_mins(5);
/// However soon the core wants us back.
const SOONEST: Duration = Duration::from_millis(100);
/// The queue of frames for a core that reads slowly. One long list and all results fit.
const QUEUE_FRAMES: usize = 2048;
/// From here on progress and events are dropped: they are the only frames that may be lost.
const BUSY_FRAMES: usize = 256;
/// So many heartbeats may be missing before the core counts as gone.
const MISSED_HEARTBEATS: u32 = 4;
/// For the last frames and the end of the stream.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

type Registered = Result<Response<Streaming<RegisterResponse>>, Status>;

/// An event of the link.
#[derive(Debug)]
pub(crate) enum Event {
    /// Connected; [`Link::register`] must follow.
    Dialed,
    /// A frame arrived.
    Frame(RegisterResponse),
    /// The session is gone.
    Closed,
}

/// One connection after the other. Give [`next`](Self::next) a turn in every loop.
pub(crate) struct Link {
    connector: Connector,
    backoff: Backoff,
    /// While a core that leads is looked for.
    search: Backoff,
    state: State,
    live_since: Option<Instant>,
    /// The core must be heard at least this often; before its Welcome within this time.
    silence: Option<Duration>,
    heard: Instant,
    /// When and how to leave, once the core said so.
    leaving: Option<(Instant, Dial)>,
    /// The log already says that the reached core does not lead.
    looking: bool,
}

enum State {
    Waiting { until: Instant },
    Dialing(BoxFuture<'static, Result<Connection, ConnectError>>),
    Dialed(Client),
    Registering { answer: BoxFuture<'static, Registered>, outbox: Outbox },
    Open { inbound: Box<Streaming<RegisterResponse>>, outbox: Outbox },
}

enum Step {
    Dial,
    Dialed(Result<Connection, ConnectError>),
    Registered(Box<Registered>),
    Received(Result<Option<RegisterResponse>, Status>),
    Silence,
    Leave,
}

impl Link {
    pub(crate) fn new(connector: Connector) -> Self {
        let now = Instant::now();
        Self {
            connector,
            backoff: Backoff::up_to(LONGEST),
            search: Backoff::up_to(SEARCH),
            state: State::Waiting { until: now },
            live_since: None,
            silence: None,
            heard: now,
            leaving: None,
            looking: false,
        }
    }

    /// The next thing that happens. Nothing is lost if it is dropped half way.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            let step = self.step().await;
            if let Some(event) = self.apply(step) {
                return event;
            }
        }
    }

    /// A frame that is there already.
    pub(crate) fn there(&mut self) -> Option<Event> {
        let State::Open { inbound, .. } = &mut self.state else { return None };
        let received = inbound.message().now_or_never()?;
        Some(self.on_received(received))
    }

    async fn step(&mut self) -> Step {
        let silent = self.silence.map(|silence| self.heard + silence);
        let leave = self.leaving.map(|(at, _)| at);
        match &mut self.state {
            State::Waiting { until } => {
                sleep_until(*until).await;
                Step::Dial
            }
            State::Dialing(dial) => Step::Dialed(dial.await),
            // The owner has to register first.
            State::Dialed(_) => std::future::pending().await,
            State::Registering { answer, .. } => Step::Registered(Box::new(answer.await)),
            State::Open { inbound, .. } => tokio::select! {
                step = heard(inbound.message(), silent) => step,
                () = at(leave) => Step::Leave,
            },
        }
    }

    fn apply(&mut self, step: Step) -> Option<Event> {
        match step {
            Step::Dial => {
                self.state = State::Dialing(dial(&self.connector));
                None
            }
            Step::Dialed(Ok(connection)) => {
                let Connection { channel, bearer } = connection;
                let client = DriverServiceClient::with_interceptor(channel, bearer);
                self.state = State::Dialed(client);
                Some(Event::Dialed)
            }
            Step::Dialed(Err(error)) => {
                tracing::warn!(error = %chain(&error), "cannot reach the core");
                self.close(Dial::Backoff);
                None
            }
            Step::Registered(answer) => self.on_registered(*answer),
            Step::Received(received) => Some(self.on_received(received)),
            Step::Silence => {
                tracing::warn!("the core fell silent");
                Some(self.closed(Dial::Backoff))
            }
            Step::Leave => {
                let dial = self.leaving.map_or(Dial::Backoff, |(_, dial)| dial);
                Some(self.closed(dial))
            }
        }
    }

    fn on_registered(&mut self, answer: Registered) -> Option<Event> {
        let waiting = State::Waiting { until: Instant::now() };
        match (answer, std::mem::replace(&mut self.state, waiting)) {
            (Ok(response), State::Registering { outbox, .. }) => {
                let inbound = Box::new(response.into_inner());
                self.state = State::Open { inbound, outbox };
                None
            }
            (Err(status), _) => Some(self.closed(after(&status))),
            (Ok(_), _) => Some(self.closed(Dial::Backoff)),
        }
    }

    fn on_received(&mut self, received: Result<Option<RegisterResponse>, Status>) -> Event {
        match received {
            Ok(Some(frame)) => {
                self.heard = Instant::now();
                Event::Frame(frame)
            }
            Ok(None) => {
                tracing::info!("the core ended the session");
                let dial = self.leaving.map_or(Dial::Backoff, |(_, dial)| dial);
                self.closed(dial)
            }
            Err(status) => {
                let dial = self.leaving.map_or_else(|| after(&status), |(_, dial)| dial);
                self.closed(dial)
            }
        }
    }

    fn closed(&mut self, dial: Dial) -> Event {
        self.close(dial);
        Event::Closed
    }

    fn close(&mut self, dial: Dial) {
        let now = Instant::now();
        let lived = self.live_since.take().map_or(Duration::ZERO, |since| now - since);
        let wait = match dial {
            Dial::Backoff => self.backoff.next(lived, rand::random()),
            Dial::After(time) => time.max(SOONEST),
            Dial::Refused => REFUSED_WAIT,
            Dial::Elsewhere => self.search.next(lived, rand::random()),
            Dial::NotBefore(time) => time + self.backoff.next(lived, rand::random()),
        };
        match dial {
            Dial::Elsewhere if std::mem::replace(&mut self.looking, true) => {}
            Dial::Elsewhere => {
                tracing::info!("this core does not lead; looking for the one that does");
            }
            Dial::Backoff | Dial::After(_) | Dial::Refused | Dial::NotBefore(_) => {
                tracing::info!(?wait, "dialing again");
            }
        }
        self.state = State::Waiting { until: now + wait };
        self.silence = None;
        self.leaving = None;
    }

    /// Opens the session with its first frame. That frame has to be in the pipe before the core's
    /// answer is awaited: the core may send no headers before it has something to answer to.
    pub(crate) fn register(&mut self, hello: Frame) {
        let State::Dialed(client) = &self.state else { return };
        let mut client = client
            .clone()
            .max_decoding_message_size(MAX_FRAME_BYTES)
            .max_encoding_message_size(MAX_FRAME_BYTES);
        let outbox = Outbox::default();
        self.heard = Instant::now();
        self.silence = Some(DIAL_TIMEOUT);
        outbox.push(RegisterRequest { frame: Some(hello) });
        let frames = outbox.frames();
        let answer = Box::pin(async move {
            let answer = timeout(DIAL_TIMEOUT, client.register(frames)).await;
            answer.unwrap_or_else(|_| Err(Status::unavailable("no answer to the registration")))
        });
        self.state = State::Registering { answer, outbox };
    }

    /// For unary calls beside the session.
    pub(crate) fn client(&self) -> Option<Client> {
        match &self.state {
            State::Dialed(client) => Some(client.clone()),
            State::Waiting { .. }
            | State::Dialing(_)
            | State::Registering { .. }
            | State::Open { .. } => None,
        }
    }

    /// The core answered the Hello; from now on it must be heard every heartbeat.
    pub(crate) fn welcomed(&mut self, heartbeat: Option<Duration>) {
        self.live_since = Some(Instant::now());
        self.looking = false;
        self.search = Backoff::up_to(SEARCH);
        self.silence = heartbeat
            .filter(|interval| !interval.is_zero())
            .map(|interval| interval.saturating_mul(MISSED_HEARTBEATS));
    }

    /// Queues a frame. A core that does not read at all loses the session; results stay with us.
    pub(crate) fn send(&mut self, frame: Frame) {
        let Some(outbox) = self.outbox() else { return };
        let waiting = outbox.waiting();
        if matches!(frame, Frame::Progress(_) | Frame::Event(_)) && waiting >= BUSY_FRAMES {
            return;
        }
        if waiting >= QUEUE_FRAMES {
            tracing::warn!("the core does not read");
            self.leave(Duration::ZERO, Dial::Backoff);
            return;
        }
        outbox.push(RegisterRequest { frame: Some(frame) });
    }

    fn outbox(&self) -> Option<&Outbox> {
        match &self.state {
            State::Registering { outbox, .. } | State::Open { outbox, .. } => Some(outbox),
            State::Waiting { .. } | State::Dialing(_) | State::Dialed(_) => None,
        }
    }

    /// Drops the connection, if there is one, with all frames on their way.
    pub(crate) fn cut(&mut self) {
        if !matches!(self.state, State::Waiting { .. }) {
            self.close(Dial::Backoff);
        }
    }

    /// Lets the connection go within `close_in`, or when the core ends it.
    pub(crate) fn leave(&mut self, close_in: Duration, dial: Dial) {
        let dial = match (self.leaving, dial) {
            // The core has said when to come back; that it closes now changes nothing about it.
            (Some((_, before)), Dial::Backoff) => before,
            _ => dial,
        };
        self.leaving = Some((Instant::now() + close_in, dial));
    }

    /// Whether [`leave`](Self::leave) was called on this connection.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// Leaves now.
    pub(crate) fn leave_now(&mut self) {
        if let Some((at, _)) = &mut self.leaving {
            *at = Instant::now();
        }
    }

    /// Sends what is queued and waits a moment for the core to end the stream.
    pub(crate) async fn finish(mut self) {
        let finish = async {
            let State::Open { inbound, outbox } = &mut self.state else { return };
            // Ends our half of the stream.
            outbox.end();
            while let Ok(Some(_)) = inbound.message().await {}
        };
        if timeout(FINISH_TIMEOUT, finish).await.is_err() {
            tracing::debug!("the core did not end the stream");
        }
    }
}

fn dial(connector: &Connector) -> BoxFuture<'static, Result<Connection, ConnectError>> {
    let connect = connector.connect();
    Box::pin(
        async move { timeout(DIAL_TIMEOUT, connect).await.unwrap_or(Err(ConnectError::Timeout)) },
    )
}

/// When to dial after the stream failed. Only a refusal has a meaning of its own: a broken link
/// shows as any code.
fn after(status: &Status) -> Dial {
    let details = status.get_error_details();
    let word = details.error_info().filter(|info| info.domain == DOMAIN);
    match word.map(|info| info.reason.as_str()) {
        Some("NOT_LEADER") => return Dial::Elsewhere,
        Some(_) if status.code() == Code::PermissionDenied => {
            tracing::error!(message = %status.message(), "the core refuses this driver");
            return Dial::Refused;
        }
        _ => {}
    }
    // With a cause, it is not the core that speaks but the transport.
    let cause = std::error::Error::source(status).map(chain);
    let (code, message, remedy) = (status.code(), status.message(), diagnosis::of(status));
    tracing::warn!(?code, message, cause, remedy, "the session broke");
    let delay = details.retry_info().and_then(|info| info.retry_delay);
    delay.map_or(Dial::Backoff, |delay| Dial::NotBefore(delay.min(LONGEST)))
}

/// The next message of the core, or its silence. A message goes first: after a pause of this process, a message and silence are
/// both due.
async fn heard(
    message: impl Future<Output = Result<Option<RegisterResponse>, Status>>,
    silent: Option<Instant>,
) -> Step {
    tokio::select! {
        biased;
        received = message => Step::Received(received),
        () = at(silent) => Step::Silence,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_that_did_not_run_takes_what_the_core_sent_not_its_own_pause() {
        let now = Instant::now();
        for _ in 0..64 {
            let step = heard(std::future::ready(Ok(None)), Some(now)).await;
            assert!(matches!(step, Step::Received(Ok(None))));
        }
        assert!(matches!(heard(std::future::pending(), Some(now)).await, Step::Silence));
    }
}

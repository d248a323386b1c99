//! Passes events from the reconciles to the API through a bounded channel.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use uuid::Uuid;

use super::EventRecord;
use super::series::{Repeated, SeriesBook, Sort, WRITE_EVERY};
use crate::client::PATIENCE;
use crate::clock::{Clock, DebugClock};

/// Events waiting to be written: four for each of a thousand machines created at the same time.
const WAITING: usize = 4096;
/// Concurrent requests; events are never urgent.
const REQUESTS: usize = 8;
/// Time at the end for queued events: a core that lost its Lease must end immediately.
const LAST_EVENTS: Duration = Duration::from_secs(2);
/// The API server's limit for a note.
const NOTE_BYTES: usize = 1024;

/// Counters of written and dropped events.
#[derive(Debug, Clone, Default)]
pub struct EventMetrics {
    written: Counter,
    dropped: Counter,
}

impl EventMetrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let (written, dropped) = (metrics.written.clone(), metrics.dropped.clone());
        registry.register("ostler_events_written", "Events and repetitions written", written);
        registry.register("ostler_events_dropped", "Events that were not written", dropped);
        metrics
    }
}

/// A message to the writer.
enum News {
    /// The event, its time, for the write may come much later, and the object's cluster.
    Event(Box<EventRecord>, Instant, Client),
    /// The object with this UID is gone.
    Gone(String),
}

/// Accepts events about the objects of a cluster. Cheap to clone.
#[derive(Clone)]
pub struct Recorder {
    client: Client,
    waiting: mpsc::Sender<News>,
    metrics: EventMetrics,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder, and the writer that must run for it. The events name the controller (a qualified name) and its
    /// instance.
    pub fn new(
        client: Client,
        (controller, instance): (&'static str, &str),
        clock: Clock,
        metrics: EventMetrics,
    ) -> (Self, EventWriter) {
        let (waiting, events) = mpsc::channel(WAITING);
        let writer = EventWriter {
            controller,
            instance: instance.to_owned(),
            clock: DebugClock(clock),
            metrics: metrics.clone(),
            events,
            book: SeriesBook::default(),
            requests: JoinSet::new(),
        };
        (Self { client, waiting, metrics }, writer)
    }

    /// The recorder for the objects of another cluster.
    #[must_use]
    pub fn to(&self, cluster: &Client) -> Self {
        Self { client: cluster.clone(), ..self.clone() }
    }

    /// Queues an event. Never waits: if the queue is full, the event is dropped and counted.
    pub fn record(&self, event: EventRecord) {
        let news = News::Event(Box::new(event), Instant::now(), self.client.clone());
        if self.waiting.try_send(news).is_err() {
            self.metrics.dropped.inc();
        }
    }

    /// The object is gone: unwritten repetitions are dropped. Never waits.
    pub fn forget(&self, uid: &str) {
        if self.waiting.try_send(News::Gone(uid.to_owned())).is_err() {
            debug!(uid, "repetitions of events of an object that is gone may be written");
        }
    }
}

/// Writes the queued events.
pub struct EventWriter {
    controller: &'static str,
    instance: String,
    clock: DebugClock,
    metrics: EventMetrics,
    events: mpsc::Receiver<News>,
    book: SeriesBook<Api<Event>>,
    requests: JoinSet<()>,
}

impl std::fmt::Debug for EventWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventWriter").field("waiting", &self.events.len()).finish_non_exhaustive()
    }
}

impl EventWriter {
    /// Writes until `stop`, then the queued events for two seconds at most.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = interval(WRITE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let room = self.requests.len() < REQUESTS;
            tokio::select! {
                () = stop.cancelled() => break,
                event = self.events.recv(), if room => match event {
                    Some(event) => self.take(event),
                    None => break,
                },
                Some(_) = self.requests.join_next() => {}
                _ = ticks.tick() => self.write_repetitions(),
            }
        }
        if timeout(LAST_EVENTS, self.write_rest()).await.is_err() {
            debug!(queued = self.events.len(), "the last events were not written in time");
        }
    }

    async fn write_rest(&mut self) {
        self.events.close();
        while let Some(event) = self.events.recv().await {
            if self.requests.len() >= REQUESTS {
                self.requests.join_next().await;
            }
            self.take(event);
        }
        self.write_repetitions();
        while self.requests.join_next().await.is_some() {}
    }

    fn take(&mut self, news: News) {
        let (event, at, client) = match news {
            News::Event(event, at, client) => (*event, at, client),
            News::Gone(uid) => return self.book.forget(&uid),
        };
        let namespace = event.regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let name = event_name(event.regarding.name.as_deref().unwrap_or_default());
        let api: Api<Event> = Api::namespaced(client, &namespace);
        match self.book.take(&event, &api, &name, at) {
            Sort::New => {}
            Sort::Repetition => return,
            Sort::TooMany => {
                self.metrics.dropped.inc();
                return;
            }
        }
        let object = self.object(event, at, &namespace, name);
        let metrics = self.metrics.clone();
        self.requests.spawn(async move {
            match timeout(PATIENCE, api.create(&PostParams::default(), &object)).await {
                Ok(Ok(_)) => metrics.written.inc(),
                Ok(Err(failure)) => {
                    debug!(error = %failure, "an event was not written");
                    metrics.dropped.inc()
                }
                Err(_) => metrics.dropped.inc(),
            };
        });
    }

    fn object(&self, event: EventRecord, at: Instant, namespace: &str, name: String) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            action: Some(event.action.to_owned()),
            reason: Some(event.reason.to_owned()),
            type_: Some(event.severity.as_str().to_owned()),
            note: Some(cut(event.note, NOTE_BYTES)),
            regarding: Some(event.regarding),
            event_time: Some(MicroTime((self.clock.0)() - at.elapsed())),
            reporting_controller: Some(self.controller.to_owned()),
            reporting_instance: Some(cut(self.instance.clone(), 128)),
            ..Event::default()
        }
    }

    /// One task writes all repetitions one after the other: counts are not urgent.
    fn write_repetitions(&mut self) {
        let repeated = self.book.take_unwritten(Instant::now());
        if repeated.is_empty() {
            return;
        }
        let metrics = self.metrics.clone();
        let now = (self.clock.0)();
        self.requests.spawn(async move {
            for Repeated { place: api, event_name, count, ago } in repeated {
                let seen = MicroTime(now - ago);
                let patch = json!({ "series": { "count": count, "lastObservedTime": seen } });
                let params = PatchParams::default();
                let patch = Patch::Merge(patch);
                match timeout(PATIENCE, api.patch(&event_name, &params, &patch)).await {
                    Ok(Ok(_)) => metrics.written.inc(),
                    // Or the event is gone: it exceeded the API server's retention.
                    Ok(Err(_)) | Err(_) => metrics.dropped.inc(),
                };
            }
        });
    }
}

/// A unique name, short enough for any object name.
fn event_name(object: &str) -> String {
    let suffix = Uuid::new_v4().simple().to_string();
    let suffix = suffix.get(..16).unwrap_or(&suffix).to_owned();
    let object = cut(object.to_owned(), 200);
    match object.as_str() {
        "" => suffix,
        object => format!("{object}.{suffix}"),
    }
}

/// At most `bytes` of `text`, cut between characters.
fn cut(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    text
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::sync::Arc;

    use http::{Request, Response};
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ObjectReference;
    use kube::client::Body;
    use tokio::time::{advance, sleep};
    use tower::service_fn;

    use super::*;
    use crate::bench::Bench;
    use crate::events::Severity;

    fn event(uid: &str, note: String) -> EventRecord {
        EventRecord {
            regarding: ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() },
            severity: Severity::Warning,
            reason: "CreateFailed",
            action: "Create",
            note,
        }
    }

    /// An API server, and a recorder and its writer with a clock that begins at the epoch.
    fn bench() -> (Bench, Recorder, EventWriter) {
        let (bench, begun) = (Bench::default(), Instant::now());
        let clock: Clock = Arc::new(move || Timestamp::UNIX_EPOCH + begun.elapsed());
        let (recorder, writer) = Recorder::new(
            bench.client(),
            ("example.com/test", "test"),
            clock,
            EventMetrics::default(),
        );
        (bench, recorder, writer)
    }

    /// Writes the waiting events.
    async fn end(writer: EventWriter) {
        let stop = CancellationToken::new();
        stop.cancel();
        writer.run(stop).await;
    }

    #[tokio::test(start_paused = true)]
    async fn repetitions_are_written_in_time_although_other_events_never_cease() {
        let (bench, recorder, writer) = bench();
        let stop = CancellationToken::new();
        let running = tokio::spawn(writer.run(stop.clone()));
        // Not at the same time as the writer.
        sleep(WRITE_EVERY / 4).await;
        for number in 0..10 {
            recorder.record(event("1", "no quota".to_owned()));
            recorder.record(event("2", number.to_string()));
            sleep(WRITE_EVERY / 2).await;
        }
        let writes = bench.writes();
        assert_eq!(writes.iter().filter(|(path, _)| path.starts_with("PATCH")).count(), 5);
        stop.cancel();
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_never_answered_hold_up_neither_other_events_nor_the_end() {
        let mute = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
        let metrics = EventMetrics::default();
        let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        let client = Client::new(mute, "default");
        let (recorder, writer) =
            Recorder::new(client, ("example.com/test", "test"), clock, metrics.clone());
        let stop = CancellationToken::new();
        let running = tokio::spawn(writer.run(stop.clone()));
        for number in 0..3 * REQUESTS {
            recorder.record(event(&number.to_string(), "no quota".to_owned()));
        }
        sleep(PATIENCE + LAST_EVENTS).await;
        assert_eq!(metrics.dropped.get(), u64::try_from(REQUESTS).unwrap());
        stop.cancel();
        let stopped = Instant::now();
        timeout(PATIENCE, running).await.expect("it ends").unwrap();
        assert!(stopped.elapsed() <= LAST_EVENTS, "{:?}", stopped.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_and_its_repetition_are_written_where_the_object_is() {
        let ((control, recorder, writer), target) = (bench(), Bench::default());
        let recorder = recorder.to(&target.client());
        for _ in 0..2 {
            recorder.record(event("1", "no quota".to_owned()));
        }
        end(writer).await;
        assert_eq!(control.writes(), []);
        let [(made, _), (repeated, _)] = target.writes().try_into().unwrap();
        assert!(made.starts_with("POST") && repeated.starts_with("PATCH"), "{made} {repeated}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_is_written_late_says_when_it_happened() {
        let (bench, recorder, writer) = bench();
        recorder.record(event("1", "no quota".to_owned()));
        advance(Duration::from_secs(3)).await;
        recorder.record(event("1", "no quota".to_owned()));
        advance(Duration::from_secs(4)).await;
        end(writer).await;
        let [(_, made), (_, repeated)] = bench.writes().try_into().unwrap();
        assert_eq!(made["eventTime"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(repeated["series"]["lastObservedTime"], "1970-01-01T00:00:03.000000Z");
    }
}

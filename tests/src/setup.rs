//! Deviations from the usual world of the whole-stack tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::Method;
use http_body::{Body as HttpBody, Frame};
use http_body_util::{BodyStream, StreamBody};
use kube::Client;
use kube::client::Body;
use ostler_driver_fake::cloud::Clock;
use ostler_server::CoreOptions;
use ostler_sessions::Rate;
use ostler_trace::Traces;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::rights::{self, Request};

/// Deviations from the usual world.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a client cannot be shown")]
pub struct Setup {
    /// The cluster that instances join: the one with the machines, if none.
    pub joins: Option<Client>,
    /// Changes the options of every core.
    pub tune: Arc<dyn Fn(&mut CoreOptions) + Send + Sync>,
    /// How long the API server takes for each request of a core.
    pub api_takes: Duration,
    /// How fast a core may ask the API server; as fast as it can, if none.
    pub rate: Option<Rate>,
    /// Requests of a core that the API server forbids.
    pub forbids: fn(&Request) -> bool,
    /// The API server answers 409 to one in so many changes of machines by cores, and does nothing; 0: to none.
    pub conflict_one_in: u64,
    /// How late the events of a core's watches come.
    pub watches_lag: Duration,
    /// The answers to the first so many creations of machines by cores are lost: the machines exist all the same.
    pub loses_creations: u64,
    /// The change of a mutating webhook to a machine that a core creates.
    pub webhook: Option<fn(&mut serde_json::Value)>,
    /// Writes at which a core is to die.
    pub deaths: Arc<Deaths>,
    /// Where the spans of drivers go.
    pub traces: Traces,
}

/// A core is to die in the moment a write of it is done, or a request of it has reached the driver, and not to hear of that.
#[derive(Debug)]
pub struct Deaths {
    writes: AtomicI64,
    requests: AtomicI64,
    due: Notify,
}

impl Default for Deaths {
    fn default() -> Self {
        let never = || AtomicI64::new(i64::MAX);
        Self { writes: never(), requests: never(), due: Notify::new() }
    }
}

impl Deaths {
    /// At the write after so many more, but for those of its Lease and of events; `None`: at none.
    pub fn after(&self, writes: Option<u32>) {
        self.writes.store(writes.map_or(i64::MAX, i64::from), Ordering::Relaxed);
    }

    /// At the request to the driver after so many more; `None`: at none.
    pub fn after_requests(&self, requests: Option<u32>) {
        self.requests.store(requests.map_or(i64::MAX, i64::from), Ordering::Relaxed);
    }

    /// Returns when one is to die: its write is done, and it does not go on.
    pub async fn due(&self) {
        self.due.notified().await;
    }

    /// Whether the core that sends this is to die now.
    pub(crate) fn is_due(&self, method: &Method, path: &str) -> bool {
        let counts =
            *method != Method::GET && !path.contains("/leases") && !path.contains("/events");
        counts && is_last(&self.writes)
    }

    /// The write is done.
    pub(crate) async fn die_if(&self, due: bool) {
        if due {
            self.due.notify_one();
            std::future::pending::<()>().await;
        }
    }

    /// The clock of the call log of a driver: the log reads it once for each request, when that has come.
    pub(crate) fn at_requests(self: &Arc<Self>, clock: Clock) -> Clock {
        let deaths = Arc::clone(self);
        Clock::new(move || {
            if is_last(&deaths.requests) {
                deaths.due.notify_one();
            }
            clock.now()
        })
    }
}

/// Counts down; true for the last.
fn is_last(left: &AtomicI64) -> bool {
    left.load(Ordering::Relaxed) < i64::MAX && left.fetch_sub(1, Ordering::Relaxed) == 0
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            joins: None,
            tune: Arc::new(|_: &mut CoreOptions| {}),
            api_takes: Duration::ZERO,
            rate: None,
            forbids: |_| false,
            conflict_one_in: 0,
            watches_lag: Duration::ZERO,
            loses_creations: 0,
            webhook: None,
            traces: Traces::default(),
            deaths: Arc::default(),
        }
    }
}

impl Setup {
    /// Cores whose options were changed.
    pub fn tuned(tune: impl Fn(&mut CoreOptions) + Send + Sync + 'static) -> Self {
        Self { tune: Arc::new(tune), ..Self::default() }
    }
}

/// A number that follows no rhythm, the same for the same count: what happens again and again must not meet it each time.
pub(crate) const fn scattered(count: u64) -> u64 {
    let mixed = (count ^ (count >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed >> 33
}

/// A request whose object a webhook changed.
pub(crate) async fn mutated(
    request: http::Request<Body>,
    webhook: fn(&mut serde_json::Value),
) -> http::Request<Body> {
    let (mut parts, bytes) = rights::read(request).await;
    let mut object = serde_json::from_slice(&bytes).expect("a core sends JSON");
    webhook(&mut object);
    parts.headers.remove(http::header::CONTENT_LENGTH);
    http::Request::from_parts(parts, Body::from(object.to_string().into_bytes()))
}

/// A body whose every part comes so much later.
pub(crate) fn late<B>(
    body: B,
    lag: Duration,
) -> impl HttpBody<Data = Bytes, Error = B::Error> + Send
where
    B: HttpBody<Data = Bytes> + Send,
    B::Error: Send,
{
    StreamBody::new(BodyStream::new(body).then(
        move |part: Result<Frame<Bytes>, B::Error>| async move {
            if !lag.is_zero() {
                sleep(lag).await;
            }
            part
        },
    ))
}

//! At most so many requests a second of each client, as upstream: every clientset there has its own limiter. Here a
//! single connection serves all clients, so the request's path tells its client.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Request;
use futures::future::BoxFuture;
use ostler_sessions::{Rate, TokenBucket};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};
use tower::{Layer, Service};

/// `qps` requests a second, a burst of `burst`. `None` if that is no rate.
pub(crate) fn rate(qps: f64, burst: u32) -> Option<Rate> {
    Duration::try_from_secs_f64(1.0 / qps).ok().map(|interval| Rate::every(interval, burst))
}

/// The clients of machine-controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    /// Machines and classes.
    Machines,
    /// Secrets, ConfigMaps and the like of the control cluster.
    Control,
    /// Nodes, pods and volumes.
    Target,
    /// Events.
    Events,
}

impl Client {
    /// The client of a path; `None`: leader election, which never waits.
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.trim_start_matches('/').split('/');
        let group = match parts.next() {
            Some("apis") => parts.next().unwrap_or_default(),
            _ => "",
        };
        let _version = parts.next();
        let first = parts.next().unwrap_or_default();
        let in_namespace = parts.nth(1).filter(|_| first == "namespaces");
        let resource = in_namespace.unwrap_or(first);
        Some(match (group, resource) {
            ("coordination.k8s.io", _) => return None,
            ("machine.sapcloud.io", _) => Self::Machines,
            (_, "events") => Self::Events,
            (_, "nodes" | "pods" | "persistentvolumes" | "persistentvolumeclaims")
            | ("storage.k8s.io" | "policy", _) => Self::Target,
            _ => Self::Control,
        })
    }
}

/// Holds requests up so that each client keeps to a rate. All clones share the buckets.
#[derive(Debug, Clone)]
pub struct Throttle {
    /// One bucket for each client. A waiting request stands in the queue of the bucket's lock, and a request that is
    /// dropped gives its turn to the next.
    buckets: Arc<[Mutex<TokenBucket>; 4]>,
}

impl Throttle {
    /// Nothing was sent yet.
    pub fn new(rate: Rate) -> Self {
        Self { buckets: Arc::new(std::array::from_fn(|_| Mutex::new(TokenBucket::new(rate)))) }
    }

    /// Waits until the next request of a client may be sent.
    async fn turn(&self, client: Client) {
        let [machines, control, target, events] = &*self.buckets;
        let bucket = match client {
            Client::Machines => machines,
            Client::Control => control,
            Client::Target => target,
            Client::Events => events,
        };
        let mut bucket = bucket.lock().await;
        let now = Instant::now();
        let turn = bucket.next(now).unwrap_or(now);
        // The others wait meanwhile: their turns are later.
        sleep_until(turn).await;
        bucket.reserve(turn);
    }
}

impl<S> Layer<S> for Throttle {
    type Service = Throttled<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Throttled { throttle: self.clone(), inner }
    }
}

/// A service behind a [`Throttle`].
#[derive(Debug, Clone)]
pub struct Throttled<S> {
    throttle: Throttle,
    inner: S,
}

impl<S, B> Service<Request<B>> for Throttled<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let client = Client::of(request.uri().path());
        let throttle = self.throttle.clone();
        // The inner call sends nothing before its first poll.
        let answer = self.inner.call(request);
        Box::pin(async move {
            if let Some(client) = client {
                throttle.turn(client).await;
            }
            answer.await
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let throttle = Throttle::new(rate(10.0, 3).unwrap());
        let began = Instant::now();
        let mut turns = Vec::new();
        for _ in 0..5 {
            throttle.turn(Client::Machines).await;
            turns.push(began.elapsed().as_millis());
        }
        assert_eq!(turns, [0, 0, 0, 100, 200]);
        tokio::time::advance(Duration::from_mins(1)).await;
        let later = Instant::now();
        for _ in 0..4 {
            throttle.turn(Client::Machines).await;
        }
        assert_eq!(later.elapsed().as_millis(), 100, "no more is saved up than a burst");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_takes_no_turn_from_the_others() {
        let throttle = Throttle::new(rate(1.0, 1).unwrap());
        let began = Instant::now();
        throttle.turn(Client::Machines).await;
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let throttle = throttle.clone();
            let turn = async move { throttle.turn(Client::Machines).await };
            waiting.spawn(tokio::time::timeout(Duration::from_millis(500), turn));
        }
        assert_eq!(waiting.join_all().await.iter().filter(|it| it.is_ok()).count(), 0);
        throttle.turn(Client::Machines).await;
        assert_eq!(began.elapsed().as_secs(), 1);
    }

    /// The requests of a machine until it runs, one after the other, with an event after two of them.
    async fn come_up(throttle: Throttle, events: mpsc::UnboundedSender<Instant>) {
        for tells in [false, true, true] {
            throttle.turn(Client::Machines).await;
            if tells {
                events.send(Instant::now()).unwrap();
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_300_machines_come_in_time_and_hold_no_machine_up() {
        let throttle = Throttle::new(rate(20.0, 30).unwrap());
        let (tell, mut told) = mpsc::unbounded_channel();
        let began = Instant::now();
        let mut machines = tokio::task::JoinSet::new();
        for _ in 0..300 {
            machines.spawn(come_up(throttle.clone(), tell.clone()));
        }
        drop(tell);
        let events = tokio::spawn(async move {
            let (mut count, mut latest) = (0, Duration::ZERO);
            while let Some(happened) = told.recv().await {
                throttle.turn(Client::Events).await;
                (count, latest) = (count + 1, latest.max(happened.elapsed()));
            }
            (count, latest)
        });
        machines.join_all().await;
        // 900 requests: a burst of 30, then 20 a second.
        assert_eq!(began.elapsed().as_millis(), 43_500, "as if there were no events");
        let (count, latest) = events.await.unwrap();
        assert_eq!(count, 600);
        assert!(latest <= Duration::from_secs(5), "{latest:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_their_turn() {
        let echo = tower::service_fn(|_: Request<()>| async { Ok::<_, std::io::Error>(()) });
        let mut service = Throttle::new(rate(1.0, 1).unwrap()).layer(echo);
        let ask = |path: &str| Request::get(path).body(()).unwrap();
        let began = Instant::now();
        for _ in 0..3 {
            service.call(ask("/apis/machine.sapcloud.io/v1alpha1/machines")).await.unwrap();
        }
        assert_eq!(began.elapsed().as_secs(), 2);
        service.call(ask("/api/v1/nodes/n")).await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 2, "a client does not wait for the others");
    }

    #[test]
    fn what_is_asked_for_says_whose_request_it_is() {
        let machines = "/apis/machine.sapcloud.io/v1alpha1";
        for (path, client) in [
            (format!("{machines}/namespaces/shoot/machines/m/status"), Some(Client::Machines)),
            (format!("{machines}/machineclasses?watch=1"), Some(Client::Machines)),
            ("/api/v1/namespaces/shoot/secrets".to_owned(), Some(Client::Control)),
            ("/api/v1/namespaces/kube-system".to_owned(), Some(Client::Control)),
            ("/api/v1/nodes".to_owned(), Some(Client::Target)),
            ("/api/v1/namespaces/a/pods/p/eviction".to_owned(), Some(Client::Target)),
            ("/apis/storage.k8s.io/v1/volumeattachments/v".to_owned(), Some(Client::Target)),
            ("/apis/events.k8s.io/v1/namespaces/shoot/events".to_owned(), Some(Client::Events)),
            ("/api/v1/namespaces/shoot/events".to_owned(), Some(Client::Events)),
            ("/version".to_owned(), Some(Client::Control)),
            ("/apis/coordination.k8s.io/v1/namespaces/shoot/leases/l".to_owned(), None),
        ] {
            assert_eq!(Client::of(&path), client, "{path}");
        }
    }

    #[test]
    fn what_is_no_rate_is_none() {
        assert_eq!((rate(0.0, 1), rate(f64::NAN, 1)), (None, None));
    }
}

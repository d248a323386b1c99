//! At most so many requests a second to an API server.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;
use tower::{Layer, Service};

/// A rate and how much may come at once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    /// Between two requests, on average.
    every: Duration,
    /// By how much a request may be early: that of a whole burst.
    ahead: Duration,
}

impl Rate {
    /// `qps` requests a second, `burst` at once. None if that is no rate.
    pub(crate) fn new(qps: f64, burst: u32) -> Option<Self> {
        let every = Duration::try_from_secs_f64(1.0 / qps).ok()?;
        Some(Self { every, ahead: every.checked_mul(burst.max(1).saturating_sub(1))? })
    }
}

/// Holds requests up so that they keep to a rate. All clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Throttle {
    rate: Rate,
    /// When the next request would be due if none were early.
    due: Arc<Mutex<Option<Instant>>>,
}

impl Throttle {
    /// Nothing was sent yet.
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, due: Arc::default() }
    }

    /// Takes the next place. When its turn is.
    fn take(&self, now: Instant) -> Instant {
        let mut next = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let due = next.unwrap_or(now).max(now);
        *next = due.checked_add(self.rate.every);
        due.checked_sub(self.rate.ahead).unwrap_or(now).max(now)
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
pub(crate) struct Throttled<S> {
    throttle: Throttle,
    inner: S,
}

impl<S, R> Service<R> for Throttled<S>
where
    S: Service<R>,
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

    fn call(&mut self, request: R) -> Self::Future {
        let turn = self.throttle.take(Instant::now());
        // Sends nothing until it is asked for its answer.
        let answer = self.inner.call(request);
        Box::pin(async move {
            tokio::time::sleep_until(turn).await;
            answer.await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let throttle = Throttle::new(Rate::new(10.0, 3).unwrap());
        let began = Instant::now();
        let turns: Vec<_> =
            (0..5).map(|_| throttle.take(began).duration_since(began).as_millis()).collect();
        assert_eq!(turns, [0, 0, 0, 100, 200]);
        tokio::time::advance(Duration::from_mins(1)).await;
        let later = Instant::now();
        assert_eq!(throttle.take(later), later, "what was not used is not saved up beyond a burst");
    }

    #[tokio::test(start_paused = true)]
    async fn requests_wait_for_their_turn() {
        let echo = tower::service_fn(|n: u32| async move { Ok::<_, std::io::Error>(n) });
        let mut service = Throttle::new(Rate::new(1.0, 1).unwrap()).layer(echo);
        let began = Instant::now();
        for n in 0..3 {
            assert_eq!(service.call(n).await.unwrap(), n);
        }
        assert_eq!(began.elapsed().as_secs(), 2);
    }

    #[test]
    fn what_is_no_rate_is_none() {
        assert_eq!((Rate::new(0.0, 1), Rate::new(f64::NAN, 1)), (None, None));
    }
}

//! Which request of an operation meets which fault.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use super::fault::Fault;

/// A request that meets a fault meets it again for so long: an SDK that repeats it at once sees the outage, too.
const OUTAGE: Duration = Duration::from_secs(1);
/// How many requests of one operation the script remembers.
const MOST: usize = 10_000;

/// A request, without what differs from one try to the next.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    /// Method and path with its query.
    pub(crate) line: String,
    /// Digest of the body.
    pub(crate) body: Bytes,
}

/// The faults that the requests of one operation met.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) requests: Vec<String>,
    /// The request that met the fault.
    pub(crate) hit: Option<String>,
}

/// What to do with a request.
#[derive(Debug)]
pub(crate) enum Turn {
    Pass,
    Meet(Fault),
    /// This answer of before, as text.
    Answer(http::Response<Bytes>),
}

/// The plan for one operation, and its outcome.
#[derive(Debug)]
pub(crate) struct Script {
    now: Mutex<Now>,
    /// So many changes more, and the cloud is away.
    away: Mutex<Option<u32>>,
    /// Grows with each operation: what hangs then ends.
    number: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Now {
    plan: Option<(usize, Fault)>,
    seen: Seen,
    /// Until when the request that met the fault meets it again.
    until: Option<Instant>,
    /// Searches show what was there before for so long.
    lag: Duration,
    /// The first answer to each search that came before the fault, and when.
    answers: HashMap<Request, (Instant, http::Response<Bytes>)>,
}

impl Default for Script {
    fn default() -> Self {
        Self { now: Mutex::default(), away: Mutex::default(), number: watch::Sender::new(0) }
    }
}

impl Script {
    /// The next requests are those of an operation, of which one is to meet a fault.
    pub(crate) fn begin(&self, plan: Option<(usize, Fault)>) {
        *self.now.lock() = Now { plan, ..Now::default() };
        self.number.send_modify(|number| *number += 1);
    }

    /// Searches that came before the fault are answered the same again for this time.
    pub(crate) fn stale(&self, lag: Duration) {
        self.now.lock().lag = lag;
    }

    /// The operation is over; all requests pass again.
    pub(crate) fn end(&self) -> Seen {
        let seen = std::mem::take(&mut *self.now.lock()).seen;
        self.number.send_modify(|number| *number += 1);
        seen
    }

    /// Takes the cloud away after so many changes more; `None` brings it back.
    pub(crate) fn goes_away(&self, after: Option<u32>) {
        *self.away.lock() = after;
    }

    fn is_away(&self, request: &Request) -> bool {
        let mut away = self.away.lock();
        let Some(left) = away.as_mut() else { return false };
        let gone = *left == 0;
        if !request.line.starts_with("GET ") {
            *left = left.saturating_sub(1);
        }
        gone
    }

    /// A request came.
    pub(crate) fn turn(&self, request: &Request) -> Turn {
        if self.is_away(request) {
            return Turn::Meet(Fault::Reset);
        }
        let mut now = self.now.lock();
        if now.seen.requests.len() >= MOST {
            return Turn::Pass;
        }
        now.seen.requests.push(request.line.clone());
        if let Some((since, answer)) = now.answers.get(request)
            && since.elapsed() < now.lag
        {
            return Turn::Answer(answer.clone());
        }
        let Some((at, fault)) = now.plan else { return Turn::Pass };
        let again = now.seen.hit.as_ref() == Some(&request.line)
            && now.until.is_some_and(|until| Instant::now() < until);
        if now.seen.requests.len() != at && !again {
            return Turn::Pass;
        }
        if now.seen.hit.is_none() {
            now.seen.hit = Some(request.line.clone());
            now.until = Some(Instant::now() + OUTAGE);
        }
        Turn::Meet(fault)
    }

    /// Whether the answer to a request is to be kept.
    pub(crate) fn keeps(&self, request: &Request) -> bool {
        let now = self.now.lock();
        // What comes after it reads by the id of what was made.
        !now.lag.is_zero() && now.seen.hit.is_none() && request.line.starts_with("GET ")
    }

    /// Keeps the first answer to a search.
    pub(crate) fn keep(&self, request: Request, answer: &http::Response<Bytes>) {
        let mut now = self.now.lock();
        if now.answers.len() < MOST {
            now.answers.entry(request).or_insert_with(|| (Instant::now(), answer.clone()));
        }
    }

    /// Waits until the operation that runs at this call is over.
    pub(crate) fn over(&self) -> impl Future<Output = ()> + use<> {
        let mut number = self.number.subscribe();
        async move {
            // It fails only when the script is gone.
            let _gone = number.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        Request { line: line.to_owned(), body: Bytes::new() }
    }

    fn meets(script: &Script, line: &str) -> bool {
        matches!(script.turn(&request(line)), Turn::Meet(_))
    }

    #[tokio::test(start_paused = true)]
    async fn the_nth_request_meets_the_fault_and_so_does_the_same_one_for_a_second_and_no_other() {
        let script = Script::default();
        script.begin(Some((2, Fault::Reset)));
        let met = ["GET /a", "POST /b", "GET /a", "POST /b"].map(|line| meets(&script, line));
        assert_eq!(met, [false, true, false, true]);
        tokio::time::advance(OUTAGE).await;
        assert!(!meets(&script, "POST /b"));
        assert_eq!(script.end().hit.as_deref(), Some("POST /b"));
        assert!(!meets(&script, "POST /b"));
    }

    #[test]
    fn a_cloud_that_goes_away_after_a_change_answers_until_then_and_when_it_is_back() {
        let script = Script::default();
        script.goes_away(Some(1));
        let met = ["GET /a", "POST /b", "GET /a", "POST /b"].map(|line| meets(&script, line));
        assert_eq!(met, [false, false, true, true]);
        script.goes_away(None);
        assert!(!meets(&script, "POST /b"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_is_answered_as_before_until_the_lag_is_over_and_one_after_the_fault_is_not() {
        let script = Script::default();
        script.begin(Some((1, Fault::Lost)));
        script.stale(Duration::from_secs(2));
        let search = request("GET /s?uid=1");
        assert!(script.keeps(&search) && !script.keeps(&request("POST /s")));
        script.keep(search.clone(), &http::Response::new(Bytes::from_static(b"[]")));
        assert!(meets(&script, "POST /s"));
        assert!(!script.keeps(&request("GET /s/i-1")));
        assert!(matches!(script.turn(&search), Turn::Answer(_)));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(matches!(script.turn(&search), Turn::Pass));
    }
}

//! Telling the API about pods, one request at a time for each.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff};
use kube::api::Patch;
use ostler_kubelet::KubeletApi;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::spec::PodSpec;
use super::status::patch;
use crate::client::backoff;

/// One thing to tell.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    /// This is its status.
    Status(Value),
    /// It ended: take it away for good.
    Gone,
}

/// What the API was told about a pod.
#[derive(Debug)]
pub(super) struct Told {
    status: Option<Value>,
    gone: bool,
    in_flight: bool,
    retry: Option<Instant>,
    waits: ExponentialBackoff,
}

impl Told {
    /// Nothing.
    pub(super) fn nothing() -> Self {
        Self { status: None, gone: false, in_flight: false, retry: None, waits: waits() }
    }

    /// What to tell now. `status` is `None` if there is nothing to say about it any more; `ended`: it may be taken away.
    pub(super) fn next(&self, status: Option<Value>, ended: bool, now: Instant) -> Option<Word> {
        if self.in_flight || self.gone || self.retry.is_some_and(|at| at > now) {
            return None;
        }
        match status {
            Some(status) if self.status.as_ref() != Some(&status) => Some(Word::Status(status)),
            Some(_) | None => ended.then_some(Word::Gone),
        }
    }

    /// When to try again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry.filter(|_| !self.in_flight)
    }

    /// Notes that it is being told.
    pub(super) fn begin(&mut self) {
        self.in_flight = true;
    }

    /// Notes what came of it.
    pub(super) fn end(&mut self, word: Word, well: bool, now: Instant) {
        self.in_flight = false;
        if !well {
            self.retry = Some(now + self.waits.next().unwrap_or(LONGEST));
            return;
        }
        self.retry = None;
        self.waits = waits();
        match word {
            Word::Status(status) => self.status = Some(status),
            Word::Gone => self.gone = true,
        }
    }
}

/// The longest wait after a failure.
const LONGEST: Duration = Duration::from_secs(30);

fn waits() -> ExponentialBackoff {
    backoff(Duration::from_millis(200), LONGEST).build()
}

/// What came of telling the API something about a pod.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) uid: String,
    pub(super) word: Word,
    pub(super) well: bool,
}

/// Tells it in the background.
pub(super) fn tell(tasks: &mut JoinSet<Answer>, api: KubeletApi, spec: &PodSpec, word: Word) {
    let spec = spec.clone();
    tasks.spawn(async move {
        let (namespace, name) = (spec.namespace.as_str(), spec.name.as_str());
        let outcome = match &word {
            Word::Status(status) => {
                let patch = Patch::Strategic(patch(&spec, status));
                api.patch_pod_status(namespace, name, &patch).await
            }
            Word::Gone => api.delete_pod(namespace, name, &spec.uid).await,
        };
        let well = outcome.is_ok();
        if let Err(error) = outcome.map_err(anyhow::Error::from) {
            let error = format!("{error:#}");
            tracing::warn!(namespace, name, error, "pod cannot be reported yet");
        }
        Answer { uid: spec.uid, word, well }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_told_once_and_the_end_after_it() {
        let (mut told, now) = (Told::nothing(), Instant::now());
        let status = Some(json!({"phase": "Running"}));
        let word = told.next(status.clone(), true, now).unwrap();
        assert_eq!(word, Word::Status(status.clone().unwrap()));
        told.begin();
        assert_eq!(told.next(status.clone(), true, now), None, "one at a time");
        told.end(word, true, now);
        assert_eq!(told.next(status.clone(), false, now), None);
        assert_eq!(told.next(status.clone(), true, now), Some(Word::Gone));
        told.begin();
        told.end(Word::Gone, true, now);
        assert_eq!(told.next(Some(json!({})), true, now), None, "it is not told about any more");
    }

    #[test]
    fn what_failed_is_told_again_after_a_wait() {
        let (mut told, now) = (Told::nothing(), Instant::now());
        told.begin();
        told.end(Word::Gone, false, now);
        let again = told.retry_at().unwrap();
        assert!(again > now);
        assert_eq!(told.next(None, true, now), None);
        assert_eq!(told.next(None, true, again), Some(Word::Gone));
    }
}

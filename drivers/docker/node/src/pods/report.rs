//! Reports about pods to the API, one request at a time for each.

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

/// One update for the API.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Update {
    /// The new status of the pod.
    Status(Value),
    /// The pod ended: delete it for good.
    Gone,
}

/// The API's knowledge of a pod.
#[derive(Debug)]
pub(super) struct ReportState {
    status: Option<Value>,
    gone: bool,
    in_flight: bool,
    retry: Option<Instant>,
    waits: ExponentialBackoff,
}

impl ReportState {
    /// Of a pod that nothing was reported of.
    pub(super) fn new() -> Self {
        Self { status: None, gone: false, in_flight: false, retry: None, waits: waits() }
    }

    /// The next update. `status` is `None` if there is nothing to report any more; `ended`: it may be deleted.
    pub(super) fn next(&self, status: Option<Value>, ended: bool, now: Instant) -> Option<Update> {
        if self.in_flight || self.gone || self.retry.is_some_and(|at| at > now) {
            return None;
        }
        match status {
            Some(status) if self.status.as_ref() != Some(&status) => Some(Update::Status(status)),
            Some(_) | None => ended.then_some(Update::Gone),
        }
    }

    /// When to try again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry.filter(|_| !self.in_flight)
    }

    /// Notes that an update is being sent.
    pub(super) fn begin(&mut self) {
        self.in_flight = true;
    }

    /// Notes the result of the update.
    pub(super) fn end(&mut self, update: Update, well: bool, now: Instant) {
        self.in_flight = false;
        if !well {
            self.retry = Some(now + self.waits.next().unwrap_or(LONGEST));
            return;
        }
        self.retry = None;
        self.waits = waits();
        match update {
            Update::Status(status) => self.status = Some(status),
            Update::Gone => self.gone = true,
        }
    }
}

/// The longest wait after a failure.
const LONGEST: Duration = Duration::from_secs(30);

fn waits() -> ExponentialBackoff {
    backoff(Duration::from_millis(200), LONGEST).build()
}

/// The result of an update.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) uid: String,
    pub(super) update: Update,
    pub(super) well: bool,
}

/// Sends an update in the background.
pub(super) fn send(tasks: &mut JoinSet<Answer>, api: KubeletApi, spec: &PodSpec, update: Update) {
    let spec = spec.clone();
    tasks.spawn(async move {
        let (namespace, name) = (spec.namespace.as_str(), spec.name.as_str());
        let outcome = match &update {
            Update::Status(status) => {
                let patch = Patch::Strategic(patch(&spec, status));
                api.patch_pod_status(namespace, name, &patch).await
            }
            Update::Gone => api.delete_pod(namespace, name, &spec.uid).await,
        };
        let well = outcome.is_ok();
        if let Err(error) = outcome.map_err(anyhow::Error::from) {
            let error = format!("{error:#}");
            tracing::warn!(namespace, name, error, "pod cannot be reported yet");
        }
        Answer { uid: spec.uid, update, well }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_told_once_and_the_end_after_it() {
        let (mut state, now) = (ReportState::new(), Instant::now());
        let status = Some(json!({"phase": "Running"}));
        let update = state.next(status.clone(), true, now).unwrap();
        assert_eq!(update, Update::Status(status.clone().unwrap()));
        state.begin();
        assert_eq!(state.next(status.clone(), true, now), None, "one at a time");
        state.end(update, true, now);
        assert_eq!(state.next(status.clone(), false, now), None);
        assert_eq!(state.next(status.clone(), true, now), Some(Update::Gone));
        state.begin();
        state.end(Update::Gone, true, now);
        assert_eq!(state.next(Some(json!({})), true, now), None, "it is not told about any more");
    }

    #[test]
    fn what_failed_is_told_again_after_a_wait() {
        let (mut state, now) = (ReportState::new(), Instant::now());
        state.begin();
        state.end(Update::Gone, false, now);
        let again = state.retry_at().unwrap();
        assert!(again > now);
        assert_eq!(state.next(None, true, now), None);
        assert_eq!(state.next(None, true, again), Some(Update::Gone));
    }
}

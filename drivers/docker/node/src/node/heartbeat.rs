//! The heartbeat of a Node: registers the Node, renews its Lease, and reports a changed or old status.

use std::time::Duration;

use backon::Retryable as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::NodeStatus;
use ostler_kubelet::RequestError;
use ostler_kubelet::node::{LEASE, RENEWAL};
use tokio::time::{Instant, sleep};

use super::object::{self, Now};
use super::{About, own_address};
use crate::client::{Access, backoff};
use crate::identity::Clients;
use crate::machine::resources;

/// After a failure.
const SOONER: Duration = Duration::from_secs(2);
/// A status that did not change is reported again after this time, as by a kubelet.
const STATUS_AGE: Duration = Duration::from_mins(5);
/// The last report may not hold up the end of the machine.
const LAST_REPORT: Duration = Duration::from_secs(3);

/// The status that was last reported, and when.
type Last = Option<(NodeStatus, Instant)>;

/// Registers the Node, however long it takes.
pub(crate) async fn register(access: &Access, about: &About) -> anyhow::Result<()> {
    let attempt = || async {
        let now = observe(access, about, &NodeStatus::default(), false).await;
        let at = Timestamp::now();
        access.api.register(&object::node(about, &now, at), at).await?;
        Ok(())
    };
    attempt
        .retry(backoff(Duration::from_millis(200), Duration::from_secs(30)))
        .notify(|error: &anyhow::Error, _| {
            tracing::warn!(node = about.name, error = format!("{error:#}"), "not registered yet");
        })
        .await?;
    tracing::info!(node = about.name, "node registered");
    Ok(())
}

/// The state of the machine. Without an address of its own, the address from `before`.
async fn observe(access: &Access, about: &About, before: &NodeStatus, going: bool) -> Now {
    let address = own_address(&access.server).await.or_else(|| object::address(before));
    Now { resources: resources(&about.disk), address, going }
}

/// Renews and reports for ever.
pub(crate) async fn beat(about: About, clients: Clients) {
    let started = Instant::now();
    let (mut last, mut renewed) = (None, started);
    loop {
        let now = Instant::now();
        if may_be_said_dead(started, renewed, now) {
            last = None;
        }
        let access = clients.borrow().clone();
        let wait = match once(&access, &about, &mut last).await {
            Ok(()) => {
                renewed = now;
                RENEWAL
            }
            Err(error) => {
                let error = anyhow::Error::from(error);
                tracing::warn!(node = about.name, error = format!("{error:#}"), "heartbeat failed");
                // After a long silence the cluster may have marked the Node as unknown: report the whole status again.
                last = None;
                SOONER
            }
        };
        sleep(wait).await;
    }
}

/// Whether the Node may say that nothing is heard of it: this process stood still, or was not there a moment ago.
fn may_be_said_dead(started: Instant, renewed: Instant, now: Instant) -> bool {
    renewed + 2 * RENEWAL <= now || now < started + LEASE
}

async fn once(access: &Access, about: &About, last: &mut Last) -> Result<(), RequestError> {
    let id = about.provider_id.as_deref();
    access.api.renew_lease(&about.name, id, Timestamp::now()).await?;
    let before = match last {
        Some((status, _)) => status.clone(),
        // A restarted machine goes on with what it reported before.
        None => reported(access, about).await?,
    };
    let now = observe(access, about, &before, false).await;
    let conditions = before.conditions.unwrap_or_default();
    let status = object::status(about, &now, &conditions, Timestamp::now());
    if is_due(last.as_ref(), &status, Instant::now()) {
        access.api.patch_node_status(&about.name, &status).await?;
        *last = Some((status, Instant::now()));
    }
    Ok(())
}

fn is_due(last: Option<&(NodeStatus, Instant)>, status: &NodeStatus, now: Instant) -> bool {
    last.is_none_or(|(said, at)| {
        *at + STATUS_AGE <= now || object::without_times(said) != object::without_times(status)
    })
}

async fn reported(access: &Access, about: &About) -> Result<NodeStatus, RequestError> {
    let node = access.api.node(&about.name).await?;
    Ok(node.and_then(|node| node.status).unwrap_or_default())
}

/// Reports that the Node is not ready any more, if the API server answers in time.
pub(crate) async fn report_not_ready(about: &About, access: &Access) {
    let report = async {
        let before = reported(access, about).await?;
        let now = observe(access, about, &before, true).await;
        let conditions = before.conditions.unwrap_or_default();
        let status = object::status(about, &now, &conditions, Timestamp::now());
        access.api.patch_node_status(&about.name, &status).await
    };
    match tokio::time::timeout(LAST_REPORT, report).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let error = anyhow::Error::from(error);
            tracing::warn!(error = format!("{error:#}"), "the node cannot be reported not ready");
        }
        Err(_) => tracing::warn!("the node was not reported not ready in time"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_that_may_have_been_said_dead_is_told_alive() {
        let seconds = Duration::from_secs;
        let started = Instant::now();
        for (renewed, now, expected) in
            [(0, 0, true), (30, 39, true), (31, 41, false), (100, 119, false), (100, 120, true)]
        {
            let (renewed, now) = (started + seconds(renewed), started + seconds(now));
            assert_eq!(may_be_said_dead(started, renewed, now), expected, "{now:?}");
        }
    }

    #[test]
    fn a_status_is_said_when_it_is_new_or_old() {
        let now = Instant::now();
        let said = |status: &str, time: &str| -> NodeStatus {
            let ready = json!({"type": "Ready", "status": status, "lastHeartbeatTime": time});
            serde_json::from_value(json!({"conditions": [ready]})).unwrap()
        };
        let last = (said("True", "2026-01-01T00:00:01Z"), now);
        for (status, at, expected) in [
            (said("True", "2026-01-01T00:00:02Z"), now, false),
            (said("False", "2026-01-01T00:00:02Z"), now, true),
            (said("True", "2026-01-01T00:00:02Z"), now + STATUS_AGE, true),
        ] {
            assert_eq!(is_due(Some(&last), &status, at), expected, "{status:?}");
        }
        assert!(is_due(None, &said("True", "2026-01-01T00:00:01Z"), now));
    }
}

//! What keeps a Node alive: its Lease every ten seconds, and its status when it changed or is old.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep};

use super::object::{self, Now};
use super::{About, api, own_address};
use crate::client::{Access, Trouble, chain};
use crate::identity::Clients;
use crate::machine::resources;

/// As a kubelet.
const INTERVAL: Duration = Duration::from_secs(10);
/// After a failure.
const SOONER: Duration = Duration::from_secs(2);
/// A status that did not change is said again after this time, as by a kubelet.
const STATUS_AGE: Duration = Duration::from_mins(5);
/// The last word may not hold up the end of the machine.
const LAST_WORD: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
struct Last {
    status: Option<(Value, Instant)>,
}

/// Beats for ever.
pub(crate) async fn beat(about: About, clients: Clients) {
    let mut last = Last::default();
    loop {
        let access = clients.borrow().clone();
        let wait = match once(&access, &about, &mut last).await {
            Ok(()) => INTERVAL,
            Err(error) => {
                tracing::warn!(node = about.name, error = %chain(&error), "heartbeat failed");
                SOONER
            }
        };
        sleep(wait).await;
    }
}

async fn once(access: &Access, about: &About, last: &mut Last) -> Result<(), Trouble> {
    renew(access, about).await?;
    let now = Now {
        resources: resources(&about.disk),
        address: own_address(&access.server).await,
        going: false,
    };
    let since = match &last.status {
        Some((status, _)) => object::by_type(status),
        // A restarted machine goes on with what it said before.
        None => said_before(access, about).await?,
    };
    let status = object::status(about, &now, &since, Timestamp::now());
    if is_due(last.status.as_ref(), &status, Instant::now()) {
        api::patch_status(&access.client, &about.name, &status).await?;
        last.status = Some((status, Instant::now()));
    }
    Ok(())
}

fn is_due(last: Option<&(Value, Instant)>, status: &Value, now: Instant) -> bool {
    last.is_none_or(|(said, at)| {
        *at + STATUS_AGE <= now || object::without_times(said) != object::without_times(status)
    })
}

async fn said_before(access: &Access, about: &About) -> Result<Map<String, Value>, Trouble> {
    let node = api::get(&access.client, &about.name).await?;
    let status = node.and_then(|node| serde_json::to_value(node.status).ok());
    Ok(status.map(|status| object::by_type(&status)).unwrap_or_default())
}

async fn renew(access: &Access, about: &About) -> Result<(), Trouble> {
    let client = &access.client;
    let renewal = object::renewal(&about.name, Timestamp::now());
    if api::renew_lease(client, &about.name, &renewal).await? {
        return Ok(());
    }
    let node = api::get(client, &about.name).await?;
    // Without a Node there is nothing to keep alive: it was deleted, and a Lease would outlive it.
    let Some(uid) = node.and_then(|node| node.metadata.uid) else { return Ok(()) };
    match object::lease(&about.name, &uid, Timestamp::now()) {
        Ok(lease) => api::create_lease(client, &lease).await,
        Err(error) => {
            tracing::error!(%error, "the lease cannot be built");
            Ok(())
        }
    }
}

/// Says that the Node is not ready any more, if the API server listens.
pub(crate) async fn say_goodbye(about: &About, access: &Access) {
    let now = Now {
        resources: resources(&about.disk),
        address: own_address(&access.server).await,
        going: true,
    };
    let say = async {
        let since = said_before(access, about).await?;
        let status = object::status(about, &now, &since, Timestamp::now());
        api::patch_status(&access.client, &about.name, &status).await
    };
    match tokio::time::timeout(LAST_WORD, say).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(error = %chain(&error), "could not say goodbye"),
        Err(_) => tracing::warn!("could not say goodbye in time"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_said_when_it_is_new_or_old() {
        let now = Instant::now();
        let said = |status: &str, time: &str| json!({"conditions": [{"type": "Ready", "status": status, "lastHeartbeatTime": time}]});
        let last = (said("True", "1"), now);
        for (status, at, expected) in [
            (said("True", "2"), now, false),
            (said("False", "2"), now, true),
            (said("True", "2"), now + STATUS_AGE, true),
        ] {
            assert_eq!(is_due(Some(&last), &status, at), expected, "{status}");
        }
        assert!(is_due(None, &said("True", "1"), now));
    }
}

//! A new certificate before the old one ends, asked for with the old one.

use std::time::Duration;

use anyhow::Context as _;
use backon::BackoffBuilder as _;
use jiff::Timestamp;
use ostler_kubelet::KubeletApi;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::sleep;

use super::certificate::inspect;
use super::obtain;
use super::store::{Identity, Store};
use crate::client::{Access, access, backoff};

/// The client of now; it changes when the certificate does.
pub(crate) type Clients = watch::Receiver<Access>;

/// A machine that slept looks at the clock again this soon.
const LONGEST_SLEEP: Duration = Duration::from_mins(10);

/// A signer that hands out certificates which are due immediately is not asked more often.
const SOONEST: Duration = Duration::from_secs(10);

/// Renews the certificate whenever it is due, for ever.
pub(crate) async fn renew(
    store: Store,
    node: String,
    mut identity: Identity,
    clients: watch::Sender<Access>,
) {
    let backoff = backoff(Duration::from_secs(1), Duration::from_mins(5));
    let mut waits = backoff.build();
    loop {
        wait_until_due(&identity, &node).await;
        let api = clients.borrow().api.clone();
        match once(&api, &store, &node).await {
            Ok((renewed, access)) => {
                tracing::info!(node, "certificate renewed");
                identity = renewed;
                clients.send_replace(access);
                waits = backoff.build();
                sleep(SOONEST).await;
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(node, error, "certificate cannot be renewed yet");
                sleep(waits.next().unwrap_or(SOONEST)).await;
            }
        }
    }
}

async fn once(api: &KubeletApi, store: &Store, node: &str) -> anyhow::Result<(Identity, Access)> {
    let identity = obtain(api, store, node).await?;
    store.keep_identity(&identity)?;
    let kubeconfig = store.kubeconfig()?.context("the kubeconfig of the node is gone")?;
    Ok((identity, access(kubeconfig).await?))
}

async fn wait_until_due(identity: &Identity, node: &str) {
    // What was kept was inspected when it was read; without an end in sight it is due now.
    let Ok(certificate) = inspect(&identity.chain, &identity.key, node) else { return };
    let due = certificate.renew_at(spread(node));
    loop {
        let left = Timestamp::now().duration_until(due);
        match Duration::try_from(left) {
            Ok(left) if !left.is_zero() => sleep(left.min(LONGEST_SLEEP)).await,
            Ok(_) | Err(_) => return,
        }
    }
}

fn spread(node: &str) -> u8 {
    Sha256::digest(node).first().copied().unwrap_or_default()
}

//! A new certificate before the old one ends, asked for with the old one.

use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::sleep;

use super::certificate::inspect;
use super::store::{Identity, Store, StoreError};
use super::{NoIdentity, obtain};
use crate::client::{Access, Backoff, NoClient, access, chain};

/// The client of now; it changes when the certificate does.
pub(crate) type Clients = watch::Receiver<Access>;

/// A machine that slept looks at the clock again this soon.
const LONGEST_SLEEP: Duration = Duration::from_mins(10);

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Identity(#[from] NoIdentity),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Client(#[from] NoClient),
    #[error("the kubeconfig of the node is gone")]
    NoKubeconfig,
}

/// A signer that hands out certificates which are due at once is not asked more often.
const SOONEST: Duration = Duration::from_secs(10);

/// Renews the certificate whenever it is due, for ever.
pub(crate) async fn renew(
    store: Store,
    node: String,
    mut identity: Identity,
    clients: watch::Sender<Access>,
) {
    let mut backoff = fresh_backoff();
    loop {
        wait_until_due(&identity, &node).await;
        let client = clients.borrow().client.clone();
        match once(&client, &store, &node).await {
            Ok((renewed, access)) => {
                tracing::info!(node, "certificate renewed");
                identity = renewed;
                clients.send_replace(access);
                backoff = fresh_backoff();
                sleep(SOONEST).await;
            }
            Err(error) => {
                tracing::warn!(node, error = %chain(&error), "certificate cannot be renewed yet");
                sleep(backoff.next()).await;
            }
        }
    }
}

fn fresh_backoff() -> Backoff {
    Backoff::new(Duration::from_secs(1), Duration::from_mins(5))
}

async fn once(
    client: &kube::Client,
    store: &Store,
    node: &str,
) -> Result<(Identity, Access), Trouble> {
    let identity = obtain(client, store, node).await?;
    store.keep_identity(&identity)?;
    let kubeconfig = store.kubeconfig()?.ok_or(Trouble::NoKubeconfig)?;
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

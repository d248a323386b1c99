//! Asking for a certificate, and waiting for it.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};

use super::certificate::{BadCertificate, inspect};
use super::request::Pending;
use super::store::{Identity, Store, StoreError};
use super::verdict::{Verdict, judge};
use crate::client::{Trouble, bounded};

/// As kubelets: clusters forget requests that nobody decided on after an hour.
const PATIENCE: Duration = Duration::from_mins(15);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoIdentity {
    #[error("the key of the node cannot be made")]
    Key(#[from] rcgen::Error),
    #[error("the key of the node cannot be kept")]
    Store(#[from] StoreError),
    #[error("the signing request cannot be made")]
    Api(#[from] Trouble),
    #[error("signing request {name} is {why}")]
    Refused { name: String, why: String },
    #[error(
        "signing request {name} was not approved within {} min: see `kubectl describe csr {name}`",
        PATIENCE.as_secs() / 60
    )]
    Undecided { name: String },
    #[error("what the cluster signed is of no use")]
    Certificate(#[from] BadCertificate),
}

/// Has a key of this node signed: the one that waits, or a new one. What is returned is not kept yet.
pub(crate) async fn obtain(
    client: &Client,
    store: &Store,
    node: &str,
) -> Result<Identity, NoIdentity> {
    let pending = if let Some(pending) = store.pending()? {
        pending
    } else {
        let pending = Pending::new(node)?;
        store.keep_pending(&pending)?;
        pending
    };
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    ask(&requests, &pending).await?;
    tracing::info!(request = pending.name(), "waiting for a certificate");
    let waited = tokio::time::timeout(PATIENCE, decision(&requests, &pending)).await;
    let name = pending.name().to_owned();
    match waited.unwrap_or(Verdict::Waiting) {
        Verdict::Signed(chain) => {
            let identity = Identity { chain, key: pending.key().to_owned() };
            inspect(&identity.chain, &identity.key, node)?;
            Ok(identity)
        }
        // The next attempt is with a new key, as the name of the request is the key's.
        Verdict::Waiting => {
            store.drop_pending()?;
            Err(NoIdentity::Undecided { name })
        }
        Verdict::Refused(why) => {
            store.drop_pending()?;
            Err(NoIdentity::Refused { name, why })
        }
        Verdict::Foreign => {
            store.drop_pending()?;
            Err(NoIdentity::Refused { name, why: "somebody else's".to_owned() })
        }
    }
}

/// Makes the request; one that a restarted node finds is as good.
async fn ask(
    requests: &Api<CertificateSigningRequest>,
    pending: &Pending,
) -> Result<(), NoIdentity> {
    match bounded(requests.create(&PostParams::default(), &pending.object())).await {
        Err(trouble) if trouble.code() != Some(409) => Err(trouble.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Waits for the end of the request, however often the watch breaks.
async fn decision(requests: &Api<CertificateSigningRequest>, pending: &Pending) -> Verdict {
    let seen = watch_object(requests.clone(), pending.name())
        .default_backoff()
        .inspect_err(|error: &watcher::Error| {
            tracing::warn!(error = %crate::client::chain(error), "watch failed, it begins anew");
        })
        .filter_map(async |event| event.ok().flatten());
    let mut seen = std::pin::pin!(seen);
    while let Some(object) = seen.next().await {
        let verdict = judge(&object, pending.request());
        if verdict != Verdict::Waiting {
            return verdict;
        }
    }
    Verdict::Waiting
}

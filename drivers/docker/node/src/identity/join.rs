//! Asking for a certificate, and waiting for it.

use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::watch_object;
use ostler_kubelet::{KubeletApi, RequestError};

use super::certificate::{BadCertificate, inspect};
use super::request::Pending;
use super::store::{Identity, Store, StoreError};
use super::verdict::{Verdict, judge};

/// As kubelets: clusters forget undecided requests after an hour.
const PATIENCE: Duration = Duration::from_mins(15);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoIdentity {
    #[error("the key of the node cannot be made")]
    Key(#[from] rcgen::Error),
    #[error("the key of the node cannot be kept")]
    Store(#[from] StoreError),
    #[error("the signing request cannot be made")]
    Api(#[from] RequestError),
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

/// Has the cluster sign a key of this node: the pending key, or a new one. The returned identity is not stored yet.
pub(crate) async fn obtain(
    api: &KubeletApi,
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
    let requests: Api<CertificateSigningRequest> = Api::all(api.client().clone());
    // One that was made before a restart of the node is as good.
    match api.request(requests.create(&PostParams::default(), &pending.object())).await {
        Err(error) if error.code() != Some(409) => return Err(error.into()),
        Ok(_) | Err(_) => {}
    }
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
            Err(NoIdentity::Refused { name, why: "not the one that this node made".to_owned() })
        }
    }
}

/// Waits for the end of the request, however often the watch breaks.
async fn decision(requests: &Api<CertificateSigningRequest>, pending: &Pending) -> Verdict {
    let seen = watch_object(requests.clone(), pending.name()).default_backoff();
    let mut seen = std::pin::pin!(seen);
    while let Some(event) = seen.next().await {
        match event.map_err(anyhow::Error::from) {
            Ok(object) => {
                let verdict =
                    object.map_or(Verdict::Waiting, |object| judge(&object, pending.request()));
                if verdict != Verdict::Waiting {
                    return verdict;
                }
            }
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "watch failed, it is started again");
            }
        }
    }
    Verdict::Waiting
}

//! One watch of pods and one of bootstrap tokens, for all kubelets.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::runtime::watcher::{Config, Event};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use super::cache::KeyedCache;
use super::pods::PodView;

const TOKEN_NAMESPACE: &str = "kube-system";
const TOKEN_TYPE: &str = "bootstrap.kubernetes.io/token";

/// The relevant fields of a bootstrap token. The secret half is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct TokenView {
    secret: String,
    /// Not valid from then on; unreadable counts as over.
    expires: Option<Timestamp>,
    enabled: bool,
}

impl TokenView {
    fn of(secret: &Secret) -> Option<(String, Self)> {
        let empty = BTreeMap::new();
        let data = secret.data.as_ref().unwrap_or(&empty);
        let text = |key: &str| {
            data.get(key).and_then(|ByteString(bytes)| String::from_utf8(bytes.clone()).ok())
        };
        let name = secret.metadata.name.as_deref()?;
        let id = name.strip_prefix("bootstrap-token-")?.to_owned();
        let expires = text("expiration").map(|time| time.parse().unwrap_or(Timestamp::MIN));
        let enabled = text("usage-bootstrap-authentication").is_none_or(|value| value == "true");
        Some((id, Self { secret: text("token-secret")?, expires, enabled }))
    }

    /// Whether `secret` lets a kubelet in at `now`.
    pub(super) fn admits(&self, secret: &str, now: Timestamp) -> bool {
        self.enabled && self.secret == secret && self.expires.is_none_or(|end| now < end)
    }
}

/// Puts pods into the cache, under the name of their node, for ever.
pub(super) async fn watch_pods(client: Client, cache: Arc<KeyedCache<PodView>>) {
    let pods = watcher(Api::<Pod>::all(client), Config::default());
    feed(pods, cache, |pod| {
        let view = PodView::of(pod)?;
        Some((view.node.clone(), view.uid.clone(), view))
    })
    .await;
}

/// Puts bootstrap tokens into the cache, under their id, for ever.
pub(super) async fn watch_tokens(client: Client, cache: Arc<KeyedCache<TokenView>>) {
    let api = Api::<Secret>::namespaced(client, TOKEN_NAMESPACE);
    let secrets = watcher(api, Config::default().fields(&format!("type={TOKEN_TYPE}")));
    feed(secrets, cache, |secret| {
        let (id, view) = TokenView::of(secret)?;
        Some((id.clone(), id, view))
    })
    .await;
}

async fn feed<K, V: Clone>(
    events: impl futures::Stream<Item = watcher::Result<Event<K>>>,
    cache: Arc<KeyedCache<V>>,
    view: impl Fn(&K) -> Option<(String, String, V)>,
) where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
{
    let mut events = std::pin::pin!(events.default_backoff());
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(object)) => listed.extend(view(&object)),
            Ok(Event::InitDone) => cache.replace(std::mem::take(&mut listed)),
            Ok(Event::Apply(object)) => {
                if let Some((key, id, value)) = view(&object) {
                    cache.set(&key, &id, value);
                }
            }
            Ok(Event::Delete(object)) => {
                if let Some((key, id, _)) = view(&object) {
                    cache.remove(&key, &id);
                }
            }
            Err(error) => {
                tracing::warn!(%error, kind = %K::kind(&()), "watch failed, it is started again");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(data: &[(&str, &str)]) -> TokenView {
        let secret: Secret = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "bootstrap-token-abcdef"},
        }))
        .unwrap();
        let data = data
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())))
            .collect();
        let (id, view) = TokenView::of(&Secret { data: Some(data), ..secret }).unwrap();
        assert_eq!(id, "abcdef");
        view
    }

    #[test]
    fn a_token_admits_who_knows_its_secret_until_it_expires() {
        let end = ("expiration", "2026-01-01T00:00:00Z");
        let view = token(&[("token-secret", "s"), end]);
        let end: Timestamp = end.1.parse().unwrap();
        let before = end - jiff::SignedDuration::from_secs(1);
        assert!(view.admits("s", before));
        assert!(!view.admits("t", before));
        assert!(!view.admits("s", end));
    }

    #[test]
    fn a_token_that_is_not_for_joining_or_whose_end_cannot_be_read_admits_nobody() {
        let now = Timestamp::now();
        for extra in [("usage-bootstrap-authentication", "false"), ("expiration", "soon")] {
            assert!(!token(&[("token-secret", "s"), extra]).admits("s", now), "{extra:?}");
        }
        assert!(token(&[("token-secret", "s")]).admits("s", now));
    }
}

//! The namespace in which the Leases and the cluster id of a core are. If the namespace ends, they move to another
//! served namespace.
//!
//! The ConfigMap of the cluster id names the namespace. The ConfigMap is copied first, with a mark. Then the holder of
//! the old Lease makes the Lease in the new namespace. Only then the old ConfigMap is released, and after it the old
//! Lease. A core that finds the old ConfigMap looks for the old Lease, any other core for the new Lease: one core holds
//! both at that moment.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use ostler_api::names::{CLUSTER_ID_CONFIG_MAP, annotation};
use ostler_lifecycle::home;
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{info, warn};

type Data = BTreeMap<String, String>;

/// Where the Leases and the cluster id of this core are.
pub(crate) struct HomeNamespace {
    client: Client,
    /// The configured namespace.
    chosen: String,
    /// The namespaces that are served by name.
    served: Vec<String>,
    current: watch::Sender<String>,
    /// The data of the ConfigMap when last seen.
    data: Mutex<Option<Data>>,
}

impl fmt::Debug for HomeNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HomeNamespace").field("current", &self.current()).finish_non_exhaustive()
    }
}

impl HomeNamespace {
    /// The current namespace of the Leases and the cluster id, the configured namespace, and the namespaces served by
    /// name.
    pub(crate) fn new(client: Client, current: &str, chosen: &str, served: Vec<String>) -> Self {
        let current = watch::Sender::new(current.to_owned());
        Self { client, chosen: chosen.to_owned(), served, current, data: Mutex::default() }
    }

    /// The current namespace.
    pub(crate) fn current(&self) -> String {
        self.current.borrow().clone()
    }

    /// The current namespace, and its changes.
    pub(crate) fn follow(&self) -> watch::Receiver<String> {
        self.current.subscribe()
    }

    /// The ConfigMaps of a namespace.
    pub(crate) fn maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The Leases of a namespace.
    pub(crate) fn leases(&self, namespace: &str) -> Api<Lease> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Notes the ConfigMap's data, for making it again.
    pub(crate) fn note(&self, map: &ConfigMap) {
        self.data.lock().clone_from(&map.data);
    }

    /// The ConfigMap as it was seen last, to be made in this namespace; `None`: it was never seen.
    pub(crate) fn again(&self, namespace: &str) -> Option<ConfigMap> {
        let data = self.data.lock().clone()?;
        Some(cluster_id_map(namespace, &self.chosen, Some(data)))
    }

    /// Whether a namespace stays, as far as this core may know: it is there and not terminating.
    pub(crate) async fn stays(&self, namespace: &str) -> bool {
        match ends(&self.client, namespace).await {
            Ok(ends) => !ends,
            Err(error) => {
                warn!(%error, namespace, "cannot read whether the namespace ends; what a core needs stays held in it");
                false
            }
        }
    }

    /// Copies the ConfigMap of `old`, which ends, to the first of the other namespaces that stays, unless a core of its own has one
    /// there. Returns that namespace; `None`: there is none.
    pub(crate) async fn prepare(&self, old: &str) -> kube::Result<Option<String>> {
        if self.served.iter().all(|other| other == old) {
            return Ok(None);
        }
        let seen = self.maps(old).get_opt(CLUSTER_ID_CONFIG_MAP).await?;
        if let Some(map) = &seen {
            self.note(map);
        }
        for next in self.served.iter().filter(|next| *next != old) {
            let Some(map) = self.again(next) else { return Ok(None) };
            if ends(&self.client, next).await? {
                continue;
            }
            let maps = self.maps(next);
            match maps.create(&PostParams::default(), &map).await {
                Ok(_) => return Ok(Some(next.clone())),
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let there = maps.get_opt(CLUSTER_ID_CONFIG_MAP).await?;
                    if there.is_some_and(|there| is_home_of(&there, &self.chosen)) {
                        return Ok(Some(next.clone()));
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(None)
    }

    /// The Lease is in this namespace now.
    pub(crate) fn moved_to(&self, namespace: &str) {
        info!(
            from = self.current(),
            to = namespace,
            "leases and cluster id move, since their namespace ends"
        );
        self.current.send_replace(namespace.to_owned());
    }

    /// Releases the ConfigMap in a namespace that this core left. Returns whether the ConfigMap is gone.
    pub(crate) async fn leave(&self, old: &str) -> kube::Result<bool> {
        let maps = self.maps(old);
        let Some(mut map) = maps.get_opt(CLUSTER_ID_CONFIG_MAP).await? else { return Ok(true) };
        if home::is_going(&map.metadata) {
            home::let_go(&mut map.metadata);
            maps.replace(CLUSTER_ID_CONFIG_MAP, &PostParams::default(), &map).await?;
        }
        Ok(maps.get_opt(CLUSTER_ID_CONFIG_MAP).await?.is_none())
    }
}

/// Whether a namespace is gone or terminating.
pub(crate) async fn ends(client: &Client, namespace: &str) -> kube::Result<bool> {
    let found = Api::<Namespace>::all(client.clone()).get_opt(namespace).await?;
    Ok(found.is_none_or(|it| it.metadata.deletion_timestamp.is_some()))
}

/// The ConfigMap of the cluster id, with a mark if it is not in the namespace that was chosen for it.
pub(crate) fn cluster_id_map(namespace: &str, chosen: &str, data: Option<Data>) -> ConfigMap {
    let mark = (namespace != chosen).then(|| (annotation::HOME_OF.to_owned(), chosen.to_owned()));
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(CLUSTER_ID_CONFIG_MAP.to_owned()),
            namespace: Some(namespace.to_owned()),
            annotations: mark.map(|mark| [mark].into()),
            ..ObjectMeta::default()
        },
        data,
        ..ConfigMap::default()
    }
}

/// Whether a ConfigMap belongs to a core with `chosen` as configured namespace.
pub(crate) fn is_home_of(map: &ConfigMap, chosen: &str) -> bool {
    let notes = map.metadata.annotations.as_ref();
    notes.and_then(|notes| notes.get(annotation::HOME_OF)).is_some_and(|of| of == chosen)
}

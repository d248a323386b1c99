//! The id of the cluster that instances are tagged with. It decides what may be deleted, so it is
//! written down once and never changes by itself.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::api::PostParams;
use kube::{Api, Client};
use ostler_api::Machine;
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use ostler_lifecycle::orphans::Hold;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::namespaces::Namespaces;
use crate::settings::Settings;

/// Key in the ConfigMap.
const KEY: &str = "clusterID";
/// Longest id: it becomes the value of a tag, and most infrastructures allow no more.
const MAX_BYTES: usize = 128;

/// Why there is no cluster id to work with.
#[derive(Debug, thiserror::Error)]
pub enum ClusterIdError {
    /// The id given differs from the one that the instances are tagged with.
    #[error(
        "--cluster-id {given:?} differs from {stored:?}, which the instances of this cluster are \
         tagged with (ConfigMap {namespace}/{CLUSTER_ID_CONFIG_MAP}); start without --cluster-id, \
         or with that value"
    )]
    Differs {
        /// The id given.
        given: String,
        /// The id written down.
        stored: String,
        /// Where it is written down.
        namespace: String,
    },
    /// The id cannot be the value of a tag.
    #[error("cluster id {0:?} must have 1 to {MAX_BYTES} printable ASCII characters")]
    Malformed(String),
    /// `kube-system` has no UID.
    #[error("namespace kube-system has no uid; give --cluster-id")]
    NoDefault,
    /// The API server refused or could not be reached.
    #[error("cannot read or write the cluster id")]
    Api(#[from] kube::Error),
}

/// The cluster id: the one written down or, the first time, `given` or the default, which is then
/// written down. The default is the UID of `kube-system`, a slash, and the namespaces served.
///
/// An id that is written down though there are Machines already may be another one than that of
/// their instances: orphans are only reported then, see [`Hold`].
pub async fn cluster_id(
    client: &Client,
    settings: &Settings,
    given: Option<&str>,
    clock: &Clock,
) -> Result<String, ClusterIdError> {
    let namespace = settings.home.as_str();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    loop {
        if let Some(stored) = stored(&maps).await? {
            return agreed(stored, given, namespace);
        }
        let id = proposed(client, &settings.namespaces, given).await?;
        let hold = lost(client, &settings.namespaces).await?.map(|why| Hold::new(clock(), why));
        match write(&maps, namespace, &id, hold).await {
            Ok(()) => {
                info!(cluster_id = id, "wrote down the cluster id");
                return Ok(id);
            }
            // Another process was faster; what it wrote counts.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// The id that [`cluster_id`] would come to, only read: nothing is written down. `home` is where it is
/// written, `scope` the namespaces served.
///
/// # Errors
/// As [`cluster_id`].
pub async fn known_cluster_id(
    client: &Client,
    home: &str,
    scope: &Namespaces,
    given: Option<&str>,
) -> Result<String, ClusterIdError> {
    match stored(&Api::namespaced(client.clone(), home)).await? {
        Some(stored) => agreed(stored, given, home),
        None => proposed(client, scope, given).await,
    }
}

async fn stored(maps: &Api<ConfigMap>) -> kube::Result<Option<String>> {
    let map = maps.get_opt(CLUSTER_ID_CONFIG_MAP).await?;
    Ok(map.and_then(|map| map.data?.remove(KEY)))
}

async fn proposed(
    client: &Client,
    scope: &Namespaces,
    given: Option<&str>,
) -> Result<String, ClusterIdError> {
    well_formed(match given {
        Some(id) => id.to_owned(),
        None => default_id(client, scope).await?,
    })
}

fn agreed(stored: String, given: Option<&str>, namespace: &str) -> Result<String, ClusterIdError> {
    match given {
        Some(given) if given != stored => Err(ClusterIdError::Differs {
            given: given.to_owned(),
            stored,
            namespace: namespace.to_owned(),
        }),
        Some(_) | None => well_formed(stored),
    }
}

fn well_formed(id: String) -> Result<String, ClusterIdError> {
    let fits =
        (1..=MAX_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(id) } else { Err(ClusterIdError::Malformed(id)) }
}

async fn default_id(client: &Client, scope: &Namespaces) -> Result<String, ClusterIdError> {
    let system = Api::<Namespace>::all(client.clone()).get("kube-system").await?;
    let uid = system.metadata.uid.filter(|uid| !uid.is_empty());
    Ok(format!("{}/{scope}", uid.ok_or(ClusterIdError::NoDefault)?))
}

/// Why the id that is about to be written down may not be the first one.
async fn lost(client: &Client, scope: &Namespaces) -> kube::Result<Option<String>> {
    for part in scope.parts() {
        let machines: Api<Machine> = match part {
            Some(namespace) => Api::namespaced(client.clone(), &namespace),
            None => Api::all(client.clone()),
        };
        if !machines.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty() {
            return Ok(Some(
                "there were machines, but the id of their cluster was not written down".to_owned(),
            ));
        }
    }
    Ok(None)
}

/// Creates the ConfigMap; a map that exists without the key gets it.
async fn write(
    maps: &Api<ConfigMap>,
    namespace: &str,
    id: &str,
    hold: Option<Hold>,
) -> kube::Result<()> {
    if let Some(hold) = &hold {
        warn!("orphans are only reported: {}", hold.reason);
    }
    let params = PostParams::default();
    if let Some(mut map) = maps.get_opt(CLUSTER_ID_CONFIG_MAP).await? {
        let data = map.data.get_or_insert_default();
        data.entry(KEY.to_owned()).or_insert_with(|| id.to_owned());
        if let Some(hold) = hold {
            hold.set(data);
        }
        maps.replace(CLUSTER_ID_CONFIG_MAP, &params, &map).await?;
        return Ok(());
    }
    let mut data = [(KEY.to_owned(), id.to_owned())].into();
    if let Some(hold) = hold {
        hold.set(&mut data);
    }
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(CLUSTER_ID_CONFIG_MAP.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..ConfigMap::default()
    };
    maps.create(&params, &map).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_written_down_counts_and_another_one_is_refused() {
        let agreed = |given| agreed("uid/default".to_owned(), given, "default");
        assert_eq!(agreed(None).unwrap(), "uid/default");
        assert_eq!(agreed(Some("uid/default")).unwrap(), "uid/default");
        let refused = agreed(Some("other")).unwrap_err();
        assert!(matches!(refused, ClusterIdError::Differs { .. }), "{refused}");
    }

    #[test]
    fn an_id_that_cannot_be_a_tag_is_refused() {
        for id in ["", "a b", "ü", &"x".repeat(129)] {
            assert!(matches!(well_formed(id.to_owned()), Err(ClusterIdError::Malformed(_))));
        }
        assert!(well_formed("x".repeat(128)).is_ok());
    }
}

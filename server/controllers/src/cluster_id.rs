//! The id of the cluster that instances are tagged with. It decides what may be deleted, so it is
//! written down once and never changes by itself.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use kube::{Api, Client};
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use tracing::info;

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
pub async fn cluster_id(
    client: &Client,
    settings: &Settings,
    given: Option<&str>,
) -> Result<String, ClusterIdError> {
    let namespace = settings.home.as_str();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    loop {
        if let Some(map) = maps.get_opt(CLUSTER_ID_CONFIG_MAP).await?
            && let Some(stored) = map.data.and_then(|mut data| data.remove(KEY))
        {
            return agreed(stored, given, namespace);
        }
        let id = match given {
            Some(id) => id.to_owned(),
            None => default_id(client, &settings.namespaces).await?,
        };
        let id = well_formed(id)?;
        match write(&maps, namespace, &id).await {
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

/// Creates the ConfigMap; a map that exists without the key gets it.
async fn write(maps: &Api<ConfigMap>, namespace: &str, id: &str) -> kube::Result<()> {
    let params = PostParams::default();
    if let Some(mut map) = maps.get_opt(CLUSTER_ID_CONFIG_MAP).await? {
        map.data.get_or_insert_default().entry(KEY.to_owned()).or_insert_with(|| id.to_owned());
        maps.replace(CLUSTER_ID_CONFIG_MAP, &params, &map).await?;
        return Ok(());
    }
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(CLUSTER_ID_CONFIG_MAP.to_owned()),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([(KEY.to_owned(), id.to_owned())].into()),
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

//! The ids of the cluster that instances are tagged with. The ids decide about deletions, so a ConfigMap records them
//! and only an operator changes them.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::ListParams;
use kube::api::PostParams;
use kube::{Api, Client};
use ostler_api::Machine;
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use ostler_lifecycle::cluster::{ClusterIds, IdError, Settled, settle, wanted};
use ostler_lifecycle::orphans::ReportOnly;
use ostler_sessions::Sessions;
use tracing::{info, warn};

use crate::clock::Clock;
use crate::home_namespace::{cluster_id_map, ends, is_home_of};
use crate::namespaces::Namespaces;
use crate::settings::Settings;

/// Why there is no cluster id to work with.
#[derive(Debug, thiserror::Error)]
pub enum ClusterIdError {
    /// The given ids do not match the recorded ones.
    #[error("{problem} (ConfigMap {namespace}/{CLUSTER_ID_CONFIG_MAP})")]
    Refused {
        /// The fault of the ids.
        problem: IdError,
        /// Namespace of the ConfigMap.
        namespace: String,
    },
    /// Another namespace that is served has the ids and the Lease of a core.
    #[error(
        "ConfigMap {other}/{CLUSTER_ID_CONFIG_MAP} is that of a core with its Lease in {other}, and {home} is the first of \
         --namespace; give --leader-elect-resource-namespace {other} to go on with that Lease and cluster id, or {home} \
         once no such core runs"
    )]
    OtherHome {
        /// The namespace of the other core.
        other: String,
        /// The home of this core.
        home: String,
    },
    /// `kube-system` has no UID.
    #[error("namespace kube-system has no uid; give --cluster-id")]
    NoDefault,
    /// The API server refused or could not be reached.
    #[error("cannot read or write the cluster id")]
    Api(#[from] kube::Error),
}

/// The ids that an operator gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GivenIds {
    /// The id; `None`: the recorded one or, if there is none, the default one.
    pub id: Option<String>,
    /// Ids that the cluster had before.
    pub previous: Vec<String>,
}

/// The cluster ids in use by the core.
pub(crate) fn ids_of(sessions: &Sessions) -> ClusterIds {
    ClusterIds {
        own: sessions.cluster_id().to_owned(),
        previous: sessions.previous_cluster_ids().to_vec(),
    }
}

/// The recorded ids of the cluster and the given ids, which are recorded as well. The default is the UID of
/// `kube-system`, a slash, and the namespaces served.
///
/// Orphans are only reported (see [`ReportOnly`]) in two cases: if Machines exist before an id is recorded, since their
/// instances may carry another id; and if an id replaces a previous one, since that comes with a restore or a
/// migration.
pub async fn cluster_ids(
    client: &Client,
    settings: &Settings,
    given: &GivenIds,
    clock: &Clock,
) -> Result<ClusterIds, ClusterIdError> {
    let namespace = settings.home.as_str();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    loop {
        let map = maps.get_opt(CLUSTER_ID_CONFIG_MAP).await?;
        let stored = map.as_ref().and_then(stored);
        let settled = settled(client, &settings.namespaces, namespace, stored.as_ref(), given);
        let settled = settled.await?;
        if stored.as_ref() == Some(&settled.ids) {
            return Ok(settled.ids);
        }
        let reason = match (&stored, &settled.moved_from) {
            (None, _) => lost(client, &settings.namespaces).await?,
            (Some(_), None) => None,
            (Some(_), Some(from)) => Some(moved(from, &settled.ids.own)),
        };
        let hold = reason.map(|why| ReportOnly::new(clock(), why));
        let exists = map.is_some();
        let map = map.unwrap_or_else(|| cluster_id_map(namespace, settings.chosen_home(), None));
        match write(&maps, (map, exists), &settled.ids, hold).await {
            Ok(()) => {
                log_ids(&settled);
                return Ok(settled.ids);
            }
            // Another process was faster; its write counts.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// The settings with the namespace of the Leases and the cluster id: the configured namespace. If that namespace is
/// gone or terminating and has none, they are where an earlier core took them, or in the first remaining namespace
/// served by name, if the settings' namespace is served, too.
///
/// # Errors
/// The API server refused or could not be reached.
pub async fn find_home(client: &Client, settings: &Settings) -> Result<Settings, ClusterIdError> {
    let chosen = settings.chosen_home().to_owned();
    let map = async |namespace: &str| {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        maps.get_opt(CLUSTER_ID_CONFIG_MAP).await
    };
    let mut found = chosen.clone();
    if map(&chosen).await?.is_none() {
        let served: Vec<_> = settings.namespaces.parts().into_iter().flatten().collect();
        let others = || served.iter().filter(|other| **other != chosen);
        for other in others() {
            if map(other).await?.is_some_and(|map| is_home_of(&map, &chosen)) {
                found.clone_from(other);
                break;
            }
        }
        // Without the right to read namespaces, the core takes its namespace as staying.
        if found == chosen
            && served.contains(&chosen)
            && ends(client, &chosen).await.unwrap_or(false)
        {
            for other in others() {
                if !ends(client, other).await? {
                    found.clone_from(other);
                    break;
                }
            }
        }
    }
    if found == chosen {
        return Ok(settings.clone());
    }
    info!(
        chosen,
        namespace = found,
        "the namespace for leases and cluster id ended: they are in another one"
    );
    Ok(Settings { home: found, home_of: Some(chosen), ..settings.clone() })
}

/// Checks that of the namespaces served no other than the first is the home of a core, which is that by default: if the
/// order of their names changed, two cores would lead, and the cluster id would be another one.
///
/// # Errors
/// Another core has its home there, or the API server did not answer.
pub async fn check_home(client: &Client, served: &Namespaces) -> Result<(), ClusterIdError> {
    let Some(home) = served.first() else { return Ok(()) };
    for other in served.parts().into_iter().flatten().filter(|it| it != home) {
        let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &other);
        let there = maps.get_opt(CLUSTER_ID_CONFIG_MAP).await?;
        if there.is_some_and(|there| !is_home_of(&there, home)) {
            return Err(ClusterIdError::OtherHome { other, home: home.to_owned() });
        }
    }
    Ok(())
}

/// The result of [`cluster_ids`], without recording the ids. `home` is the namespace of the ConfigMap, `scope` the
/// namespaces served.
///
/// # Errors
/// As [`cluster_ids`].
pub async fn known_cluster_ids(
    client: &Client,
    home: &str,
    scope: &Namespaces,
    given: &GivenIds,
) -> Result<ClusterIds, ClusterIdError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), home);
    let map = maps.get_opt(CLUSTER_ID_CONFIG_MAP).await?;
    let stored = map.as_ref().and_then(stored);
    Ok(settled(client, scope, home, stored.as_ref(), given).await?.ids)
}

fn stored(map: &ConfigMap) -> Option<ClusterIds> {
    ClusterIds::of(map.data.as_ref()?)
}

async fn settled(
    client: &Client,
    scope: &Namespaces,
    home: &str,
    stored: Option<&ClusterIds>,
    given: &GivenIds,
) -> Result<Settled, ClusterIdError> {
    let own = match wanted(stored, given.id.as_deref(), &given.previous) {
        Some(id) => id.to_owned(),
        None => default_id(client, scope).await?,
    };
    let refused = |problem| ClusterIdError::Refused { problem, namespace: home.to_owned() };
    settle(stored, &own, &given.previous).map_err(refused)
}

fn moved(from: &str, to: &str) -> String {
    format!(
        "the cluster id was {from} and is {to} now, as it is after a restore or a migration: instances that were made \
         meanwhile may not be known here"
    )
}

fn log_ids(settled: &Settled) {
    let Settled { ids, moved_from, dropped } = settled;
    info!(cluster_id = ids.own, previous = ?ids.previous, from = ?moved_from, "recorded the cluster id");
    if !dropped.is_empty() {
        warn!(
            ?dropped,
            "too many previous cluster ids: instances with the oldest ones no longer belong to this cluster"
        );
    }
}

async fn default_id(client: &Client, scope: &Namespaces) -> Result<String, ClusterIdError> {
    let system = Api::<Namespace>::all(client.clone()).get("kube-system").await?;
    let uid = system.metadata.uid.filter(|uid| !uid.is_empty());
    Ok(format!("{}/{scope}", uid.ok_or(ClusterIdError::NoDefault)?))
}

/// Why the id about to be recorded may not be the first.
async fn lost(client: &Client, scope: &Namespaces) -> kube::Result<Option<String>> {
    for part in scope.parts() {
        let machines: Api<Machine> = match part {
            Some(namespace) => Api::namespaced(client.clone(), &namespace),
            None => Api::all(client.clone()),
        };
        if !machines.list_metadata(&ListParams::default().limit(1)).await?.items.is_empty() {
            return Ok(Some(
                "there were machines, but the id of their cluster was not recorded".to_owned(),
            ));
        }
    }
    Ok(None)
}

/// Creates the ConfigMap, or replaces the version that was read if one exists.
async fn write(
    maps: &Api<ConfigMap>,
    (mut map, exists): (ConfigMap, bool),
    ids: &ClusterIds,
    hold: Option<ReportOnly>,
) -> kube::Result<()> {
    let data = map.data.get_or_insert_default();
    ids.set(data);
    if let Some(hold) = hold {
        warn!("orphans are only reported: {}", hold.reason);
        hold.set(data);
    }
    let params = PostParams::default();
    if exists {
        // With the version that was read: concurrent changes are not overwritten.
        maps.replace(CLUSTER_ID_CONFIG_MAP, &params, &map).await.map(drop)
    } else {
        maps.create(&params, &map).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::Bench;

    #[tokio::test]
    async fn the_home_of_another_core_among_the_namespaces_is_named_with_the_flag() {
        let map = json!({ "metadata": { "name": CLUSTER_ID_CONFIG_MAP } });
        let there = Bench::new().having(map).client();
        let namespaces: Namespaces = "b,a".parse().unwrap();
        let error = check_home(&there, &namespaces).await.unwrap_err().to_string();
        assert!(error.contains("--leader-elect-resource-namespace a"), "{error}");
        check_home(&Bench::new().client(), &namespaces).await.unwrap();
        // The namespace is the home itself.
        check_home(&there, &Namespaces::one("a")).await.unwrap();
    }
}

//! Groups without a pool: forsaken by users, planted without a pool, or of another cluster. Also the cloud controller
//! manager that removes the Nodes of such groups.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use ostler_api::MachinePool;
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use ostler_driver_fake::cloud::{Bootstrap, Cloud, GroupLookup, Model, NewGroup};
use ostler_driver_sdk::PoolIdentity;
use ostler_lifecycle::cluster::ClusterIds;
use serde_json::json;
use tokio::time::sleep;

use super::super::users::Users;
use super::super::world::{Surroundings, World};
use super::users::{class_name, spec};
use super::{ELSEWHERE, pool_name};

/// How often it looks.
const LOOK: Duration = Duration::from_mins(1);

/// A user has had enough of a pool.
pub(super) async fn tear(world: &World, pool: u8) {
    let Some(found) = world.users.get::<MachinePool>(&pool_name(pool)).await else { return };
    world.around.oracle.forsakes(found.uid());
    world.users.delete_by_name::<MachinePool>(found.name()).await;
    world.users.patch_pool(pool, json!({ "metadata": { "finalizers": null } })).await;
}

/// Something else made a group with the tags of this cluster, once there are any.
pub(super) async fn stray(world: &World, pool: u8) {
    let map = world.users.get::<ConfigMap>(CLUSTER_ID_CONFIG_MAP).await;
    let Some(ids) = map.and_then(|map| ClusterIds::of(&map.data?)) else { return };
    let uid = format!("stray-{pool}");
    world.around.oracle.forsakes(&uid);
    if let Some(cloud) = world.around.clouds.first() {
        make(
            cloud,
            &PoolIdentity { cluster_id: ids.own, pool_name: pool_name(pool), pool_uid: uid },
        );
    }
}

/// A group of another cluster, which is none of our business.
pub fn elsewhere(cloud: &Cloud) {
    let (pool_name, pool_uid) = (pool_name(0), "elsewhere".to_owned());
    make(cloud, &PoolIdentity { cluster_id: ELSEWHERE.to_owned(), pool_name, pool_uid });
}

/// Its instances have nothing to join with.
fn make(cloud: &Cloud, identity: &PoolIdentity) {
    let spec = serde_json::from_value(spec(0)).expect("the spec of a class is one");
    let model = Model {
        hash: "of-nobody".to_owned(),
        spec,
        bootstrap: Bootstrap::default(),
        zones: Vec::new(),
    };
    let new = NewGroup { tags: identity.tags(), class: class_name(0), desired: 2, model };
    let lookup = GroupLookup { provider_id: None, identity, previous_clusters: &[], region: None };
    cloud.create_group(lookup, new).expect("a cloud in memory has no journal");
}

/// From now on the cloud controller manager deletes the Nodes that such a group leaves.
pub fn clean_up(users: &Users, around: &Arc<Surroundings>) {
    let (users, around) = (users.clone(), Arc::clone(around));
    tokio::spawn(async move {
        loop {
            sleep(LOOK).await;
            users.forget_nodes(&around.oracle.forsaken()).await;
        }
    });
}

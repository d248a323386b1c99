//! The requests about Node and Lease.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::client::{Trouble, bounded};

const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Creates the Node; `None`: there is one of this name.
pub(super) async fn create(client: &Client, node: &Node) -> Result<Option<Node>, Trouble> {
    match bounded(nodes(client).create(&PostParams::default(), node)).await {
        Ok(node) => Ok(Some(node)),
        Err(trouble) if trouble.code() == Some(409) => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

pub(super) async fn get(client: &Client, name: &str) -> Result<Option<Node>, Trouble> {
    bounded(nodes(client).get_opt(name)).await
}

/// Patches the Node itself, if it is still the one with this version.
pub(super) async fn patch(client: &Client, name: &str, patch: &Value) -> Result<(), Trouble> {
    let params = PatchParams::default();
    bounded(nodes(client).patch(name, &params, &Patch::Merge(patch))).await.map(drop)
}

/// Patches the status; a Node that is gone stays so.
pub(super) async fn patch_status(
    client: &Client,
    name: &str,
    status: &Value,
) -> Result<(), Trouble> {
    let patch = Patch::Strategic(json!({"status": with_all_addresses(status)}));
    match bounded(nodes(client).patch_status(name, &PatchParams::default(), &patch)).await {
        Err(trouble) if trouble.code() != Some(404) => Err(trouble),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// The list is merged by type: without the directive an address that is not named would stay.
fn with_all_addresses(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(addresses) = status.get_mut("addresses").and_then(Value::as_array_mut) {
        addresses.insert(0, json!({"$patch": "replace"}));
    }
    status
}

/// Creates the Lease; one that is there is as good.
pub(super) async fn create_lease(client: &Client, lease: &Lease) -> Result<(), Trouble> {
    match bounded(leases(client).create(&PostParams::default(), lease)).await {
        Err(trouble) if trouble.code() != Some(409) => Err(trouble),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Renews the Lease; false: there is none.
pub(super) async fn renew_lease(
    client: &Client,
    name: &str,
    renewal: &Value,
) -> Result<bool, Trouble> {
    let params = PatchParams::default();
    match bounded(leases(client).patch(name, &params, &Patch::Merge(renewal))).await {
        Ok(_) => Ok(true),
        Err(trouble) if trouble.code() == Some(404) => Ok(false),
        Err(trouble) => Err(trouble),
    }
}

fn nodes(client: &Client) -> Api<Node> {
    Api::all(client.clone())
}

fn leases(client: &Client) -> Api<Lease> {
    Api::namespaced(client.clone(), LEASE_NAMESPACE)
}

//! The registration of a Node, once in the life of a process.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use serde_json::json;
use tokio::time::sleep;

use super::object::{self, Now};
use super::{About, api, own_address};
use crate::client::{Access, Backoff, Trouble, chain};
use crate::machine::resources;

/// Why a Node cannot be registered; the next attempt may do better.
#[derive(Debug, thiserror::Error)]
enum NotRegistered {
    #[error(transparent)]
    Api(#[from] Trouble),
    #[error("the Node cannot be built")]
    Object(#[from] serde_json::Error),
    #[error("a Node of this name belongs to {0}: delete it if that instance is gone")]
    NameTaken(String),
}

/// Registers the Node, however long it takes.
pub(crate) async fn register(access: &Access, about: &About) {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    while let Err(error) = once(access, about).await {
        tracing::warn!(node = about.name, error = %chain(&error), "not registered yet");
        sleep(backoff.next()).await;
    }
    tracing::info!(node = about.name, "node registered");
}

async fn once(access: &Access, about: &About) -> Result<(), NotRegistered> {
    let now = Now {
        resources: resources(&about.disk),
        address: own_address(&access.server).await,
        going: false,
    };
    let at = Timestamp::now();
    let client = &access.client;
    let node = match api::create(client, &object::node(about, &now, at)?).await? {
        Some(node) => node,
        None => take_over(access, about).await?,
    };
    // Said again, as an API server need not take a status along with a new object.
    let before = object::by_type(&serde_json::to_value(&node.status)?);
    let status = object::status(about, &now, &before, at);
    api::patch_status(client, &about.name, &status).await?;
    if let Some(uid) = node.metadata.uid {
        api::create_lease(client, &object::lease(&about.name, &uid, at)?).await?;
    }
    Ok(())
}

/// Uses the Node that is there if it is this machine's or nobody's. Its taints stay as they are.
async fn take_over(access: &Access, about: &About) -> Result<Node, NotRegistered> {
    let Some(found) = api::get(&access.client, &about.name).await? else {
        return Err(NotRegistered::NameTaken("somebody who just left".to_owned()));
    };
    if let Owner::Other(owner) = owner(&found, about.provider_id.as_deref()) {
        return Err(NotRegistered::NameTaken(owner));
    }
    let mut patch = json!({"metadata": {"labels": object::labels(about)}});
    if let (Some(id), Some(patch)) = (&about.provider_id, patch.as_object_mut()) {
        patch.insert("spec".to_owned(), json!({"providerID": id}));
    }
    api::patch(&access.client, &about.name, &patch).await?;
    Ok(found)
}

#[derive(Debug, PartialEq, Eq)]
enum Owner {
    Mine,
    Other(String),
}

fn owner(node: &Node, own: Option<&str>) -> Owner {
    let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    match (id.filter(|id| !id.is_empty()), own) {
        (Some(id), Some(own)) if id != own => Owner::Other(id.to_owned()),
        (Some(_) | None, _) => Owner::Mine,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_another_instance_is_not_taken_over() {
        let node = |id: Option<&str>| -> Node {
            serde_json::from_value(json!({"metadata": {}, "spec": {"providerID": id}})).unwrap()
        };
        for (found, own, expected) in [
            (None, Some("a"), Owner::Mine),
            (Some(""), Some("a"), Owner::Mine),
            (Some("a"), Some("a"), Owner::Mine),
            (Some("b"), Some("a"), Owner::Other("b".to_owned())),
            (Some("b"), None, Owner::Mine),
        ] {
            assert_eq!(owner(&node(found), own), expected, "{found:?}");
        }
    }
}

//! The objects of a world, as they are when nothing is wrong with them.

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Node, NodeCondition, NodeSpec, NodeStatus, Taint},
    apimachinery::pkg::apis::meta::v1::Time,
};
use ostler_api::{MachineClass, names};
use ostler_lifecycle::{
    operation::UserData,
    snapshot::{SecretFacts, SecretView},
};
use serde_json::json;

use crate::machine::world::{NODE, PROVIDER_ID, World};

pub fn class(spec: &serde_json::Value) -> MachineClass {
    serde_json::from_value(json!({
        "apiVersion": names::API_VERSION, "kind": "MachineClass",
        "metadata": { "name": "small", "namespace": "default" },
        "provider": "fake.ostler.dev", "providerSpec": spec
    }))
    .unwrap()
}

pub fn secret(user_data: &[u8]) -> SecretView {
    SecretView::Known(SecretFacts {
        revision: "s1".into(),
        user_data: Some(UserData::new(user_data.to_vec())),
    })
}

pub fn node(ready: &str, since: Timestamp) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(NODE.to_owned());
    node.metadata.uid = Some("node-uid".to_owned());
    node.spec = Some(NodeSpec {
        provider_id: Some(PROVIDER_ID.to_owned()),
        taints: Some(vec![Taint {
            key: names::taint::INSTANCE_NOT_READY.to_owned(),
            effect: "NoSchedule".to_owned(),
            ..Taint::default()
        }]),
        ..NodeSpec::default()
    });
    node.status = Some(NodeStatus {
        conditions: Some(vec![NodeCondition {
            type_: "Ready".to_owned(),
            status: ready.to_owned(),
            last_transition_time: Some(Time(since)),
            ..NodeCondition::default()
        }]),
        ..NodeStatus::default()
    });
    node
}

/// The fields of the status that machine-controller-manager's types have.
pub const UPSTREAM: [&str; 5] =
    ["addresses", "conditions", "lastOperation", "currentStatus", "lastKnownState"];

/// A user edits the status, if there is one.
pub fn edit_status(
    world: &mut World,
    edit: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>),
) {
    let Some(status) = &world.machine().status else { return };
    let serde_json::Value::Object(mut status) = serde_json::to_value(status).unwrap() else {
        panic!()
    };
    edit(&mut status);
    world.machine_mut().status =
        Some(serde_json::from_value(serde_json::Value::Object(status)).unwrap());
}

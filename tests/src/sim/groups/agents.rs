//! Updates in place: the agents on the Nodes, and the user who looks after them.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use ostler_api::MachineDeployment;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::machine_deployment::OrchestrationType;
use ostler_api::names::{annotation, label, node_condition};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::super::dice::Dice;
use super::super::users::Users;

/// How often agents look, and the user.
const LOOK: Duration = Duration::from_secs(4);

fn node_label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn is_ready_for_update(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|one| {
        one.type_ == node_condition::IN_PLACE_UPDATE
            && one.reason.as_deref() == Some("ReadyForUpdate")
    })
}

/// Starts the agents: each updates its Node when that is empty, which takes a while, and fails at times.
pub fn start(users: &Users, seed: u64) {
    let (users, dice) = (users.clone(), Dice::new(seed.rotate_left(43)));
    tokio::spawn(async move {
        loop {
            sleep(LOOK).await;
            for node in users.all::<Node>().await {
                let waits =
                    is_ready_for_update(&node) && node_label(&node, label::UPDATE_RESULT).is_none();
                if !waits || dice.percent(60) {
                    continue;
                }
                let well = dice.percent(80);
                let result = if well { "successful" } else { "failed" };
                let why = (!well).then_some("no space left");
                let metadata = json!({
                    "labels": { label::UPDATE_RESULT: result },
                    "annotations": { annotation::UPDATE_FAILED_REASON: why },
                });
                users.patch_node(&node, metadata).await;
            }
        }
    });
}

/// From now on a user has updates that failed repeated, and chooses the Nodes that wait for being chosen.
pub fn finish(users: &Users) {
    let users = users.clone();
    tokio::spawn(async move {
        loop {
            sleep(LOOK).await;
            let (nodes, deployments) =
                (users.all::<Node>().await, users.all::<MachineDeployment>().await);
            for machine in users.all::<Machine>().await {
                if machine.phase() == MachinePhase::InPlaceUpdateFailed {
                    let again = json!({ annotation::RETRY_UPDATE: "true" });
                    let patch = json!({ "metadata": { "annotations": again } });
                    users.patch_machine(machine.name(), patch).await;
                }
                let of_name = |node: &&Node| node.metadata.name.as_deref() == Some(machine.name());
                let node = nodes.iter().find(of_name);
                let waits = node.is_some_and(|node| {
                    node_label(node, label::CANDIDATE_FOR_UPDATE).is_some()
                        && node_label(node, label::SELECTED_FOR_UPDATE).is_none()
                });
                if waits && is_manual(&machine, &deployments) {
                    users.select_node(machine.name()).await;
                }
            }
        }
    });
}

fn is_manual(machine: &Machine, deployments: &[MachineDeployment]) -> bool {
    let name = machine.label(super::users::LABEL);
    let mut own = deployments.iter().filter(|one| Some(one.name()) == name);
    own.any(|one| {
        let block = one.spec.strategy.in_place_update.as_ref();
        block.and_then(|block| block.orchestration_type.as_ref())
            == Some(&OrchestrationType::Manual)
    })
}

impl Users {
    /// Chooses a Node for an update in place, if it is there.
    pub async fn select_node(&self, name: &str) {
        let labels = json!({ label::SELECTED_FOR_UPDATE: "true" });
        let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
        Api::<Node>::all(self.client()).patch(name, &PatchParams::default(), &patch).await.ok();
    }

    /// Merges something into the metadata of a Node that is still the one that was seen.
    async fn patch_node(&self, node: &Node, mut metadata: Value) {
        metadata["resourceVersion"] = json!(node.metadata.resource_version);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let name = node.metadata.name.as_deref().unwrap_or_default();
        Api::<Node>::all(self.client()).patch(name, &PatchParams::default(), &patch).await.ok();
    }
}

//! Whether sets and deployments are as they are wanted, once nothing goes wrong any more.

use k8s_openapi::api::core::v1::Node;
use ostler_api::machine::{Machine, MachinePhase};
use ostler_api::machine_set::MachineSetConditionType;
use ostler_api::names::{annotation, label};
use ostler_api::{MachineDeployment, MachineSet};
use ostler_lifecycle::owner::{controller, is_controlled_by, is_in_reserve};
use ostler_lifecycle::set::DRIFT_MARGIN;

use super::super::users::Users;

/// Objects that are not settled yet.
pub async fn unsettled(users: &Users, machines: &[Machine]) -> Vec<String> {
    let sets: Vec<MachineSet> = users.all().await;
    let deployments: Vec<MachineDeployment> = users.all().await;
    let mut found = Vec::new();
    for set in &sets {
        found.extend(set_unsettled(set, machines));
    }
    for deployment in &deployments {
        found.extend(deployment_unsettled(deployment, &sets));
    }
    for machine in machines.iter().filter(|it| !is_in_reserve(&it.metadata)) {
        let owner = controller(&machine.metadata).map(|owner| owner.uid.as_str());
        if owner.is_some_and(|owner| sets.iter().all(|set| set.uid() != owner)) {
            found.push(format!("the set of {} is gone", machine.name()));
        }
    }
    for node in users.all::<Node>().await {
        let has =
            |key| node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(key));
        // The report of an agent belongs to a rollout, which removes it.
        if has(label::UPDATE_RESULT) && !has(label::CANDIDATE_FOR_UPDATE) {
            let name = node.metadata.name.unwrap_or_default();
            found.push(format!("node {name} has the result of an update that nobody wants"));
        }
    }
    found
}

fn set_unsettled(set: &MachineSet, machines: &[Machine]) -> Option<String> {
    let name = set.name();
    if set.is_deleting() {
        return Some(format!("set {name} is still deleted"));
    }
    let own: Vec<_> =
        machines.iter().filter(|it| is_controlled_by(&it.metadata, set.uid())).collect();
    let wanted = usize::try_from(set.spec.replicas()).unwrap_or_default();
    let running = own.iter().filter(|it| it.phase() == MachinePhase::Running).count();
    let status = set.status.clone().unwrap_or_default();
    if drifted(set, machines, wanted)
        && own.len() < wanted
        && status.conditions.iter().any(|it| it.type_ == MachineSetConditionType::ReplicaFailure)
    {
        return None;
    }
    let counted = [status.replicas, status.ready_replicas, status.available_replicas];
    if (own.len(), running) != (wanted, wanted)
        || counted.iter().any(|it| *it != set.spec.replicas())
    {
        return Some(format!(
            "set {name} wants {wanted}, has {}, of which {running} run; it says {counted:?}, conditions {:?}",
            own.len(),
            status.conditions,
        ));
    }
    (set.label(label::FREEZE).is_some()).then(|| format!("set {name} is frozen"))
}

/// Users took so many Machines out of this set by their labels that it makes no more, and says so.
fn drifted(set: &MachineSet, machines: &[Machine], wanted: usize) -> bool {
    let left = |machine: &&Machine| {
        machine.annotation(annotation::RELEASED_BY) == Some(set.uid())
            && controller(&machine.metadata).is_none()
    };
    machines.iter().filter(left).count() + wanted > 2 * wanted + DRIFT_MARGIN
}

fn deployment_unsettled(deployment: &MachineDeployment, sets: &[MachineSet]) -> Option<String> {
    let name = deployment.name();
    if deployment.is_deleting() {
        return Some(format!("deployment {name} is still deleted"));
    }
    let own: Vec<_> =
        sets.iter().filter(|set| is_controlled_by(&set.metadata, deployment.uid())).collect();
    let of_class = |set: &&&MachineSet| {
        set.spec.template.spec.class.name == deployment.spec.template.spec.class.name
    };
    let wanted = deployment.spec.replicas();
    let all: i32 = own.iter().map(|set| set.spec.replicas()).sum();
    let most = own.iter().filter(of_class).map(|set| set.spec.replicas()).max().unwrap_or_default();
    let status = deployment.status.clone().unwrap_or_default();
    let counted = [status.replicas, status.updated_replicas, status.available_replicas];
    let current = status.observed_generation == deployment.metadata.generation;
    let rolls_back = deployment.spec.rollback_to.is_some();
    if (all, most) == (wanted, wanted)
        && counted.iter().all(|it| *it == wanted)
        && current
        && !rolls_back
    {
        return None;
    }
    Some(format!(
        "deployment {name} wants {wanted}, its sets {all}, the largest of its class {most}; it says {counted:?}, \
         up to date {current}, rolls back {rolls_back}, conditions {:?}",
        status.conditions.iter().map(|it| (&it.type_, &it.status, &it.reason)).collect::<Vec<_>>(),
    ))
}

/// Objects that are left although all were deleted.
pub async fn leftovers(users: &Users) -> Vec<String> {
    let sets = users.all::<MachineSet>().await.into_iter().map(|it| format!("set {}", it.name()));
    let deployments = users.all::<MachineDeployment>().await.into_iter();
    sets.chain(deployments.map(|it| format!("deployment {}", it.name()))).collect()
}

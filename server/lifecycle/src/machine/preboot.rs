//! The status fields of the preboot proposal: bootstrap, infrastructure, Node, phase. All fields are derived from the
//! rest; decisions only read `bootstrapReady`.

use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    bootstrap::{BootstrapPhase, InfrastructurePhase, NodeRef},
    machine::{MachineConditionType, MachinePhase, MachineStatus, MachineStep},
    names,
};

use super::{
    bootstrapping::{self, BootstrapState},
    conditions, health,
    pass::Pass,
    phase::{MachineLife, lifecycle_phase},
};
use crate::{bootstrap::ConfigView, snapshot::Snapshot};

/// Brings the derived part of the status up to date. `gone`: the finalizer goes with this pass.
pub(crate) fn derive(pass: &mut Pass<'_>, gone: bool) {
    let node = pass.node();
    let has_provider_id = pass.provider_id().is_some();
    let node_ready = pass.nodes().into_iter().any(|node| is_ready(pass, node));
    let life = match (gone, pass.machine.is_deleting()) {
        (true, _) => MachineLife::Gone,
        (false, true) => MachineLife::Deleting,
        (false, false) => MachineLife::Lives,
    };
    let copied = pass.effects.patch.bootstrap.is_some();
    derive_bootstrap(&mut pass.status, pass.snap, copied);
    derive_infrastructure(&mut pass.status, life, has_provider_id);
    let labels = &pass.effects.patch.labels;
    let labelled = labels.get(names::label::NODE).map(String::as_str);
    let labelled = labelled.or_else(|| pass.machine.label(names::label::NODE));
    derive_node(&mut pass.status, node, labelled);
    pass.status.phase = Some(lifecycle_phase(&pass.status, life, has_provider_id, node_ready));
}

/// `copied`: this pass takes the data over into the Machine. Until the copy is made, the bootstrap object must stay.
fn derive_bootstrap(status: &mut MachineStatus, snap: &Snapshot, copied: bool) {
    if snap.machine.spec.bootstrap.is_none() {
        (status.bootstrap_ready, status.bootstrap_phase) = (None, None);
        return;
    }
    let state = bootstrapping::state(snap);
    let ready = bootstrapping::was_ready(&snap.machine)
        || copied
        || matches!(state, BootstrapState::NotNeeded | BootstrapState::Ready);
    let theirs = if let ConfigView::Known(facts) = &snap.bootstrap.config {
        facts.phase.as_deref().map(BootstrapPhase::from)
    } else {
        None
    };
    status.bootstrap_ready = Some(ready);
    status.bootstrap_phase = Some(theirs.unwrap_or(match state {
        BootstrapState::Failed(..) => BootstrapPhase::Failed,
        BootstrapState::NotNeeded => BootstrapPhase::NotNeeded,
        _ if ready => BootstrapPhase::Ready,
        BootstrapState::OfClass
        | BootstrapState::Ready
        | BootstrapState::Copy(_)
        | BootstrapState::Missing(_) => BootstrapPhase::Pending,
    }));
}

fn derive_infrastructure(status: &mut MachineStatus, life: MachineLife, has_provider_id: bool) {
    let was_ready = status.infrastructure_ready == Some(true);
    let phase = infrastructure_phase(status, life, has_provider_id, was_ready);
    let ready = phase == InfrastructurePhase::Ready
        || (phase == InfrastructurePhase::Deleting && was_ready);
    status.infrastructure_ready = Some(ready);
    status.infrastructure_phase = Some(phase);
}

fn infrastructure_phase(
    status: &MachineStatus,
    life: MachineLife,
    has_provider_id: bool,
    was_ready: bool,
) -> InfrastructurePhase {
    let instance_gone =
        conditions::held_since(status, &MachineConditionType::InstanceDeleted).is_some();
    match (life, status.machine_phase()) {
        (MachineLife::Gone, _) => InfrastructurePhase::Deleted,
        (MachineLife::Deleting, _) | (_, MachinePhase::Terminating) if instance_gone => {
            InfrastructurePhase::Deleted
        }
        (MachineLife::Deleting, _) | (_, MachinePhase::Terminating) => {
            InfrastructurePhase::Deleting
        }
        (MachineLife::Lives, MachinePhase::Failed) if was_ready => InfrastructurePhase::Ready,
        (MachineLife::Lives, MachinePhase::Failed | MachinePhase::CrashLoopBackOff) => {
            InfrastructurePhase::Failing
        }
        (
            MachineLife::Lives,
            MachinePhase::Pending
            | MachinePhase::Running
            | MachinePhase::Unknown
            | MachinePhase::Available
            | MachinePhase::InPlaceUpdating
            | MachinePhase::InPlaceUpdateSuccessful
            | MachinePhase::InPlaceUpdateFailed,
        ) if has_provider_id && !is_being_made(status) => InfrastructurePhase::Ready,
        (MachineLife::Lives, _) if status.step == Some(MachineStep::InitializeInstance) => {
            InfrastructurePhase::Initializing
        }
        (MachineLife::Lives, _) if has_provider_id || status.creation_started_at.is_some() => {
            InfrastructurePhase::Creating
        }
        (MachineLife::Lives, _) => InfrastructurePhase::Pending,
    }
}

fn is_being_made(status: &MachineStatus) -> bool {
    matches!(status.step, Some(MachineStep::CreateInstance | MachineStep::InitializeInstance))
}

/// Shows the name of the Node, also where no label can carry it.
pub(crate) fn show_node(status: &mut MachineStatus, name: &str) {
    status.node_name = Some(name.to_owned());
}

/// The last Node stays in the status: a search for the Machine of a deleted Node finds it.
fn derive_node(status: &mut MachineStatus, node: Option<&Node>, labelled: Option<&str>) {
    if status.step == Some(MachineStep::CreateInstance) {
        (status.node_ref, status.version, status.node_name) = (None, None, None);
    }
    let there = node.and_then(|node| node.metadata.name.as_deref());
    let said = there.or_else(|| labelled.filter(|name| !name.is_empty()));
    if let Some(name) = said {
        show_node(status, name);
    }
    let Some(node) = node else { return };
    status.node_ref = Some(NodeRef {
        api_version: Some("v1".to_owned()),
        kind: Some("Node".to_owned()),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone(),
    });
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    status.version = info.map(|info| info.kubelet_version.clone()).filter(|text| !text.is_empty());
}

/// The Node has the provider id of the Machine, and is Ready.
fn is_ready(pass: &Pass<'_>, node: &Node) -> bool {
    let ready = |condition: &k8s_openapi::api::core::v1::NodeCondition| {
        condition.type_ == "Ready" && condition.status == "True"
    };
    let by = pass.snap.ids.by();
    crate::node::is_of_instance(pass.machine, pass.instance_id(), node, by)
        && health::conditions(node).iter().any(ready)
}

#[cfg(test)]
mod tests {
    use ostler_api::machine::CurrentStatus;

    use super::*;

    fn infrastructure(
        phase: MachinePhase,
        step: Option<MachineStep>,
        before: Option<bool>,
        life: MachineLife,
    ) -> (InfrastructurePhase, bool) {
        let mut status = MachineStatus {
            current_status: Some(CurrentStatus { phase: Some(phase), ..CurrentStatus::default() }),
            step,
            infrastructure_ready: before,
            ..MachineStatus::default()
        };
        derive_infrastructure(&mut status, life, true);
        (status.infrastructure_phase.unwrap(), status.infrastructure_ready.unwrap())
    }

    #[test]
    fn the_infrastructure_is_ready_when_the_instance_is_made_and_initialized() {
        use InfrastructurePhase as Word;
        use MachinePhase as Phase;
        use MachineStep as Step;
        let table = [
            (
                Phase::New,
                Some(Step::CreateInstance),
                None,
                MachineLife::Lives,
                (Word::Creating, false),
            ),
            (
                Phase::New,
                Some(Step::InitializeInstance),
                None,
                MachineLife::Lives,
                (Word::Initializing, false),
            ),
            (
                Phase::CrashLoopBackOff,
                Some(Step::InitializeInstance),
                None,
                MachineLife::Lives,
                (Word::Failing, false),
            ),
            (Phase::Pending, Some(Step::JoinNode), None, MachineLife::Lives, (Word::Ready, true)),
            (Phase::Available, None, None, MachineLife::Lives, (Word::Ready, true)),
            (Phase::Unknown, None, Some(true), MachineLife::Lives, (Word::Ready, true)),
            (Phase::Failed, None, Some(true), MachineLife::Lives, (Word::Ready, true)),
            (Phase::Failed, None, None, MachineLife::Lives, (Word::Failing, false)),
            (
                Phase::Pending,
                Some(Step::CreateInstance),
                Some(true),
                MachineLife::Lives,
                (Word::Creating, false),
            ),
            (
                Phase::Terminating,
                Some(Step::DrainNode),
                Some(true),
                MachineLife::Deleting,
                (Word::Deleting, true),
            ),
            (Phase::Terminating, None, Some(true), MachineLife::Gone, (Word::Deleted, false)),
        ];
        for (phase, step, before, life, expected) in table {
            let row = format!("{phase} at {step:?} {life:?}");
            assert_eq!(infrastructure(phase, step, before, life), expected, "{row}");
        }
    }
}

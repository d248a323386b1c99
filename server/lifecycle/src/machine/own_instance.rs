//! Facts about a Machine's instance and Node beyond its spec and labels, which users write.

use k8s_openapi::api::core::v1::{Node, NodeCondition};
use ostler_api::{
    ProviderName,
    driver::OperationKind,
    machine::{Machine, MachineConditionType, MachineStatus},
};

use crate::{
    node,
    snapshot::{DriverView, Snapshot},
};

/// Whether the instance is known as the Machine's: a driver made or found it, or a pool has it.
pub fn has_own_instance(machine: &Machine) -> bool {
    machine.status.as_ref().is_some_and(|status| is_found(machine, status))
}

/// The provider that has or may have the instance: the answers of any other provider prove nothing. `None`: no provider
/// has one, or no create and no answer was recorded since providers are.
pub fn holder(machine: &Machine) -> Option<ProviderName> {
    let record = machine.operation_record()?;
    let is_held = record.instance_uid.is_some()
        || machine.provider_id().is_some()
        || machine.intent().is_some();
    record.provider.filter(|_| is_held)
}

/// Whether machine-controller-manager may have begun to make an instance: it writes the finalizer before that, and its
/// first status afterwards. The core writes its record with the finalizer; a core before that rule wrote the finalizer of
/// a Machine with bootstrap objects earlier, which upstream does not have.
pub(crate) fn was_begun_elsewhere(machine: &Machine) -> bool {
    machine.has_finalizer()
        && machine.operation_record().is_none()
        && machine.spec.bootstrap.is_none()
}

/// Whether the instance is known to carry the UID of the Machine.
pub(crate) fn carries_own_uid(machine: &Machine, status: &MachineStatus) -> bool {
    status.instance_uid.as_ref().is_some_and(|it| it == machine.uid())
}

fn is_found(machine: &Machine, status: &MachineStatus) -> bool {
    let created = |one: &NodeCondition| {
        one.type_ == MachineConditionType::InstanceCreated.as_str()
            && one.status == "True"
            && one.reason.as_deref() != Some(node::RECORDED)
    };
    carries_own_uid(machine, status)
        || status.conditions.iter().any(created)
        || status.instance.is_some()
}

/// Whether only the spec of a Machine that is being deleted calls a Node its own: no driver found the instance, though it
/// can be asked, and the Node does not say so. Such a Node is not touched.
pub(crate) fn is_by_spec_only(snap: &Snapshot, status: &MachineStatus, node: &Node) -> bool {
    let machine = &snap.machine;
    // Of a Machine of a pool no driver is asked, but its pool says that it has the instance.
    let blind = !machine.has_pool()
        && matches!(&snap.driver, DriverView::Ready(driver)
            if !driver.has(OperationKind::GetMachineStatus));
    machine.is_deleting() && !blind && !is_found(machine, status) && !node::says_ours(machine, node)
}

//! The instances of a group as an autoscaler sees them.

use std::sync::Arc;

use ostler_api::driver::{ErrorCode, OperationKind};
use ostler_api::machine::{MachineOperationType, MachinePhase, MachineState, WaitReason};
use ostler_api::names::annotation::TRIGGER_DELETION;
use ostler_api::{Machine, MachinePool};

use super::chosen::is_chosen;
use super::group::{Group, missing, placeholder};

/// A Machine of a group, and the provider id of its Node, if that is known.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupMember {
    /// The Machine.
    pub machine: Arc<Machine>,
    /// As its Node has it, byte for byte: an autoscaler compares so.
    pub node_id: Option<String>,
}

/// An instance as an autoscaler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupInstance {
    /// The provider id or a placeholder.
    pub id: String,
    /// The state in the life of the instance.
    pub state: GroupInstanceState,
    /// Why it cannot be made.
    pub fault: Option<GroupFault>,
}

/// Where in its life an instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupInstanceState {
    /// The instance is a Node, or was one.
    Running,
    /// The instance is to become a Node.
    Creating,
    /// The instance is being deleted.
    Deleting,
}

/// Why an instance cannot be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupFault {
    /// Name of the driver's result code.
    pub code: String,
    /// For people.
    pub message: String,
    /// Quota or capacity is exhausted: the autoscaler takes another group meanwhile.
    pub out_of_resources: bool,
}

impl GroupFault {
    fn of(code: &str, message: Option<&String>) -> Self {
        Self {
            code: code.to_owned(),
            message: message.cloned().unwrap_or_default(),
            out_of_resources: code == ErrorCode::ResourceExhausted.name(),
        }
    }
}

impl GroupMember {
    /// The id from the Node, else from the driver, else a placeholder.
    pub fn id(&self) -> String {
        let known = self.node_id.clone();
        let said = || self.machine.instance_id().map(ToString::to_string);
        known.or_else(said).unwrap_or_else(|| placeholder(&self.machine))
    }

    /// Whether the Machine has or had a Node.
    pub fn has_node(&self) -> bool {
        let status = self.machine.status.as_ref();
        self.node_id.is_some()
            || status.is_some_and(|status| status.node_ref.is_some())
            || matches!(self.machine.phase(), MachinePhase::Running | MachinePhase::Unknown)
    }
}

/// The instances of a group, in the order of their names.
pub fn instances(group: &Group, members: &[GroupMember]) -> Vec<GroupInstance> {
    let list = group.annotation(TRIGGER_DELETION).unwrap_or_default();
    let mut all: Vec<_> = members.iter().map(|member| instance(member, list)).collect();
    if let Group::Pool(pool) = group
        && let Some(fault) = fault_of(pool)
    {
        let lacks = (0..lacking(pool, members)).map(|at| GroupInstance {
            id: missing(pool, at),
            state: GroupInstanceState::Creating,
            fault: Some(fault.clone()),
        });
        all.extend(lacks);
    }
    all
}

/// How many Machines a pool is to have and does not.
pub fn lacking(pool: &MachinePool, members: &[GroupMember]) -> i32 {
    let living = members.iter().filter(|one| !one.machine.is_deleting()).count();
    pool.replicas().saturating_sub(i32::try_from(living).unwrap_or(i32::MAX)).max(0)
}

fn instance(member: &GroupMember, list: &str) -> GroupInstance {
    let machine = &member.machine;
    // A set or pool replaces a Failed Machine by itself. If the autoscaler deleted it, the replacement would be
    // missing, too.
    let goes = machine.is_deleting()
        || machine.phase() == MachinePhase::Failed
        || is_chosen(machine, list);
    let state = match (goes, member.has_node()) {
        (true, _) => GroupInstanceState::Deleting,
        (false, true) => GroupInstanceState::Running,
        (false, false) => GroupInstanceState::Creating,
    };
    let fault = (state == GroupInstanceState::Creating).then(|| fault(machine)).flatten();
    GroupInstance { id: member.id(), state, fault }
}

/// Why a Machine is not made. A message that does not concern the instance is no fault: the driver is away, or asks to
/// come later.
fn fault(machine: &Machine) -> Option<GroupFault> {
    let last = machine.status.as_ref()?.last_operation.as_ref()?;
    let failed = last.type_ == Some(MachineOperationType::Create)
        && last.state == Some(MachineState::Failed);
    let code = last.error_code.as_deref().filter(|_| failed)?;
    (!is_passing(code)).then(|| GroupFault::of(code, last.description.as_ref()))
}

fn is_passing(code: &str) -> bool {
    let passing = [ErrorCode::Unavailable, ErrorCode::Aborted, ErrorCode::Canceled];
    passing.iter().any(|one| one.name() == code)
}

/// Why a pool cannot have as many instances as it is to have.
fn fault_of(pool: &MachinePool) -> Option<GroupFault> {
    let grows = [OperationKind::CreatePool, OperationKind::UpdatePool];
    let retries = pool.status.as_ref()?.retries.iter();
    let mut failed = retries.filter(|retry| {
        let grows =
            OperationKind::from_name(retry.kind.as_str()).is_some_and(|it| grows.contains(&it));
        let exhausted = retry.code == ErrorCode::ResourceExhausted.name();
        // Else there were too many calls, and not too few machines.
        let lacks_capacity = retry.reason == WaitReason::CapacityExhausted;
        grows && !is_passing(&retry.code) && exhausted == lacks_capacity
    });
    let retry = failed.next()?;
    Some(GroupFault::of(&retry.code, retry.message.as_ref()))
}

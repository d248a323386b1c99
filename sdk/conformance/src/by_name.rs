//! A driver that knows instances by their name alone: the suite reads its records as the core does.

use ostler_proto::v1alpha1 as proto;
use proto::operation_completed::Outcome as Completed;
use proto::operation_result::Response;
use proto::{DriverCapability, Hello, MachineRecord};

use crate::answer::Answer;

/// Whether the driver says so.
pub(crate) fn declared(hello: &Hello) -> bool {
    hello.capabilities.contains(&DriverCapability::IdentityByName.into())
}

/// Gives the records of machines their UIDs, which `uid_of` knows by name. A list is that of the class and not of a
/// cluster: what it has of other names is left out.
pub(crate) fn identify(answer: &mut Answer, uid_of: impl Fn(&str) -> Option<String>) {
    let known = |record: &mut MachineRecord| {
        let Some(uid) = uid_of(&record.machine_name) else { return false };
        record.machine_uid = uid;
        true
    };
    for page in &mut answer.pages {
        page.machines.retain_mut(known);
    }
    let Some(Completed::Result(result)) = &mut answer.completed.outcome else { return };
    let machine = match &mut result.response {
        Some(Response::CreateMachine(response)) => response.machine.as_mut(),
        Some(Response::InitializeMachine(response)) => response.machine.as_mut(),
        Some(Response::GetMachineStatus(response)) => response.machine.as_mut(),
        Some(Response::ListMachines(response)) => {
            response.machines.retain_mut(known);
            None
        }
        _ => None,
    };
    if let Some(machine) = machine {
        known(machine);
    }
}

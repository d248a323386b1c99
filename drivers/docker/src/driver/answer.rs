//! The driver's answers about a container.

use ostler_driver_sdk::{DriverError, Instance, PowerState};

use super::find::{Found, tag};
use crate::engine::{Labels, Life, Summary};
use crate::identity::{CLUSTER, MACHINE, UID, host_name, provider_id};

/// An instance, as a status tells it.
pub(super) fn instance(found: &Found) -> Instance {
    let told = listed(&found.container.summary, &found.claim);
    told.initialized(found.tags.driver.initialized)
}

/// An instance from a list, without the content of the instance's files.
pub(super) fn listed(summary: &Summary, claim: &Labels) -> Instance {
    let name = tag(summary, claim, MACHINE);
    shown(summary, name)
        .machine(name, tag(summary, claim, UID))
        .cluster_id(tag(summary, claim, CLUSTER))
}

/// What the engine says of a container that is to be a Node of this name.
pub(super) fn shown(summary: &Summary, name: &str) -> Instance {
    let power = match summary.life {
        Life::Made => PowerState::Pending,
        Life::Running => PowerState::Running,
        Life::Stopped | Life::Dead => PowerState::Stopped,
        Life::Going => PowerState::Deleting,
    };
    let told = Instance::new(provider_id(&summary.name))
        .node_name(name)
        .power_state(power)
        .address("Hostname", host_name(name));
    let told = summary.addresses.iter().fold(told, |told, ip| told.address("InternalIP", ip));
    let told = match summary.created_at {
        Some(time) => told.created_at(time),
        None => told,
    };
    if summary.life != Life::Dead {
        return told;
    }
    let message = "the engine gave the container up (state dead); look at the log of the engine";
    told.fault(DriverError::data_loss(message).reason("CONTAINER_DEAD"))
}

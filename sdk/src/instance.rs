//! An instance in the infrastructure.

use std::time::SystemTime;

use ostler_proto::v1alpha1 as proto;

use crate::context::Context;
use crate::error::DriverError;

/// Whether the instance runs.
pub use ostler_proto::v1alpha1::MachinePowerState as PowerState;

/// One instance: a VM, a container, a server.
///
/// ```
/// use ostler_driver_sdk::{Instance, PowerState};
///
/// let instance = Instance::new("aws:///eu-west-1/i-0abc")
///     .node_name("ip-10-0-0-7")
///     .power_state(PowerState::Running)
///     .address("InternalIP", "10.0.0.7");
/// assert_eq!(instance.provider_id(), "aws:///eu-west-1/i-0abc");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Instance {
    pub(crate) record: proto::MachineRecord,
}

impl Instance {
    /// An instance with its final id, equal to what its Node will have in `spec.providerID`.
    pub fn new(provider_id: impl Into<String>) -> Self {
        let record = proto::MachineRecord { provider_id: provider_id.into(), ..Default::default() };
        Self { record }
    }

    /// The machine it belongs to, as its tags say; `uid` is empty if there is none on it. Needed in
    /// lists, and for adoption: another UID than that of the operation tells the core that the
    /// instance is of a life before. Left out, both are filled in from the operation.
    pub fn machine(mut self, name: impl Into<String>, uid: impl Into<String>) -> Self {
        self.record.machine_name = name.into();
        self.record.machine_uid = uid.into();
        self
    }

    /// The cluster id in the instance's tags, whatever its value. Needed in lists and for adoption: the core takes an
    /// id among [`previous_cluster_ids`](crate::Context::previous_cluster_ids) for its own, and then has CreateMachine
    /// replace it by the current id.
    pub fn cluster_id(mut self, id: impl Into<String>) -> Self {
        self.record.cluster_id = id.into();
        self
    }

    /// The name under which the Node of the instance will register. Left out: the name of the machine.
    pub fn node_name(mut self, name: impl Into<String>) -> Self {
        self.record.node_name = name.into();
        self
    }

    /// Whether it runs.
    pub fn power_state(mut self, state: PowerState) -> Self {
        self.record.power_state = state.into();
        self
    }

    /// Whether `initialize_machine` is done. Left out: the driver has no such notion.
    pub fn initialized(mut self, initialized: bool) -> Self {
        self.record.initialized = Some(initialized);
        self
    }

    /// An address, of a kind as in a Node's status: `InternalIP`, `Hostname`, …
    pub fn address(mut self, kind: impl Into<String>, address: impl Into<String>) -> Self {
        self.record.addresses.push(proto::Address { r#type: kind.into(), address: address.into() });
        self
    }

    /// The infrastructure reports the instance as broken.
    pub fn fault(mut self, fault: DriverError) -> Self {
        self.record.fault = Some(Box::new(fault.into()));
        self
    }

    /// When the infrastructure made it.
    pub fn created_at(mut self, time: SystemTime) -> Self {
        self.record.created_at = Some(time.into());
        self
    }

    /// Its id.
    pub fn provider_id(&self) -> &str {
        &self.record.provider_id
    }

    /// The record of the instance of the target.
    pub(crate) fn into_record_of(mut self, ctx: &Context) -> proto::MachineRecord {
        if self.record.machine_name.is_empty() {
            let target = ctx.target();
            self.record.machine_name.clone_from(&target.name);
            self.record.machine_uid.clone_from(&target.uid);
        }
        self.into_listed_record(ctx)
    }

    /// The record of one instance of many. The current cluster id is left out.
    pub(crate) fn into_listed_record(mut self, ctx: &Context) -> proto::MachineRecord {
        if !ctx.is_previous_cluster(&self.record.cluster_id) {
            self.record.cluster_id.clear();
        }
        self.record
    }
}

/// Something that belongs to no instance, and has the tags of one: a disk, a network card, an address.
///
/// ```
/// let part = ostler_driver_sdk::Part::new("disk", "vol-0abc").machine("m", "uid").cluster_id("c");
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Part {
    record: proto::PartRecord,
}

impl Part {
    /// A part: its kind, in a word for people, and its id.
    pub fn new(kind: impl Into<String>, id: impl Into<String>) -> Self {
        let (kind, id) = (kind.into(), id.into());
        Self { record: proto::PartRecord { kind, id, ..Default::default() } }
    }

    /// The machine in the part's tags. The core ignores a part without a UID.
    pub fn machine(mut self, name: impl Into<String>, uid: impl Into<String>) -> Self {
        self.record.machine_name = name.into();
        self.record.machine_uid = uid.into();
        self
    }

    /// As [`Instance::cluster_id`].
    pub fn cluster_id(mut self, id: impl Into<String>) -> Self {
        self.record.cluster_id = id.into();
        self
    }

    pub(crate) fn into_record(mut self, ctx: &Context) -> proto::PartRecord {
        if !ctx.is_previous_cluster(&self.record.cluster_id) {
            self.record.cluster_id.clear();
        }
        self.record
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestContext;

    #[test]
    fn an_instance_that_names_no_machine_gets_that_of_the_operation() {
        let ctx = TestContext::new("m", "u").build();
        let record = Instance::new("p").into_record_of(&ctx);
        assert_eq!((record.machine_name.as_str(), record.machine_uid.as_str()), ("m", "u"));
        let record = Instance::new("p").machine("other", "v").into_record_of(&ctx);
        assert_eq!((record.machine_name.as_str(), record.machine_uid.as_str()), ("other", "v"));
        let record = Instance::new("p").machine("m", "").into_record_of(&ctx);
        assert_eq!(record.machine_uid, "", "there is none on it, and that is what the core asks");
    }

    #[test]
    fn the_core_is_told_of_a_cluster_id_only_if_the_cluster_had_it_before() {
        let ctx = TestContext::new("m", "u").cluster_id("now").previous_cluster_ids(["before"]);
        let ctx = ctx.build();
        for (tag, told) in [("now", ""), ("before", "before"), ("other", ""), ("", "")] {
            let instance = Instance::new("p").cluster_id(tag);
            assert_eq!(instance.clone().into_record_of(&ctx).cluster_id, told, "{tag}");
            assert_eq!(instance.into_listed_record(&ctx).cluster_id, told, "{tag}");
        }
    }
}

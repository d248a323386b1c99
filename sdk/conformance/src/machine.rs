//! The machines of a check, and the operations on them.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::{BootstrapData, MachineRecord, ObjectRevision, Operation, Target};
use uuid::Uuid;

/// The namespace of everything.
pub(crate) const NAMESPACE: &str = "conformance";

/// A Machine that exists only here.
#[derive(Debug, Clone)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) cluster_id: String,
    pub(crate) class: ObjectRevision,
    pub(crate) user_data: Option<Vec<u8>>,
    pub(crate) adopt_by_name: bool,
    /// Earlier ids of the cluster.
    pub(crate) previous: Vec<String>,
}

impl Machine {
    /// The same, of another class.
    pub(crate) fn of_class(&self, class: &ObjectRevision) -> Self {
        Self { class: class.clone(), ..self.clone() }
    }

    /// The same, as another cluster would have it.
    pub(crate) fn of_cluster(&self, cluster_id: &str) -> Self {
        Self { cluster_id: cluster_id.to_owned(), ..self.clone() }
    }

    /// The same machine after the cluster id changed; the driver gets the earlier id, too.
    pub(crate) fn moved(&self) -> Self {
        let cluster_id = format!("{}-now", self.cluster_id);
        Self { cluster_id, previous: vec![self.cluster_id.clone()], ..self.clone() }
    }

    /// The same, of a cluster without previous ids.
    pub(crate) fn settled(&self) -> Self {
        Self { previous: Vec::new(), ..self.clone() }
    }

    /// The same name with a new UID, as after a restore.
    pub(crate) fn restored(&self) -> Self {
        Self { uid: Uuid::new_v4().to_string(), ..self.clone() }
    }

    /// The same, whose instance may be found by its name.
    pub(crate) fn adopting_by_name(&self) -> Self {
        Self { adopt_by_name: true, ..self.clone() }
    }

    /// The identity as tags, as a core sends them.
    pub(crate) fn tags(&self) -> HashMap<String, String> {
        let tags = [
            ("ostler.dev/cluster-id", &self.cluster_id),
            ("ostler.dev/machine-name", &self.name),
            ("ostler.dev/machine-uid", &self.uid),
        ];
        tags.map(|(key, value)| (key.to_owned(), value.clone())).into()
    }

    /// The same with other user data.
    pub(crate) fn with_user_data(&self, user_data: Vec<u8>) -> Self {
        Self { user_data: Some(user_data), ..self.clone() }
    }

    /// CreateMachine.
    pub(crate) fn create(&self) -> Operation {
        self.create_known("")
    }

    /// CreateMachine of a machine that already has a provider id.
    pub(crate) fn create_known(&self, provider_id: &str) -> Operation {
        self.create_tagged(provider_id, &[])
    }

    /// CreateMachine with further tags.
    pub(crate) fn create_tagged(&self, provider_id: &str, more: &[(&str, &str)]) -> Operation {
        let bootstrap = self
            .user_data
            .clone()
            .map(|user_data| BootstrapData { user_data, format: "cloud-init".to_owned() });
        let provider_id = provider_id.to_owned();
        let mut tags = self.tags();
        tags.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let request =
            proto::CreateMachineRequest { bootstrap, provider_id, tags, ..Default::default() };
        self.operation("c", Request::CreateMachine(request))
    }

    /// CreateMachine of a machine with this zone.
    pub(crate) fn create_in(&self, zone: &str) -> Operation {
        let machine = proto::MachineMetadata { zone: zone.to_owned(), ..Default::default() };
        Operation { machine: Some(Box::new(machine)), ..self.create() }
    }

    /// InitializeMachine.
    pub(crate) fn initialize(&self, provider_id: &str) -> Operation {
        let provider_id = provider_id.to_owned();
        self.operation(
            "i",
            Request::InitializeMachine(proto::InitializeMachineRequest {
                provider_id,
                ..Default::default()
            }),
        )
    }

    /// UpdateMachine to its class.
    pub(crate) fn update(&self, provider_id: &str, last_applied_spec_json: &str) -> Operation {
        let request = proto::UpdateMachineRequest {
            provider_id: provider_id.to_owned(),
            last_applied_spec_json: last_applied_spec_json.to_owned(),
            ..Default::default()
        };
        let verb = format!("u:{}", self.class.revision);
        self.operation(&verb, Request::UpdateMachine(request))
    }

    /// DeleteMachine; the id may be empty.
    pub(crate) fn delete(&self, provider_id: &str) -> Operation {
        let provider_id = provider_id.to_owned();
        self.operation(
            "d",
            Request::DeleteMachine(proto::DeleteMachineRequest {
                provider_id,
                ..Default::default()
            }),
        )
    }

    /// GetMachineStatus; the id may be empty.
    pub(crate) fn status(&self, provider_id: &str) -> Operation {
        let provider_id = provider_id.to_owned();
        let request = proto::GetMachineStatusRequest { provider_id, ..Default::default() };
        self.operation("s", Request::GetMachineStatus(request))
    }

    /// ListMachines of its class and cluster.
    pub(crate) fn list(&self) -> Operation {
        let asked = list(&self.class, &self.cluster_id);
        Operation { previous_cluster_ids: self.previous.clone(), ..asked }
    }

    fn operation(&self, verb: &str, request: Request) -> Operation {
        let target = Target {
            kind: "Machine".to_owned(),
            namespace: NAMESPACE.to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        };
        let key = format!("{}:{verb}", self.uid);
        let asked = operation(target, key, &self.cluster_id, &self.class, request);
        let previous_cluster_ids = self.previous.clone();
        Operation { adopt_by_name: self.adopt_by_name, previous_cluster_ids, ..asked }
    }
}

/// An operation on a class.
pub(crate) fn on_class(class: &ObjectRevision, cluster_id: &str, request: Request) -> Operation {
    let target = Target {
        kind: "MachineClass".to_owned(),
        namespace: class.namespace.clone(),
        name: class.name.clone(),
        uid: Uuid::new_v4().to_string(),
    };
    let key = format!("{}:l", target.uid);
    operation(target, key, cluster_id, class, request)
}

/// ListMachines.
pub(crate) fn list(class: &ObjectRevision, cluster_id: &str) -> Operation {
    on_class(class, cluster_id, Request::ListMachines(proto::ListMachinesRequest::default()))
}

pub(crate) fn operation(
    target: Target,
    idempotency_key: String,
    cluster_id: &str,
    class: &ObjectRevision,
    request: Request,
) -> Operation {
    Operation {
        operation_id: Uuid::now_v7().to_string(),
        idempotency_key,
        target: Some(target),
        delivery: 1,
        machine_class: Some(class.clone()),
        cluster_id: cluster_id.to_owned(),
        request: Some(request),
        ..Operation::default()
    }
}

/// The UIDs in a list.
pub(crate) fn uids<'a>(records: impl IntoIterator<Item = &'a MachineRecord>) -> BTreeSet<String> {
    records.into_iter().map(|record| record.machine_uid.clone()).collect()
}

/// The same intent, decided anew.
pub(crate) fn again(operation: &Operation) -> Operation {
    Operation { operation_id: Uuid::now_v7().to_string(), ..operation.clone() }
}

/// The same operation with this much time.
pub(crate) fn in_time(operation: Operation, time: Duration) -> Operation {
    Operation { timeout: prost_types::Duration::try_from(time).ok(), ..operation }
}

/// What an operation is called, for people.
pub(crate) fn title(operation: &Operation) -> String {
    let verb = match &operation.request {
        None => "an operation that asks for nothing known",
        Some(Request::CreateMachine(_)) => "CreateMachine",
        Some(Request::InitializeMachine(_)) => "InitializeMachine",
        Some(Request::UpdateMachine(_)) => "UpdateMachine",
        Some(Request::DeleteMachine(_)) => "DeleteMachine",
        Some(Request::GetMachineStatus(_)) => "GetMachineStatus",
        Some(Request::ListMachines(_)) => "ListMachines",
        Some(Request::GetVolumeIds(_)) => "GetVolumeIds",
        Some(Request::ValidateClass(_)) => "ValidateClass",
        Some(Request::CreatePool(_)) => "CreatePool",
        Some(Request::UpdatePool(_)) => "UpdatePool",
        Some(Request::DeletePool(_)) => "DeletePool",
        Some(Request::GetPoolStatus(_)) => "GetPoolStatus",
        Some(Request::ListPools(_)) => "ListPools",
        Some(Request::DeletePoolMachines(_)) => "DeletePoolMachines",
        Some(Request::UpdatePoolMachine(_)) => "UpdatePoolMachine",
    };
    let target = operation.target.as_ref().map_or("", |target| target.name.as_str());
    format!("{verb} of {target}")
}

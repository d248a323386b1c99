//! The pools of a check, the operations on their groups, and what those answer.

use std::collections::{BTreeSet, HashMap};

use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::operation_result::Response;
use proto::{
    BootstrapData, DeletionOutcome, ObjectRevision, Operation, PoolMachineFailure,
    PoolMachineRecord, PoolModel, PoolRecord, Target,
};
use uuid::Uuid;

use crate::answer::{Answer, response_name};
use crate::machine::{NAMESPACE, on_class, operation};
use crate::outcome::{NotPassed, Outcome, ensure, failed};

/// The kind of the target of its operations.
pub(crate) const POOL: &str = "MachinePool";
/// The tag of an instance that is of a group, and so of no machine.
pub(crate) const POOL_UID: &str = "ostler.dev/pool-uid";

/// A pool that no API server knows.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) cluster_id: String,
    pub(crate) class: ObjectRevision,
    pub(crate) user_data: Vec<u8>,
    /// Where its instances may be; empty: where the class says.
    pub(crate) zones: Vec<String>,
    /// Earlier ids of the cluster.
    pub(crate) previous: Vec<String>,
}

/// A group and its instances.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) pool: PoolRecord,
    pub(crate) machines: Vec<PoolMachineRecord>,
}

/// The id of an instance of a group.
pub(crate) fn id_of(record: &PoolMachineRecord) -> String {
    record.machine.as_ref().map(|machine| machine.provider_id.clone()).unwrap_or_default()
}

impl Group {
    /// The instances that are not on their way out.
    pub(crate) fn live(&self) -> Vec<String> {
        let deleting = proto::PoolMachineState::Deleting;
        self.machines.iter().filter(|it| it.state() != deleting).map(id_of).collect()
    }

    /// Exactly these instances are live.
    pub(crate) fn is_of(&self, ids: &[String]) -> Outcome {
        let (live, wanted): (BTreeSet<_>, BTreeSet<_>) =
            (self.live().into_iter().collect(), ids.iter().cloned().collect());
        ensure(live == wanted, format_args!("the instances {wanted:?}"), format_args!("{live:?}"))
    }

    /// An instance of the pool.
    pub(crate) fn machine(&self, id: &str) -> Outcome<&PoolMachineRecord> {
        let found = self.machines.iter().find(|it| id_of(it) == id);
        found.ok_or_else(|| failed(format_args!("instance {id} in the group"), "it is not there"))
    }
}

impl Pool {
    /// The same in another cluster.
    pub(crate) fn of_cluster(&self, cluster_id: &str) -> Self {
        Self { cluster_id: cluster_id.to_owned(), ..self.clone() }
    }

    /// The same pool after the cluster id changed; the driver gets the earlier id, too.
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

    /// The same, with another class.
    pub(crate) fn of_class(&self, class: &ObjectRevision) -> Self {
        Self { class: class.clone(), ..self.clone() }
    }

    /// A model of this name, from the class as it is.
    fn model(&self, hash: &str) -> PoolModel {
        let format = "cloud-init".to_owned();
        PoolModel {
            hash: hash.to_owned(),
            bootstrap: Some(BootstrapData { user_data: self.user_data.clone(), format }),
            zones: self.zones.clone(),
        }
    }

    /// The same, with instances in these zones.
    pub(crate) fn in_zones(&self, zones: Vec<String>) -> Self {
        Self { zones, ..self.clone() }
    }

    /// Its identity as tags, as a core sends them, and one tag more.
    pub(crate) fn tags(&self) -> HashMap<String, String> {
        let tags = [
            ("ostler.dev/cluster-id", self.cluster_id.as_str()),
            ("ostler.dev/pool-name", &self.name),
            (POOL_UID, &self.uid),
            ("conformance-more", "yes"),
        ];
        tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
    }

    /// CreatePool with the model `one`.
    pub(crate) fn create(&self, desired: i32) -> Operation {
        self.create_known(desired, "")
    }

    /// CreatePool of a pool that already has a provider id.
    pub(crate) fn create_known(&self, desired: i32, provider_id: &str) -> Operation {
        let (model, tags) = (Some(self.model("one")), self.tags());
        let provider_id = provider_id.to_owned();
        let request = proto::CreatePoolRequest { desired, model, tags, provider_id, context: None };
        self.operation("pc", Request::CreatePool(request))
    }

    /// UpdatePool.
    pub(crate) fn update(
        &self,
        provider_id: &str,
        size: Option<(i32, i32)>,
        model: Option<&str>,
    ) -> Operation {
        let request = proto::UpdatePoolRequest {
            provider_id: provider_id.to_owned(),
            expected_desired: size.map(|(expected, _)| expected),
            desired: size.map(|(_, desired)| desired),
            model: model.map(|hash| self.model(hash)),
            ..Default::default()
        };
        self.operation("pu", Request::UpdatePool(request))
    }

    /// DeletePool; the id may be empty.
    pub(crate) fn delete(&self, provider_id: &str) -> Operation {
        let provider_id = provider_id.to_owned();
        let request = proto::DeletePoolRequest { provider_id, ..Default::default() };
        self.operation("pd", Request::DeletePool(request))
    }

    /// GetPoolStatus with instances; the id may be empty.
    pub(crate) fn status(&self, provider_id: &str) -> Operation {
        let request = proto::GetPoolStatusRequest {
            provider_id: provider_id.to_owned(),
            include_machines: true,
            ..Default::default()
        };
        self.operation("ps", Request::GetPoolStatus(request))
    }

    /// ListPools of its class and cluster.
    pub(crate) fn list(&self) -> Operation {
        let request = Request::ListPools(proto::ListPoolsRequest::default());
        let asked = on_class(&self.class, &self.cluster_id, request);
        Operation { previous_cluster_ids: self.previous.clone(), ..asked }
    }

    /// DeletePoolMachines.
    pub(crate) fn delete_machines(
        &self,
        provider_id: &str,
        ids: &[String],
        (expected_desired, new_desired): (i32, i32),
    ) -> Operation {
        let request = proto::DeletePoolMachinesRequest {
            provider_id: provider_id.to_owned(),
            machine_provider_ids: ids.to_vec(),
            expected_desired,
            new_desired,
            ..Default::default()
        };
        self.operation("pdm", Request::DeletePoolMachines(request))
    }

    /// UpdatePoolMachine to a model.
    pub(crate) fn update_machine(
        &self,
        provider_id: &str,
        id: &str,
        hash: &str,
        drained: bool,
    ) -> Operation {
        let request = proto::UpdatePoolMachineRequest {
            provider_id: provider_id.to_owned(),
            machine_provider_id: id.to_owned(),
            model_hash: hash.to_owned(),
            drained,
            ..Default::default()
        };
        self.operation("pum", Request::UpdatePoolMachine(request))
    }

    fn operation(&self, verb: &str, request: Request) -> Operation {
        let target = Target {
            kind: POOL.to_owned(),
            namespace: NAMESPACE.to_owned(),
            name: self.name.clone(),
            uid: self.uid.clone(),
        };
        let key = format!("{}:{verb}", self.uid);
        let asked = operation(target, key, &self.cluster_id, &self.class, request);
        Operation { previous_cluster_ids: self.previous.clone(), ..asked }
    }

    /// A pool of this class and cluster.
    pub(crate) fn new(name: String, cluster_id: &str, class: &ObjectRevision) -> Self {
        let uid = Uuid::new_v4().to_string();
        Self {
            name,
            cluster_id: cluster_id.to_owned(),
            class: class.clone(),
            user_data: format!("#cloud-config\n# {uid}\n").into_bytes(),
            uid,
            zones: Vec::new(),
            previous: Vec::new(),
        }
    }
}

impl Answer {
    fn other(&self, expected: &str, came: &Response) -> NotPassed {
        failed(format_args!("{}: {expected}", self.title), response_name(came))
    }

    /// The group in the result of CreatePool, UpdatePool or DeletePoolMachines.
    pub(crate) fn pool(&self) -> Outcome<PoolRecord> {
        let result = self.result()?;
        let pool = if let Response::CreatePool(response) = &result {
            response.pool.clone()
        } else if let Response::UpdatePool(response) = &result {
            response.pool.clone()
        } else if let Response::DeletePoolMachines(response) = &result {
            response.pool.clone()
        } else {
            return Err(self.other("a result with a group", &result));
        };
        let pool = pool.filter(|pool| !pool.provider_id.is_empty());
        pool.ok_or_else(|| failed("a result with a group and its provider_id", "one without"))
    }

    /// The instances that DeletePoolMachines could not delete, and why.
    pub(crate) fn not_deleted(&self) -> Outcome<Vec<PoolMachineFailure>> {
        let result = self.result()?;
        let Response::DeletePoolMachines(response) = result else {
            return Err(self.other("DeletePoolMachinesResponse", &result));
        };
        Ok(response.not_deleted)
    }

    /// The group and its instances, from its pages if it has any.
    pub(crate) fn group(&self) -> Outcome<Group> {
        let result = self.result()?;
        let Response::GetPoolStatus(status) = result else {
            return Err(self.other("GetPoolStatusResponse", &result));
        };
        self.whole_pages(status.pages)?;
        let paged = self.pages.iter().flat_map(|page| page.pool_machines.iter().cloned());
        let machines: Vec<_> = paged.chain(status.machines).collect();
        let complete = |it: &PoolMachineRecord| !id_of(it).is_empty() && !it.instance_id.is_empty();
        ensure(
            machines.iter().all(complete),
            "provider_id and instance_id of every instance",
            "an instance without",
        )?;
        let pool = status.pool.ok_or_else(|| failed("the group in the result", "none"))?;
        Ok(Group { pool, machines })
    }

    /// The groups of a list.
    pub(crate) fn pools(&self) -> Outcome<Vec<PoolRecord>> {
        let result = self.result()?;
        let Response::ListPools(list) = result else {
            return Err(self.other("ListPoolsResponse", &result));
        };
        self.whole_pages(list.pages)?;
        let paged = self.pages.iter().flat_map(|page| page.pools.iter().cloned());
        Ok(paged.chain(list.pools).collect())
    }

    /// How DeletePool ended, and the group that it named.
    pub(crate) fn pool_deletion(&self) -> Outcome<(DeletionOutcome, String)> {
        let result = self.result()?;
        let Response::DeletePool(response) = result else {
            return Err(self.other("DeletePoolResponse", &result));
        };
        Ok((response.outcome(), response.provider_id))
    }
}

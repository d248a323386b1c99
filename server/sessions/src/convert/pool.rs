//! Groups, between the operations of the core and the wire's.

use std::collections::HashMap;

use ostler_api::ProviderId;
use ostler_api::driver::{Certainty, ErrorCode};
use ostler_api::names::tag;
use ostler_api::operation::{
    Failure, Outcome, PoolInstance, PoolInstanceState, PoolModel, PoolRecord, PoolSize, Success,
    Target,
};
use ostler_proto::v1alpha1::{
    CreatePoolRequest, DeletePoolMachinesRequest, DeletePoolMachinesResponse, DeletePoolRequest,
    DeletePoolResponse, GetPoolStatusRequest, GetPoolStatusResponse, ListPoolsResponse,
    PoolMachineRecord, PoolModel as WireModel, PoolRecord as WireRecord, UpdatePoolMachineRequest,
    UpdatePoolMachineResponse, UpdatePoolRequest, operation::Request,
};

use super::{FEW, bootstrap, bounded, deletion, failure, few, record, scope, too_long};

/// Longest `instance_id`, in characters: a Machine is named by it.
const INSTANCE_ID: usize = 63;

fn model(of: PoolModel) -> WireModel {
    WireModel { hash: of.hash, bootstrap: bootstrap(of.user_data), zones: of.zones }
}

/// The tags of a group and its instances, from their first moment.
fn identity_tags(target: &Target, cluster_id: &str) -> HashMap<String, String> {
    let tags = [
        (tag::CLUSTER_ID, cluster_id),
        (tag::POOL_NAME, &target.name),
        (tag::POOL_UID, target.uid.as_str()),
    ];
    tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

pub(super) fn create(
    (desired, of): (i32, PoolModel),
    provider_id: ProviderId,
    (target, cluster_id): (&Target, &str),
) -> Request {
    Request::CreatePool(CreatePoolRequest {
        desired,
        model: Some(model(of)),
        tags: identity_tags(target, cluster_id),
        provider_id: provider_id.into(),
        ..Default::default()
    })
}

pub(super) fn update(
    provider_id: ProviderId,
    size: Option<PoolSize>,
    of: Option<PoolModel>,
) -> Request {
    Request::UpdatePool(UpdatePoolRequest {
        provider_id: provider_id.into(),
        desired: size.map(|size| size.wanted),
        expected_desired: size.map(|size| size.expected),
        model: of.map(model),
        ..Default::default()
    })
}

pub(super) fn delete(provider_id: ProviderId) -> Request {
    let provider_id = provider_id.into();
    Request::DeletePool(DeletePoolRequest { provider_id, ..Default::default() })
}

pub(super) fn status(provider_id: ProviderId, include_machines: bool) -> Request {
    Request::GetPoolStatus(GetPoolStatusRequest {
        provider_id: provider_id.into(),
        include_machines,
        ..Default::default()
    })
}

pub(super) fn delete_machines(
    provider_id: ProviderId,
    instances: Vec<ProviderId>,
    size: PoolSize,
) -> Request {
    Request::DeletePoolMachines(DeletePoolMachinesRequest {
        provider_id: provider_id.into(),
        machine_provider_ids: instances.into_iter().map(Into::into).collect(),
        expected_desired: size.expected,
        new_desired: size.wanted,
        ..Default::default()
    })
}

pub(super) fn update_machine(
    provider_id: ProviderId,
    instance: ProviderId,
    (model_hash, drained): (String, bool),
) -> Request {
    Request::UpdatePoolMachine(UpdatePoolMachineRequest {
        provider_id: provider_id.into(),
        machine_provider_id: instance.into(),
        model_hash,
        drained,
        ..Default::default()
    })
}

/// A group without an id says nothing that the core could go by.
fn pool(of: Option<WireRecord>) -> Result<PoolRecord, Failure> {
    let of = of.filter(|it| !it.provider_id.is_empty()).ok_or_else(|| lacks("the group"))?;
    bounded([&of.provider_id, &of.pool_name, &of.pool_uid, &of.cluster_id, &of.model_hash])?;
    Ok(PoolRecord {
        provider_id: of.provider_id.into(),
        pool_name: of.pool_name,
        pool_uid: of.pool_uid.into(),
        cluster_id: of.cluster_id,
        desired: of.desired,
        current: of.current,
        model_hash: of.model_hash,
        busy: of.busy,
        fault: of.fault.map(|error| Box::new(failure(*error))),
    })
}

fn instance(of: PoolMachineRecord) -> Result<PoolInstance, Failure> {
    let machine = of.machine.filter(|it| !it.provider_id.is_empty());
    let machine = machine.ok_or_else(|| lacks("an instance"))?;
    if of.instance_id.is_empty() {
        return Err(lacks("what tells an instance from the others"));
    }
    if of.instance_id.chars().count() > INSTANCE_ID {
        return Err(too_long());
    }
    bounded([&of.instance_name, &of.model_hash, &of.zone])?;
    Ok(PoolInstance {
        instance: record(machine)?,
        instance_id: of.instance_id,
        instance_name: of.instance_name,
        state: PoolInstanceState::from_number(of.state),
        model_hash: of.model_hash,
        zone: of.zone,
    })
}

fn lacks(what: &str) -> Failure {
    let text = format!("the driver's answer lacks {what}");
    Failure::new(ErrorCode::Internal, Certainty::Unknown, &text)
}

pub(super) fn changed(of: Option<WireRecord>) -> Outcome {
    Ok(Success::PoolChanged(pool(of)?))
}

pub(super) fn deleted(answer: &DeletePoolResponse) -> Outcome {
    deletion(answer.outcome(), &answer.provider_id, &answer.cluster_id)
}

/// One record that cannot be read makes the whole unknown: a group that lacks an instance must not look whole.
pub(super) fn read(answer: GetPoolStatusResponse) -> Outcome {
    let instances = answer.machines.into_iter().map(instance).collect::<Result<_, _>>()?;
    Ok(Success::PoolRead { pool: pool(answer.pool)?, instances })
}

pub(super) fn listed(answer: ListPoolsResponse) -> Outcome {
    let pools = answer.pools.into_iter().map(|it| pool(Some(it))).collect::<Result<_, _>>()?;
    Ok(Success::PoolsListed { pools, scope: scope(answer.list_scope) })
}

pub(super) fn machines_deleted(mut answer: DeletePoolMachinesResponse) -> Outcome {
    few(&mut answer.not_deleted, FEW);
    let why = |error: Option<_>| error.map_or_else(|| lacks("why it failed"), failure);
    for one in &answer.not_deleted {
        bounded([&one.machine_provider_id])?;
    }
    let not_deleted = answer.not_deleted.into_iter();
    Ok(Success::PoolMachinesDeleted {
        pool: pool(answer.pool)?,
        not_deleted: not_deleted.map(|it| (it.machine_provider_id.into(), why(it.error))).collect(),
    })
}

pub(super) fn machine_updated(answer: UpdatePoolMachineResponse) -> Outcome {
    let machine = answer.machine.ok_or_else(|| lacks("the instance"))?;
    Ok(Success::PoolMachineUpdated(instance(machine)?))
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::MachineRecord;

    use super::super::WORD_BYTES;
    use super::*;

    fn group() -> WireRecord {
        WireRecord { provider_id: "p".to_owned(), desired: 2, current: 2, ..Default::default() }
    }

    fn one(id: &str, instance_id: &str) -> PoolMachineRecord {
        let machine = MachineRecord { provider_id: id.to_owned(), ..Default::default() };
        PoolMachineRecord {
            machine: Some(machine),
            instance_id: instance_id.to_owned(),
            state: 99,
            ..Default::default()
        }
    }

    #[test]
    fn a_group_that_lacks_a_part_is_a_failure_and_no_smaller_group() {
        let read = |pool, machines| {
            super::read(GetPoolStatusResponse { pool, machines, ..Default::default() })
        };
        assert!(read(None, vec![]).is_err());
        assert!(read(Some(WireRecord::default()), vec![]).is_err());
        assert!(read(Some(group()), vec![one("", "1")]).is_err());
        assert!(read(Some(group()), vec![one("a", "1"), one("b", "")]).is_err());
        let whole = read(Some(group()), vec![one("a", "1")]);
        let Ok(Success::PoolRead { instances, .. }) = whole else { panic!("{whole:?}") };
        assert_eq!(instances.first().map(|it| it.state), Some(PoolInstanceState::Unknown));
    }

    #[test]
    fn a_name_that_is_too_long_is_a_wrong_answer_and_is_not_cut() {
        let read = |change: &dyn Fn(&mut PoolMachineRecord, &mut WireRecord)| {
            let (mut instance, mut pool) = (one("a", "1"), group());
            change(&mut instance, &mut pool);
            let (pool, machines) = (Some(pool), vec![instance]);
            super::read(GetPoolStatusResponse { pool, machines, ..Default::default() })
        };
        let long = || "x".repeat(WORD_BYTES + 1);
        assert!(read(&|one, _| one.instance_id = "ä".repeat(INSTANCE_ID)).is_ok());
        assert!(read(&|one, _| one.instance_id = "x".repeat(INSTANCE_ID + 1)).is_err());
        assert!(read(&|one, _| one.instance_name = long()).is_err());
        assert!(read(&|one, _| one.model_hash = long()).is_err());
        assert!(read(&|one, _| one.zone = long()).is_err());
        assert!(read(&|one, _| one.machine.as_mut().unwrap().node_name = long()).is_err());
        assert!(read(&|one, _| one.machine.as_mut().unwrap().provider_id = long()).is_err());
        assert!(read(&|_, pool| pool.provider_id = long()).is_err());
        assert!(read(&|_, pool| pool.model_hash = long()).is_err());
        assert!(read(&|_, pool| pool.pool_name = long()).is_err());
    }
}

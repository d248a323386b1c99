//! The operations that orphan collection sends to drivers, on behalf of a class.

use ostler_api::ProviderName;
use std::time::Duration;

use ostler_api::driver::{ErrorCode, OperationKind};
use ostler_api::{MachineClass, names};
use ostler_lifecycle::operation::{
    Dispatch, Failure, InstanceRecord, Part, Request, Success, Target,
};
use ostler_lifecycle::orphans::{Listed, Orphan, OrphanIdentity, Owner};
use ostler_lifecycle::snapshot::ClassFacts;
use ostler_sessions::Sessions;

/// Timeout of a list.
const LIST: Duration = Duration::from_mins(5);
/// Timeout of a deletion; it is retried later.
const DELETE: Duration = Duration::from_mins(10);

/// Lists every instance, and with `groups` every group, that the driver sees with the credentials of this class, and says
/// what the driver calls this list; empty: nothing.
pub(super) async fn list(
    sessions: &Sessions,
    class: &MachineClass,
    groups: bool,
) -> Result<(Vec<Listed>, String), Failure> {
    let (mut listed, scope) = instances(sessions, class).await?;
    if !groups {
        return Ok((listed, scope));
    }
    let target = Target::of_class(class);
    let answer = sessions.call(dispatch(class, target, Request::ListPools, LIST)).await;
    let (pools, other) = match answer {
        Ok(Success::PoolsListed { pools, scope }) => (pools, scope),
        Ok(_) => return Err(Failure::wrong_answer()),
        // The driver claimed groups, and has none.
        Err(failure) if failure.code == ErrorCode::Unimplemented => return Ok((listed, scope)),
        Err(failure) => return Err(failure),
    };
    listed.extend(pools.into_iter().map(|record| Listed {
        owner: Owner::Pool,
        provider_id: record.provider_id,
        part: String::new(),
        machine_name: record.pool_name,
        machine_uid: record.pool_uid,
        cluster_id: record.cluster_id,
    }));
    // Both have to be the same for two classes.
    let named = !scope.is_empty() && !other.is_empty();
    Ok((listed, if named { format!("{scope} {other}") } else { String::new() }))
}

async fn instances(
    sessions: &Sessions,
    class: &MachineClass,
) -> Result<(Vec<Listed>, String), Failure> {
    let target = Target::of_class(class);
    let answer = sessions.call(dispatch(class, target, Request::List, LIST)).await?;
    let Success::Listed { instances, parts, scope } = answer else {
        return Err(Failure::wrong_answer());
    };
    let listed = |record: InstanceRecord| Listed {
        owner: Owner::Machine,
        provider_id: record.provider_id,
        part: String::new(),
        machine_name: record.machine_name,
        machine_uid: record.machine_uid,
        cluster_id: record.cluster_id,
    };
    let part = |it: Part| Listed {
        owner: Owner::Machine,
        provider_id: it.id,
        part: Some(it.kind).filter(|kind| !kind.is_empty()).unwrap_or_else(|| "part".to_owned()),
        machine_name: it.machine_name,
        machine_uid: it.machine_uid,
        cluster_id: it.cluster_id,
    };
    Ok((instances.into_iter().map(listed).chain(parts.into_iter().map(part)).collect(), scope))
}

/// Deletes the instance, its parts, or the group with the identity of an orphan: the driver deletes nothing that has another cluster or
/// UID. An orphan without a UID is deleted by its provider id alone, if it has no tag of ours and still has the same name
/// (INV-5).
pub(super) async fn delete(
    sessions: &Sessions,
    provider: &ProviderName,
    class: &MachineClass,
    orphan: &Orphan,
) -> Result<(), Failure> {
    let kind = match orphan.owner {
        Owner::Machine => names::MACHINE,
        Owner::Pool => names::MACHINE_POOL,
    };
    let target = Target {
        kind: kind.to_owned(),
        namespace: class.metadata.namespace.clone().unwrap_or_default(),
        name: orphan.machine_name.clone(),
        uid: orphan.identity.target_uid(provider),
    };
    // The id contains the place: a class may list another region's orphans, too, and its driver looks by tags only in
    // its own region.
    let (provider_id, adopt_by_name) = match &orphan.identity {
        OrphanIdentity::Uid(_) => (orphan.provider_ids.first().cloned().unwrap_or_default(), false),
        OrphanIdentity::Instance(id) => (id.clone(), true),
    };
    let (request, time) = match orphan.owner {
        Owner::Machine => (Request::Delete { provider_id }, DELETE),
        Owner::Pool => {
            (Request::DeletePool { provider_id }, OperationKind::DeletePool.usual_time())
        }
    };
    let dispatch = Dispatch { adopt_by_name, ..dispatch(class, target, request, time) };
    match sessions.call(dispatch).await {
        Ok(Success::Deleted { .. }) => Ok(()),
        Ok(_) => Err(Failure::wrong_answer()),
        Err(failure) if failure.code == ErrorCode::NotFound => Ok(()),
        Err(failure) => Err(failure),
    }
}

fn dispatch(class: &MachineClass, target: Target, request: Request, time: Duration) -> Dispatch {
    let id = uuid::Uuid::new_v4().to_string().into();
    ClassFacts::of(class).dispatch(id, target, request, time)
}

//! The operations that orphan collection sends to drivers, on behalf of a class.

use ostler_api::ProviderName;
use std::time::Duration;

use ostler_api::driver::ErrorCode;
use ostler_api::{MachineClass, names};
use ostler_lifecycle::operation::{Dispatch, Failure, InstanceRecord, Request, Success, Target};
use ostler_lifecycle::orphans::{Identity, Listed, Orphan};
use ostler_lifecycle::snapshot::ClassFacts;
use ostler_sessions::Sessions;

/// Timeout of a list.
const LIST: Duration = Duration::from_mins(5);
/// Timeout of a deletion; it is retried later.
const DELETE: Duration = Duration::from_mins(10);

/// Lists every instance that the driver sees with the credentials of this class, and says what the driver calls this
/// list; empty: nothing.
pub(super) async fn list(
    sessions: &Sessions,
    class: &MachineClass,
) -> Result<(Vec<Listed>, String), Failure> {
    let target = Target::of_class(class);
    let answer = sessions.call(dispatch(class, target, Request::List, LIST)).await?;
    let Success::Listed { instances, scope } = answer else { return Err(Failure::wrong_answer()) };
    let listed = |record: InstanceRecord| Listed {
        provider_id: record.provider_id,
        machine_name: record.machine_name,
        machine_uid: record.machine_uid,
        cluster_id: record.cluster_id,
    };
    Ok((instances.into_iter().map(listed).collect(), scope))
}

/// Deletes the instance with the identity of an orphan. Without a provider id, the driver finds it by cluster and
/// UID, and deletes no other. An orphan without a UID is deleted by its provider id, if it has no tag of ours and
/// still has the same name (INV-5).
pub(super) async fn delete(
    sessions: &Sessions,
    provider: &ProviderName,
    class: &MachineClass,
    orphan: &Orphan,
) -> Result<(), Failure> {
    let target = Target {
        kind: names::MACHINE.to_owned(),
        namespace: class.metadata.namespace.clone().unwrap_or_default(),
        name: orphan.machine_name.clone(),
        uid: orphan.identity.target_uid(provider),
    };
    let provider_id = match &orphan.identity {
        Identity::Uid(_) => String::new(),
        Identity::Instance(id) => id.clone().into(),
    };
    let adopt_by_name = !provider_id.is_empty();
    let request = Request::Delete { provider_id: provider_id.into() };
    let dispatch = Dispatch { adopt_by_name, ..dispatch(class, target, request, DELETE) };
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

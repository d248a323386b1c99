//! Facts about the instance: provider id, addresses, and condition `InstanceCreated`, which only this file sets.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    driver::{ErrorCode, OperationKind},
    machine::{Machine, MachineConditionType, MachineStatus, OperationIntent, WaitReason},
    names,
};

use super::{
    State, conditions,
    dispatch::key_of,
    own_instance::carries_own_uid,
    pass::Pass,
    preboot, retry,
    transition::{Outcome, wait},
};
use crate::{
    node,
    operation::{Failure, Finished, InstanceRecord, Power},
    plan::EventReason,
    snapshot::{DriverFacts, DriverView, TargetView},
    time::{after, second_after},
    well_formed,
};

/// How soon an instance is read again that was reported in a way that cannot be right.
const ODD_RECORD_RETRY: Duration = Duration::from_mins(1);
/// For how long a driver's lists may lack an instance that the driver made: the lists of many infrastructures lag
/// behind.
const CATCHING_UP: Duration = Duration::from_mins(2);
const CREATED: MachineConditionType = MachineConditionType::InstanceCreated;
/// Reason of condition `InstanceCreated` for an instance that was there before.
const ADOPTED: &str = "Adopted";

/// Reason of condition `InstanceCreated` for an instance that is gone.
const LOST: &str = "InstanceLost";

/// A Machine shows no more addresses.
const ADDRESSES: usize = 64;

/// Sets condition `InstanceCreated`: a driver made the instance for this Machine.
pub(crate) fn set_made(pass: &mut Pass<'_>) {
    conditions::set(pass, &CREATED, true, node::MADE, "");
}

/// Sets condition `InstanceCreated`: the metadata say that the instance was made. Until a driver confirms the instance,
/// too, nothing is the Machine's for that.
pub(crate) fn set_recorded(pass: &mut Pass<'_>) {
    if created_at(pass).is_none() {
        conditions::set(pass, &CREATED, true, node::RECORDED, "");
    }
}

/// A driver says so.
pub(crate) fn confirm(pass: &mut Pass<'_>) {
    if conditions::reason(&pass.status, &CREATED) == Some(node::RECORDED) {
        set_made(pass);
    }
}

/// Sets condition `InstanceCreated`: the instance was there before. An instance made for this Machine keeps the
/// condition.
pub(crate) fn set_adopted(pass: &mut Pass<'_>) {
    if created_at(pass).is_none() {
        conditions::set(pass, &CREATED, true, ADOPTED, "");
    }
}

/// Clears condition `InstanceCreated`: the instance could not be made, or not be looked up before.
pub(crate) fn set_not_made(pass: &mut Pass<'_>, failure: &Failure) {
    conditions::set(pass, &CREATED, false, failure.code.name(), &failure.text());
}

/// Clears condition `InstanceCreated`: the instance is gone.
pub(crate) fn set_lost(pass: &mut Pass<'_>, text: &str) {
    conditions::set(pass, &CREATED, false, LOST, text);
}

/// Since when the instance is known to be there.
pub(crate) fn created_at(pass: &Pass<'_>) -> Option<jiff::Timestamp> {
    conditions::held_since(&pass.status, &CREATED)
}

/// Until when a driver that made the instance and does not find it may just be early. A second instance is not made
/// before.
pub(crate) fn catching_up(pass: &Pass<'_>) -> Option<jiff::Timestamp> {
    caught_up_at(pass).filter(|until| pass.snap.now < *until)
}

/// When the driver's list counts as caught up.
pub(crate) fn caught_up_at(pass: &Pass<'_>) -> Option<jiff::Timestamp> {
    pass.provider_id()?;
    Some(after(created_at(pass)?, CATCHING_UP))
}

/// Whether the infrastructure may not show the instance yet, as its driver says. Until then neither "none" nor an event
/// proves that the instance is gone: both may come from one lagging list, and a replacement would be a second instance
/// (INV-1).
pub(crate) fn may_be_hidden(pass: &Pass<'_>) -> bool {
    let DriverView::Ready(DriverFacts { list_lag: Some(lag), .. }) = &pass.snap.driver else {
        return false;
    };
    created_at(pass).is_some_and(|at| pass.snap.now < after(at, *lag))
}

/// Whether the instance was made for this Machine.
pub(crate) fn was_made(status: &MachineStatus) -> bool {
    [Some(node::MADE), Some(node::RECORDED)].contains(&conditions::reason(status, &CREATED))
}

/// Whether an instance was made by a create of this very Machine.
pub(crate) fn is_own_create(
    machine: &Machine,
    finished: &Finished,
    record: &InstanceRecord,
) -> bool {
    let tagged = record.machine_uid.as_str();
    finished.idempotency_key == key_of(machine.uid(), OperationKind::CreateMachine)
        && (tagged.is_empty() || tagged == machine.uid())
}

/// Makes an instance the Machine's own. False: the record cannot be right; it is read again later,
/// and the intent stays unresolved until then.
pub(crate) fn adopt(
    pass: &mut Pass<'_>,
    record: &InstanceRecord,
    intent: Option<OperationIntent>,
) -> bool {
    let id = &record.provider_id;
    let (reason, message) = match &pass.snap.provider_id_holder {
        _ if id.is_empty() => {
            (WaitReason::EmptyProviderId, "the driver reported an empty provider id".to_owned())
        }
        Some(other) => {
            (WaitReason::DuplicateProviderId, format!("machine {other} has provider id {id}"))
        }
        None => {
            retry::clear(pass);
            learn(pass, record);
            return true;
        }
    };
    pass.end_unknown(intent);
    pass.effects.event(true, EventReason::InstanceCreateFailed, format!("{reason}: {message}"));
    let until = after(pass.snap.now, ODD_RECORD_RETRY);
    let kind = OperationKind::GetMachineStatus;
    retry::wait_until(pass, kind, ErrorCode::Internal, reason, &message, until);
    false
}

/// A create ended with an unknown result. The last such create counts, since it may have made the instance.
pub(crate) fn doubt_creation(pass: &mut Pass<'_>) {
    pass.status.creation_unconfirmed_since = Some(Time(second_after(pass.snap.now)));
}

/// Takes over what the driver knows of the instance.
pub(crate) fn learn(pass: &mut Pass<'_>, record: &InstanceRecord) {
    pass.status.instance_provider_id = Some(record.provider_id.clone());
    pass.status.creation_unconfirmed_since = None;
    if pass.machine.provider_id() != Some(&record.provider_id) {
        pass.effects.patch.provider_id = Some(record.provider_id.clone());
    }
    if pass.snap.target != TargetView::None && pass.machine.node_name().is_none() {
        name_node(pass, &record.node_name);
    }
    note_power(pass, record.power);
    set_default_priority(pass);
    // The addresses of an instance that is gone are no longer the Machine's.
    let same = pass.machine.provider_id().is_none_or(|id| *id == record.provider_id);
    // Not every answer has some: a driver may know none when it has just made or initialized the instance.
    if !same || !record.addresses.is_empty() {
        pass.status.addresses.clone_from(&record.addresses);
    }
    let addresses = &mut pass.status.addresses;
    addresses.sort();
    addresses.dedup();
    addresses.truncate(ADDRESSES);
}

/// Where there is no Node, the driver alone says whether the instance runs.
fn note_power(pass: &mut Pass<'_>, power: Power) {
    let stopped = power != Power::On && pass.snap.target == TargetView::None;
    pass.status.stopped_since =
        if stopped { pass.status.stopped_since.take().or_else(|| Some(pass.now())) } else { None };
}

/// The instance was initialized, which may have started it: earlier reports do not count.
pub(crate) fn forget_power(pass: &mut Pass<'_>) {
    pass.status.stopped_since = None;
}

/// The fault of an instance that the driver reports as stopped.
pub(crate) fn stopped(pass: &Pass<'_>) -> Option<&'static str> {
    pass.status.stopped_since.as_ref()?;
    Some("the driver says that the instance is stopped or being deleted")
}

/// A core that did not write the provider id down yet called this instance the Machine's.
pub(crate) fn note_id(pass: &mut Pass<'_>) {
    if carries_own_uid(pass.machine, &pass.status) && pass.status.instance_provider_id.is_none() {
        pass.status.instance_provider_id = pass.machine.provider_id().cloned();
    }
}

/// The next pass looks for the Node of an instance named in this pass.
///
/// # Errors
/// The Node was looked up by another provider id.
pub(crate) fn look_node_up(pass: &Pass<'_>, state: State) -> Outcome<()> {
    let creation = matches!(state, State::Creating | State::Initializing | State::Joining);
    let before = pass.machine.instance_id();
    if creation || before.is_none() || before == pass.instance_id() {
        return Ok(());
    }
    let what = "the node was not looked up by the new provider id yet".to_owned();
    Err(wait(WaitReason::NotObserved, Some(what), Some(pass.snap.now)))
}

/// Labels the Machine with the name of its Node, and shows it. The API server would refuse a name that is too long for a
/// label, and with it everything else in the patch: such a name stands in the status alone.
pub(crate) fn name_node(pass: &mut Pass<'_>, name: &str) {
    if name.is_empty() {
        return;
    }
    let labelled = pass.machine.label(names::label::NODE) == Some(name);
    if well_formed::label_value(name) && !labelled {
        pass.effects.patch.labels.insert(names::label::NODE.to_owned(), name.to_owned());
    }
    // A value that is no object name names no Node, however long it is.
    if name.len() <= well_formed::PREFIX {
        preboot::show_node(&mut pass.status, name);
    }
}

/// Gives a Machine without a priority the default priority for a scale-down.
pub(crate) fn set_default_priority(pass: &mut Pass<'_>) {
    if pass.machine.annotation(names::annotation::PRIORITY).is_none() {
        let value = names::annotation::DEFAULT_PRIORITY.to_owned();
        pass.effects.patch.annotations.insert(names::annotation::PRIORITY.to_owned(), Some(value));
    }
}

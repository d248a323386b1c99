//! An instance that was there before its Machine: restored with its cluster, migrated with its control plane, or made
//! by machine-controller-manager. A create with the provider id makes the instance the Machine's own: the driver finds
//! the instance by the id and sets this Machine's identity on it.

use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{MachineConditionType, OperationIntent},
};

use super::{
    cluster_id, conditions, instance,
    own_instance::carries_own_uid,
    pass::Pass,
    preconditions,
    reading::Reading,
    retry::{self, RetryAction, rule},
    transition::Outcome,
};
use crate::{
    driver::DriverView,
    operation::{Failure, InstanceRecord, Request},
    plan::EventReason,
    snapshot::ClassFacts,
};

const ADOPTED: MachineConditionType = MachineConditionType::InstanceAdopted;
/// The instance has other tags than this cluster's and machine's.
const NOT_OURS: &str = "NotOurs";
/// The driver does not know the instance by its name either.
const NOT_FOUND_BY_NAME: &str = "NotFoundByName";
/// The driver cannot say which of two provider ids is right.
const UNCONFIRMED: &str = "Unconfirmed";

/// Whether an instance found by a read carries another identity than this Machine's. An instance without any UID is
/// another controller's, and is taken only where the class says so.
pub(crate) fn is_needed(pass: &Pass<'_>, record: &InstanceRecord) -> bool {
    if pass.snap.cluster.was(&record.cluster_id) {
        return true;
    }
    match record.machine_uid.as_str() {
        "" => by_name(pass) && !was_adopted(pass),
        uid => uid != pass.machine.uid(),
    }
}

/// Whether the instance was made or adopted, as far as is known. An annotation is enough: this read found the instance.
fn was_adopted(pass: &Pass<'_>) -> bool {
    carries_own_uid(pass.machine, &pass.status)
        || pass.machine.noted_instance_uid().is_some_and(|uid| uid == pass.machine.uid())
}

fn by_name(pass: &Pass<'_>) -> bool {
    pass.snap.class.known().is_some_and(|class| pass.snap.settings.adopts_by_name(class))
}

/// Whether the instance of this provider id is known to carry the UID of this Machine and the cluster id of today.
/// Without another id, every recorded id is the current one.
fn is_own(pass: &Pass<'_>) -> bool {
    let (cluster, carried) = (&pass.snap.cluster, pass.status.instance_cluster_id.as_deref());
    carries_own_uid(pass.machine, &pass.status)
        && !pass.has_other_id()
        && carried.map_or(cluster.previous.is_empty(), |id| id == cluster.own)
}

/// From now on the instance carries the identity of this Machine. The cluster id alone is not worth a
/// write as long as there was never another one.
pub(crate) fn record_identity(pass: &mut Pass<'_>) {
    if !is_own(pass) {
        cluster_id::record_own(pass);
    }
    instance::confirm(pass);
    conditions::remove(&mut pass.status, &ADOPTED);
}

/// Writes down that a create found the instance that the Machine had before.
pub(crate) fn record_adoption(pass: &mut Pass<'_>, record: &InstanceRecord) {
    instance::set_adopted(pass);
    pass.effects.event(false, EventReason::InstanceAdopted, record.provider_id.to_string());
}

/// Whether the create named the returned instance in advance.
pub(crate) fn was_known(intent: Option<&OperationIntent>, record: &InstanceRecord) -> bool {
    let named = intent.and_then(|intent| intent.provider_id.as_ref());
    named == Some(&record.provider_id)
}

/// Adopts the instance of a Machine that runs already, unless there is nothing to adopt, or it has
/// to wait for something else.
pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome<()> {
    if is_own(pass) {
        conditions::remove(&mut pass.status, &ADOPTED);
        return Ok(());
    }
    let may_send = pass.is_free() || (pass.is_unresolved() && is_intended(pass));
    if !may_send || pass.provider_id().is_none() || given_up(pass) {
        return Ok(());
    }
    let Some(class) = preconditions::class_to_read(pass.snap) else {
        let reads = OperationKind::GetMachineStatus;
        if matches!(&pass.snap.driver, DriverView::Ready(driver) if !driver.has(reads)) {
            refuse_other_id(pass);
        }
        return Ok(());
    };
    let failure = match pass.learned.reading.take() {
        None => {
            retry::gate(pass)?;
            return Err(pass.send_read(class));
        }
        Some(Reading::Found(record)) => {
            let (needed, provider_id) = (is_needed(pass, &record), record.provider_id.clone());
            pass.learned.reading = Some(Reading::Found(record));
            // The instance joined long ago: user data with a token would be of no use.
            let request = Request::Create { user_data: None, provider_id };
            return if needed { Err(pass.send(class, request)) } else { Ok(()) };
        }
        Some(Reading::NotFound) => {
            refuse(pass, class, ErrorCode::NotFound.name());
            return Ok(());
        }
        Some(other @ (Reading::Uninitialized | Reading::CannotRead)) => {
            pass.learned.reading = Some(other);
            refuse_other_id(pass);
            return Ok(());
        }
        Some(Reading::Failed(failure)) => failure,
    };
    if failure.is_cluster_id_changed() {
        let reason = EventReason::ClusterIdChanged;
        cluster_id::record_stranger(pass, &failure);
        set_refused(pass, reason, reason.name(), &failure.message);
    } else if failure.is_not_ours() {
        refuse(pass, class, NOT_OURS);
    } else {
        return Err(retry::after_read(pass, &failure));
    }
    Ok(())
}

/// A user wrote another provider id than the driver's, and the driver cannot say which id is right: asked again, it
/// would answer the same.
fn refuse_other_id(pass: &mut Pass<'_>) {
    if pass.has_other_id() {
        let text = "the driver cannot confirm another spec.providerID than that of status.instanceProviderID";
        set_refused(pass, EventReason::InstanceAdoptFailed, UNCONFIRMED, text);
    }
}

fn is_intended(pass: &Pass<'_>) -> bool {
    let intent = pass.status.operation.as_ref();
    intent.is_some_and(|it| it.operation_kind() == Some(OperationKind::CreateMachine))
}

/// The driver knows no instance that could be this Machine's. Nothing is done to the Machine: its Node exists.
fn refuse(pass: &mut Pass<'_>, class: &ClassFacts, unnamed: &'static str) {
    let code = if pass.snap.settings.adopts_by_name(class) { NOT_FOUND_BY_NAME } else { unnamed };
    let text = "the driver finds no instance of this cluster and machine by that id; if another controller \
                made it, set annotation ostler.dev/adopt-by-name on the class";
    if !pass.snap.cluster.previous.is_empty() {
        cluster_id::record_unknown(pass);
    }
    set_refused(pass, EventReason::InstanceAdoptFailed, code, text);
}

/// The event about an instance that is not the Machine's; `None`: another failure.
pub(crate) fn stranger(failure: &Failure) -> Option<EventReason> {
    match (failure.is_cluster_id_changed(), failure.is_not_ours()) {
        (true, _) => Some(EventReason::ClusterIdChanged),
        (false, true) => Some(EventReason::InstanceNotOurs),
        (false, false) => None,
    }
}

/// The driver did not adopt the instance of a Machine that runs, and goes on running. Shown beside.
pub(crate) fn failed(pass: &mut Pass<'_>, failure: &Failure) {
    let rule = retry::remember_mutation(pass, OperationKind::CreateMachine, failure);
    set_refused(pass, EventReason::InstanceAdoptFailed, failure.code.name(), &failure.text());
    if matches!(rule.then, RetryAction::GiveUp(_)) {
        retry::clear(pass);
    }
}

fn set_refused(pass: &mut Pass<'_>, event: EventReason, code: &str, text: &str) {
    if conditions::reason(&pass.status, &ADOPTED) != Some(code) {
        pass.effects.event(true, event, format!("{code}: {text}"));
    }
    conditions::set(pass, &ADOPTED, false, code, text);
}

/// Whether adoption failed before. A class that says more since is a reason to try again, and so is
/// a core that knows more ids since.
fn given_up(pass: &Pass<'_>) -> bool {
    let shown = conditions::reason(&pass.status, &ADOPTED);
    let (cluster, carried) = (&pass.snap.cluster, pass.status.instance_cluster_id.as_deref());
    if shown == Some(EventReason::ClusterIdChanged.name()) {
        return carried.is_some_and(|id| !cluster.has(id));
    }
    if carried.is_none() && !cluster.previous.is_empty() && is_refusal(shown) {
        return false;
    }
    if shown == Some(NOT_OURS) {
        return !by_name(pass);
    }
    match shown.map(ErrorCode::from_name) {
        None => false,
        Some(Some(ErrorCode::NotFound)) => !by_name(pass),
        Some(Some(code)) => {
            let rule = rule(OperationKind::CreateMachine, code, "", Certainty::NotApplied);
            matches!(rule.then, RetryAction::GiveUp(_))
        }
        // Not found by its name either.
        Some(None) => true,
    }
}

/// Whether the driver was asked, and knew of no instance that could be this Machine's.
fn is_refusal(shown: Option<&str>) -> bool {
    shown.is_some_and(|shown| [NOT_OURS, NOT_FOUND_BY_NAME].contains(&shown))
}

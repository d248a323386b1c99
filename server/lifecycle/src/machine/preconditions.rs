//! Preconditions of any question to a driver, each lack with its own reason.

use jiff::Timestamp;
use ostler_api::{driver::OperationKind, machine::WaitReason, names};

use super::transition::{Transition, Wait, wait};
use crate::{
    node,
    plan::EventReason,
    snapshot::{
        ClassFacts, ClassView, DriverFacts, DriverView, SecretView, Settings, Snapshot, TargetView,
    },
    user_data::MAX_PROVIDER_SPEC,
};

/// Why no driver can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingPrecondition {
    pub(crate) reason: WaitReason,
    pub(crate) message: String,
}

impl MissingPrecondition {
    /// Whether a driver or an observation is missing: no Machine fails for that.
    pub(crate) const fn is_no_fault(&self) -> bool {
        use WaitReason::{CrdsOutdated, DriverUnavailable, NotObserved};
        matches!(self.reason, CrdsOutdated | DriverUnavailable | NotObserved)
    }

    /// A wait with an end of its own, without an event.
    pub(crate) fn until(self, until: Option<Timestamp>) -> Transition {
        wait(self.reason, Some(self.message), until)
    }
}

/// A precondition is missing: a person may have to see to it.
impl From<MissingPrecondition> for Transition {
    fn from(lack: MissingPrecondition) -> Self {
        let observed = lack.reason != WaitReason::NotObserved;
        let event = observed.then_some(EventReason::Waiting);
        let (reason, message) = (lack.reason, Some(lack.message));
        Self::Wait(Wait { reason, message, until: None, event, since: None })
    }
}

fn lack<T>(reason: WaitReason, message: String) -> Result<T, MissingPrecondition> {
    Err(MissingPrecondition { reason, message })
}

/// The class and the driver, or the first thing that is missing.
pub(crate) fn check(snap: &Snapshot) -> Result<(&ClassFacts, &DriverFacts), MissingPrecondition> {
    if let Some(outdated) = &snap.outdated {
        return lack(WaitReason::CrdsOutdated, outdated.clone());
    }
    let class = class(snap)?;
    provider(snap, class)?;
    rules(snap, class)?;
    secret(snap)?;
    if let DriverView::Ready(driver) = &snap.driver {
        return permitted(&snap.settings, class, driver).map(|()| (class, driver));
    }
    let message = snap.driver.lack(&class.provider).unwrap_or_default();
    lack(WaitReason::DriverUnavailable, message)
}

/// A driver that knows instances by their names alone takes, and deletes, whatever has the name of a Machine: only
/// where the class says that this is meant.
pub(crate) fn permitted(
    settings: &Settings,
    class: &ClassFacts,
    driver: &DriverFacts,
) -> Result<(), MissingPrecondition> {
    if !driver.by_name || settings.adopts_by_name(class) {
        return Ok(());
    }
    let text = format!(
        "the driver for provider {:?} knows instances by their names alone and cannot tell who made them: set annotation {} on \
         the class to \"true\" if its machines may take over, and delete, what has their name",
        class.provider,
        names::annotation::ADOPT_BY_NAME
    );
    lack(WaitReason::AdoptionUndecided, text)
}

/// The class, if its driver can be asked for the instance now.
pub(crate) fn class_to_read(snap: &Snapshot) -> Option<&ClassFacts> {
    let (class, driver) = check(snap).ok()?;
    driver.has(OperationKind::GetMachineStatus).then_some(class)
}

/// The target cluster, or why it cannot be looked into. An instance is made only for a cluster that
/// its Node can join.
pub(crate) fn target(snap: &Snapshot) -> Result<(), MissingPrecondition> {
    match &snap.target {
        TargetView::Watched | TargetView::None => Ok(()),
        TargetView::Lacking { reason, message } => lack(reason.clone(), message.clone()),
    }
}

/// The reason of a wait for a look at the Node, or `what` else of the target cluster.
pub(crate) fn unseen(snap: &Snapshot, what: &str) -> MissingPrecondition {
    if let Err(lack) = target(snap) {
        return lack;
    }
    let Some(node) = snap.ids.undecided.as_deref() else {
        let message = format!("{what} have not been listed yet");
        return MissingPrecondition { reason: WaitReason::NotObserved, message };
    };
    let message = format!(
        "node {} has provider id {}: how that is compared is for the driver to say, and none was connected since this core \
         started",
        node.metadata.name.as_deref().unwrap_or_default(),
        node::provider_id(node).unwrap_or_default(),
    );
    MissingPrecondition { reason: WaitReason::DriverUnavailable, message }
}

/// The class, if it exists and can be sent.
pub(crate) fn class(snap: &Snapshot) -> Result<&ClassFacts, MissingPrecondition> {
    let wanted = &snap.machine.spec.class;
    if wanted.kind != names::MACHINE_CLASS || wanted.name.is_empty() {
        return lack(
            WaitReason::ClassRefInvalid,
            format!("spec.class names {:?} {:?}, not a MachineClass", wanted.kind, wanted.name),
        );
    }
    let name = &wanted.name;
    match &snap.class {
        ClassView::Unknown => {
            lack(WaitReason::NotObserved, format!("machine class {name} has not been read yet"))
        }
        ClassView::LastKnown(class) if snap.machine.is_deleting() => Ok(class),
        ClassView::Missing | ClassView::LastKnown(_) => {
            lack(WaitReason::ClassMissing, format!("machine class {name} does not exist"))
        }
        ClassView::NotHeld(why) => lack(
            WaitReason::ClassNotHeld,
            format!("the finalizer cannot be put on machine class {name}: {why}"),
        ),
        ClassView::NamespaceDenied => lack(
            WaitReason::ClassNamespaceDenied,
            format!("machine class {name} is in another namespace"),
        ),
        ClassView::Known(class) => fits(class).map(|()| class),
    }
}

/// Whether the spec of a class can be sent.
fn fits(class: &ClassFacts) -> Result<(), MissingPrecondition> {
    let bytes = class.provider_spec.len();
    if bytes <= MAX_PROVIDER_SPEC {
        return Ok(());
    }
    let name = &class.name;
    let text = format!(
        "providerSpec of class {name} has {bytes} bytes, at most {MAX_PROVIDER_SPEC} can be sent"
    );
    lack(WaitReason::ProviderSpecTooLarge, text)
}

/// Faults of a class or its secrets that a user has to correct before the core asks a driver.
pub(crate) fn of_class(class: &ClassFacts, secret: &SecretView) -> Result<(), MissingPrecondition> {
    fits(class)?;
    keeps_rules(class)?;
    secrets(secret)
}

/// The driver of another provider than the one that has the instance finds none, which says nothing.
pub(crate) fn provider(snap: &Snapshot, class: &ClassFacts) -> Result<(), MissingPrecondition> {
    let Some(holder) = &snap.elsewhere else { return Ok(()) };
    let text = format!(
        "the instance is that of provider {holder:?}, and machine class {} is one of {:?}: make it one of {holder:?} again, \
         also to delete the machine",
        class.name, class.provider
    );
    lack(WaitReason::ProviderChanged, text)
}

/// No instance is made from a class that breaks a rule. The class still serves for deletions.
fn rules(snap: &Snapshot, class: &ClassFacts) -> Result<(), MissingPrecondition> {
    if snap.machine.is_deleting() { Ok(()) } else { keeps_rules(class) }
}

fn keeps_rules(class: &ClassFacts) -> Result<(), MissingPrecondition> {
    if class.broken_rules.is_empty() {
        return Ok(());
    }
    let text = format!("machine class {}: {}", class.name, class.broken_rules.join("; "));
    lack(WaitReason::ClassInvalid, text)
}

fn secret(snap: &Snapshot) -> Result<(), MissingPrecondition> {
    let is_enough = snap.machine.is_deleting() && matches!(snap.secret, SecretView::LastKnown(..));
    if is_enough { Ok(()) } else { secrets(&snap.secret) }
}

fn secrets(view: &SecretView) -> Result<(), MissingPrecondition> {
    match view {
        SecretView::Unknown => {
            lack(WaitReason::NotObserved, "the secrets of the class have not been read yet".into())
        }
        SecretView::Missing(names) | SecretView::LastKnown(_, names) => {
            lack(WaitReason::SecretMissing, format!("secret {} does not exist", names.join(", ")))
        }
        SecretView::NamespaceDenied(names) => lack(
            WaitReason::SecretNamespaceDenied,
            format!("secret {} is in another namespace", names.join(", ")),
        ),
        SecretView::NotReferenced | SecretView::Known(_) => Ok(()),
    }
}

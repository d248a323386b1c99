//! Condition `InstanceDeleted`: the Machine may go, since its instance is gone or abandoned.

use ostler_api::machine::{MachineConditionType, MachineStatus};

use super::{
    conditions,
    pass::{Pass, Release},
};
use crate::plan::EventReason;

pub(super) const DELETED: MachineConditionType = MachineConditionType::InstanceDeleted;
const WAS_ABSENT: &str = "WasAbsent";

/// The finding of an earlier pass: however long the Machine waits for something else, its driver is not asked again.
pub(crate) fn recorded(status: &MachineStatus) -> Option<Release> {
    conditions::held_since(status, &DELETED)?;
    let was_absent = conditions::reason(status, &DELETED) == Some(WAS_ABSENT);
    Some(if was_absent { Release::Absent } else { Release::Deleted })
}

/// The Machine lives: a user put the record there, or it is from a life before a restore.
pub(crate) fn forget(pass: &mut Pass<'_>) {
    conditions::remove(&mut pass.status, &DELETED);
}

/// The Machine may go without its instance. The condition makes the event come once.
pub(crate) fn abandon(pass: &mut Pass<'_>, provider_id: String) {
    pass.learned.release = Some(Release::Abandoned);
    let event = EventReason::InstanceAbandoned;
    if conditions::reason(&pass.status, &DELETED) != Some(event.name()) {
        conditions::set(pass, &DELETED, false, event.name(), &provider_id);
        pass.effects.event(true, event, provider_id);
    }
}

/// The Machine may go. It says so from now on, also while a pause or something else holds it.
pub(crate) fn release(pass: &mut Pass<'_>, release: Release) {
    pass.learned.release = Some(release);
    if conditions::held_since(&pass.status, &DELETED).is_some() {
        return;
    }
    let id = pass.provider_id().map(|id| format!(" {id}"));
    let (condition, event, text) = match (release, id) {
        (Release::Abandoned, _) => return,
        (Release::Deleted, id) => {
            let which = id.map_or_else(|| "the instance".to_owned(), |id| format!("instance{id}"));
            ("Deleted", EventReason::InstanceDeleted, format!("{which} is gone"))
        }
        (Release::Absent, id) => {
            let text = format!("there was no instance{} to delete", id.unwrap_or_default());
            (WAS_ABSENT, EventReason::InstanceAbsent, text)
        }
    };
    conditions::set(pass, &DELETED, true, condition, "");
    pass.effects.event(false, event, text);
}

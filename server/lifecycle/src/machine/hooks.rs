//! Hooks of Cluster API: annotations by which a controller holds a deletion until it removes them.
//! Hooks have no timeout, and force does not get past them: the owner of a hook promises that
//! something of value is still in use.

use ostler_api::{
    machine::{MachineStep, WaitReason},
    names,
};

use super::{
    pass::Pass,
    transition::{Outcome, wait},
};
use crate::plan::EventReason;

/// A step that annotations with the prefix hold.
#[derive(Debug)]
pub(crate) struct Hook {
    prefix: &'static str,
    step: MachineStep,
    reason: WaitReason,
}

/// The drain.
pub(crate) const PRE_DRAIN: Hook = Hook {
    prefix: names::hook::PRE_DRAIN,
    step: MachineStep::PreDrainHook,
    reason: WaitReason::PreDrainHook,
};
/// The end of the instance.
pub(crate) const PRE_TERMINATE: Hook = Hook {
    prefix: names::hook::PRE_TERMINATE,
    step: MachineStep::PreTerminateHook,
    reason: WaitReason::PreTerminateHook,
};

/// Waits while annotations of the hook exist.
pub(crate) fn hold(pass: &mut Pass<'_>, hook: Hook) -> Outcome<()> {
    let hooks = pass.machine.hooks(hook.prefix);
    if hooks.is_empty() {
        return Ok(());
    }
    let names: Vec<String> =
        hooks.into_iter().map(|(name, owner)| describe(hook.prefix, name, owner)).collect();
    let text = format!("held by annotation {}", names.join(", "));
    pass.step(Some(hook.step));
    Err(wait(hook.reason, Some(text), None).with_event(EventReason::HookWaiting))
}

fn describe(prefix: &str, name: &str, owner: &str) -> String {
    let slash = if name.is_empty() { "" } else { "/" };
    let name = format!("{prefix}{slash}{name}");
    match owner {
        "" => name,
        owner => format!("{name} of {owner}"),
    }
}

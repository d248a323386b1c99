//! Hooks of Cluster API: annotations that hold a deletion until whoever put them there takes them
//! away. They have no timeout, and force does not get past them: they are somebody's promise that
//! something of value is still in use.

use ostler_api::{
    machine::{MachineStep, WaitReason},
    names,
};

use super::pass::{Pass, Turn};
use crate::plan::EventReason;

/// What is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// The drain.
    PreDrain,
    /// The end of the instance.
    PreTerminate,
}

impl Hook {
    const fn prefix(self) -> &'static str {
        match self {
            Self::PreDrain => names::hook::PRE_DRAIN,
            Self::PreTerminate => names::hook::PRE_TERMINATE,
        }
    }

    const fn step(self) -> MachineStep {
        match self {
            Self::PreDrain => MachineStep::PreDrainHook,
            Self::PreTerminate => MachineStep::PreTerminateHook,
        }
    }

    const fn reason(self) -> WaitReason {
        match self {
            Self::PreDrain => WaitReason::PreDrainHook,
            Self::PreTerminate => WaitReason::PreTerminateHook,
        }
    }
}

/// A wait for the hooks that hold this; `None`: there are none.
pub(crate) fn hold(pass: &mut Pass<'_>, hook: Hook) -> Option<Turn> {
    let hooks = pass.machine.hooks(hook.prefix());
    if hooks.is_empty() {
        return None;
    }
    let names: Vec<String> = hooks.into_iter().map(|(name, owner)| describe(name, owner)).collect();
    let text = format!("held by {}", names.join(", "));
    pass.step(Some(hook.step()));
    let old = pass.machine.status.as_ref().and_then(|status| status.waiting_for.as_ref());
    if old.is_none_or(|old| old.reason != hook.reason()) {
        pass.event(false, EventReason::HookWaiting, format!("{}: {text}", hook.reason()));
    }
    Some(pass.wait(hook.reason(), Some(text), None))
}

fn describe(name: &str, owner: &str) -> String {
    let name = if name.is_empty() { "a hook without a name" } else { name };
    match owner {
        "" => name.to_owned(),
        owner => format!("{name} of {owner}"),
    }
}

//! The transitions between states. Every pass of a debug build checks itself against the table, and
//! the diagram in `docs/retry-policy.md` is drawn from it.

use std::fmt::Write as _;

use super::State;

/// From, to, and why.
const TABLE: &[(State, State, &str)] = &[
    (State::Creating, State::Initializing, "instance made or found"),
    (State::Creating, State::Joining, "instance found, or initialized already"),
    (State::Creating, State::Failed, "creation timeout, health check, or no way out"),
    (State::Initializing, State::Joining, "initialized, or nothing to initialize"),
    (State::Initializing, State::Creating, "instance vanished"),
    (State::Initializing, State::Failed, "creation timeout, health check, or data lost"),
    (State::Joining, State::Running, "node healthy, or no target cluster"),
    (State::Joining, State::Initializing, "driver says uninitialized"),
    (State::Joining, State::Creating, "instance vanished before it was named"),
    (State::Joining, State::Failed, "creation timeout, health check, or stale node for 5 min"),
    (State::Running, State::InPlace, "selected for an update in place"),
    (State::Running, State::Failed, "health timeout, health check, or instance gone"),
    (State::InPlace, State::Running, "updated, or not selected any more"),
    (State::InPlace, State::Failed, "instance gone"),
    (State::Failed, State::Running, "node healthy after all"),
    (State::Finding, State::Draining, "node known, or none"),
    (State::Finding, State::Deleting, "nothing was ever asked of a driver"),
    (State::Finding, State::Finishing, "gone already, never asked for, or abandoned"),
    (State::Draining, State::Detaching, "pods gone, deadline, or force"),
    (State::Draining, State::Deleting, "no node"),
    (State::Detaching, State::Draining, "pods came since"),
    (State::Detaching, State::Deleting, "volumes gone, time up, or force"),
    (State::Deleting, State::Draining, "node came after all, or is not empty any more"),
    (State::Deleting, State::Finishing, "driver says gone, or abandoned"),
];

/// States in which a deletion may find a Machine.
const LIVING: [State; 6] = [
    State::Creating,
    State::Initializing,
    State::Joining,
    State::Running,
    State::InPlace,
    State::Failed,
];

/// Whether one state may lead to another in one pass.
pub(super) fn leads_to(from: State, to: State) -> bool {
    from == to || TABLE.iter().any(|(one, other, _)| *one == from && *other == to)
}

/// The states of a Machine as a Mermaid state diagram.
pub fn mermaid() -> String {
    let mut text = "stateDiagram-v2\n    [*] --> Creating\n".to_owned();
    let mut line = |from: &str, to: &str, why: &str| {
        let _infallible = writeln!(text, "    {from} --> {to}: {why}");
    };
    for (from, to, why) in TABLE {
        line(&format!("{from:?}"), &format!("{to:?}"), why);
    }
    for from in LIVING {
        line(&format!("{from:?}"), &format!("{:?}", State::Finding), "deleted");
    }
    line(&format!("{:?}", State::Finishing), "[*]", "finalizer removed");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_state_leads_back_from_a_deletion_to_a_life() {
        for (from, to, _) in TABLE {
            assert!(LIVING.contains(from) == LIVING.contains(to), "{from:?} {to:?}");
        }
    }
}

//! Through which stages a stream goes. The generated histories of `model.rs` check the table after
//! each of their steps, and the page about the protocol is drawn from it.

use ostler_proto::v1alpha1::RoleKind;

use super::{Hub, SessionKey};

/// Where a stream stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Connected,
    Standby,
    Active,
    Serving,
    Draining,
    Lost,
    Gone,
}

/// From, to, and why.
const TABLE: &[(Stage, Stage, &str)] = &[
    (Stage::Connected, Stage::Active, "Hello, no session is active"),
    (Stage::Connected, Stage::Standby, "Hello, another one is active"),
    (Stage::Connected, Stage::Gone, "refused, or no Hello in time"),
    (Stage::Active, Stage::Serving, "READY"),
    (Stage::Active, Stage::Standby, "another one was ready first"),
    (Stage::Serving, Stage::Active, "NOT_READY"),
    (Stage::Standby, Stage::Active, "promoted, not ready yet"),
    (Stage::Standby, Stage::Serving, "promoted"),
    (Stage::Standby, Stage::Draining, "DRAINING, or asked to dial again"),
    (Stage::Active, Stage::Draining, "DRAINING, or asked to dial again"),
    (Stage::Serving, Stage::Draining, "DRAINING, or asked to dial again"),
    (Stage::Draining, Stage::Standby, "the driver stays after all"),
    (Stage::Draining, Stage::Active, "the driver stays after all"),
    (Stage::Draining, Stage::Serving, "the driver stays after all"),
    (Stage::Standby, Stage::Lost, "stream ended, mutations in flight"),
    (Stage::Active, Stage::Lost, "stream ended, mutations in flight"),
    (Stage::Serving, Stage::Lost, "stream ended, mutations in flight"),
    (Stage::Draining, Stage::Lost, "stream ended, mutations in flight"),
    (Stage::Standby, Stage::Gone, "stream ended"),
    (Stage::Active, Stage::Gone, "stream ended"),
    (Stage::Serving, Stage::Gone, "stream ended"),
    (Stage::Draining, Stage::Gone, "stream ended"),
    (Stage::Lost, Stage::Gone, "resumed by the next session, or not in time"),
];

/// Whether one stage may lead to another in one step.
pub(super) fn leads_to(from: Stage, to: Stage) -> bool {
    from == to || TABLE.iter().any(|(one, other, _)| *one == from && *other == to)
}

impl Hub {
    /// Where the stream of this key stands.
    pub(super) fn stage(&self, key: SessionKey) -> Stage {
        if self.guests.contains_key(&key) {
            return Stage::Connected;
        }
        if self.lost.contains_key(&key) {
            return Stage::Lost;
        }
        let Some(session) = self.sessions.get(&key) else { return Stage::Gone };
        match session.role {
            _ if session.is_draining() => Stage::Draining,
            RoleKind::Active if session.is_ready() => Stage::Serving,
            RoleKind::Active => Stage::Active,
            RoleKind::Standby | RoleKind::Unspecified => Stage::Standby,
        }
    }
}

/// The stages as a Mermaid state diagram.
pub(super) fn mermaid() -> String {
    use std::fmt::Write as _;
    let mut text = "stateDiagram-v2\n    [*] --> Connected: dialed\n".to_owned();
    for (from, to, why) in TABLE {
        let _infallible = writeln!(text, "    {from:?} --> {to:?}: {why}");
    }
    text.push_str("    Gone --> [*]\n");
    text
}

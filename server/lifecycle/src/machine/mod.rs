//! The decisions about one Machine.

use crate::{
    plan::{Next, Plan},
    snapshot::Snapshot,
};

/// Decides what to do next for a Machine.
pub fn plan(snapshot: &Snapshot) -> Plan {
    Plan {
        actions: Vec::new(),
        status: snapshot.machine.status.clone().unwrap_or_default(),
        dispatch: None,
        cancel: None,
        acknowledge: None,
        events: Vec::new(),
        next: Next::OnChange,
    }
}

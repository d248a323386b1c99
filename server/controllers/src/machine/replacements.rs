//! When machines of a MachineDeployment last failed, for its replacement budget.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use ostler_lifecycle::plan::{Action, Plan};
use parking_lot::Mutex;

use super::PassError;
use crate::writes::WriteError;

/// How long a time is kept: longer than any creation may take. This bounds the map.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// By `namespace/name` of the MachineDeployment.
#[derive(Debug, Default)]
pub(crate) struct Replacements(Mutex<HashMap<String, Timestamp>>);

impl Replacements {
    /// When a machine of this MachineDeployment last failed.
    pub(super) fn last(&self, deployment: &str) -> Option<Timestamp> {
        self.0.lock().get(deployment).copied()
    }

    /// Records that a machine of this MachineDeployment fails now. False: another one has failed since `seen`, so the
    /// plan is outdated.
    pub(super) fn claim(&self, deployment: &str, seen: Option<Timestamp>, now: Timestamp) -> bool {
        let mut last = self.0.lock();
        if last.get(deployment).copied() != seen {
            return false;
        }
        last.retain(|_, at| now.duration_since(*at) < KEPT);
        last.insert(deployment.to_owned(), now);
        true
    }

    /// Returns the claim of a plan if nothing of the plan was written. The claim stays if the write got no answer,
    /// since it may have happened.
    pub(super) fn settle(&self, deployment: &str, plan: &Plan, written: Result<bool, &PassError>) {
        let claimed = plan.actions.iter().find_map(|action| {
            if let Action::ClaimReplacement { seen, .. } = action { Some(*seen) } else { None }
        });
        let stands = match written {
            Ok(proceeds) => proceeds,
            Err(error) => matches!(error, PassError::Api { source: WriteError::NoAnswer, .. }),
        };
        let Some(seen) = claimed.filter(|_| !stands) else { return };
        let mut last = self.0.lock();
        match seen {
            Some(seen) => last.insert(deployment.to_owned(), seen),
            None => last.remove(deployment),
        };
    }
}

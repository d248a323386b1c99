//! When machines of a MachineDeployment last failed. The replacement budget itself is counted from the machines; this
//! keeps two that are due in the same moment apart, and failures from following each other while a successor is stuck.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use ostler_lifecycle::plan::{Action, Plan};
use parking_lot::Mutex;

use super::PassError;

/// How long a time is kept: longer than any creation may take. The limit bounds the map.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// By `namespace/name` of the MachineDeployment.
#[derive(Debug, Default)]
pub(crate) struct Replacements(Mutex<HashMap<String, Timestamp>>);

impl Replacements {
    /// When a machine of this MachineDeployment last failed.
    pub(super) fn last(&self, deployment: &str) -> Option<Timestamp> {
        self.0.lock().get(deployment).copied()
    }

    /// Records the failure of a machine of this MachineDeployment. False: another one has failed since `seen`, so the
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

    /// Returns the claim of a plan if nothing of the plan was written. The claim stays if the write may have happened.
    pub(super) fn settle(&self, plan: &Plan, written: Result<bool, &PassError>) {
        let claimed = plan.actions.iter().find_map(|action| {
            let Action::ClaimReplacement { deployment, seen } = action else { return None };
            Some((deployment, *seen))
        });
        let stands = match written {
            Ok(proceeds) => proceeds,
            Err(PassError::Api { source, .. }) => source.may_have_happened(),
            Err(PassError::Pruned) => true,
            Err(PassError::Outdated | PassError::Gone | PassError::NotYet(_)) => false,
        };
        let Some((deployment, seen)) = claimed.filter(|_| !stands) else { return };
        let mut last = self.0.lock();
        match seen {
            Some(seen) => last.insert(deployment.clone(), seen),
            None => last.remove(deployment),
        };
    }
}

#[cfg(test)]
mod tests {
    use ostler_api::machine::MachineStatus;
    use ostler_lifecycle::plan::Next;

    use super::*;
    use crate::client::WriteError;

    fn claiming(seen: Option<Timestamp>) -> Plan {
        Plan {
            actions: vec![Action::ClaimReplacement { deployment: "d".to_owned(), seen }],
            status: MachineStatus::default(),
            dispatch: None,
            status_waits: false,
            cancel: None,
            acknowledge: None,
            hint: None,
            events: Vec::new(),
            next: Next::OnChange,
        }
    }

    fn refused(source: WriteError) -> PassError {
        PassError::Api { what: "cannot write", source }
    }

    #[test]
    fn a_claim_is_returned_only_when_nothing_can_have_been_written() {
        let message = || "m".to_owned();
        let happened = [
            (Ok(true), true),
            (Ok(false), false),
            (Err(refused(WriteError::NoAnswer)), true),
            (Err(refused(WriteError::Lost(message()))), true),
            (Err(refused(WriteError::Internal(message()))), true),
            (Err(PassError::Pruned), true),
            (Err(refused(WriteError::Forbidden(message()))), false),
            (Err(refused(WriteError::Invalid(message()))), false),
            (Err(PassError::Outdated), false),
            (Err(PassError::Gone), false),
        ];
        let (before, now) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH + KEPT / 2);
        for (written, stays) in happened {
            let replacements = Replacements::default();
            assert!(replacements.claim("d", None, before));
            assert!(replacements.claim("d", Some(before), now));
            let written_so = written.as_ref().map(|proceeds| *proceeds);
            replacements.settle(&claiming(Some(before)), written_so);
            let last = if stays { now } else { before };
            assert_eq!(replacements.last("d"), Some(last), "{written:?}");
        }
    }
}

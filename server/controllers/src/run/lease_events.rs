//! What concerns every Machine is recorded once, on the Lease that this core leads by.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use ostler_api::names::LEADER_LEASE;

use crate::api_health::ApiTransition;
use crate::events::{EventRecord, Recorder, Severity};
use crate::home_namespace::HomeNamespace;
use crate::triggers::AllTriggers;

/// Records it, and wakes those whom it concerns.
pub(super) struct LeaseEvents {
    pub(super) all: AllTriggers,
    pub(super) recorder: Recorder,
    pub(super) home: Arc<HomeNamespace>,
}

impl LeaseEvents {
    /// The API servers stopped answering, or answer again.
    pub(super) fn api_health(&self, transition: ApiTransition) {
        match transition {
            ApiTransition::Back => {}
            ApiTransition::Frozen => self.record(
                Severity::Warning,
                "MachineHealthFrozen",
                "an API server does not answer; no machine fails meanwhile",
            ),
            ApiTransition::Unfrozen => self.record(
                Severity::Normal,
                "MachineHealthThawed",
                "the API servers answer; the outage is added to every health timeout",
            ),
        }
        self.all.tell(|it| it.health(None));
    }

    /// The API server drops fields of ours, or keeps them again.
    pub(super) fn definitions(&self, outdated: Option<&str>) {
        if let Some(what) = outdated {
            self.record(Severity::Warning, "CRDsOutdated", what);
        } else {
            let note = "every field is kept; machines continue";
            self.record(Severity::Normal, "CRDsCurrent", note);
        }
        self.all.tell(|it| it.everything());
    }

    fn record(&self, severity: Severity, reason: &'static str, note: &str) {
        let regarding = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            name: Some(LEADER_LEASE.to_owned()),
            namespace: Some(self.home.current()),
            ..ObjectReference::default()
        };
        let note = note.to_owned();
        self.recorder.record(EventRecord { regarding, severity, reason, action: "Check", note });
    }
}

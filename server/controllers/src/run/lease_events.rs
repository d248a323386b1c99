//! Events that concern every Machine are recorded once, on the Lease of this leader.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use ostler_api::names::LEADER_LEASE;

use crate::api_health::ApiTransition;
use crate::events::Recorder;
use crate::home_namespace::HomeNamespace;
use crate::telling::tell;
use crate::triggers::AllTriggers;
use ostler_lifecycle::plan::{Event, EventAction, EventReason};

/// Records the event of a Lease, and wakes the kinds concerned.
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
            ApiTransition::Frozen => {
                let note = "an API server does not answer; no machine fails meanwhile";
                self.record(Event::warning(EventReason::MachineHealthFrozen, note.to_owned()));
            }
            ApiTransition::Unfrozen => {
                let note = "the API servers answer; the outage is added to every health timeout";
                self.record(Event::normal(EventReason::MachineHealthThawed, note.to_owned()));
            }
        }
        self.all.tell(|it| it.health(None));
    }

    /// The API server drops fields of ours, or keeps them again.
    pub(super) fn definitions(&self, outdated: Option<&str>) {
        if let Some(what) = outdated {
            self.record(Event::warning(EventReason::CRDsOutdated, what.to_owned()));
        } else {
            let note = "every field is kept; machines continue";
            self.record(Event::normal(EventReason::CRDsCurrent, note.to_owned()));
        }
        self.all.tell(|it| it.everything());
    }

    fn record(&self, event: Event) {
        let regarding = ObjectReference {
            api_version: Some("coordination.k8s.io/v1".to_owned()),
            kind: Some("Lease".to_owned()),
            name: Some(LEADER_LEASE.to_owned()),
            namespace: Some(self.home.current()),
            ..ObjectReference::default()
        };
        tell(&self.recorder, regarding, event.doing(EventAction::Check));
    }
}

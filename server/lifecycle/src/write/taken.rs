//! The owner of a Machine with the name for an instance of a group.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ostler_api::{Machine, ProviderId};
use serde_json::json;

use super::{Object, TakenName};
use crate::owner::{controller, is_controlled_by};
use crate::plan::{Event, EventAction, EventReason};

/// How the Machine of an instance is told from others of its name.
#[derive(Debug, Clone, PartialEq)]
pub struct OfInstance {
    /// The reference with the pool as controller.
    pub owner: OwnerReference,
    /// The instances that the group has.
    pub there: Arc<BTreeSet<ProviderId>>,
}

impl OfInstance {
    pub(super) fn judge(&self, wanted: &Object, found: &Machine) -> TakenName {
        let name = found.name();
        let is_ours = is_controlled_by(&found.metadata, &self.owner.uid);
        let (id, has) = (wanted.machine().and_then(|it| it.provider_id()), found.instance_id());
        // For a Machine in deletion, the owner of the instance is unknown: the instance may be a newer one of the same
        // name, whose Node was not drained.
        if is_ours && has.is_none() && !found.is_deleting() {
            return TakenName::Patch(json!({ "spec": { "providerID": id } }));
        }
        match (has == id, is_ours) {
            (true, true) => TakenName::Ours,
            (true, false) => self.take_back(found),
            (false, false) => {
                TakenName::Refused(format!("{name} is the machine of another instance"))
            }
            // Of an instance before it that had the same name, and goes. If both are in the group, their names differ
            // only in characters that the name of an object cannot have: one instance gets no Machine while the other
            // is there.
            (false, true) => {
                let both = id.zip(has.filter(|has| self.there.contains(*has)));
                TakenName::Later(both.map(|(id, other)| {
                    let text =
                        format!("cannot create a machine for {id}: {name} is that of {other}");
                    Event::warning(EventReason::FailedCreate, text).doing(EventAction::Create)
                }))
            }
        }
    }

    /// The Machine of this very instance, whose reference to the pool was removed, as a deletion does that is to leave
    /// dependents alone. The Node must be drained before the instance goes, so the Machine is the pool's again.
    fn take_back(&self, found: &Machine) -> TakenName {
        if let Some(OwnerReference { kind, name: other, .. }) = controller(&found.metadata) {
            let name = found.name();
            return TakenName::Held(format!("{name} has the instance, and is of {kind}/{other}"));
        }
        let mut owners = found.metadata.owner_references.clone().unwrap_or_default();
        owners.push(self.owner.clone());
        TakenName::Patch(json!({ "metadata": { "ownerReferences": owners } }))
    }
}

//! Pods of the world, and their volumes.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::NodeCondition;
use ostler_api::{machine::DeletionCause, names};
use ostler_lifecycle::{
    plan::{Performed, PodRef},
    pod::{EvictionRefusal, PodView, RefusalCause},
    snapshot::Observed,
    volume::{AttachmentView, VolumeFacts, VolumesView},
};

use crate::machine::world::World;

impl World {
    pub(crate) fn evict_or_end(&mut self, pod: &PodRef) -> Performed {
        let (now, budgets) = (self.now, self.budgets.clone());
        let protected = self.protected.contains(&pod.name);
        let Observed::Known(pods) = &mut self.pods else { panic!("no pods") };
        let found = pods.iter_mut().find(|one| one.uid == pod.uid);
        let Some(found) = found else { return Performed::Gone };
        if protected {
            let cause = RefusalCause::Budgets(budgets.clone());
            let attempts = EvictionRefusal::count(found.refused.as_ref(), &cause, None);
            found.refused = Some(EvictionRefusal {
                at: now,
                lifted: false,
                attempts,
                retry_after: None,
                cause,
            });
            return Performed::Refused(budgets);
        }
        found.terminating = true;
        found.ends_at = Some(now + SignedDuration::from_secs(30));
        Performed::Done
    }

    pub(crate) fn remove_pod(&mut self, uid: &str) {
        let Observed::Known(pods) = &mut self.pods else { panic!("no pods") };
        pods.retain(|one| one.uid != uid);
    }

    /// Terminating pods end.
    pub fn pods_end(&mut self) {
        let Observed::Known(pods) = &mut self.pods else { panic!("no pods") };
        pods.retain(|pod| !pod.terminating);
    }

    pub(crate) fn mark_node(&mut self, name: &str, cause: &DeletionCause) {
        let mut node = self.node_of(name);
        let status = node.status.get_or_insert_default();
        status.conditions.get_or_insert_default().push(NodeCondition {
            type_: names::node_condition::TERMINATING.to_owned(),
            status: "True".to_owned(),
            reason: Some(cause.to_string()),
            ..NodeCondition::default()
        });
        self.put_node(node);
    }

    pub(crate) fn delete_attachment(&mut self, name: &str) {
        self.volumes_mut().attachments.retain(|one| one.name != name);
    }

    /// The driver's names of the volumes.
    pub(crate) fn named(&self, specs: BTreeMap<String, String>) -> BTreeMap<String, String> {
        let id = |name: &String| self.volume_ids.get(name).cloned().unwrap_or_default();
        specs.into_keys().map(|name| (name.clone(), id(&name))).collect()
    }

    /// The volumes of the API server, to be changed.
    pub fn volumes_mut(&mut self) -> &mut VolumesView {
        let Observed::Known(view) = &mut self.claims else { panic!("no volumes") };
        view
    }

    /// A pod on the Node that uses a volume, attached to the Node.
    pub fn add_pod_with_volume(&mut self, name: &str, priority: i32, volume: &str) {
        let claim = format!("apps/claim-of-{volume}");
        let facts = VolumeFacts {
            name: volume.to_owned(),
            csi_handle: Some(format!("handle-{volume}")),
            spec_json: "{}".to_owned(),
        };
        let attachment = AttachmentView {
            name: format!("csi-{volume}"),
            uid: format!("uid-csi-{volume}").into(),
            volume: Some(volume.to_owned()),
            deleting: false,
        };
        let view = self.volumes_mut();
        view.claims.insert(claim.clone(), facts);
        view.attachments.push(attachment);
        let Observed::Known(pods) = &mut self.pods else { panic!("no pods") };
        pods.push(PodView { priority, claims: vec![claim], ..pod(name) });
    }

    /// A volume leaves the Node.
    pub fn detach(&mut self, volume: &str) {
        self.volumes_mut().attachments.retain(|one| one.volume.as_deref() != Some(volume));
    }
}

pub fn pod(name: &str) -> PodView {
    PodView {
        namespace: "apps".to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{name}").into(),
        ..PodView::default()
    }
}

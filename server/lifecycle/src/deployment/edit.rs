//! The part of a MachineSet written by its MachineDeployment.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use ostler_api::bootstrap::Bootstrap;
use ostler_api::names::{API_VERSION, MACHINE_DEPLOYMENT, annotation, label};
use ostler_api::{MachineDeployment, MachineSet};

use super::counts::Fleet;
use crate::autoscaler::capacity;
use crate::template_identity::{hash, set_name};
use crate::{pool::label_value, push_down::push_down};

/// Annotations that are not copied between a deployment and its sets.
const OWN: [&str; 13] = [
    annotation::LAST_APPLIED_CONFIGURATION,
    annotation::REVISION,
    annotation::REVISION_HISTORY,
    annotation::DESIRED_REPLICAS,
    annotation::MAX_REPLICAS,
    annotation::PREFER_NO_SCHEDULE,
    annotation::UNFREEZE,
    annotation::TRIGGER_DELETION,
    annotation::CLUSTER_API_REVISION,
    annotation::COPIED_ANNOTATIONS,
    annotation::CLUSTER_API_PAUSED,
    annotation::DERIVED_CAPACITY,
    annotation::LAST_SCALING,
];

/// Whether an annotation is never copied between a deployment and its sets.
pub(super) fn is_own(key: &str) -> bool {
    OWN.contains(&key) || key.starts_with(capacity::PREFIX)
}

pub(super) fn annotations_mut(metadata: &mut ObjectMeta) -> &mut BTreeMap<String, String> {
    metadata.annotations.get_or_insert_default()
}

pub(super) fn annotate(metadata: &mut ObjectMeta, key: &str, value: &str) {
    annotations_mut(metadata).insert(key.to_owned(), value.to_owned());
}

/// Makes the new set take over what needs no rollout.
pub(super) fn sync(deployment: &MachineDeployment, set: &mut MachineSet) {
    copy_annotations(deployment, set);
    push_down(&deployment.spec.template.spec, &mut set.spec.template.spec);
    set.spec.min_ready_seconds = deployment.spec.min_ready_seconds;
    set.spec.auto_preserve_failed_machine_max = deployment.spec.auto_preserve_failed_machine_max;
}

/// Cluster API's autoscaler finds the sets by this label, and the newest set by this revision. Other controllers
/// write neither.
pub(super) fn show_to_cluster_api(deployment: &str, set: &mut MachineSet) {
    let labels = set.metadata.labels.get_or_insert_default();
    labels.insert(label::CLUSTER_API_DEPLOYMENT.to_owned(), label_value(deployment));
    if let Some(revision) = set.annotation(annotation::REVISION).map(str::to_owned) {
        annotate(&mut set.metadata, annotation::CLUSTER_API_REVISION, &revision);
    }
}

/// Copies annotations, and removes earlier copies that are gone from the deployment.
fn copy_annotations(deployment: &MachineDeployment, set: &mut MachineSet) {
    let before = set.annotation(annotation::COPIED_ANNOTATIONS).unwrap_or_default();
    let before: BTreeSet<_> = before.split(',').map(str::to_owned).collect();
    let source = deployment.metadata.annotations.iter().flatten();
    let wanted: BTreeMap<_, _> = source.filter(|(key, _)| !is_own(key)).collect();
    let annotations = annotations_mut(&mut set.metadata);
    annotations.retain(|key, _| !before.contains(key) || wanted.contains_key(key) || is_own(key));
    for (key, value) in &wanted {
        annotations.insert((*key).clone(), (*value).clone());
    }
    let copied = wanted.keys().map(|key| key.as_str()).collect::<Vec<_>>().join(",");
    if copied.is_empty() {
        annotations.remove(annotation::COPIED_ANNOTATIONS);
    } else {
        annotations.insert(annotation::COPIED_ANNOTATIONS.to_owned(), copied);
    }
}

/// An old set that still has machines learns when an autoscaler changed the replicas, or it would never delete the
/// Machines that were chosen.
pub(super) fn tell_change_time(deployment: &MachineDeployment, set: &mut MachineSet) {
    let time = deployment.annotation(annotation::REPLICAS_CHANGED_BY_SCALER);
    if let Some(time) = time.filter(|_| set.spec.replicas() > 0) {
        annotate(&mut set.metadata, annotation::REPLICAS_CHANGED_BY_SCALER, time);
    }
}

/// Scales a set, and notes for which number of replicas that was done.
pub(super) fn scale(set: &mut MachineSet, wanted: i32, fleet: &Fleet) {
    let changes = set.spec.replicas != Some(wanted);
    set.spec.replicas = Some(wanted);
    if changes || wanted > 0 {
        note_replicas(set, fleet);
    }
}

fn note_replicas(set: &mut MachineSet, fleet: &Fleet) {
    let marks = [
        (annotation::DESIRED_REPLICAS, i64::from(fleet.replicas)),
        (annotation::MAX_REPLICAS, fleet.ceiling()),
    ];
    for (key, number) in marks {
        annotate(&mut set.metadata, key, &number.to_string());
    }
}

/// A set for the template of the deployment.
pub(super) fn make(deployment: &MachineDeployment, wanted: i32, fleet: &Fleet) -> MachineSet {
    let status = deployment.status.as_ref();
    let collisions = status.and_then(|status| status.collision_count).unwrap_or_default();
    let hash = hash(&deployment.spec.template, collisions);
    let tag = (label::TEMPLATE_HASH.to_owned(), hash.clone());
    let mut template = deployment.spec.template.clone();
    // A user emptied them, or a rollback: a Machine waits for a controller that fills an empty bootstrap in.
    template.spec.bootstrap.take_if(|it| *it == Bootstrap::default());
    template.spec.version.take_if(|it| it.is_empty());
    let metadata = template.metadata.get_or_insert_default();
    let labels = metadata.labels.get_or_insert_default();
    labels.extend([tag.clone()]);
    let mut selector = deployment.spec.selector.clone().unwrap_or_default();
    selector.match_labels.get_or_insert_default().extend([tag]);
    let mut set = MachineSet {
        metadata: ObjectMeta {
            name: Some(set_name(deployment.name(), &hash, collisions)),
            namespace: deployment.metadata.namespace.clone(),
            labels: Some(labels.clone()),
            owner_references: Some(vec![owner(deployment)]),
            ..ObjectMeta::default()
        },
        ..MachineSet::default()
    };
    set.spec.template = template;
    set.spec.selector = Some::<LabelSelector>(selector);
    sync(deployment, &mut set);
    set.spec.replicas = Some(wanted);
    note_replicas(&mut set, fleet);
    set
}

/// The owner reference from a set to its deployment.
pub fn owner(deployment: &MachineDeployment) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: MACHINE_DEPLOYMENT.to_owned(),
        name: deployment.name().to_owned(),
        uid: deployment.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

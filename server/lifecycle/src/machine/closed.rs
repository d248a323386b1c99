//! Why a healthy Node takes no pods: a user or a controller cordoned it, or put a taint on it.

use k8s_openapi::api::core::v1::{Node, Taint};
use ostler_api::names::{annotation, taint};

use super::{node_notes::annotation_of, pass::Pass};

/// Taints that controllers of Kubernetes set by the conditions of a Node, and remove again.
const OF_KUBERNETES: [&str; 2] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"];
/// Taints that follow from the health of the Node, or from the cordon, which are reported separately.
const TOLD: [&str; 4] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/unschedulable",
    taint::INSTANCE_NOT_READY,
];
/// Set by the Kubernetes cluster-autoscaler on a Node that it is about to remove.
const SCALED_DOWN: &str = "ToBeDeletedByClusterAutoscaler";

/// The reason that keeps pods from the Machine's serving Node; `None`: no reason beyond the original taints and the
/// node template's.
pub(crate) fn why(pass: &Pass<'_>) -> Option<String> {
    let node = pass.serving()?;
    let spec = node.spec.as_ref()?;
    let cordoned = (spec.unschedulable == Some(true)).then(|| "is cordoned".to_owned());
    let taints = spec.taints.iter().flatten();
    let taints: Vec<_> = taints.filter(|one| is_news(pass, node, one)).map(describe).collect();
    let tainted = (!taints.is_empty()).then(|| format!("has taint {}", taints.join(", ")));
    let why: Vec<_> = cordoned.into_iter().chain(tainted).collect();
    let name = node.metadata.name.as_deref().unwrap_or_default();
    (!why.is_empty()).then(|| format!("node {name} {}", why.join(" and ")))
}

fn is_news(pass: &Pass<'_>, node: &Node, one: &Taint) -> bool {
    let template = pass.machine.spec.node_template.as_ref().and_then(|it| it.spec.as_ref());
    let mut wanted = template.into_iter().flat_map(|spec| spec.taints.iter().flatten());
    let is_wanted = wanted.any(|it| it.key == one.key && it.effect == one.effect);
    let keeps_away = ["NoSchedule", "NoExecute"].contains(&one.effect.as_str());
    let joined = annotation_of(node, annotation::JOINED_TAINTS);
    let is_new = joined.map_or_else(
        // An older core saw it join, and noted nothing.
        || is_of_controllers(&one.key) || one.key == SCALED_DOWN,
        |joined| !joined.split(',').any(|it| it == place(one)),
    );
    keeps_away && !is_wanted && !TOLD.contains(&one.key.as_str()) && is_new
}

/// Whether controllers remove the taint, so that a kubelet need not keep it.
fn is_of_controllers(key: &str) -> bool {
    let ours = [taint::INSTANCE_NOT_READY, taint::CRITICAL_COMPONENTS_NOT_READY, taint::PRESERVED];
    ours.contains(&key) || OF_KUBERNETES.iter().any(|prefix| key.starts_with(prefix))
}

fn place(one: &Taint) -> String {
    format!("{}:{}", one.key, one.effect)
}

fn describe(one: &Taint) -> String {
    let value = one.value.as_deref().filter(|value| !value.is_empty());
    let value = value.map(|value| format!("={value}")).unwrap_or_default();
    format!("{}{value}:{}", one.key, one.effect)
}

/// Notes in the first write to a Node which taints it joined with.
pub(crate) fn note_joined(pass: &mut Pass<'_>, node: &Node) {
    let first = pass.effects.node_patch(node).add_finalizer && !pass.has_run();
    if !first || annotation_of(node, annotation::JOINED_TAINTS).is_some() {
        return;
    }
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let kept = taints.filter(|one| !is_of_controllers(&one.key)).map(place);
    let kept = kept.collect::<Vec<_>>().join(",");
    let key = annotation::JOINED_TAINTS.to_owned();
    pass.effects.node_patch(node).annotations.insert(key, Some(kept));
}

//! A rollout's marks on Nodes: pods prefer the new Nodes, and autoscalers leave all of them alone.

use k8s_openapi::api::core::v1::{Node, Taint};
use ostler_api::names::annotation;
use serde_json::{Map, Value, json};

use super::snapshot::{MachineView, SetView};

/// The value of the marks.
const TRUE: &str = "True";
const EFFECT: &str = "PreferNoSchedule";

/// The wanted marks on the Nodes of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Whether pods prefer other Nodes; `None`: no change.
    pub tainted: Option<bool>,
    /// Whether autoscalers keep from deleting the Node; `None`: no change.
    pub guarded: Option<bool>,
}

/// The merge patch that brings the Node to `wanted`; `None`: no change.
pub fn patch(view: &MachineView, wanted: Wanted) -> Option<Value> {
    let node = view.node.as_deref().filter(|_| !view.machine.is_deleting())?;
    let taints = wanted.tainted.and_then(|tainted| taints(node, tainted));
    let annotations = wanted.guarded.map(|guarded| guard(view, node, guarded)).unwrap_or_default();
    if taints.is_none() && annotations.is_empty() {
        return None;
    }
    let mut patch = json!({ "metadata": { "resourceVersion": node.metadata.resource_version } });
    let map = patch.as_object_mut()?;
    if let Some(taints) = taints {
        map.insert("spec".to_owned(), json!({ "taints": taints }));
    }
    if !annotations.is_empty() {
        map.get_mut("metadata")?
            .as_object_mut()?
            .insert("annotations".to_owned(), annotations.into());
    }
    Some(patch)
}

fn is_ours(taint: &Taint) -> bool {
    taint.key == annotation::PREFER_NO_SCHEDULE && taint.effect == EFFECT
}

fn taints(node: &Node, tainted: bool) -> Option<Vec<Taint>> {
    let mut taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    if taints.iter().any(is_ours) == tainted {
        return None;
    }
    if tainted {
        taints.push(Taint {
            key: annotation::PREFER_NO_SCHEDULE.to_owned(),
            value: Some(TRUE.to_owned()),
            effect: EFFECT.to_owned(),
            time_added: None,
        });
    } else {
        taints.retain(|taint| !is_ours(taint));
    }
    Some(taints)
}

/// The pair of annotations. The user's own annotation is left alone, and so is a preserved
/// Machine's.
fn guard(view: &MachineView, node: &Node, guarded: bool) -> Map<String, Value> {
    let has = |key| node.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(key));
    let pair = [annotation::SCALE_DOWN_DISABLED, annotation::SCALE_DOWN_DISABLED_BY_US];
    let status = view.machine.status.as_ref();
    let current = status.and_then(|status| status.current_status.as_ref());
    let preserved = current.is_some_and(|current| current.preserve_expiry_time.is_some());
    let value = match guarded {
        true if !has(annotation::SCALE_DOWN_DISABLED) => json!("true"),
        false if has(annotation::SCALE_DOWN_DISABLED_BY_US) && !preserved => Value::Null,
        _ => return Map::new(),
    };
    pair.into_iter().map(|key| (key.to_owned(), value.clone())).collect()
}

/// Whether every Node of a set that is known says so already.
pub fn all_tainted(set: &SetView, tainted: bool) -> bool {
    let wanted = Wanted { tainted: Some(tainted), guarded: None };
    set.machines.iter().all(|view| patch(view, wanted).is_none())
}

/// The annotation of a set whose Nodes are tainted.
pub(super) const MARK: (&str, &str) = (annotation::PREFER_NO_SCHEDULE, TRUE);

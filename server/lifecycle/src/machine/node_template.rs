//! The wanted content of a Machine's Node: labels, annotations, taints, and the virtual capacity of the class. A
//! three-way merge of the wanted entries, the last applied entries and the current entries, so that the entries of
//! others stay.
//!
//! Labels and annotations are kept as they are wanted. A taint is put on the Node once, when it is
//! new in the template: a controller that removes it afterwards (because it was a start-up
//! taint) had a reason, and it comes back only when the template changes it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Taint};
use ostler_api::{
    machine::{MachineConditionType, NodeTemplate},
    names::{self, annotation, label},
};
use ostler_quantity::Quantity;
use serde_json::{Value, json};

use super::{conditions, node_notes, pass::Pass, preserving};
use crate::plan::{EventReason, NodePatch};
use crate::snapshot::ClassView;
use crate::well_formed;

type Map = BTreeMap<String, String>;

/// The part of a template that reaches a Node.
#[derive(Debug, Clone, Default, PartialEq)]
struct Wanted {
    labels: Map,
    annotations: Map,
    taints: Vec<Taint>,
}

impl Wanted {
    fn of(template: &NodeTemplate) -> Self {
        let metadata = template.metadata.clone().unwrap_or_default();
        let taints = template.spec.as_ref().and_then(|spec| spec.taints.clone());
        let mut wanted = Self {
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            taints: Vec::new(),
        };
        // Only the core writes these keys, whatever a template says.
        wanted.labels.retain(|key, _| key != label::MACHINE_NAME);
        wanted.annotations.retain(|key, _| !OURS.contains(&key.as_str()));
        for taint in taints.unwrap_or_default() {
            if !wanted.taints.iter().any(|other| same_place(other, &taint)) {
                // The time when a taint was added is no part of the wish.
                wanted.taints.push(Taint { time_added: None, ..taint });
            }
        }
        wanted
    }

    /// Removes and names entries that no API server would accept. One bad label must not keep the rest of the template,
    /// or the health of the Machine, from the Node.
    fn refuse_malformed(&mut self) -> Vec<String> {
        let mut refused = Vec::new();
        let mut keep = |good: bool, name: String| {
            if !good {
                refused.push(name);
            }
            good
        };
        self.labels.retain(|key, value| {
            let good = well_formed::key(key) && well_formed::label_value(value);
            keep(good, format!("label {key}"))
        });
        self.annotations.retain(|key, _| {
            // An API server lowers the key of an annotation before it looks at it.
            keep(well_formed::key(&key.to_ascii_lowercase()), format!("annotation {key}"))
        });
        self.taints.retain(|taint| {
            let value = taint.value.as_deref().unwrap_or_default();
            let good = well_formed::key(&taint.key)
                && well_formed::label_value(value)
                && well_formed::taint_effect(&taint.effect);
            keep(good, format!("taint {}:{}", taint.key, taint.effect))
        });
        refused
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn to_json(&self) -> String {
        let mut metadata = serde_json::Map::new();
        if !self.labels.is_empty() {
            metadata.insert("labels".to_owned(), json!(self.labels));
        }
        if !self.annotations.is_empty() {
            metadata.insert("annotations".to_owned(), json!(self.annotations));
        }
        let mut template = serde_json::Map::new();
        template.insert("metadata".to_owned(), Value::Object(metadata));
        let spec =
            if self.taints.is_empty() { json!({}) } else { json!({ "taints": self.taints }) };
        template.insert("spec".to_owned(), spec);
        Value::Object(template).to_string()
    }
}

/// Annotations of a Node with notes of this core.
const OURS: [&str; 6] = [
    annotation::LAST_APPLIED_NODE_TEMPLATE,
    annotation::REPLACED_BY_TEMPLATE,
    annotation::LAST_APPLIED_VIRTUAL_CAPACITY,
    annotation::CLUSTER_ID,
    annotation::MACHINE_OF_NODE,
    annotation::CLUSTER_NAMESPACE,
];

/// A taint is known by key and effect; its value may change.
fn same_place(one: &Taint, other: &Taint) -> bool {
    one.key == other.key && one.effect == other.effect
}

fn same_taint(one: &Taint, other: &Taint) -> bool {
    let value = |taint: &Taint| taint.value.clone().unwrap_or_default();
    same_place(one, other) && value(one) == value(other)
}

/// Brings the Node to the wanted content, within the write of this pass.
pub(crate) fn apply(pass: &mut Pass<'_>, node: &Node) {
    let mut wanted = pass.machine.spec.node_template.as_ref().map(Wanted::of).unwrap_or_default();
    let mut refused = wanted.refuse_malformed();
    let capacity = wanted_capacity(pass, &mut refused);
    let complaint = (!refused.is_empty()).then(|| {
        format!("not put on the node, as no API server takes them: {}", refused.join(", "))
    });
    let (type_, event) =
        (MachineConditionType::NodeTemplateRefused, EventReason::NodeTemplateRefused);
    conditions::set_complaint(pass, &type_, "Malformed", event, complaint);
    let last = noted(node, annotation::LAST_APPLIED_NODE_TEMPLATE);
    let replaced = replaced(node, last.as_ref(), &wanted);
    note(pass, node, annotation::LAST_APPLIED_NODE_TEMPLATE, last.as_ref(), &wanted);
    let mut last = last.unwrap_or_default();
    if preserving::until(pass).is_some() {
        // Preservation decides about the annotation meanwhile, and removes it at its end if the template does not want
        // it any more.
        let key = annotation::SCALE_DOWN_DISABLED;
        if last.annotations.contains_key(key) && !wanted.annotations.contains_key(key) {
            let mark = annotation::SCALE_DOWN_DISABLED_BY_US.to_owned();
            pass.effects.node_patch(node).annotations.insert(mark, Some("true".to_owned()));
        }
        for set in [&mut last, &mut wanted] {
            set.annotations.remove(key);
        }
    }
    replace(pass, node, (&last, &wanted), &replaced);
    if let Some(capacity) = capacity {
        apply_capacity(pass, node, &capacity);
    }
}

/// Puts only the taints of the template on another Node of the instance.
pub(crate) fn apply_taints(pass: &mut Pass<'_>, node: &Node) {
    let mut wanted = pass.machine.spec.node_template.as_ref().map(Wanted::of).unwrap_or_default();
    wanted.refuse_malformed();
    (wanted.labels, wanted.annotations) = (Map::new(), Map::new());
    let last = noted(node, annotation::LAST_APPLIED_NODE_TEMPLATE);
    let replaced = replaced(node, last.as_ref(), &wanted);
    note(pass, node, annotation::LAST_APPLIED_NODE_TEMPLATE, last.as_ref(), &wanted);
    replace(pass, node, (&last.unwrap_or_default(), &wanted), &replaced);
}

/// Reads a note on the Node. An unreadable note counts as absent; it is written anew.
fn noted(node: &Node, key: &str) -> Option<Wanted> {
    let noted = node_notes::annotation_of(node, key)?;
    serde_json::from_str::<NodeTemplate>(noted).ok().as_ref().map(Wanted::of)
}

/// Values of others on the Node where the template has other values. A former value of the template is not another's.
fn replaced(node: &Node, last: Option<&Wanted>, wanted: &Wanted) -> Wanted {
    let before = noted(node, annotation::REPLACED_BY_TEMPLATE).unwrap_or_default();
    // A note that cannot be read says nothing of whose a value is.
    let unread = last.is_none()
        && node_notes::annotation_of(node, annotation::LAST_APPLIED_NODE_TEMPLATE).is_some();
    let none = Wanted::default();
    let last = last.unwrap_or(&none);
    let old = |there: Option<&Map>, wanted: &Map, last: &Map, before: &Map| {
        let new = |key: &String| {
            let value = there?.get(key)?;
            let others = !unread && !last.contains_key(key) && wanted.get(key) != Some(value);
            others.then(|| value.clone())
        };
        let value = |key: &String| before.get(key).cloned().or_else(|| new(key));
        wanted.keys().filter_map(|key| Some((key.clone(), value(key)?))).collect()
    };
    let there = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let taint = |one: &Taint| {
        let at = |all: &[Taint]| all.iter().find(|it| same_place(it, one)).cloned();
        let new = || at(&there).filter(|it| !unread && !same_taint(it, one));
        at(&before.taints).or_else(|| new().filter(|_| at(&last.taints).is_none()))
    };
    let meta = &node.metadata;
    Wanted {
        labels: old(meta.labels.as_ref(), &wanted.labels, &last.labels, &before.labels),
        annotations: old(
            meta.annotations.as_ref(),
            &wanted.annotations,
            &last.annotations,
            &before.annotations,
        ),
        taints: wanted.taints.iter().filter_map(taint).collect(),
    }
}

/// Brings the Node from the last wanted state to the current one, and notes the values of others.
fn replace(pass: &mut Pass<'_>, node: &Node, (last, wanted): (&Wanted, &Wanted), now: &Wanted) {
    let before = noted(node, annotation::REPLACED_BY_TEMPLATE);
    note(pass, node, annotation::REPLACED_BY_TEMPLATE, before.as_ref(), now);
    let before = before.unwrap_or_default();
    sync(pass.effects.node_patch(node), node, (last, wanted), &before);
}

/// The value of a label that Kubernetes itself puts on every Node: a core without this note replaced the value for
/// good.
fn of_kubernetes(node: &Node, key: &str) -> Option<String> {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    match key {
        "kubernetes.io/hostname" => node.metadata.name.clone(),
        "kubernetes.io/os" | "beta.kubernetes.io/os" => Some(info?.operating_system.clone()),
        "kubernetes.io/arch" | "beta.kubernetes.io/arch" => Some(info?.architecture.clone()),
        _ => None,
    }
}

fn note(pass: &mut Pass<'_>, node: &Node, key: &str, last: Option<&Wanted>, wanted: &Wanted) {
    let new = if wanted.is_empty() {
        node_notes::annotation_of(node, key).map(|_| None)
    } else {
        (last != Some(wanted)).then(|| Some(wanted.to_json()))
    };
    if let Some(new) = new {
        pass.effects.node_patch(node).annotations.insert(key.to_owned(), new);
    }
}

fn sync(patch: &mut NodePatch, node: &Node, (last, wanted): (&Wanted, &Wanted), before: &Wanted) {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let before_that =
        |key: &str| before.labels.get(key).cloned().or_else(|| of_kubernetes(node, key));
    patch.labels.extend(changes(&labels, &last.labels, &wanted.labels, before_that));
    let annotations = node.metadata.annotations.clone().unwrap_or_default();
    let before_that = |key: &str| before.annotations.get(key).cloned();
    let changes = changes(&annotations, &last.annotations, &wanted.annotations, before_that);
    patch.annotations.extend(changes);
    let old = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let new = taints(patch.taints.clone().unwrap_or_else(|| old.clone()), last, wanted, before);
    if new != old {
        patch.taints = Some(new);
    }
}

/// Values to set, and with `None` to remove. `before`: values of others before the template.
fn changes(
    there: &Map,
    last: &Map,
    wanted: &Map,
    before: impl Fn(&str) -> Option<String>,
) -> BTreeMap<String, Option<String>> {
    let gone = last.keys().filter(|key| !wanted.contains_key(*key) && there.contains_key(*key));
    let set = wanted.iter().filter(|(key, value)| there.get(*key) != Some(value));
    gone.map(|key| (key.clone(), before(key)))
        .chain(set.map(|(key, value)| (key.clone(), Some(value.clone()))))
        .collect()
}

/// Existing taints keep their order; new taints follow in the order of the template.
fn taints(mut there: Vec<Taint>, last: &Wanted, wanted: &Wanted, before: &Wanted) -> Vec<Taint> {
    there.retain_mut(|taint| {
        let at = |all: &[Taint]| all.iter().find(|one| same_place(one, taint)).cloned();
        if at(&last.taints).is_none() || at(&wanted.taints).is_some() {
            return true;
        }
        let old = at(&before.taints);
        old.map(|old| taint.value = old.value).is_some()
    });
    for taint in &wanted.taints {
        // A Node in reserve has no set: it stays closed though a client takes the taint away.
        let stays = taint.key == names::taint::RESERVE;
        if !stays && last.taints.iter().any(|one| same_taint(one, taint)) {
            continue;
        }
        match there.iter_mut().find(|one| same_place(one, taint)) {
            Some(one) if same_taint(one, taint) => {}
            Some(one) => one.value.clone_from(&taint.value),
            None => there.push(taint.clone()),
        }
    }
    there
}

/// Capacity that no kubelet reports, such as of a licence, from the class of the Machine, if that is known. Names what no
/// API server would accept: it would keep every condition from the Node.
fn wanted_capacity(pass: &Pass<'_>, refused: &mut Vec<String>) -> Option<Map> {
    let ClassView::Known(class) = &pass.snap.class else { return None };
    let mut wanted = class.virtual_capacity.clone();
    wanted.retain(|key, value| {
        let good = well_formed::capacity(key, value);
        if !good {
            refused.push(format!("virtual capacity {key}: {value}"));
        }
        good
    });
    Some(wanted)
}

/// The status is written first and its note in the next pass: between the two, nothing is lost.
fn apply_capacity(pass: &mut Pass<'_>, node: &Node, wanted: &Map) {
    let key = annotation::LAST_APPLIED_VIRTUAL_CAPACITY;
    let noted = node_notes::annotation_of(node, key);
    let last: BTreeMap<String, Value> =
        noted.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let capacity = node.status.as_ref().and_then(|status| status.capacity.clone());
    let there = capacity.unwrap_or_default();
    let gone = last.keys().filter(|key| !wanted.contains_key(*key) && there.contains_key(*key));
    let set = wanted.iter().filter(|(key, value)| {
        there.get(*key).is_none_or(|is| Quantity::parse(&is.0) != Quantity::parse(value))
    });
    let changes: BTreeMap<_, _> = gone
        .map(|key| (key.clone(), None))
        .chain(set.map(|(key, value)| (key.clone(), Some(value.clone()))))
        .collect();
    if !changes.is_empty() {
        let write = &mut pass.effects.node(node).status;
        write.capacity = changes;
        return;
    }
    let note = (!wanted.is_empty()).then(|| json!(wanted).to_string());
    let same = last.len() == wanted.len()
        && wanted.iter().all(|(key, value)| last.get(key).and_then(Value::as_str) == Some(value));
    if note.is_some() != noted.is_some() || (note.is_some() && !same) {
        pass.effects.node_patch(node).annotations.insert(key.to_owned(), note);
    }
}

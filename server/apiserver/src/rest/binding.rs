//! `/binding` of pods, as a scheduler uses it, and `/finalize` of namespaces.

use serde_json::{Value, json};

use super::{
    Api, Target,
    metadata::time,
    stored::{meta_text, metadata},
};
use crate::kinds::{
    access::{object_in, preset, remove, set, text},
    field::{self, FieldError},
    status::{Answer, Status},
};

/// The node that a Binding names.
///
/// # Errors
/// It names none, or something else (500, as Kubernetes has it).
fn node(binding: &Value) -> Answer<String> {
    let kind = text(binding, "/target/kind");
    if !matches!(kind, "" | "Node") {
        let known = ["Node", "<empty>"];
        let error = FieldError::not_supported("target.kind", &json!(kind), &known);
        return Err(Status::unknown(error.to_string()));
    }
    let name = text(binding, "/target/name");
    if name.is_empty() {
        return Err(Status::unknown(FieldError::required("target.name", "").to_string()));
    }
    Ok(name.to_owned())
}

/// Binds a pod to a node.
///
/// # Errors
/// It is bound already, or being deleted (409).
fn bind(pod: &mut Value, binding: &Value, node: &str, now: jiff::Timestamp) -> Answer<()> {
    let name = meta_text(pod, "name").to_owned();
    let conflict = |why: &str| Err(Status::conflict_on("pods/binding", &name, why));
    if !meta_text(pod, "deletionTimestamp").is_empty() {
        return conflict(&format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let bound = text(pod, "/spec/nodeName");
    if !bound.is_empty() {
        let bound = field::quote(bound);
        return conflict(&format!("pod {name} is already assigned to node {bound}"));
    }
    if let Some(spec) = pod.get_mut("spec") {
        set(spec, "nodeName", node);
    }
    let annotations = metadata(binding).and_then(|metadata| metadata.get("annotations"));
    if let Some(annotations) = annotations.filter(|annotations| annotations.is_object()) {
        let changes = json!({"metadata": {"annotations": annotations}});
        crate::kinds::patch::merge(pod, &changes);
    }
    set_condition(
        pod,
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": time(now)}),
    );
    Ok(())
}

/// Puts a condition into a pod's status, in the place of the one of its type.
pub(crate) fn set_condition(pod: &mut Value, condition: Value) {
    let Some(status) = object_in(pod, "status") else { return };
    preset(status, "conditions", json!([]));
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    let Some(conditions) = conditions else { return };
    match conditions.iter_mut().find(|other| other.get("type") == condition.get("type")) {
        Some(other) if other.get("status") == condition.get("status") => {
            // The same again is no transition.
            let since = other.get("lastTransitionTime").cloned();
            *other = condition;
            if let Some(since) = since {
                set(other, "lastTransitionTime", since);
            }
        }
        Some(other) => *other = condition,
        None => conditions.push(condition),
    }
}

impl Api {
    /// Binds a pod to the node that `binding` names.
    ///
    /// # Errors
    /// The binding is malformed, or the pod is missing or bound.
    pub(crate) async fn bind(
        &self,
        target: &Target,
        binding: &Value,
        dry_run: bool,
    ) -> Answer<Status> {
        let node = node(binding)?;
        let now = self.now();
        self.transform(target, dry_run, |pod| bind(pod, binding, &node, now)).await?;
        Ok(Status::created())
    }

    /// Sets the finalizers of a namespace; without any, a namespace that ends is gone.
    ///
    /// # Errors
    /// There is no such namespace, or the version named is stale.
    pub(crate) async fn finalize(
        &self,
        target: &Target,
        wanted: &Value,
        dry_run: bool,
    ) -> Answer<Value> {
        let finalizers = wanted.pointer("/spec/finalizers").cloned();
        let version = meta_text(wanted, "resourceVersion");
        self.transform(target, dry_run, |namespace| {
            if !matches!(version, "" | "0") && version != meta_text(namespace, "resourceVersion") {
                return Err(Status::stale(&target.resource, &target.name));
            }
            let empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
            let Some(spec) = object_in(namespace, "spec") else { return Ok(()) };
            match finalizers.clone().filter(|list| !empty(list)) {
                Some(list) => set(spec, "finalizers", list),
                None => remove(spec, "finalizers"),
            }
            Ok(())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_bound_once() {
        let mut pod = json!({"metadata": {"name": "p"}, "spec": {}});
        let binding = json!({"metadata": {"annotations": {"note": "1"}}, "target": {"name": "n"}});
        let now = jiff::Timestamp::UNIX_EPOCH;
        bind(&mut pod, &binding, "n", now).unwrap();
        assert_eq!(pod["spec"]["nodeName"], "n");
        assert_eq!(pod["metadata"]["annotations"]["note"], "1");
        assert_eq!(pod["status"]["conditions"][0]["type"], "PodScheduled");
        let status = bind(&mut pod, &binding, "m", now).unwrap_err();
        assert_eq!(
            status.message,
            "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
        );
    }

    #[test]
    fn a_binding_must_name_a_node() {
        let refused = |binding: Value| node(&binding).unwrap_err().message;
        assert_eq!(refused(json!({"target": {}})), "target.name: Required value");
        assert_eq!(
            refused(json!({"target": {"kind": "Pod", "name": "x"}})),
            "target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\""
        );
        assert_eq!(node(&json!({"target": {"kind": "Node", "name": "n"}})).unwrap(), "n");
    }
}

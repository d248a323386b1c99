//! The priority of a new pod: that of its PriorityClass.

use serde_json::{Value, json};

use super::{Api, Target, is, stored::meta_text};
use crate::{
    kinds::{
        BuiltIn,
        access::{flag, number, preset, set, text},
        status::{Answer, Status},
    },
    store::Prefix,
};

const NEVER_LESS: &str = "PreemptLowerPriority";

impl Api {
    /// Gives a pod the priority of the class that it names, or of the one for pods that name none.
    ///
    /// # Errors
    /// There is no such class, or the pod wants another priority than that of its class (403).
    pub(crate) fn prioritize(&self, target: &Target, pod: &mut Value) -> Answer<()> {
        if !is(&target.resource, BuiltIn::Pod) {
            return Ok(());
        }
        let name = text(pod, "/spec/priorityClassName").to_owned();
        let Some(class) = self.class(&name) else {
            if name.is_empty() {
                return Ok(());
            }
            return Err(refused(
                target,
                pod,
                &format!("no PriorityClass with name {name} was found"),
            ));
        };
        let (value, policy) =
            (number(&class, "/value").unwrap_or(0), text(&class, "/preemptionPolicy"));
        let policy = if policy.is_empty() { NEVER_LESS } else { policy };
        for (what, field, ours) in [
            ("integer value of priority", "priority", json!(value)),
            ("string value of PreemptionPolicy", "preemptionPolicy", json!(policy)),
        ] {
            let Some(given) = pod.pointer(&format!("/spec/{field}")).filter(|it| **it != ours)
            else {
                continue;
            };
            let shown =
                |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            return Err(refused(
                target,
                pod,
                &format!(
                    "the {what} ({}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
                    shown(given),
                    shown(&ours)
                ),
            ));
        }
        if let Some(spec) = pod.get_mut("spec") {
            preset(spec, "priorityClassName", text(&class, "/metadata/name"));
            set(spec, "priority", value);
            set(spec, "preemptionPolicy", policy);
        }
        Ok(())
    }

    /// The class of this name; for the empty name the lowest one that is the default of all.
    fn class(&self, name: &str) -> Option<Value> {
        let system =
            [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
        if let Some((name, value)) = system.iter().find(|(known, _)| *known == name) {
            return Some(json!({"metadata": {"name": name}, "value": value}));
        }
        let classes = Prefix::namespace("scheduling.k8s.io", "priorityclasses", "");
        let all = self.context.store.list(&classes, None, None).records;
        let all = all.iter().filter_map(|record| record.object().ok());
        let fits = |class: &Value| {
            if name.is_empty() {
                flag(class, "/globalDefault")
            } else {
                meta_text(class, "name") == name
            }
        };
        all.filter(fits).min_by_key(|class| number(class, "/value"))
    }
}

fn refused(target: &Target, pod: &Value, why: &str) -> Box<Status> {
    Status::forbidden(&target.resource, meta_text(pod, "name"), why)
}

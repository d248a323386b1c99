//! The rules of a set before any action.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use ostler_api::{MachineSet, machine_set::MachineTemplateSpec, names::label::TEMPLATE_HASH};

use crate::{class_rules, copies, selector};

/// The rules that the spec of a set breaks, for people.
pub fn broken(set: &MachineSet, has_machines: bool) -> Vec<String> {
    let spec = &set.spec;
    let mut broken = Vec::new();
    for (field, number) in [
        ("replicas", Some(spec.replicas())),
        ("minReadySeconds", spec.min_ready_seconds),
        ("autoPreserveFailedMachineMax", spec.auto_preserve_failed_machine_max),
    ] {
        if let Some(number) = number.filter(|number| *number < 0) {
            broken.push(format!("spec.{field} is {number}, and has to be 0 or more"));
        }
    }
    broken.extend(template_rules(spec.selector.as_ref(), &spec.template));
    broken.extend(copies::refused(&set.metadata, &spec.template.spec));
    if has_machines && selector_changed(set) {
        broken.push(
            "spec.selector was changed, and the set has Machines: put it back, or delete the set with \
             --cascade=orphan and create another one"
                .to_owned(),
        );
    }
    broken
}

/// The rules that selector and template of a MachineSet break. The rules for MachineDeployments are in
/// `deployment/valid.rs`.
pub fn template_rules(
    selector: Option<&LabelSelector>,
    template: &MachineTemplateSpec,
) -> Vec<String> {
    let mut broken = Vec::new();
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    match selector {
        None => broken.push("spec.selector is missing".to_owned()),
        Some(selector) if selector::is_empty(selector) => {
            broken.push("spec.selector is empty, and would select every Machine".to_owned());
        }
        Some(selector) if !selector::matches(selector, labels) => {
            let text = selector::text(selector);
            broken.push(format!(
                "spec.selector {text:?} does not match spec.template.metadata.labels"
            ));
        }
        Some(_) => {}
    }
    broken.extend(class_rules::unnamed(&template.spec.class));
    broken
}

/// Whether the selector is another one than the set had. A MachineDeployment that takes over a set adds the template
/// hash.
fn selector_changed(set: &MachineSet) -> bool {
    let last = set.status.as_ref().and_then(|status| status.selector.as_deref());
    let (Some(last), Some(now)) = (last, &set.spec.selector) else { return false };
    let mut without_hash = now.clone();
    if let Some(labels) = &mut without_hash.match_labels {
        labels.remove(TEMPLATE_HASH);
    }
    last != selector::text(now) && last != selector::text(&without_hash)
}

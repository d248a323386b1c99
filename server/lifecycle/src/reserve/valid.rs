//! What a reserve and its target have to be like before a Machine is made, as far as the definition cannot say it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::{MachineReserve, machine_set::MachineTemplateSpec};

use super::{Facts, ReserveTarget, Snapshot, size::size, template::labels};
use crate::{selector, set};

/// Reason of condition `Valid` where the spec of the reserve is wrong.
const REFUSED: &str = "ValidationFailed";

/// The first thing that is wrong: a reason, and what to do.
pub(super) fn broken(snapshot: &Snapshot) -> Option<(&'static str, String)> {
    let reserve = &snapshot.reserve;
    let target = &reserve.spec.target_ref;
    let (kind, name) = (&target.kind, &target.name);
    if let Some(text) = of_spec(reserve) {
        return Some((REFUSED, text));
    }
    if let ReserveTarget::Unknown(why) = &snapshot.target {
        return Some(("TargetUnknown", why.clone()));
    }
    let Some(facts) = snapshot.target.facts() else {
        let text = format!("there is no {kind} {name} in this namespace, or it is being deleted");
        return Some(("TargetNotFound", text));
    };
    of_target(snapshot, &facts).map(|(reason, text)| (reason, format!("{kind} {name}: {text}")))
}

fn of_spec(reserve: &MachineReserve) -> Option<String> {
    let spec = &reserve.spec;
    let (meta, template) = (&ObjectMeta::default(), &MachineTemplateSpec::default());
    let any = Facts { meta, replicas: Some(1), selector: None, template };
    if size(reserve, &any).is_none() {
        let given = serde_json::to_string(&spec.replicas).unwrap_or_default();
        return Some(format!(
            "spec.replicas is {given}: write a number such as 2, or a percentage of the target's such as 10%"
        ));
    }
    None
}

fn of_target(snapshot: &Snapshot, target: &Facts<'_>) -> Option<(&'static str, String)> {
    let mut rules = set::template_rules(target.selector, target.template);
    let bootstrap = target.template.spec.bootstrap.as_ref();
    if bootstrap.is_some_and(|it| it.config_ref.is_some()) {
        let text =
            "spec.template.spec.bootstrap.configRef: a reserve makes no copies of a template";
        rules.push(text.to_owned());
    }
    if !rules.is_empty() {
        return Some(("TargetRefused", rules.join("; ")));
    }
    let own = labels(&snapshot.reserve, target);
    if target.selector.is_some_and(|it| selector::matches(it, Some(&own))) {
        let text =
            "spec.selector selects machines in reserve, too: let it ask for a label of its own";
        return Some(("TargetRefused", text.to_owned()));
    }
    if !snapshot.has_class {
        let class = &target.template.spec.class.name;
        let text = format!("there is no MachineClass {class} of its template in this namespace");
        return Some(("ClassNotFound", text));
    }
    if target.replicas.is_none() {
        return Some(("TargetUnknown", "spec.replicas is not filled in yet".to_owned()));
    }
    None
}

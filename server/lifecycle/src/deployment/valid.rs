//! The faults of a MachineDeployment.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::machine_deployment::{MachineDeploymentStrategy, OrchestrationType, StrategyType};
use ostler_api::{MachineDeployment, MachineSet};

use super::fenceposts;
use super::snapshot::SetView;
use crate::{class_rules, copies, selector};

/// Every broken rule, for people; while there is one, nothing is changed. An empty selector is not listed: it has
/// its own event.
pub fn problems(deployment: &MachineDeployment, sets: &[SetView]) -> Vec<String> {
    let mut found = Vec::new();
    let spec = &deployment.spec;
    if spec.replicas() < 0 {
        found.push(negative("replicas", spec.replicas()));
    }
    let numbers = [
        ("minReadySeconds", spec.min_ready_seconds),
        ("revisionHistoryLimit", spec.revision_history_limit),
        ("progressDeadlineSeconds", spec.progress_deadline_seconds),
        ("autoPreserveFailedMachineMax", spec.auto_preserve_failed_machine_max),
    ];
    let given = numbers.into_iter().filter_map(|(name, number)| Some((name, number?)));
    found.extend(given.filter(|it| it.1 < 0).map(|(name, number)| negative(name, number)));
    found.extend(class_rules::unnamed(&spec.template.spec.class));
    found.extend(copies::refused(&deployment.metadata, &spec.template.spec));
    check_strategy(deployment, &mut found);
    match &spec.selector {
        None => found.push("spec.selector is missing".to_owned()),
        Some(selector) => check_selector(deployment, selector, sets, &mut found),
    }
    found
}

fn negative(name: &str, number: i32) -> String {
    format!("spec.{name} is {number}: it has to be 0 or more")
}

const STRATEGIES: &str = "it has to be RollingUpdate, Recreate or InPlaceUpdate";

/// All that is wrong at once: each change of a deployment takes a user a while.
fn check_strategy(deployment: &MachineDeployment, found: &mut Vec<String>) {
    let MachineDeploymentStrategy { type_, rolling_update, in_place_update } =
        &deployment.spec.strategy;
    let (mut rolls, mut in_place) = (rolling_update.is_some(), in_place_update.is_some());
    match type_ {
        Some(StrategyType::RollingUpdate) => (rolls, in_place) = (true, false),
        Some(StrategyType::InPlaceUpdate) => (rolls, in_place) = (false, true),
        Some(StrategyType::Recreate) => return,
        Some(StrategyType::Other(other)) => {
            found.push(format!("spec.strategy.type is \"{other}\": {STRATEGIES}"));
        }
        None => found.push(format!("spec.strategy.type is missing: {STRATEGIES}")),
    }
    if rolls {
        let block = rolling_update.as_ref();
        let numbers = block.map(|it| (it.max_surge.as_ref(), it.max_unavailable.as_ref()));
        check_numbers("rollingUpdate", "maxSurge and maxUnavailable", numbers, found);
    }
    if in_place {
        let block = in_place_update.as_ref();
        let numbers = block.map(|it| (it.max_surge.as_ref(), it.max_unavailable.as_ref()));
        let fields = "maxSurge, maxUnavailable and orchestrationType (Auto or Manual)";
        check_numbers("inPlaceUpdate", fields, numbers, found);
        let chooser = block.and_then(|it| it.orchestration_type.as_ref());
        let known = matches!(chooser, Some(OrchestrationType::Auto | OrchestrationType::Manual));
        if block.is_some() && !known {
            let text = "spec.strategy.inPlaceUpdate.orchestrationType has to be Auto or Manual";
            found.push(text.to_owned());
        }
    }
}

fn check_numbers(
    block: &str,
    fields: &str,
    numbers: Option<(Option<&IntOrString>, Option<&IntOrString>)>,
    found: &mut Vec<String>,
) {
    let Some((surge, unavailable)) = numbers else {
        return found.push(format!("spec.strategy.{block} is missing: set {fields} in it"));
    };
    for (name, value) in [("maxSurge", surge), ("maxUnavailable", unavailable)] {
        let what = format!("spec.strategy.{block}.{name}");
        match value {
            None => found.push(format!("{what} is missing")),
            Some(value) if fenceposts::resolve(value, 100, true).is_none() => {
                let value = match value {
                    IntOrString::Int(number) => number.to_string(),
                    IntOrString::String(text) => format!("\"{text}\""),
                };
                found.push(format!("{what} is {value}: it has to be a number or a percentage"));
            }
            Some(_) => {}
        }
    }
}

fn check_selector(
    deployment: &MachineDeployment,
    selector: &LabelSelector,
    sets: &[SetView],
    found: &mut Vec<String>,
) {
    if selector::is_empty(selector) {
        return;
    }
    let metadata = deployment.spec.template.metadata.as_ref();
    let labels = metadata.and_then(|metadata| metadata.labels.as_ref());
    if !selector::matches(selector, labels) {
        let text = "spec.selector does not select the labels in spec.template.metadata: give both the same ones";
        found.push(text.to_owned());
    }
    // A set whose own labels were changed is released; all that a changed selector does not select would be orphaned.
    let last = deployment.status.as_ref().and_then(|status| status.selector.as_deref());
    let changed = last.is_some_and(|last| last != selector::text(selector));
    let is_lost = |view: &&SetView| {
        changed && !selector::matches(selector, view.set.metadata.labels.as_ref())
            || is_made_for_another(&view.set, selector)
    };
    if let Some(view) = sets.iter().find(is_lost) {
        let name = view.set.name();
        found.push(format!(
            "spec.selector was changed: it does not select machine set {name} any more"
        ));
    }
}

/// Whether the selector of a set asks for another value than this selector.
pub(super) fn is_made_for_another(set: &MachineSet, selector: &LabelSelector) -> bool {
    let own = set.spec.selector.as_ref().and_then(|own| own.match_labels.as_ref());
    let mut wanted = selector.match_labels.iter().flatten();
    own.is_some_and(|own| wanted.any(|(key, value)| own.get(key).is_some_and(|is| is != value)))
}

//! What is wrong with a MachineDeployment.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use ostler_api::MachineDeployment;
use ostler_api::machine_deployment::{OrchestrationType, StrategyType};
use ostler_api::names::annotation;
use ostler_api::timeout::Timeout;

use super::fenceposts;
use super::snapshot::SetView;
use crate::selector;

/// Every rule that it breaks, in words; nothing is changed while there is one. An empty selector is none of them: it
/// has an event of its own.
pub fn problems(deployment: &MachineDeployment, sets: &[SetView]) -> Vec<String> {
    let mut found = Vec::new();
    let spec = &deployment.spec;
    if spec.replicas < 0 {
        found.push("spec.replicas is negative".to_owned());
    }
    let numbers = [
        ("minReadySeconds", spec.min_ready_seconds),
        ("revisionHistoryLimit", spec.revision_history_limit),
        ("progressDeadlineSeconds", spec.progress_deadline_seconds),
        ("autoPreserveFailedMachineMax", spec.auto_preserve_failed_machine_max),
    ];
    for (name, _) in numbers.iter().filter(|(_, number)| number.is_some_and(|it| it < 0)) {
        found.push(format!("spec.{name} is negative"));
    }
    let class = &spec.template.spec.class;
    for (name, _) in
        [("kind", &class.kind), ("name", &class.name)].iter().filter(|it| it.1.is_empty())
    {
        found.push(format!("spec.template.spec.class.{name} is missing"));
    }
    if deployment.annotation(annotation::EFFECTIVE_CREATION_TIMEOUT).is_some_and(is_no_duration) {
        let name = annotation::EFFECTIVE_CREATION_TIMEOUT;
        found.push(format!("annotation {name} is not a duration such as 20m"));
    }
    check_strategy(deployment, &mut found);
    match &spec.selector {
        None => found.push("spec.selector is missing".to_owned()),
        Some(selector) => check_selector(deployment, selector, sets, &mut found),
    }
    found
}

fn is_no_duration(text: &str) -> bool {
    Timeout::from(text).duration().is_none()
}

fn check_strategy(deployment: &MachineDeployment, found: &mut Vec<String>) {
    let strategy = &deployment.spec.strategy;
    let block = match &strategy.type_ {
        Some(StrategyType::RollingUpdate) => "rollingUpdate",
        Some(StrategyType::InPlaceUpdate) => "inPlaceUpdate",
        Some(StrategyType::Recreate) => return,
        Some(StrategyType::Other(_)) | None => {
            found.push(
                "spec.strategy.type is none of RollingUpdate, Recreate, InPlaceUpdate".to_owned(),
            );
            return;
        }
    };
    let Some((surge, unavailable)) = fenceposts::written(strategy) else {
        found.push(format!("spec.strategy.{block} is missing"));
        return;
    };
    for (name, value) in [("maxSurge", surge), ("maxUnavailable", unavailable)] {
        let what = format!("spec.strategy.{block}.{name}");
        match value {
            None => found.push(format!("{what} is missing")),
            Some(value) if fenceposts::resolve(value, 100, true).is_none() => {
                found.push(format!("{what} is neither a number nor a percentage, or negative"));
            }
            Some(_) => {}
        }
    }
    let in_place = strategy.in_place_update.as_ref().filter(|_| block == "inPlaceUpdate");
    let chooser = in_place.map(|block| block.orchestration_type.as_ref());
    if chooser
        .is_some_and(|it| !matches!(it, Some(OrchestrationType::Auto | OrchestrationType::Manual)))
    {
        found.push(
            "spec.strategy.inPlaceUpdate.orchestrationType is neither Auto nor Manual".to_owned(),
        );
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
        found.push("spec.selector does not select the labels of spec.template".to_owned());
    }
    // A set whose own labels were changed is released; one that was made for another selector would be orphaned.
    let made_for_another = |view: &&SetView| {
        let own = view.set.spec.selector.as_ref().and_then(|own| own.match_labels.as_ref());
        let wanted = selector.match_labels.iter().flatten();
        own.is_some_and(|own: &BTreeMap<_, _>| {
            wanted.into_iter().any(|(key, value)| own.get(key).is_some_and(|is| is != value))
        })
    };
    if let Some(view) = sets.iter().find(made_for_another) {
        let name = view.set.name();
        found.push(format!(
            "spec.selector was changed: it does not select machine set {name} any more"
        ));
    }
}

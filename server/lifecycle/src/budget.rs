//! PodDisruptionBudgets that refuse an eviction.

use std::collections::BTreeMap;

use k8s_openapi::api::policy::v1::PodDisruptionBudget;

/// The facts about a PodDisruptionBudget for decisions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BudgetFacts {
    /// `namespace/name`.
    pub name: String,
    /// All pods are healthy and no eviction is allowed: the budget as written never allows an
    /// eviction.
    pub misconfigured: bool,
}

/// The combined budgets of a pod, for its eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is to be tried again: pods become healthy, budgets are edited.
    NotNow,
    /// A budget never allows it.
    Never,
    /// More than one budget selects the pod; the API server evicts no such pod.
    Several,
}

/// Combines the budgets of a pod.
pub(crate) fn verdict(budgets: &[BudgetFacts]) -> Verdict {
    match budgets {
        [one] if one.misconfigured => Verdict::Never,
        [] | [_] => Verdict::NotNow,
        [_, _, ..] => Verdict::Several,
    }
}

impl BudgetFacts {
    /// Reads a budget.
    pub fn of(budget: &PodDisruptionBudget) -> Self {
        let namespace = budget.metadata.namespace.as_deref().unwrap_or_default();
        let name = budget.metadata.name.as_deref().unwrap_or_default();
        Self { name: format!("{namespace}/{name}"), misconfigured: is_misconfigured(budget) }
    }
}

/// The status is up to date, every expected pod is healthy, no eviction is in progress, and the
/// budget still allows none.
fn is_misconfigured(budget: &PodDisruptionBudget) -> bool {
    let Some(status) = &budget.status else { return false };
    let observed = status.observed_generation.is_some()
        && status.observed_generation == budget.metadata.generation;
    observed
        && status.expected_pods > 0
        && status.current_healthy >= status.expected_pods
        && status.disrupted_pods.as_ref().is_none_or(BTreeMap::is_empty)
        && status.disruptions_allowed == 0
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn facts(change: &Value) -> BudgetFacts {
        let mut budget = json!({
            "metadata": { "name": "db", "namespace": "apps", "generation": 2 },
            "status": {
                "observedGeneration": 2, "expectedPods": 3, "currentHealthy": 3,
                "desiredHealthy": 3, "disruptionsAllowed": 0
            }
        });
        for (key, value) in change.as_object().unwrap() {
            budget["status"][key] = value.clone();
        }
        BudgetFacts::of(&serde_json::from_value(budget).unwrap())
    }

    #[test]
    fn a_budget_is_misconfigured_only_when_nothing_but_an_edit_can_help() {
        assert!(facts(&json!({})).misconfigured);
        for helps in [
            json!({ "currentHealthy": 2 }),
            json!({ "disruptionsAllowed": 1 }),
            json!({ "observedGeneration": 1 }),
            json!({ "expectedPods": 0, "currentHealthy": 0 }),
            json!({ "disruptedPods": { "db-0": "2026-01-01T00:00:00Z" } }),
        ] {
            assert!(!facts(&helps).misconfigured, "{helps}");
        }
    }

    #[test]
    fn several_budgets_of_one_pod_are_worse_than_a_misconfigured_one() {
        let (bad, good) = (facts(&json!({})), facts(&json!({ "currentHealthy": 2 })));
        assert_eq!(verdict(&[]), Verdict::NotNow, "not observed yet");
        assert_eq!(verdict(std::slice::from_ref(&good)), Verdict::NotNow);
        assert_eq!(verdict(std::slice::from_ref(&bad)), Verdict::Never);
        assert_eq!(verdict(&[bad, good]), Verdict::Several);
    }
}

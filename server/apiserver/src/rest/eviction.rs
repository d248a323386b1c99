//! `/eviction` of pods: deletion that asks the pod's disruption budget first.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Api, Target,
    binding::set_condition,
    delete::check_preconditions,
    delete_options::{DeleteOptions, Sent},
    metadata::time,
    stored::{self, meta_number, meta_text},
};
use crate::kinds::{
    BuiltIn, Resource,
    access::{self, entries, is_true, items, items_mut, object_in, set, text},
    selector::LabelSelector,
    status::{Answer, Cause, Status},
};

/// Disrupted pods that a budget remembers at most: its controller does not keep up beyond that.
const DISRUPTED_LIMIT: usize = 2000;
/// Seconds after which a budget that is not computed yet should be.
const NOT_COMPUTED_RETRY: u32 = 10;

/// How often a pod that keeps changing before it runs is looked at anew.
const ATTEMPTS: usize = 8;

const REFUSED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// An Eviction as it is sent.
#[derive(Debug)]
pub(crate) struct Eviction {
    options: DeleteOptions,
}

impl Eviction {
    /// Reads an Eviction for the pod of `target`. Unknown fields are warned of: `deleteOptions`
    /// has been misspelt by clients.
    ///
    /// # Errors
    /// It is something else, or for another pod (400), or its options are invalid (422).
    pub(crate) fn parse(
        target: &Target,
        body: &Value,
        dry_run: bool,
        warnings: &mut Vec<String>,
    ) -> Answer<Self> {
        let kind = body.get("kind").and_then(Value::as_str).unwrap_or("Eviction");
        let Some(fields) = body.as_object().filter(|_| kind == "Eviction") else {
            let text = format!("{kind} in version \"v1\" cannot be handled as a Eviction");
            return Err(Status::bad_request(text));
        };
        let known = ["apiVersion", "kind", "metadata", "deleteOptions"];
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            warnings.push(format!("unknown field {}", crate::kinds::field::quote(name)));
        }
        let name = meta_text(body, "name");
        if name != target.name {
            let text = "name in URL does not match name in Eviction object";
            return Err(Status::bad_request(text));
        }
        let sent: Sent = match fields.get("deleteOptions") {
            None | Some(Value::Null) => Sent::default(),
            Some(options) => serde_json::from_value(options.clone())
                .map_err(|error| Status::bad_request(error.to_string()))?,
        };
        let mut options = sent.checked()?;
        options.dry_run |= dry_run;
        Ok(Self { options })
    }
}

/// Why an eviction was not done.
enum Retry {
    /// The pod changed since it was looked at.
    Changed,
    /// For good.
    No(Box<Status>),
}

/// Whether a pod may go without asking its budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    /// It disrupts nothing any more.
    No,
    /// It does not run yet; it must not have begun to meanwhile.
    NotIfUnchanged,
    /// Yes.
    Yes,
}

fn ask(pod: &Value) -> Ask {
    let marked = !meta_text(pod, "deletionTimestamp").is_empty();
    match text(pod, "/status/phase") {
        _ if marked => Ask::No,
        "Succeeded" | "Failed" => Ask::No,
        "Pending" => Ask::NotIfUnchanged,
        _ => Ask::Yes,
    }
}

/// A number in a budget's status; absent is 0.
fn number(budget: &Value, name: &str) -> i64 {
    access::number(budget, &format!("/status/{name}")).unwrap_or(0)
}

/// Whether a budget lets a pod that is not ready go without spending anything.
fn spares_unready(budget: &Value) -> bool {
    let policy = text(budget, "/spec/unhealthyPodEvictionPolicy");
    let (current, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    policy == "AlwaysAllow" || (current >= desired && desired > 0)
}

/// Spends one disruption of a budget on a pod.
///
/// # Errors
/// There is none to spend (429), or the budget is not usable (403).
fn spend(resource: &Resource, budget: &mut Value, pod: &str, now: jiff::Timestamp) -> Answer<()> {
    let name = meta_text(budget, "name").to_owned();
    if number(budget, "observedGeneration") < meta_number(budget, "generation").unwrap_or(0) {
        return Err(not_computed(&name));
    }
    let allowed = number(budget, "disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return Err(Status::forbidden(resource, &name, why));
    }
    if entries(budget, "/status/disruptedPods").count() > DISRUPTED_LIMIT {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(Status::forbidden(resource, &name, why));
    }
    if allowed == 0 {
        return Err(exhausted(&name, budget));
    }
    let Some(status) = budget.get_mut("status") else { return Err(not_computed(&name)) };
    set(status, "disruptionsAllowed", allowed - 1);
    if let Some(disrupted) = object_in(status, "disruptedPods") {
        set(disrupted, pod, time(now));
    }
    if allowed == 1 {
        exhaust_condition(status, now);
    }
    Ok(())
}

/// Keeps the condition in step with a budget that is spent now.
fn exhaust_condition(status: &mut Value, now: jiff::Timestamp) {
    for one in items_mut(status, "/conditions") {
        if text(one, "/type") == "DisruptionAllowed" {
            set(one, "status", "False");
            set(one, "reason", "InsufficientPods");
            set(one, "lastTransitionTime", time(now));
        }
    }
}

fn budget_cause(message: String) -> Cause {
    Cause { reason: "DisruptionBudget", message, field: String::new() }
}

fn not_computed(name: &str) -> Box<Status> {
    let message = format!("The disruption budget {name} is still being processed by the server.");
    Status::too_many_requests(REFUSED, budget_cause(message)).retry_after(NOT_COMPUTED_RETRY)
}

fn exhausted(name: &str, budget: &Value) -> Box<Status> {
    let (current, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    let failed = items(budget, "/status/conditions").iter().find(|one| {
        text(one, "/type") == "DisruptionAllowed" && text(one, "/reason") == "SyncFailed"
    });
    let message = match failed {
        Some(condition) => {
            let why = text(condition, "/message");
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {why}"
            )
        }
        None if current <= desired => format!(
            "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    };
    Status::too_many_requests(REFUSED, budget_cause(message))
}

fn several_budgets() -> Box<Status> {
    Status::unknown(
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    )
}

impl Api {
    /// Evicts a pod: deletes the pod if its budget allows.
    ///
    /// # Errors
    /// The pod is missing, a precondition does not hold, or the budget does not allow it (429).
    pub(crate) async fn evict(&self, target: &Target, eviction: &Eviction) -> Answer<Status> {
        let mut answer = self.try_evict(target, eviction).await;
        for _ in 1..ATTEMPTS {
            match answer {
                Err(Retry::Changed) => answer = self.try_evict(target, eviction).await,
                Ok(()) | Err(Retry::No(_)) => break,
            }
        }
        match answer {
            Ok(()) => Ok(Status::created()),
            Err(Retry::No(status)) => Err(status),
            Err(Retry::Changed) => Err(Status::stale(&target.resource, &target.name)),
        }
    }

    async fn try_evict(&self, target: &Target, eviction: &Eviction) -> Result<(), Retry> {
        let mut options = eviction.options.clone();
        let pod = self.get(target).map_err(Retry::No)?;
        let version = meta_text(&pod, "resourceVersion").to_owned();
        let bound = options.preconditions.resource_version.is_some();
        let ask = ask(&pod);
        let mut spared = None;
        if ask == Ask::Yes {
            spared = self.ask_budget(target, &pod, options.dry_run).await.map_err(Retry::No)?;
        }
        if ask == Ask::NotIfUnchanged || spared.is_some() {
            options.preconditions.resource_version.get_or_insert(version);
        }
        match (self.mark_and_delete(target, options).await, spared) {
            (Ok(()), _) => Ok(()),
            // The pod changed since it was found unready: the client should look again.
            (Err(status), Some(budget)) if !bound && status.code == 409 => {
                tracing::debug!(%status, "an unready pod changed during its eviction");
                Err(Retry::No(not_computed(&budget)))
            }
            (Err(status), None) if !bound && ask == Ask::NotIfUnchanged && status.code == 409 => {
                Err(Retry::Changed)
            }
            (Err(status), _) => Err(Retry::No(status)),
        }
    }

    /// Asks the budget of a pod, and spends from it. Returns the name of a budget that lets the
    /// pod go for not being ready: then the pod must not have become ready meanwhile.
    async fn ask_budget(
        &self,
        target: &Target,
        pod: &Value,
        dry_run: bool,
    ) -> Answer<Option<String>> {
        let mut budgets = self.budgets_of(target, pod)?;
        let (Some((budget_target, budget)), None) = (budgets.pop(), budgets.pop()) else {
            return Ok(None);
        };
        if !is_true(pod, "Ready") && spares_unready(&budget) {
            return Ok(Some(budget_target.name));
        }
        let (resource, now) = (Arc::clone(&budget_target.resource), self.now());
        self.transform(&budget_target, dry_run, |budget| {
            spend(&resource, budget, &target.name, now)
        })
        .await?;
        Ok(None)
    }

    /// The budget that selects a pod, if any.
    ///
    /// # Errors
    /// There are several (500).
    fn budgets_of(&self, target: &Target, pod: &Value) -> Answer<Vec<(Target, Value)>> {
        let resource = Arc::new(BuiltIn::PodDisruptionBudget.resource());
        let prefix = stored::prefix(&resource, &target.namespace);
        let mut found = Vec::new();
        for record in self.context.store.list(&prefix, None, None).records {
            // One that cannot be read may guard the pod: nothing goes before a user fixes it.
            let budget = stored::load(&resource, &record)?;
            let selector = budget.pointer("/spec/selector").filter(|selector| !selector.is_null());
            // A selector that cannot be read selects nothing: its budget guards no pod.
            let selector = selector.and_then(|selector| LabelSelector::from_object(selector).ok());
            if selector.is_some_and(|selector| selector.selects(pod)) {
                let target = Target {
                    resource: Arc::clone(&resource),
                    namespace: target.namespace.clone(),
                    name: record.key.name().to_owned(),
                    part: None,
                };
                found.push((target, budget));
            }
        }
        if found.len() > 1 { Err(several_budgets()) } else { Ok(found) }
    }

    /// Notes on the pod why it goes, and deletes it.
    async fn mark_and_delete(&self, target: &Target, mut options: DeleteOptions) -> Answer<()> {
        let now = self.now();
        if !options.dry_run {
            let resource = &target.resource;
            let preconditions = options.preconditions.clone();
            let marked = self
                .transform(target, false, |pod| {
                    check_preconditions(resource, pod, &preconditions)?;
                    set_condition(pod, disruption_target(now));
                    Ok(())
                })
                .await?;
            if options.preconditions.resource_version.is_some() {
                let version = meta_text(&marked, "resourceVersion").to_owned();
                options.preconditions.resource_version = Some(version);
            }
        }
        self.delete(target, &options).await.map(drop)
    }
}

fn disruption_target(now: jiff::Timestamp) -> Value {
    json!({
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": time(now),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(allowed: i64, current: i64, desired: i64) -> Value {
        json!({"metadata": {"name": "b", "generation": 1},
            "status": {"observedGeneration": 1, "disruptionsAllowed": allowed,
                "currentHealthy": current, "desiredHealthy": desired}})
    }

    fn try_spend(budget: &mut Value) -> Answer<()> {
        let resource = BuiltIn::PodDisruptionBudget.resource();
        spend(&resource, budget, "p", jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_budget_is_spent_once_and_then_refuses() {
        let mut budget = budget(1, 2, 1);
        try_spend(&mut budget).unwrap();
        assert_eq!(number(&budget, "disruptionsAllowed"), 0);
        assert_eq!(budget["status"]["disruptedPods"], json!({"p": "1970-01-01T00:00:00Z"}));
        budget["status"]["currentHealthy"] = json!(1);
        let status = try_spend(&mut budget).unwrap_err();
        assert_eq!(status.code, 429);
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        assert_eq!(
            causes[0].message,
            "The disruption budget b needs 1 healthy pods and has 1 currently"
        );
    }

    #[test]
    fn a_budget_that_is_not_computed_asks_to_come_back() {
        let mut budget = json!({"metadata": {"name": "b", "generation": 1}});
        let status = try_spend(&mut budget).unwrap_err();
        let details = status.details.unwrap_or_default();
        assert_eq!((status.code, details.retry_after_seconds), (429, 10));
    }

    #[test]
    fn an_unready_pod_goes_where_the_policy_or_a_healthy_budget_lets_it() {
        assert!(spares_unready(&budget(0, 2, 2)));
        assert!(!spares_unready(&budget(0, 1, 2)));
        assert!(!spares_unready(&budget(0, 0, 0)));
        let mut always = budget(0, 1, 2);
        always["spec"] = json!({"unhealthyPodEvictionPolicy": "AlwaysAllow"});
        assert!(spares_unready(&always));
    }

    #[test]
    fn only_a_running_pod_asks_its_budget() {
        let pod = |phase: &str| json!({"metadata": {}, "status": {"phase": phase}});
        assert_eq!(ask(&pod("Running")), Ask::Yes);
        assert_eq!(ask(&pod("Pending")), Ask::NotIfUnchanged);
        assert_eq!(ask(&pod("Failed")), Ask::No);
        let marked =
            json!({"metadata": {"deletionTimestamp": "t"}, "status": {"phase": "Running"}});
        assert_eq!(ask(&marked), Ask::No);
    }
}

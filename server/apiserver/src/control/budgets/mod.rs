//! The status of PodDisruptionBudgets.
//!
//! `arithmetic` is the reckoning; here pods and budgets are followed and the status is written.

mod arithmetic;
mod expectation;

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use crate::{
    kinds::{
        access::{number, set, text},
        conditions::{self, Condition},
        selector::LabelSelector,
    },
    store::Key,
};

use super::{Controller, Outcome, Plane, Queue, settled};
use arithmetic::{Pod, Reckoning, reckon};

const GROUP: &str = "policy";
const PLURAL: &str = "poddisruptionbudgets";

/// The only condition of a budget, to be filled in.
const ALLOWED_KIND: &str = "DisruptionAllowed";
const ALLOWED: Condition<'static> =
    Condition { kind: ALLOWED_KIND, status: false, reason: "", message: String::new() };

/// When a budget is tried again that cannot be reckoned: what it lacks, such as a scale, may come without a
/// change of its pods.
const TRIED_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// Keeps the status of budgets in step with their pods.
#[derive(Debug)]
pub(super) struct Budgets {
    plane: Plane,
    /// By namespace and name.
    pods: BTreeMap<Name, Pod>,
    /// The budgets there are, by namespace and name.
    known: BTreeSet<Name>,
}

/// Namespace and name.
type Name = (String, String);

fn name_of(key: &Key) -> Name {
    (key.namespace().to_owned(), key.name().to_owned())
}

impl Budgets {
    pub(super) fn new(plane: Plane) -> Self {
        Self { plane, pods: BTreeMap::new(), known: BTreeSet::new() }
    }

    fn budgets_in(&self, namespace: &str) -> Vec<Name> {
        let from = (namespace.to_owned(), String::new());
        self.known.range(from..).take_while(|(found, _)| found == namespace).cloned().collect()
    }

    /// The pods that a budget is about.
    fn selected(&self, namespace: &str, budget: &Value) -> Vec<(&str, &Pod)> {
        let Some(selector) = budget.pointer("/spec/selector") else { return Vec::new() };
        let Ok(selector) = LabelSelector::from_object(selector) else { return Vec::new() };
        let from = (namespace.to_owned(), String::new());
        let pods = self.pods.range(from..).take_while(|((found, _), _)| found == namespace);
        pods.filter(|(_, pod)| selector.matches(Some(pod.labels())))
            .map(|((_, name), pod)| (name.as_str(), pod))
            .collect()
    }

    /// The current status, and the time of its next change without an event.
    fn status(
        &self,
        namespace: &str,
        budget: &Value,
        now: Timestamp,
    ) -> (Value, Option<Timestamp>) {
        let pods = self.selected(namespace, budget);
        let generation = number(budget, "/metadata/generation").unwrap_or(0);
        let (spec, old) = (budget.get("spec"), budget.get("status"));
        let mut status = old.and_then(Value::as_object).cloned().unwrap_or_default();
        let expected = |pods: &[(&str, &Pod)]| self.plane.expected_scale(namespace, pods);
        let spec = spec.unwrap_or(&Value::Null);
        let reckoned = reckon(spec, old.unwrap_or(&Value::Null), &pods, expected, now);
        let (condition, until) = match reckoned {
            Ok(reckoning) => {
                write(&mut status, &reckoning);
                status.insert("observedGeneration".to_owned(), generation.into());
                (allowed(&reckoning), reckoning.until)
            }
            Err(message) => {
                // The generation stays unobserved: evictions are told to wait.
                status.insert("disruptionsAllowed".to_owned(), 0.into());
                let again = now.checked_add(TRIED_AGAIN).ok();
                (Condition { status: false, reason: "SyncFailed", message, ..ALLOWED }, again)
            }
        };
        conditions::set(&mut status, &condition, &conditions::stamp(now));
        let observed = status.get("observedGeneration").cloned();
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        for one in conditions.into_iter().flatten() {
            if let (ALLOWED_KIND, Some(observed)) = (text(one, "/type"), &observed) {
                set(one, "observedGeneration", observed.clone());
            }
        }
        (Value::Object(status), until)
    }
}

fn allowed(reckoning: &Reckoning) -> Condition<'static> {
    let status = reckoning.disruptions_allowed > 0;
    let reason = if status { "SufficientPods" } else { "InsufficientPods" };
    Condition { status, reason, ..ALLOWED }
}

fn write(status: &mut Map<String, Value>, reckoning: &Reckoning) {
    let numbers = [
        ("currentHealthy", reckoning.current_healthy),
        ("desiredHealthy", reckoning.desired_healthy),
        ("expectedPods", reckoning.expected_pods),
        ("disruptionsAllowed", reckoning.disruptions_allowed),
    ];
    status.extend(numbers.map(|(field, number)| (field.to_owned(), number.into())));
    if reckoning.disrupted.is_empty() {
        status.remove("disruptedPods");
    } else {
        status.insert("disruptedPods".to_owned(), json!(reckoning.disrupted));
    }
}

impl Controller for Budgets {
    type Key = Name;

    fn plane(&self) -> &Plane {
        &self.plane
    }

    fn forget(&mut self) {
        self.pods.clear();
        self.known.clear();
    }

    fn note(&mut self, key: &Key, value: Option<&[u8]>, queue: &mut Queue<Name>) {
        match (key.group(), key.resource()) {
            ("", "pods") => {
                match value.and_then(|value| serde_json::from_slice(value).ok()) {
                    Some(pod) => self.pods.insert(name_of(key), pod),
                    None => self.pods.remove(&name_of(key)),
                };
                for budget in self.budgets_in(key.namespace()) {
                    queue.push(budget);
                }
            }
            (GROUP, PLURAL) => {
                match value {
                    Some(_) => self.known.insert(name_of(key)),
                    None => self.known.remove(&name_of(key)),
                };
                queue.push(name_of(key));
            }
            // The scale of a workload is what some budgets are reckoned from.
            ("apps", _) => {
                for budget in self.budgets_in(key.namespace()) {
                    queue.push(budget);
                }
            }
            _ => {}
        }
    }

    async fn act(&mut self, (namespace, name): Name) -> Outcome {
        let key = Key::new(GROUP, PLURAL, &namespace, &name);
        let Some(mut budget) = self.plane.object(&key) else { return Outcome::Done };
        let now = (self.plane.context.clock)();
        let (status, until) = self.status(&namespace, &budget, now);
        if budget.get("status") != Some(&status) {
            set(&mut budget, "status", status);
            set(&mut budget, "apiVersion", "policy/v1");
            set(&mut budget, "kind", "PodDisruptionBudget");
            let path = format!("/apis/policy/v1/namespaces/{namespace}/{PLURAL}/{name}/status");
            let written = settled(self.plane.loopback.replace(&path, &budget).await.code);
            if written != Outcome::Done {
                return written;
            }
        }
        match until.map(|until| until.duration_since(now).unsigned_abs()) {
            Some(wait) => Outcome::After(wait),
            None => Outcome::Done,
        }
    }
}

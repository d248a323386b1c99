//! Scripted faults: failures of chosen calls.

mod calls;
mod code;
mod plan;

use ostler_driver_sdk::Target;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::digest::short_digest;
use crate::duration::GoDuration;
pub use calls::{Calls, NotACallNumber};
pub use code::{CertaintyName, CodeName};
pub use plan::{Action, Contradiction, Failure, Injection, Plan, When};

/// A fault.
#[expect(clippy::struct_excessive_bools, reason = "each is a word of its own to who writes a rule")]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// Names the rule in the call log. A rule with another name counts its calls anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The operation that fails.
    pub operation: Verb,
    /// Which calls, counted by this rule from 1: `2`, `"1-3"`, `"4-"` or `"every"`; every one if
    /// left out. The count outlives the driver process.
    #[serde(default)]
    pub call: Calls,
    /// Whether calls are counted over all machines or for each machine.
    #[serde(default)]
    pub per: Scope,
    /// Only for the machine of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Only for machines of this class; of use in the control file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// How much longer the call takes.
    #[serde(default)]
    pub latency: GoDuration,
    /// Fails with this code, before any work is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<CodeName>,
    /// What the failed operation left behind, by its error. Left out: the truth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certainty: Option<CertaintyName>,
    /// The stable word of the failure; `INJECTED` if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The text of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What the failure says about when to try again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<GoDuration>,
    /// With `code`: does the work, then fails.
    #[serde(default)]
    pub after_effect: bool,
    /// Does the work and never answers, as a driver that hangs.
    #[serde(default)]
    pub lost_reply: bool,
    /// The driver process dies before it does anything.
    #[serde(default)]
    pub crash_before_effect: bool,
    /// The driver process dies when the work is done and the answer is not given.
    #[serde(default)]
    pub crash_after_effect: bool,
    /// UpdateMachine only: updates so many of vm, network and disk, in this order, then fails with
    /// `code` (`Unavailable` if left out).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_partially: Option<usize>,
    /// Answers with this provider id in place of the true one; may be empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_provider_id: Option<String>,
}

/// Over what a rule counts calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// All machines that the rule is for.
    #[default]
    Class,
    /// Each machine, by its UID.
    Machine,
}

/// An operation, by its name in the protocol.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Verb {
    /// Makes an instance.
    CreateMachine,
    /// Initializes an instance.
    InitializeMachine,
    /// Changes a running instance.
    UpdateMachine,
    /// Deletes an instance.
    DeleteMachine,
    /// Reads an instance.
    GetMachineStatus,
    /// Reads all instances.
    ListMachines,
    /// Finds the ids of volumes.
    GetVolumeIds,
    /// Checks a class.
    ValidateClass,
    /// Makes a group.
    CreatePool,
    /// Changes a group.
    UpdatePool,
    /// Deletes a group.
    DeletePool,
    /// Reads a group.
    GetPoolStatus,
    /// Reads all groups.
    ListPools,
    /// Deletes instances of a group.
    DeletePoolMachines,
    /// Updates an instance of a group.
    UpdatePoolMachine,
}

/// The subject of a call, as rules see it.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The machine.
    pub target: &'a Target,
    /// Name of its class.
    pub class: &'a str,
}

impl Fault {
    fn concerns(&self, verb: Verb, subject: Subject<'_>) -> bool {
        self.operation == verb
            && self.machine.as_ref().is_none_or(|name| *name == subject.target.name)
            && self.class.as_ref().is_none_or(|name| name == subject.class)
    }

    /// The name of the rule in the call log.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.fingerprint())
    }

    /// The name of the counter of its calls. `source` tells rules of different classes apart.
    fn counter(&self, source: &str, subject: Subject<'_>) -> String {
        let label = self.label();
        match self.per {
            Scope::Class => format!("{source}/{label}"),
            Scope::Machine => format!("{source}/{label}/{}", subject.target.uid),
        }
    }

    fn fingerprint(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        short_digest(&text)
    }
}

/// The effect of `rules` on a call. `count` increments a counter and returns the new value.
pub(crate) fn inject(
    rules: &[Fault],
    (verb, source): (Verb, &str),
    subject: Subject<'_>,
    mut count: impl FnMut(&str) -> u64,
) -> Injection {
    let mut injection = Injection::default();
    for rule in rules.iter().filter(|rule| rule.concerns(verb, subject)) {
        let hit = rule.call.is_every() || rule.call.contains(count(&rule.counter(source, subject)));
        // A contradictory rule is refused with its class or its control file.
        if let (true, Ok(plan)) = (hit, rule.plan()) {
            injection.add(rule.label(), plan);
        }
    }
    injection
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn rules(json: serde_json::Value) -> Vec<Fault> {
        serde_json::from_value(json).unwrap()
    }

    fn target(name: &str) -> Target {
        Target { namespace: "ns".into(), name: name.into(), uid: format!("uid-{name}") }
    }

    /// Whether the rules hit each of `machines`, called once each.
    fn hits(rules: &[Fault], verb: Verb, machines: &[&str]) -> Vec<bool> {
        let mut counters = HashMap::<String, u64>::new();
        let mut count = |key: &str| {
            let calls = counters.entry(key.to_owned()).or_default();
            *calls += 1;
            *calls
        };
        let mut hits = Vec::new();
        for name in machines {
            let target = target(name);
            let subject = Subject { target: &target, class: "small" };
            let injection = inject(rules, (verb, "class"), subject, &mut count);
            hits.push(injection.action.is_some());
        }
        hits
    }

    #[test]
    fn a_rule_counts_over_all_machines_or_for_each() {
        let rule = |per: &str| {
            rules(serde_json::json!([
                {"operation": "CreateMachine", "call": 1, "per": per, "code": "Unavailable"}
            ]))
        };
        let calls = ["a", "b", "a", "b"];
        assert_eq!(hits(&rule("class"), Verb::CreateMachine, &calls), [true, false, false, false]);
        assert_eq!(hits(&rule("machine"), Verb::CreateMachine, &calls), [true, true, false, false]);
    }

    #[test]
    fn a_rule_spoils_only_its_operation_machine_and_class() {
        let create = |filter: serde_json::Value| {
            let mut rule = serde_json::json!({"operation": "CreateMachine", "code": "Internal"});
            rule.as_object_mut().unwrap().extend(filter.as_object().unwrap().clone());
            rules(serde_json::json!([rule]))
        };
        let anyone = create(serde_json::json!({}));
        assert_eq!(hits(&anyone, Verb::CreateMachine, &["a"]), [true]);
        assert_eq!(hits(&anyone, Verb::DeleteMachine, &["a"]), [false]);
        let one = create(serde_json::json!({"machine": "a"}));
        assert_eq!(hits(&one, Verb::CreateMachine, &["a", "b"]), [true, false]);
        let class = create(serde_json::json!({"class": "large"}));
        assert_eq!(hits(&class, Verb::CreateMachine, &["a"]), [false]);
    }

    #[test]
    fn latencies_add_up_and_the_first_action_wins() {
        let rules = rules(serde_json::json!([
            {"name": "slow", "operation": "DeleteMachine", "latency": "1s"},
            {"name": "bad", "operation": "DeleteMachine", "latency": "2s", "code": "Aborted"},
            {"name": "worse", "operation": "DeleteMachine", "lostReply": true},
        ]));
        let target = target("a");
        let subject = Subject { target: &target, class: "small" };
        let injection = inject(&rules, (Verb::DeleteMachine, "c"), subject, |_| 1);
        assert_eq!(injection.latency, std::time::Duration::from_secs(3));
        assert!(matches!(injection.action, Some(Action::Fail { .. })), "{injection:?}");
        assert_eq!(injection.rules, ["slow", "bad", "worse"]);
    }
}

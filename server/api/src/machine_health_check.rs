//! MachineHealthCheck: replaces Machines for the conditions of their Nodes. The fields are those of Cluster API's
//! v1beta1; the equivalent fields of v1beta2 count as well.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::{Machine, names::annotation, open_enum::open_enum, timeout::Timeout};

/// Which Machines are checked, what makes one unhealthy, and how many may be at the same time.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ostler.dev",
    version = "v1alpha1",
    kind = "MachineHealthCheck",
    plural = "machinehealthchecks",
    singular = "machinehealthcheck",
    shortname = "mhc",
    category = "all",
    namespaced,
    status = "MachineHealthCheckStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "Which Machines are to be replaced for what their Nodes say."
)]
#[serde(rename_all = "camelCase")]
pub struct MachineHealthCheckSpec {
    /// Only Machines of this target cluster: those with label `cluster.x-k8s.io/cluster-name`. Absent: of any. Never
    /// changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// Selects the Machines of this namespace to check. An empty one is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// What makes a Machine unhealthy: any of these conditions of its Node. A condition that a Node lacks does not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_conditions: Vec<UnhealthyCondition>,
    /// How many of the Machines may be unhealthy; with more, none is replaced. A percentage is rounded down. `100%` if
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unhealthy: Option<IntOrString>,
    /// As `[3-5]`: Machines are replaced only while so many are unhealthy. Wins over `maxUnhealthy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_range: Option<String>,
    /// How long a Machine without a Node may exist, or its instance where that came later; `0` for ever, `10m` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_startup_timeout: Option<Timeout>,
    /// Refused: the owner of a Machine replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::free_form")]
    pub remediation_template: Option<serde_json::Value>,
    /// What makes a Machine unhealthy, as v1beta2 has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checks: Option<Checks>,
    /// How many may be unhealthy, as v1beta2 has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remediation: Option<Remediation>,
}

/// Equivalent fields, in the forms of v1beta1 and of v1beta2.
pub mod fields {
    /// How long a Machine without a Node may exist.
    pub const STARTUP_TIMEOUT: [&str; 2] =
        ["spec.nodeStartupTimeout", "spec.checks.nodeStartupTimeoutSeconds"];
    /// How many may be unhealthy.
    pub const MOST_UNHEALTHY: [&str; 2] =
        ["spec.maxUnhealthy", "spec.remediation.triggerIf.unhealthyLessThanOrEqualTo"];
    /// The allowed range of unhealthy Machines.
    pub const RANGE: [&str; 2] =
        ["spec.unhealthyRange", "spec.remediation.triggerIf.unhealthyInRange"];
}

/// What makes a Machine unhealthy, as v1beta2 has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Checks {
    /// As `nodeStartupTimeout`, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_startup_timeout_seconds: Option<i32>,
    /// As `unhealthyConditions`; those of both fields count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unhealthy_node_conditions: Vec<UnhealthyNodeCondition>,
    /// Refused: the conditions of a Machine follow from its phase, and the core acts on the phase.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::free_forms")]
    pub unhealthy_machine_conditions: Vec<serde_json::Value>,
}

/// A condition of a Node that makes its Machine unhealthy, as v1beta2 has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyNodeCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// Its status: `True`, `False` or `Unknown`.
    pub status: String,
    /// For how many seconds it may have this status, from its last transition.
    pub timeout_seconds: i32,
}

/// How many may be unhealthy, as v1beta2 has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Remediation {
    /// The limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_if: Option<TriggerIf>,
    /// Refused: the owner of a Machine replaces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::free_form")]
    pub template_ref: Option<serde_json::Value>,
}

/// How many may be unhealthy, as v1beta2 has it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TriggerIf {
    /// As `maxUnhealthy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_less_than_or_equal_to: Option<IntOrString>,
    /// As `unhealthyRange`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_in_range: Option<String>,
}

/// A condition of a Node that makes its Machine unhealthy, from either field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRule<'a> {
    /// The field.
    pub field: &'static str,
    /// Index in that field.
    pub at: usize,
    /// Type of the condition.
    pub type_: &'a str,
    /// Its status.
    pub status: &'a str,
    /// For how long it may have this status; `None`: the text cannot be read.
    pub timeout: Option<Duration>,
}

/// A condition of a Node that makes its Machine unhealthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// Its status: `True`, `False` or `Unknown`.
    pub status: String,
    /// For how long it may have this status, from its last transition.
    pub timeout: Timeout,
}

/// What a check found. Numbers are written also when they are 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineHealthCheckStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many Machines it checks.
    #[serde(default)]
    pub expected_machines: i32,
    /// How many of those are healthy. A Machine without a Node, or in deletion, is not healthy.
    #[serde(default)]
    pub current_healthy: i32,
    /// How many more may become unhealthy before none is replaced.
    #[serde(default)]
    pub remediations_allowed: i32,
    /// The names of the first 500 checked Machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<String>,
    /// Its conditions, see [`HealthCheckConditionType`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

open_enum! {
    /// Conditions of a check. All are always there.
    pub enum HealthCheckConditionType {
        /// Unhealthy Machines are replaced: not more of them are unhealthy than may be.
        RemediationAllowed = "RemediationAllowed",
        /// False: some unhealthy Machines have no controller to replace them.
        Replaceable = "Replaceable",
        /// False: its spec is refused.
        Valid = "Valid",
    }
}

open_enum! {
    /// Why a check finds a Machine unhealthy.
    pub enum UnhealthyReason {
        /// A condition of its Node.
        UnhealthyNode = "UnhealthyNode",
        /// The Machine has no Node, and had time enough to get one.
        NodeStartupTimeout = "NodeStartupTimeout",
        /// The Machine's Node is gone.
        NodeDeleted = "NodeDeleted",
        /// A user asked for it, by annotation `cluster.x-k8s.io/remediate-machine`.
        HasRemediateAnnotation = "HasRemediateAnnotation",
    }
}

/// The finding of a check against a Machine, as JSON in the Machine's annotation `ostler.dev/unhealthy`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnhealthyMark {
    /// Name of the check, in the namespace of the Machine.
    pub check: String,
    /// Why.
    pub reason: UnhealthyReason,
    /// The condition of the Node that says so, for reason `UnhealthyNode`: the mark counts while it is as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<NodeConditionIs>,
    /// Since when.
    pub since: Time,
    /// For people.
    pub message: String,
}

/// A condition of a Node with a status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeConditionIs {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// Its status.
    pub status: String,
}

impl NodeConditionIs {
    /// Whether the Node has the condition with this status.
    pub fn holds(&self, node: &Node) -> bool {
        let mut all = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        all.any(|one| one.type_ == self.type_ && one.status == self.status)
    }
}

impl Machine {
    /// The finding of a check against the Machine; `None` also for an unreadable mark.
    pub fn unhealthy_mark(&self) -> Option<UnhealthyMark> {
        serde_json::from_str(self.annotation(annotation::UNHEALTHY)?).ok()
    }
}

impl MachineHealthCheckSpec {
    /// The conditions of a Node that make its Machine unhealthy, of both forms.
    pub fn node_rules(&self) -> impl Iterator<Item = NodeRule<'_>> {
        let old = self.unhealthy_conditions.iter().enumerate().map(|(at, one)| NodeRule {
            field: "spec.unhealthyConditions",
            at,
            type_: &one.type_,
            status: &one.status,
            timeout: one.timeout.duration(),
        });
        let new = self.checks.iter().flat_map(|checks| &checks.unhealthy_node_conditions);
        let new = new.enumerate().map(|(at, one)| NodeRule {
            field: "spec.checks.unhealthyNodeConditions",
            at,
            type_: &one.type_,
            status: &one.status,
            timeout: Some(seconds(one.timeout_seconds)),
        });
        old.chain(new)
    }

    /// How long a Machine without a Node may exist: `absent` if it does not say. `None`: the text cannot be read.
    pub fn startup_timeout(&self, absent: Duration) -> Option<Duration> {
        let new = || self.checks.as_ref()?.node_startup_timeout_seconds;
        match &self.node_startup_timeout {
            Some(text) => text.duration(),
            None => Some(new().map_or(absent, seconds)),
        }
    }

    /// How many of the Machines may be unhealthy.
    pub fn most_unhealthy(&self) -> Option<&IntOrString> {
        let new = || self.trigger_if()?.unhealthy_less_than_or_equal_to.as_ref();
        self.max_unhealthy.as_ref().or_else(new)
    }

    /// The allowed range of unhealthy Machines.
    pub fn range_of_unhealthy(&self) -> Option<&str> {
        let new = || self.trigger_if()?.unhealthy_in_range.as_deref();
        self.unhealthy_range.as_deref().or_else(new)
    }

    fn trigger_if(&self) -> Option<&TriggerIf> {
        self.remediation.as_ref()?.trigger_if.as_ref()
    }

    /// Pairs of equivalent fields of both forms that are both set.
    pub fn said_twice(&self) -> impl Iterator<Item = [&'static str; 2]> {
        let checks = self.checks.as_ref();
        let trigger = self.trigger_if();
        let pairs = [
            (
                self.node_startup_timeout.is_some(),
                checks.is_some_and(|it| it.node_startup_timeout_seconds.is_some()),
                fields::STARTUP_TIMEOUT,
            ),
            (
                self.max_unhealthy.is_some(),
                trigger.is_some_and(|it| it.unhealthy_less_than_or_equal_to.is_some()),
                fields::MOST_UNHEALTHY,
            ),
            (
                self.unhealthy_range.is_some(),
                trigger.is_some_and(|it| it.unhealthy_in_range.is_some()),
                fields::RANGE,
            ),
        ];
        pairs.into_iter().filter(|(old, new, _)| *old && *new).map(|(.., fields)| fields)
    }
}

/// A negative number counts as 0, as in every timeout.
fn seconds(number: i32) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

impl MachineHealthCheck {
    /// Whether a user paused it.
    pub fn is_paused(&self) -> bool {
        self.annotation(annotation::CLUSTER_API_PAUSED).is_some()
            || self.annotation(annotation::PAUSED).is_some_and(|value| value != "false")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_check_as_cluster_api_has_it_reads_and_comes_back_the_same() {
        let text = json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineHealthCheck",
            "metadata": { "name": "c", "namespace": "default" },
            "spec": {
                "clusterName": "k", "maxUnhealthy": "40%", "nodeStartupTimeout": "10m",
                "unhealthyRange": "[1-3]", "selector": { "matchLabels": { "app": "web" } },
                "unhealthyConditions": [{ "type": "Ready", "status": "Unknown", "timeout": "5m0s" }],
                "remediationTemplate": { "kind": "Template", "name": "t" },
                "checks": {
                    "nodeStartupTimeoutSeconds": 600,
                    "unhealthyNodeConditions": [
                        { "type": "Ready", "status": "False", "timeoutSeconds": 300 }
                    ],
                    "unhealthyMachineConditions": [{ "type": "Deleting", "status": "True" }]
                },
                "remediation": {
                    "triggerIf": {
                        "unhealthyLessThanOrEqualTo": "40%", "unhealthyInRange": "[1-3]"
                    },
                    "templateRef": { "kind": "Template", "name": "t" }
                }
            },
            "status": {
                "expectedMachines": 3, "currentHealthy": 0, "remediationsAllowed": 0,
                "targets": ["a", "b", "c"]
            }
        });
        let check: MachineHealthCheck = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(serde_json::to_value(&check).unwrap(), text);
    }

    #[test]
    fn a_mark_reads_as_it_was_written_and_another_text_is_none() {
        let mark = UnhealthyMark {
            check: "web".to_owned(),
            reason: UnhealthyReason::UnhealthyNode,
            condition: Some(NodeConditionIs { type_: "Ready".into(), status: "Unknown".into() }),
            since: Time("2026-01-01T00:00:00Z".parse().unwrap()),
            message: "m".to_owned(),
        };
        let mut machine = Machine::default();
        assert_eq!(machine.unhealthy_mark(), None);
        for (text, expected) in
            [(serde_json::to_string(&mark).unwrap(), Some(mark)), ("yes".to_owned(), None)]
        {
            machine.metadata.annotations = Some([(annotation::UNHEALTHY.to_owned(), text)].into());
            assert_eq!(machine.unhealthy_mark(), expected);
        }
    }
}

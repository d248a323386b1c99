//! MachineReserve: ready Machines without pods. A set takes Machines of a reserve before making new Machines.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{machine::Retry, open_enum::open_enum};

/// For whom Machines are kept ready, and how many.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "ostler.dev",
    version = "v1alpha1",
    kind = "MachineReserve",
    plural = "machinereserves",
    singular = "machinereserve",
    shortname = "mr",
    category = "all",
    namespaced,
    status = "MachineReserveStatus",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    derive = "PartialEq",
    derive = "Default",
    doc = "Ready Machines without pods: a MachineDeployment or MachineSet takes them before it makes any."
)]
#[serde(rename_all = "camelCase")]
pub struct MachineReserveSpec {
    /// The MachineDeployment or MachineSet with the template of the Machines.
    #[serde(default)]
    pub target_ref: TargetRef,
    /// How many Machines are kept ready: a number, or a percentage of the target's replicas, rounded up. With a percentage
    /// there is no scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<IntOrString>,
    /// Effect of the taint `ostler.dev/reserve` of its Nodes: `NoSchedule` if absent, or `NoExecute`, which pods of
    /// DaemonSets have to tolerate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taint_effect: Option<TaintEffect>,
}

/// A MachineDeployment or MachineSet of the same namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TargetRef {
    /// `MachineDeployment` or `MachineSet`.
    #[serde(default)]
    pub kind: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
}

open_enum! {
    /// The effect of the taint on a Node in reserve.
    pub enum TaintEffect {
        /// Pods without a toleration are not scheduled there.
        NoSchedule = "NoSchedule",
        /// None runs there either.
        NoExecute = "NoExecute",
    }
}

/// What is known of a reserve. Numbers are written also when they are 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineReserveStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// All its Machines but Machines in deletion.
    #[serde(default)]
    pub replicas: i32,
    /// Running Machines, which a set may take.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Those with the target's current template.
    #[serde(default)]
    pub updated_replicas: i32,
    /// How many Machines sets took, since there is this reserve.
    #[serde(default)]
    pub given: i64,
    /// The names of its Machines, 500 at most. A Machine that leaves this list for a set was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// The selector of its Machines as text, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// How often in a row its Machines failed before they had run for ten minutes, and when those that are Failed are
    /// replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacement_retry: Option<Retry>,
    /// Its conditions, see [`ReserveConditionType`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

open_enum! {
    /// Conditions of a reserve. All are always there.
    pub enum ReserveConditionType {
        /// As many Machines as wanted are ready, of the current template.
        Ready = "Ready",
        /// Fewer are kept than asked for, since the target may not have more.
        LimitedByMax = "LimitedByMax",
        /// False: the spec or the target prevents new Machines.
        Valid = "Valid",
    }
}

impl MachineReserveStatus {
    /// A condition.
    pub fn condition(&self, type_: &ReserveConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|it| it.type_ == type_.as_str())
    }

    /// Since when a condition has this status; `now` for another status.
    pub fn since(&self, type_: &ReserveConditionType, status: &str, now: Time) -> Time {
        let same = self.condition(type_).filter(|it| it.status == status);
        same.map_or(now, |it| it.last_transition_time.clone())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reserve_reads_and_comes_back_the_same() {
        for replicas in [json!(2), json!("20%")] {
            let text = json!({
                "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineReserve",
                "metadata": { "name": "r", "namespace": "default" },
                "spec": {
                    "targetRef": { "kind": "MachineDeployment", "name": "d" },
                    "replicas": replicas, "taintEffect": "NoExecute"
                },
                "status": {
                    "replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "given": 7,
                    "machines": ["r-a", "r-b"], "selector": "ostler.dev/reserve=r"
                }
            });
            let reserve: MachineReserve = serde_json::from_value(text.clone()).unwrap();
            assert_eq!(serde_json::to_value(&reserve).unwrap(), text);
        }
    }
}

//! Machine: an instance that is to become a Node.

use crate::ProviderId;
use std::time::Duration;

use k8s_openapi::{api::core::v1::NodeSpec, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{bootstrap::Bootstrap, names, timeout::Timeout};
pub use crate::{
    drain_status::{DeletionCause, DrainProgress, DrainPurpose, DrainVolume},
    machine_status::{
        CurrentStatus, HotUpdate, HotUpdateState, InstanceLosses, InstanceNotice, InstanceState,
        InstanceStatus, LastOperation, LifecyclePhase, MachineAddress, MachineConditionType,
        MachineOperationType, MachinePhase, MachineState, MachineStatus, NoticeReason,
        OperationIntent, Retry, WaitingFor,
    },
    reasons::{FailureReason, WaitReason},
    step::{MachineStep, OperationVerb},
};

/// What a Machine is to be.
#[derive(CustomResource, Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "machine.sapcloud.io",
    version = "v1alpha1",
    kind = "Machine",
    plural = "machines",
    singular = "machine",
    shortname = "mc",
    namespaced,
    status = "MachineStatus",
    derive = "PartialEq",
    derive = "Default",
    doc = "One instance that is to become one Node."
)]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// The class that says what the instance looks like.
    #[serde(default)]
    pub class: ClassRef,
    /// The instance, once there is one. May be given for an instance that exists already.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<ProviderId>,
    /// Where the user data come from; absent: from the secrets of the class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
    /// The Kubernetes version that the Node is to have; for bootstrap providers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Labels, annotations and taints of the Node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_template: Option<NodeTemplate>,
    /// How long a drain may last, from the deletion of the Machine, before force is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_timeout: Option<Timeout>,
    /// How long a Node may be unhealthy before its Machine is Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_timeout: Option<Timeout>,
    /// How long it may take to become a Node before the Machine is Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_timeout: Option<Timeout>,
    /// How long an in-place update may last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_place_update_timeout: Option<Timeout>,
    /// How long a preserved Machine is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_preserve_timeout: Option<Timeout>,
    /// True: an unhealthy Machine stays Unknown for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_health_timeout: Option<bool>,
    /// How often an eviction is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_evict_retries: Option<i32>,
    /// Node conditions that must be False, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_conditions: Option<String>,
}

/// Names a class in the namespace of the Machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClassRef {
    /// For people; never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,
    /// `MachineClass`.
    #[serde(default)]
    pub kind: String,
    /// Name of the class.
    #[serde(default)]
    pub name: String,
}

/// What the Node of a Machine is to carry.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeTemplate {
    /// Labels and annotations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "crate::schema::template_metadata")]
    pub metadata: Option<ObjectMeta>,
    /// Taints; everything else in it is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<NodeSpec>,
}

impl Machine {
    /// Whether pods and volumes of its Node matter: it is being deleted, or drained.
    pub fn is_drained(&self) -> bool {
        let drain = self.status.as_ref().and_then(|status| status.drain.as_ref());
        self.is_deleting() || drain.is_some_and(|drain| !drain.finished)
    }

    /// Whether a user applied the Machine, with kubectl or server-side: the next apply compares with the last one.
    pub fn was_applied(&self) -> bool {
        let managers = self.metadata.managed_fields.iter().flatten();
        self.annotation(names::annotation::LAST_APPLIED_CONFIGURATION).is_some()
            || managers.filter_map(|it| it.operation.as_deref()).any(|it| it == "Apply")
    }

    /// Whether a MachineSet controls the Machine.
    pub fn has_machine_set(&self) -> bool {
        let owners = self.metadata.owner_references.iter().flatten();
        owners.into_iter().any(|one| one.controller == Some(true) && one.kind == names::MACHINE_SET)
    }

    /// Whether it is an instance of the group of a MachinePool.
    pub fn has_pool(&self) -> bool {
        let owners = self.metadata.owner_references.iter().flatten();
        owners
            .into_iter()
            .any(|one| one.controller == Some(true) && one.kind == names::MACHINE_POOL)
    }

    /// The provider id, if known. Upstream writes an empty string for none.
    pub fn provider_id(&self) -> Option<&ProviderId> {
        self.spec.provider_id.as_ref().filter(|id| !id.is_empty())
    }

    /// The provider id of the Machine's Node: the driver's, or before any answer the spec's.
    pub fn instance_id(&self) -> Option<&ProviderId> {
        let said = self.status.as_ref().and_then(|status| status.instance_provider_id.as_ref());
        said.or_else(|| self.provider_id())
    }

    /// Name of the Node, if known: as the label says or, of a name that no label can carry, the status.
    pub fn node_name(&self) -> Option<&str> {
        /// The longest value of a label.
        const LABEL: usize = 63;
        let shown = self.status.as_ref().and_then(|status| status.node_name.as_deref());
        let labelled = || self.label(names::label::NODE).filter(|name| !name.is_empty());
        shown.filter(|name| name.len() > LABEL).or_else(labelled).or(shown)
    }

    /// Phase as machine-controller-manager has it.
    pub fn phase(&self) -> MachinePhase {
        self.status.as_ref().map(MachineStatus::machine_phase).unwrap_or_default()
    }

    /// Creation timeout: the annotation wins over the spec, the spec over `default`.
    pub fn creation_timeout(&self, default: Duration) -> Duration {
        self.annotation(names::annotation::EFFECTIVE_CREATION_TIMEOUT)
            .and_then(|text| Timeout::from(text).duration())
            .or_else(|| self.spec.creation_timeout.as_ref()?.duration())
            .unwrap_or(default)
    }

    /// Hooks of a kind that hold the deletion, see [`names::hook`]: the annotation's own name and
    /// who put it there.
    pub fn hooks(&self, prefix: &str) -> Vec<(&str, &str)> {
        let annotations = self.metadata.annotations.iter().flatten();
        annotations
            .filter_map(|(key, owner)| {
                let rest = key.strip_prefix(prefix)?;
                let name = rest.strip_prefix('/').unwrap_or(rest);
                Some((name, owner.as_str()))
            })
            .collect()
    }

    /// After how much time of terminating a pod is not waited for; `None`: always waited for.
    pub fn skip_wait_for_delete(&self, default: Option<Duration>) -> Option<Duration> {
        self.annotation(names::annotation::SKIP_WAIT_FOR_DELETE)
            .and_then(|text| {
                let seconds = text.parse().ok().map(Duration::from_secs);
                seconds.or_else(|| Timeout::from(text).duration())
            })
            .or(default)
            .filter(|limit| !limit.is_zero())
    }

    /// Whether the operator asked for force: label `force-deletion`, read as Go reads a bool.
    pub fn wants_force(&self) -> bool {
        let value = self.label(names::label::FORCE_DELETION).unwrap_or_default();
        ["1", "t", "T", "true", "TRUE", "True"].contains(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_as_upstream_writes_it_reads_and_comes_back_the_same() {
        let upstream = serde_json::json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "Machine",
            "metadata": { "name": "m", "namespace": "default" },
            "spec": {
                "class": { "kind": "MachineClass", "name": "c" },
                "providerID": "aws:///x/i-1",
                "nodeTemplate": { "metadata": { "creationTimestamp": null }, "spec": {} },
                "drainTimeout": "2h0m0s"
            },
            "status": {
                "currentStatus": {
                    "phase": "SomethingNew", "timeoutActive": true, "lastUpdateTime": null
                },
                "lastOperation": {
                    "description": "d", "errorCode": "Strange", "type": "Repaint",
                    "state": "Wet", "lastUpdateTime": "2026-01-02T03:04:05Z"
                }
            }
        });
        let machine: Machine = serde_json::from_value(upstream).unwrap();
        assert_eq!(machine.phase(), MachinePhase::Other("SomethingNew".into()));
        let back = serde_json::to_value(&machine).unwrap();
        assert_eq!(back["status"]["currentStatus"]["phase"], "SomethingNew");
        assert_eq!(back["status"]["lastOperation"]["type"], "Repaint");
        assert_eq!(back["status"]["lastOperation"]["errorCode"], "Strange");
        assert_eq!(back["spec"]["drainTimeout"], "2h0m0s");
    }

    #[test]
    fn a_machine_with_an_empty_spec_still_decodes() {
        let machine: Machine = serde_json::from_value(serde_json::json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m" }, "spec": {}
        }))
        .unwrap();
        assert_eq!(machine.spec.class.name, "");
        assert_eq!(machine.phase(), MachinePhase::New);
    }

    #[test]
    fn the_annotation_wins_over_the_spec_and_the_spec_over_the_default() {
        let mut machine = Machine::default();
        let default = Duration::from_mins(20);
        assert_eq!(machine.creation_timeout(default), default);
        machine.spec.creation_timeout = Some("3m".into());
        assert_eq!(machine.creation_timeout(default), Duration::from_mins(3));
        let key = names::annotation::EFFECTIVE_CREATION_TIMEOUT.to_owned();
        machine.metadata.annotations = Some([(key, "7m".to_owned())].into());
        assert_eq!(machine.creation_timeout(default), Duration::from_mins(7));
    }
}

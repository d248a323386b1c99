//! What would become of sets and deployments, if the core runs them too. Pure.

use ostler_api::names::label;
use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::{deployment, set};
use serde::Serialize;

use crate::describe::fleet::is_controlled_by;
use crate::rollout::progress;

/// A set or deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FleetRow {
    /// `machinedeployment` or `machineset`.
    pub(super) kind: &'static str,
    pub(super) name: String,
    /// `taken over` or `refused`.
    pub(super) becomes: &'static str,
    pub(super) note: String,
    pub(super) stands_in_the_way: bool,
}

impl FleetRow {
    fn new(kind: &'static str, name: &str, problems: &[String], note: String) -> Self {
        let refused = !problems.is_empty();
        let becomes = if refused { "refused" } else { "taken over" };
        let note = if refused { problems.join("; ") } else { note };
        Self { kind, name: name.to_owned(), becomes, note, stands_in_the_way: refused }
    }
}

/// One row for each deployment, and for each set that belongs to none.
pub(super) fn rows(
    deployments: &[MachineDeployment],
    sets: &[MachineSet],
    machines: &[Machine],
) -> Vec<FleetRow> {
    let of_deployments = deployments.iter().map(|one| {
        let problems = deployment::valid::problems(one, &[]);
        let progress = progress::of(one);
        let state = if progress.is_complete() {
            "rolled out".to_owned()
        } else {
            format!("its rollout goes on: {}", progress.text())
        };
        FleetRow::new("machinedeployment", one.name(), &problems, state)
    });
    let of_sets = sets.iter().filter_map(|one| {
        let machines = machines.iter();
        let machines = machines.filter(|machine| is_controlled_by(&machine.metadata, one.uid()));
        let count = machines.count();
        let problems = set::broken(one, count > 0);
        let frozen = one.label(label::FREEZE) == Some("True");
        let owners = one.metadata.owner_references.iter().flatten();
        let owned = owners.into_iter().any(|owner| owner.controller == Some(true));
        // Those of a deployment are told with it, unless there is something to say.
        let silent = owned && problems.is_empty() && !frozen;
        let frozen = if frozen { "frozen, and stays so while it has too many; " } else { "" };
        let note = format!("{frozen}{count} machines of {}", one.spec.replicas);
        (!silent).then(|| FleetRow::new("machineset", one.name(), &problems, note))
    });
    of_deployments.chain(of_sets).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn deployment(spec: &Value) -> MachineDeployment {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "d", "uid": "d", "generation": 1 }, "spec": spec,
            "status": { "observedGeneration": 1, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 2 }
        }))
        .unwrap()
    }

    fn template() -> Value {
        json!({
            "metadata": { "labels": { "name": "d" } },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } }
        })
    }

    fn set(name: &str, owner: Option<&str>, frozen: bool) -> MachineSet {
        let owners = owner.map(|uid| {
            json!([{ "apiVersion": "v1", "kind": "MachineDeployment", "name": "d", "uid": uid, "controller": true }])
        });
        let labels = if frozen { json!({ "freeze": "True" }) } else { json!({}) };
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": { "name": name, "uid": name, "ownerReferences": owners, "labels": labels },
            "spec": { "replicas": 2, "selector": { "matchLabels": { "name": "d" } }, "template": template() }
        }))
        .unwrap()
    }

    #[test]
    fn a_rollout_in_its_middle_is_taken_over_and_what_the_core_would_refuse_stands_in_the_way() {
        let good = json!({
            "replicas": 2, "selector": { "matchLabels": { "name": "d" } }, "template": template(),
            "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } }
        });
        let mut bad = good.clone();
        bad["selector"] = json!({ "matchLabels": { "name": "another" } });
        let rows = rows(&[deployment(&good), deployment(&bad)], &[], &[]);
        assert_eq!((rows[0].becomes, rows[0].stands_in_the_way), ("taken over", false), "{rows:?}");
        assert_eq!(rows[0].note, "its rollout goes on: 1 of 2 machines are replaced");
        assert_eq!((rows[1].becomes, rows[1].stands_in_the_way), ("refused", true), "{rows:?}");
    }

    #[test]
    fn sets_of_a_deployment_are_told_with_it_unless_they_are_frozen() {
        let sets = [set("a", Some("d"), false), set("b", None, false), set("c", Some("d"), true)];
        let rows = rows(&[], &sets, &[]);
        let told: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(told, ["b", "c"]);
        assert_eq!(rows[0].note, "0 machines of 2");
        assert!(rows[1].note.starts_with("frozen"), "{rows:?}");
    }
}

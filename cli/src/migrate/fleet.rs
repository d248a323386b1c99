//! What would become of sets and deployments, if the core runs them too, and on the way back. Pure.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::bootstrap::Bootstrap;
use ostler_api::machine::MachineSpec;
use ostler_api::machine_deployment::StrategyType;
use ostler_api::machine_set::MachineTemplateSpec;
use ostler_api::names::{annotation, label};
use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::deployment::snapshot::SetView;
use ostler_lifecycle::template_identity::identity;
use ostler_lifecycle::{deployment, set};
use serde::Serialize;

use crate::describe::fleet::is_controlled_by;
use crate::progress;

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
    /// Parts that machine-controller-manager would not take back unchanged. None of them hinders the way to Ostler.
    pub(super) back: Vec<String>,
}

impl FleetRow {
    fn new(
        kind: &'static str,
        name: &str,
        problems: &[String],
        note: String,
        back: Vec<String>,
    ) -> Self {
        let refused = !problems.is_empty();
        let becomes = if refused { "refused" } else { "taken over" };
        let note = if refused { problems.join("; ") } else { note };
        Self { kind, name: name.to_owned(), becomes, note, stands_in_the_way: refused, back }
    }
}

/// Machines for whose Nodes Gardener's autoscaler finds no group, and why: a set has to be the first owner of the
/// machine, and a deployment the first owner of the set. The autoscaler fails at each such machine, and scales nothing.
pub(super) fn beside_autoscaler(
    sets: &[MachineSet],
    machines: &[Machine],
) -> Vec<(String, String)> {
    let first = |meta: &ObjectMeta| meta.owner_references.iter().flatten().next().cloned();
    let strange = machines.iter().filter_map(|machine| {
        let why = match first(&machine.metadata) {
            None => "it has no owner".to_owned(),
            Some(owner) => {
                let set = sets.iter().find(|set| set.name() == owner.name);
                if set.is_some_and(|set| first(&set.metadata).is_some()) {
                    return None;
                }
                let what = if set.is_some() { "is of no deployment" } else { "is no machineset" };
                format!("its owner, {} {}, {what}", owner.kind.to_lowercase(), owner.name)
            }
        };
        let note = format!("{why}: Gardener's autoscaler scales nothing in this namespace");
        Some((machine.name().to_owned(), note))
    });
    strange.collect()
}

/// One row for each deployment, and for each set that belongs to none.
pub(super) fn rows(
    deployments: &[MachineDeployment],
    sets: &[MachineSet],
    machines: &[Machine],
) -> Vec<FleetRow> {
    let of_deployments = deployments.iter().map(|one| {
        let own = sets.iter().filter(|set| is_controlled_by(&set.metadata, one.uid()));
        let own: Vec<&MachineSet> = own.collect();
        // A selector that was changed is found by the sets; their Machines tell nothing here.
        let view = |set: &&MachineSet| SetView {
            set: Arc::new((*set).clone()),
            class: None,
            machines: vec![],
        };
        let views: Vec<SetView> = own.iter().map(view).collect();
        let problems = deployment::valid::problems(one, &views);
        let progress = progress::of(one);
        let state = if progress.is_complete() {
            "rolled out".to_owned()
        } else {
            format!("its rollout goes on: {}", progress.text())
        };
        let back = deployment_back(one, &own, machines);
        FleetRow::new("machinedeployment", one.name(), &problems, state, back)
    });
    let of_sets = sets.iter().filter_map(|one| {
        let machines = machines.iter();
        let machines = machines.filter(|machine| is_controlled_by(&machine.metadata, one.uid()));
        let count = machines.count();
        let problems = set::broken(one, count > 0);
        let frozen = one.label(label::FREEZE) == Some("True");
        let owners = one.metadata.owner_references.iter().flatten();
        let owned = owners.into_iter().any(|owner| owner.controller == Some(true));
        let back = if owned { Vec::new() } else { set_back(one) };
        // Those of a deployment are told with it, unless there is something to say.
        let silent = owned && problems.is_empty() && !frozen;
        let frozen = if frozen { "frozen, and stays so while it has too many; " } else { "" };
        let note = format!("{frozen}{count} machines of {}", one.spec.replicas());
        (!silent).then(|| FleetRow::new("machineset", one.name(), &problems, note, back))
    });
    of_deployments.chain(of_sets).collect()
}

/// Annotations on which machine-controller-manager does not act, and which stay.
fn unknown_annotations<'a>(
    annotation: impl Fn(&str) -> Option<&'a str>,
    names: &[&str],
) -> Vec<String> {
    let there = names.iter().filter(|name| annotation(name).is_some());
    there.map(|name| format!("annotation {name} stays and has no effect")).collect()
}

fn unknown_fields(template: &MachineTemplateSpec, then: &str) -> Option<String> {
    let MachineSpec { bootstrap, version, .. } = &template.spec;
    let fields = [
        ("bootstrap", bootstrap.as_ref().is_some_and(|it| *it != Bootstrap::default())),
        ("version", version.as_ref().is_some_and(|it| !it.is_empty())),
    ];
    let there: Vec<&str> = fields.iter().filter(|field| field.1).map(|field| field.0).collect();
    (!there.is_empty()).then(|| {
        let there = there.join(" and ");
        format!("template.spec: it does not know {there}{then}; new machines get the user data of the class's secrets")
    })
}

fn set_back(set: &MachineSet) -> Vec<String> {
    let names = [annotation::DELETE_POLICY, annotation::RUN_BY];
    let unknown = unknown_annotations(|name| set.annotation(name), &names);
    unknown_fields(&set.spec.template, " and drops them with its next write")
        .into_iter()
        .chain(unknown)
        .collect()
}

fn deployment_back(
    deployment: &MachineDeployment,
    sets: &[&MachineSet],
    machines: &[Machine],
) -> Vec<String> {
    let refused = ", and its writes are refused until you empty them once the core is stopped (bootstrap: {}, version: \"\")";
    let mut back: Vec<String> =
        unknown_fields(&deployment.spec.template, refused).into_iter().collect();
    if let Some(name) = another_current(deployment, sets) {
        back.push(format!(
            "it takes set {name} for the current one, and rolls back to it: its template differs by those fields only"
        ));
    }
    if deployment.annotation(annotation::CLUSTER_API_PAUSED).is_some()
        && deployment.spec.paused != Some(true)
    {
        back.push(format!(
            "it does not know annotation {}, and goes on: set spec.paused",
            annotation::CLUSTER_API_PAUSED
        ));
    }
    let names =
        [annotation::MAX_UNHEALTHY_REPLACEMENTS, annotation::DELETE_POLICY, annotation::RUN_BY];
    back.extend(unknown_annotations(|name| deployment.annotation(name), &names));
    if deployment.spec.strategy.type_ == Some(StrategyType::InPlaceUpdate) {
        back.extend(in_place_back(deployment, sets, machines));
    }
    back
}

/// The set with which machine-controller-manager would go on, if the core goes on with another: the oldest set whose
/// template machine-controller-manager takes for the template of the deployment.
fn another_current<'a>(deployment: &MachineDeployment, sets: &[&'a MachineSet]) -> Option<&'a str> {
    let to_it = |template: &MachineTemplateSpec| {
        let mut known = template.clone();
        known.spec.bootstrap = None;
        known.spec.version = None;
        identity(&known)
    };
    let oldest = |is: &dyn Fn(&MachineSet) -> bool| {
        let alike = sets.iter().copied().filter(|set| is(set));
        alike.min_by_key(|set| (set.metadata.creation_timestamp.clone().map(|it| it.0), set.name()))
    };
    let template = &deployment.spec.template;
    let (ours, its) = (identity(template), to_it(template));
    let its = oldest(&|set| to_it(&set.spec.template) == its)?.name();
    let ours = oldest(&|set| identity(&set.spec.template) == ours)?.name();
    (its != ours).then_some(its)
}

/// An update in place that is under way.
fn in_place_back(
    deployment: &MachineDeployment,
    sets: &[&MachineSet],
    machines: &[Machine],
) -> Vec<String> {
    let mut back = Vec::new();
    let selector = deployment.spec.selector.as_ref();
    if selector.is_some_and(|it| it.match_expressions.as_ref().is_some_and(|all| !all.is_empty())) {
        back.push(
            "selector.matchExpressions: its update in place reads matchLabels only".to_owned(),
        );
    }
    let of_it = |one: &&Machine| sets.iter().any(|set| is_controlled_by(&one.metadata, set.uid()));
    let of_it = machines.iter().filter(of_it);
    let handed: Vec<&str> =
        of_it.filter(|one| one.label(label::UPDATE_RESULT).is_some()).map(Machine::name).collect();
    if !handed.is_empty() {
        back.push(format!(
            "handed over in place, and not counted yet: {}; it counts them, once all machines of the set have Nodes",
            handed.join(", ")
        ));
    }
    let held = sets.iter().filter(|set| set.label(label::SCALE_UP_DISABLED).is_some());
    let held: Vec<&str> = held.map(|set| set.name()).collect();
    if !held.is_empty() {
        back.push(format!(
            "it leaves label {} on {}: after a rollback they create nothing until you remove it",
            label::SCALE_UP_DISABLED,
            held.join(", ")
        ));
    }
    back
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

    #[test]
    fn gardeners_autoscaler_fails_at_each_machine_whose_first_owner_is_no_set_of_a_deployment() {
        let machine = |name: &str, owner: Option<(&str, &str)>| -> Machine {
            let owner = owner.map(|(kind, name)| {
                json!([{ "apiVersion": "v1", "kind": kind, "name": name, "uid": name, "controller": true }])
            });
            serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": { "name": name, "ownerReferences": owner }, "spec": {}
            }))
            .unwrap()
        };
        let sets = [set("a", Some("d"), false), set("b", None, false)];
        let machines = [
            machine("fine", Some(("MachineSet", "a"))),
            machine("set", Some(("MachineSet", "b"))),
            machine("pool", Some(("MachinePool", "p"))),
            machine("alone", None),
        ];
        let found = beside_autoscaler(&sets, &machines);
        let told: Vec<_> = found.iter().map(|(name, why)| (name.as_str(), why.as_str())).collect();
        assert_eq!(told.iter().map(|it| it.0).collect::<Vec<_>>(), ["set", "pool", "alone"]);
        for ((_, why), part) in
            told.iter().zip(["is of no deployment", "machinepool p", "no owner"])
        {
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn a_selector_that_was_changed_is_found_by_the_sets_of_the_deployment() {
        let changed = json!({
            "replicas": 2, "selector": { "matchLabels": { "name": "another" } },
            "strategy": { "type": "Recreate" },
            "template": {
                "metadata": { "labels": { "name": "another" } },
                "spec": { "class": { "kind": "MachineClass", "name": "c" } },
            },
        });
        let rows = rows(&[deployment(&changed)], &[set("a", Some("d"), false)], &[]);
        assert!(rows[0].note.contains("spec.selector was changed"), "{rows:?}");
    }

    #[test]
    fn what_the_other_controller_would_not_take_back_is_told_and_stands_in_no_way_in() {
        let mut spec = json!({
            "replicas": 2, "template": template(),
            "selector": {
                "matchLabels": { "name": "d" },
                "matchExpressions": [{ "key": "name", "operator": "Exists" }],
            },
            "strategy": {
                "type": "InPlaceUpdate",
                "inPlaceUpdate": { "maxSurge": 0, "maxUnavailable": 1, "orchestrationType": "Auto" },
            },
        });
        spec["template"]["spec"]["version"] = json!("1.33.0");
        let mut ours = deployment(&spec);
        let paused = (annotation::CLUSTER_API_PAUSED.to_owned(), String::new());
        ours.metadata.annotations = Some([paused].into());
        // To the other controller the older one, without the version, has the template of the deployment.
        let mut old = set("old", Some("d"), false);
        old.metadata.labels =
            Some([(label::SCALE_UP_DISABLED.to_owned(), "true".to_owned())].into());
        let mut new = set("young", Some("d"), false);
        new.spec.template = ours.spec.template.clone();
        let machine: Machine = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": "moved", "labels": { label::UPDATE_RESULT: "successful" },
                "ownerReferences": [
                    { "apiVersion": "v1", "kind": "MachineSet", "name": "young", "uid": "young", "controller": true }
                ],
            },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } },
        }))
        .unwrap();
        let rows = rows(&[ours], &[old, new], &[machine]);
        assert!(rows.len() == 1 && !rows[0].stands_in_the_way, "{rows:?}");
        let told = [
            "version",
            "set old",
            "spec.paused",
            "matchLabels only",
            "not counted yet: moved",
            "on old",
        ];
        let back = &rows[0].back;
        assert_eq!(back.len(), told.len(), "{back:#?}");
        for (note, what) in back.iter().zip(told) {
            assert!(note.contains(what), "{what}: {note}");
        }
    }
}

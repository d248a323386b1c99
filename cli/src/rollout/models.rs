//! What the instances of a pool are made from: it keeps no revisions, but each instance says which model it has. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ostler_api::{Machine, MachinePool};
use serde::Serialize;

use crate::table::{Table, span};

/// A model that the group has, or an instance still has.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Model {
    hash: String,
    /// Whether all instances are to have this model.
    current: bool,
    class: String,
    version: String,
    machines: usize,
    /// When the newest Machine with it was made.
    newest: Option<Timestamp>,
}

/// All models, the current model last.
pub(super) fn of(pool: &MachinePool, machines: &[Machine]) -> Vec<Model> {
    let hash =
        |it: Option<&ostler_api::SpecDigest>| it.map(ToString::to_string).unwrap_or_default();
    let current = hash(pool.status.as_ref().and_then(|status| status.model_hash.as_ref()));
    let template = &pool.spec.template.spec;
    let mut all = BTreeMap::from([(
        current.clone(),
        Model {
            current: true,
            class: template.class.name.clone(),
            version: template.version.clone().unwrap_or_default(),
            ..Model::default()
        },
    )]);
    for machine in machines {
        let said = machine.status.as_ref().and_then(|status| status.instance.as_ref());
        let model = all.entry(hash(said.and_then(|it| it.model_hash.as_ref()))).or_default();
        if !model.current {
            model.class.clone_from(&machine.spec.class.name);
            model.version = machine.spec.version.clone().unwrap_or_default();
        }
        model.machines += 1;
        let made = machine.metadata.creation_timestamp.as_ref().map(|time| time.0);
        model.newest = model.newest.max(made);
    }
    let mut all: Vec<_> = all.into_iter().map(|(hash, model)| Model { hash, ..model }).collect();
    all.sort_by_key(|model| (model.current, model.newest));
    all
}

/// One row for each.
pub(super) fn table(models: &[Model], now: Timestamp) -> Table {
    let row = |it: &Model| {
        vec![
            if it.hash.is_empty() { "not known".to_owned() } else { it.hash.clone() },
            if it.current { "yes" } else { "no" }.to_owned(),
            it.class.clone(),
            it.version.clone(),
            it.machines.to_string(),
            it.newest.map(|at| span(now.duration_since(at))).unwrap_or_default(),
        ]
    };
    let heading = vec!["MODEL", "CURRENT", "CLASS", "VERSION", "MACHINES", "NEWEST"];
    Table { heading, rows: models.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_models_of_a_pool_are_those_of_its_instances_with_the_current_one_last() {
        let pool = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool", "metadata": { "name": "p" },
            "spec": { "template": { "spec": { "class": { "name": "big" }, "version": "v2" } } },
            "status": { "modelHash": "b-1" }
        }));
        let machine = |model: Option<&str>, class: &str, hour: i32| -> Machine {
            serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
                "metadata": { "name": "m", "creationTimestamp": format!("2026-01-01T{hour}:00:00Z") },
                "spec": { "class": { "kind": "MachineClass", "name": class } },
                "status": model.map(|model| json!({
                    "instance": { "provisioningState": "Succeeded", "modelHash": model }
                }))
            }))
            .unwrap()
        };
        let machines = [
            machine(Some("b-1"), "small", 11),
            machine(Some("a-1"), "small", 10),
            machine(Some("a-1"), "small", 11),
            machine(None, "small", 10),
        ];
        let models = of(&pool.unwrap(), &machines);
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let rows: Vec<_> = table(&models, now).rows.iter().map(|row| row.join("|")).collect();
        assert_eq!(
            rows,
            ["not known|no|small||1|2h0m", "a-1|no|small||2|1h0m", "b-1|yes|big|v2|1|1h0m"]
        );
    }
}

//! Deployments, sets that nothing controls, pools and reserves: how far each is, as a table. Pure.

use std::collections::BTreeSet;

use kube::Resource;
use ostler_api::{MachineDeployment, MachinePool, MachineReserve, MachineSet};
use ostler_lifecycle::owner::controller;
use serde::Serialize;

use crate::kinds::Kind;
use crate::progress::{self, Progress};
use crate::table::Table;

/// Columns in the order in which they are left out of a table that is too wide.
pub(crate) const LESS: [&str; 4] = ["AVAILABLE", "UP-TO-DATE", "READY", "WANTED"];

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Group {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) progress: String,
    /// How many machines are wanted, up to date, ready and available; `None`: that is no number.
    pub(crate) wanted: Option<i32>,
    pub(crate) up_to_date: i32,
    pub(crate) ready: i32,
    pub(crate) available: i32,
}

impl Group {
    fn new<K: Resource>(kind: Kind, one: &K, progress: &Progress, numbers: [i32; 4]) -> Self {
        let [wanted, up_to_date, ready, available] = numbers;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            kind: kind.singular(),
            namespace: text(&one.meta().namespace),
            name: text(&one.meta().name),
            state: progress.state(),
            progress: progress.text().to_owned(),
            wanted: Some(wanted),
            up_to_date,
            ready,
            available,
        }
    }

    pub(crate) fn of_deployment(one: &MachineDeployment) -> Self {
        let status = one.status.clone().unwrap_or_default();
        let (new, ready) = (status.updated_replicas, status.ready_replicas);
        let numbers = [one.spec.replicas(), new, ready, status.available_replicas];
        Self::new(Kind::Deployment, one, &progress::of(one), numbers)
    }

    pub(crate) fn of_pool(one: &MachinePool) -> Self {
        let status = one.status.clone().unwrap_or_default();
        let (new, ready) = (status.up_to_date_replicas, status.ready_replicas);
        let numbers = [one.replicas(), new, ready, status.available_replicas];
        Self::new(Kind::Pool, one, &progress::of_pool(one), numbers)
    }

    /// Of a set that has no deployment.
    pub(crate) fn of_set(one: &MachineSet) -> Option<Self> {
        if controller(&one.metadata).is_some() {
            return None;
        }
        let status = one.status.clone().unwrap_or_default();
        let (all, ready) = (status.replicas, status.ready_replicas);
        let numbers = [one.spec.replicas(), all, ready, status.available_replicas];
        Some(Self::new(Kind::Set, one, &progress::of_set(one), numbers))
    }

    pub(crate) fn of_reserve(one: &MachineReserve) -> Self {
        let status = one.status.clone().unwrap_or_default();
        let ready = status.ready_replicas;
        let numbers = [0, status.updated_replicas, ready, ready];
        let progress = progress::of_reserve(one);
        Self { wanted: None, ..Self::new(Kind::Reserve, one, &progress, numbers) }
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.state == Progress::Complete(String::new()).state()
    }
}

/// Whether a table needs a column for namespaces.
pub(crate) fn are_several<'a>(namespaces: impl Iterator<Item = &'a str>) -> bool {
    namespaces.collect::<BTreeSet<_>>().len() > 1
}

/// At most `most` groups, and how many are left out. Incomplete groups come first.
pub(crate) fn table(mut groups: Vec<Group>, most: usize) -> (Table, usize) {
    let several = are_several(groups.iter().map(|it| it.namespace.as_str()));
    groups.sort_by_key(Group::is_complete);
    let surplus = groups.len().saturating_sub(most);
    let rows = groups.into_iter().take(most).map(|it| {
        let complete = it.is_complete();
        let number = |number: i32| number.to_string();
        vec![
            format!("{}/{}", it.kind, it.name),
            if several { it.namespace } else { String::new() },
            if complete { "complete".to_owned() } else { it.progress },
            it.wanted.map(number).unwrap_or_default(),
            number(it.up_to_date),
            number(it.ready),
            number(it.available),
        ]
    });
    let heading =
        vec!["NAME", "NAMESPACE", "PROGRESS", "WANTED", "UP-TO-DATE", "READY", "AVAILABLE"];
    (Table { heading, rows: rows.collect() }, surplus)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::table::fit;

    #[test]
    fn those_that_roll_come_first_and_a_namespace_is_told_where_there_are_several() {
        let deployment = |namespace: &str, name: &str, updated: i32| {
            let one = serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
                "metadata": { "name": name, "namespace": namespace, "generation": 1 },
                "spec": { "replicas": 3 },
                "status": {
                    "observedGeneration": 1, "replicas": 3, "updatedReplicas": updated,
                    "readyReplicas": 3, "availableReplicas": 3
                }
            }));
            Group::of_deployment(&one.unwrap())
        };
        let pool = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": { "name": "p", "namespace": "shop", "generation": 1 },
            "spec": { "replicas": 2, "template": {} },
            "status": { "observedGeneration": 1, "replicas": 1, "readyReplicas": 1 }
        }));
        let pool = Group::of_pool(&pool.unwrap());
        let all = vec![deployment("default", "a", 3), deployment("default", "b", 1), pool];
        let (shown, surplus) = table(all, 2);
        assert_eq!(surplus, 1);
        insta::assert_snapshot!(fit(shown, 200, &LESS), @r"
        NAME                  NAMESPACE   PROGRESS                       WANTED   UP-TO-DATE   READY   AVAILABLE
        machinedeployment/b   default     1 of 3 machines are replaced   3        1            3       3
        machinepool/p         shop        1 of 2 machines running        2        0            1       0
        ");
        let (narrow, _) = table(vec![deployment("default", "b", 1)], 2);
        insta::assert_snapshot!(fit(narrow, 60, &LESS), @r"
        NAME                  PROGRESS                       WANTED
        machinedeployment/b   1 of 3 machines are replaced   3
        ");
    }

    #[test]
    fn a_set_of_a_deployment_is_not_shown_beside_that() {
        let set = |owners| {
            let set = serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
                "metadata": { "name": "s", "generation": 1, "ownerReferences": owners },
                "spec": { "replicas": 2 },
                "status": { "observedGeneration": 1, "replicas": 2, "availableReplicas": 1 }
            }));
            Group::of_set(&set.unwrap())
        };
        let owner = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "name": "d",
            "uid": "d", "controller": true
        });
        assert!(set(json!([owner])).is_none());
        assert_eq!(set(json!([])).unwrap().progress, "1 of 2 machines available");
    }
}

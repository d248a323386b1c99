//! The revisions of a deployment. Pure.

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use ostler_api::MachineSet;
use serde_json::{Value, json};

use crate::describe::fleet::revision;
use crate::table::{Table, span};

/// Says why a revision was made, as kubectl has it.
const CHANGE_CAUSE: &str = "kubernetes.io/change-cause";

/// One row for each revision, the newest last.
pub(super) fn table(sets: &[MachineSet], now: Timestamp) -> Table {
    let mut sets: Vec<&MachineSet> = sets.iter().collect();
    sets.sort_by_key(|set| revision(set));
    let row = |set: &&MachineSet| {
        let made = set.metadata.creation_timestamp.as_ref();
        vec![
            revision(set).map(|number| number.to_string()).unwrap_or_default(),
            set.name().to_owned(),
            set.spec.template.spec.class.name.clone(),
            set.status.as_ref().map(|status| status.replicas).unwrap_or_default().to_string(),
            made.map(|made| span(now.duration_since(made.0))).unwrap_or_default(),
            set.annotation(CHANGE_CAUSE).unwrap_or_default().to_owned(),
        ]
    };
    let heading = vec!["REVISION", "MACHINESET", "CLASS", "MACHINES", "AGE", "CHANGE-CAUSE"];
    Table { heading, rows: sets.iter().map(row).collect() }
}

/// The same for scripts.
pub(super) fn data(sets: &[MachineSet]) -> Value {
    let mut sets: Vec<&MachineSet> = sets.iter().collect();
    sets.sort_by_key(|set| revision(set));
    let one = |set: &&MachineSet| {
        json!({
            "revision": revision(set), "machineSet": set.name(),
            "class": set.spec.template.spec.class.name,
            "machines": set.status.as_ref().map(|status| status.replicas).unwrap_or_default(),
            "created": set.metadata.creation_timestamp, "changeCause": set.annotation(CHANGE_CAUSE)
        })
    };
    sets.iter().map(one).collect()
}

/// The set of a revision.
///
/// # Errors
/// There is none: the message names those that there are.
pub(super) fn find<'a>(
    sets: &'a [MachineSet],
    name: &str,
    number: i64,
) -> anyhow::Result<&'a MachineSet> {
    let Some(set) = sets.iter().find(|set| revision(set) == Some(number)) else {
        let mut there: Vec<i64> = sets.iter().filter_map(revision).collect();
        there.sort_unstable();
        let there: Vec<String> = there.iter().map(ToString::to_string).collect();
        bail!("machinedeployment {name} has no revision {number}; it has {}", there.join(", "));
    };
    Ok(set)
}

/// The revision that an undo goes back to; 0 stands for the one before the current one.
///
/// # Errors
/// There is none.
pub(super) fn target(sets: &[MachineSet], name: &str, to: i64) -> anyhow::Result<i64> {
    if to != 0 {
        find(sets, name, to)?;
        return Ok(to);
    }
    let mut there: Vec<i64> = sets.iter().filter_map(revision).collect();
    there.sort_unstable();
    let before = there.len().checked_sub(2).and_then(|index| there.get(index));
    before.copied().with_context(|| format!("machinedeployment {name} has no earlier revision"))
}

/// The template of a revision as YAML.
///
/// # Errors
/// It cannot be written.
pub(super) fn template(set: &MachineSet) -> anyhow::Result<String> {
    let text =
        serde_saphyr::to_string(&set.spec.template).context("the template cannot be shown")?;
    Ok(crate::terminal::lines(text.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    fn set(name: &str, number: i64) -> MachineSet {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
            "metadata": {
                "name": name, "creationTimestamp": "2026-01-01T11:00:00Z",
                "annotations": {
                    "deployment.kubernetes.io/revision": number.to_string(), CHANGE_CAUSE: "a new image"
                }
            },
            "spec": { "template": { "spec": { "class": { "kind": "MachineClass", "name": "big" } } } },
            "status": { "replicas": 3 }
        }))
        .unwrap()
    }

    #[test]
    fn revisions_come_in_order_with_their_classes_and_machines() {
        let now = "2026-01-01T12:00:00Z".parse().unwrap();
        let text = table::render(&table(&[set("a-2", 10), set("a-1", 9)], now));
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split("   ").map(str::trim).collect()).collect();
        let words = |row: &[&str]| {
            row.iter().filter(|cell| !cell.is_empty()).copied().collect::<Vec<_>>().join("|")
        };
        assert_eq!(words(&rows[1]), "9|a-1|big|3|1h0m|a new image");
        assert_eq!(words(&rows[2]), "10|a-2|big|3|1h0m|a new image");
    }

    #[test]
    fn an_undo_goes_back_by_one_or_to_a_revision_that_exists() {
        let sets = [set("c", 12), set("a", 9), set("b", 10)];
        assert_eq!(target(&sets, "a", 0).unwrap(), 10);
        assert_eq!(target(&sets, "a", 9).unwrap(), 9);
        let refused = target(&sets, "a", 11).unwrap_err().to_string();
        assert!(refused.contains("it has 9, 10, 12"), "{refused}");
        assert!(
            target(&sets[..1], "a", 0).unwrap_err().to_string().contains("no earlier revision")
        );
    }

    #[test]
    fn the_template_of_a_revision_is_yaml() {
        let text = template(&set("a", 1)).unwrap();
        assert!(text.contains("class:") && text.contains("name: big"), "{text}");
    }
}

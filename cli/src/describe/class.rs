//! A MachineClass and its users.

use anyhow::Context as _;
use jiff::Timestamp;
use kube::{Client, ResourceExt};
use ostler_api::machine::{MachineSpec, WaitReason};
use ostler_api::{Machine, MachineClass, MachineDeployment, MachinePool, MachineSet};
use ostler_lifecycle::class::{names_class, users};
use serde_json::{Map, json};

use super::fleet::named;
use super::found::Found;
use super::read::{self, Described};
use super::sheet::{Page, event_lines};
use crate::cluster;

/// A class and its users, as far as they could be read.
#[derive(Debug)]
pub(super) struct Subject {
    found: read::Subject<MachineClass>,
    /// Names, by kind.
    users: [(&'static str, Vec<String>); 4],
    /// Machines of the class whose driver refuses the class now.
    refused: Vec<Machine>,
}

/// Reads a class and its users.
pub(super) async fn gather(
    client: &Client,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> anyhow::Result<Subject> {
    let found = read::subject(client, namespace, name, now).await?;
    let place = (client, namespace, name);
    let machines = users_of::<Machine>(place, |it| &it.spec).await?;
    let refused = machines.iter().filter(|it| refusal(it).is_some()).cloned().collect();
    let users = [
        (
            "machinedeployment",
            names(&users_of::<MachineDeployment>(place, |it| &it.spec.template.spec).await?),
        ),
        ("machineset", names(&users_of::<MachineSet>(place, |it| &it.spec.template.spec).await?)),
        ("machinepool", names(&users_of::<MachinePool>(place, |it| &it.spec.template.spec).await?)),
        ("machine", names(&machines)),
    ];
    Ok(Subject { found, users, refused })
}

fn names<K: ResourceExt>(all: &[K]) -> Vec<String> {
    all.iter().map(ResourceExt::name_any).collect()
}

/// The driver's objection to the class, as a machine reports it.
fn refusal(machine: &Machine) -> Option<String> {
    let wait = machine.status.as_ref()?.waiting_for.as_ref()?;
    matches!(wait.reason, WaitReason::InvalidSpec | WaitReason::ClassInvalid)
        .then(|| wait.message.clone().unwrap_or_default())
}

/// Whether the class is valid as it is now; `None`: no core said so yet, or its definition has no place for that.
fn valid(subject: &Subject) -> Option<String> {
    if let [first, ..] = subject.refused.as_slice() {
        let wait = refusal(first).unwrap_or_default();
        let users = match subject.refused.len() {
            1 => format!("machine {}", first.name()),
            more => format!("{more} machines, such as {},", first.name()),
        };
        return Some(format!("no: {users} cannot use it: {wait}"));
    }
    let class = &subject.found.object;
    let said = class.valid().filter(|it| it.observed_generation == class.metadata.generation)?;
    let word = match said.status.as_str() {
        "True" => "yes",
        "False" => "no",
        _ => "not known",
    };
    Some(format!("{word}: {}", said.message))
}

/// Objects of a kind that use the class. Of a kind that the cluster does not have there are none.
async fn users_of<K: Described>(
    (client, namespace, class): (&Client, &str, &str),
    spec: fn(&K) -> &MachineSpec,
) -> anyhow::Result<Vec<K>> {
    let all = cluster::list::<K>(client, Some(namespace)).await;
    let all = all.with_context(|| format!("{} cannot be read", K::plural(&())))?;
    Ok(all.into_iter().filter(|it| names_class(spec(it), class)).collect())
}

/// The whole page.
pub(super) fn render(subject: &Subject, now: Timestamp) -> String {
    let Subject { found: read::Subject { object: class, events, .. }, users: kinds, .. } = subject;
    let mut page = Page::wide();
    let used = users(kinds);
    page.line("MachineClass", &named(&class.metadata, now));
    page.line("Provider", class.provider());
    if let Some(valid) = valid(subject) {
        page.line("Valid", &valid);
    }
    page.line("Used by", if used.is_empty() { "nothing" } else { &used });
    page.waits(&waits(subject));
    event_lines(&mut page, events, now);
    page.text()
}

fn waits(subject: &Subject) -> Vec<String> {
    let Subject { found: read::Subject { object: class, unserved, .. }, users: kinds, .. } =
        subject;
    if let Some(unserved) = unserved {
        return vec![unserved.clone()];
    }
    if !class.is_deleting() || users(kinds).is_empty() {
        return Vec::new();
    }
    ["its machines and machinepools to go", "hint: delete what uses it, or give it another class"]
        .map(str::to_owned)
        .to_vec()
}

/// The page and its data.
pub(super) fn found(subject: &Subject, now: Timestamp) -> Found {
    let used: Map<_, _> =
        subject.users.iter().map(|(kind, names)| ((*kind).to_owned(), json!(names))).collect();
    let rest = json!({ "usedBy": used, "valid": valid(subject), "events": subject.found.events });
    Found::new(render(subject, now), &subject.found.object, &waits(subject), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_that_cannot_go_says_what_uses_it() {
        let page = |deleted: Option<&str>, users| {
            let class = serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
                "metadata": { "name": "c", "namespace": "default", "deletionTimestamp": deleted },
                "provider": "fake.ostler.dev", "providerSpec": {}
            }));
            let now = "2026-01-01T12:00:00Z".parse().unwrap();
            let class = class.unwrap();
            let found = read::Subject { object: class, unserved: None, events: Vec::new() };
            render(&Subject { found, users, refused: Vec::new() }, now)
        };
        let users = |names: &[&str]| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            [("machinedeployment", names), ("", vec![]), ("", vec![]), ("", vec![])]
        };
        assert_eq!(
            page(Some("2026-01-01T11:59:30Z"), users(&["workers"])),
            "\
MachineClass       default/c, being deleted for 30s
Provider           fake.ostler.dev
Used by            1 machinedeployment (workers)
Waits for          its machines and machinepools to go
                   hint: delete what uses it, or give it another class
"
        );
        assert!(page(None, users(&[])).ends_with("Used by            nothing\n"));
    }

    #[test]
    fn a_class_is_as_valid_as_its_condition_and_its_machines_say() {
        let subject = |status: &str, generation: i64, refused: Vec<Machine>| {
            let condition = json!({
                "type": "Valid", "status": status, "reason": "Accepted", "message": "so it is",
                "lastTransitionTime": "2026-01-01T11:00:00Z", "observedGeneration": 2
            });
            let class = serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
                "metadata": { "name": "c", "generation": generation },
                "provider": "fake.ostler.dev", "providerSpec": {},
                "status": { "conditions": [condition] }
            }));
            let found =
                read::Subject { object: class.unwrap(), unserved: None, events: Vec::new() };
            let none = || ("", Vec::new());
            Subject { found, users: [none(), none(), none(), none()], refused }
        };
        let machine: Machine = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m" }, "spec": {},
            "status": { "waitingFor": { "reason": "InvalidSpec", "message": "no such zone" } }
        }))
        .unwrap();
        let refused = "no: machine m cannot use it: no such zone";
        for (status, generation, machines, expected) in [
            ("True", 2, vec![], Some("yes: so it is")),
            ("False", 2, vec![], Some("no: so it is")),
            ("Unknown", 2, vec![], Some("not known: so it is")),
            ("True", 3, vec![], None),
            ("True", 2, vec![machine], Some(refused)),
        ] {
            let said = valid(&subject(status, generation, machines));
            assert_eq!(said.as_deref(), expected, "{status} {generation}");
        }
    }
}

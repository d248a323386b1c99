//! A MachineClass and what uses it.

use anyhow::Context as _;
use jiff::Timestamp;
use kube::{Client, ResourceExt};
use ostler_api::machine::{MachineSpec, WaitReason};
use ostler_api::{Machine, MachineClass, MachineDeployment, MachinePool, MachineSet};
use ostler_lifecycle::class::{names_class, users};
use ostler_lifecycle::numbered;
use serde_json::{Map, json};

use super::fleet::named;
use super::found::Found;
use super::read::{self, Described};
use super::sheet::{Page, event_lines, time_of};
use crate::cluster;

/// A class and what uses it, as far as it could be read.
#[derive(Debug)]
pub(super) struct Subject {
    found: read::Subject<MachineClass>,
    /// Names, by kind.
    users: [(&'static str, Vec<String>); 4],
    /// Its machines whose driver refuses it now.
    refused: Vec<Machine>,
}

/// Reads a class and what uses it.
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

/// What the driver says against the class, as a machine has it.
fn refusal(machine: &Machine) -> Option<String> {
    let wait = machine.status.as_ref()?.waiting_for.as_ref()?;
    matches!(wait.reason, WaitReason::InvalidSpec | WaitReason::ClassInvalid)
        .then(|| wait.message.clone().unwrap_or_default())
}

/// Whether the class is valid as it is now; `None`: nothing is known against it, and nothing was.
fn valid(subject: &Subject) -> Option<String> {
    if let [first, ..] = subject.refused.as_slice() {
        let wait = refusal(first).unwrap_or_default();
        let count = numbered(subject.refused.len(), "machine");
        return Some(format!("no: {count}, such as {}, cannot use it: {wait}", first.name()));
    }
    let read::Subject { object: class, events, .. } = &subject.found;
    // The event has the name of the wait.
    let invalid = WaitReason::ClassInvalid.as_str();
    let last = events.iter().rfind(|it| it.reason.as_deref() == Some(invalid))?;
    // All of its machines wait while it is refused.
    let users = subject.users.iter().find(|(kind, _)| *kind == "machine");
    let count = users.map_or(0, |(_, names)| names.len());
    if count > 0 {
        return Some(format!("yes: none of its {} is refused now", numbered(count, "machine")));
    }
    let changed = class.metadata.managed_fields.iter().flatten();
    let changed = changed.filter_map(|it| it.time.as_ref().map(|time| time.0)).max();
    // Times of changes are whole seconds.
    let said = time_of(last).map(Timestamp::as_second);
    if said.is_some() && said < changed.map(Timestamp::as_second) {
        return Some("not refused since it was changed last".to_owned());
    }
    Some(format!("no: {}", last.note.as_deref().unwrap_or_default()))
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

/// The page with what it tells.
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
    fn a_refusal_that_is_older_than_the_class_is_not_what_counts() {
        let subject = |changed: &str, machines: &[&str], refused: Vec<Machine>| {
            let class = serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
                "metadata": { "name": "c", "managedFields": [{ "time": changed }] },
                "provider": "fake.ostler.dev", "providerSpec": {}
            }));
            let event = serde_json::from_value(json!({
                "metadata": {}, "reason": "ClassInvalid", "note": "no such image",
                "eventTime": "2026-01-01T11:00:00.500000Z"
            }));
            let (object, events) = (class.unwrap(), vec![event.unwrap()]);
            let found = read::Subject { object, unserved: None, events };
            let none = || ("", Vec::new());
            let names = machines.iter().map(|&name| name.to_owned()).collect();
            Subject { found, users: [none(), none(), none(), ("machine", names)], refused }
        };
        let machine = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m" }, "spec": {},
            "status": { "waitingFor": { "reason": "InvalidSpec", "message": "no such zone" } }
        }));
        for (changed, machines, refused, expected) in [
            ("2026-01-01T11:00:00Z", &[][..], vec![], "no: no such image"),
            ("2026-01-01T11:05:00Z", &[], vec![], "not refused since it was changed last"),
            (
                "2026-01-01T11:00:00Z",
                &["m", "n"],
                vec![],
                "yes: none of its 2 machines is refused now",
            ),
            (
                "2026-01-01T11:05:00Z",
                &["m"],
                vec![machine.unwrap()],
                "no: 1 machine, such as m, cannot use it: no such zone",
            ),
        ] {
            assert_eq!(valid(&subject(changed, machines, refused)).unwrap(), expected);
        }
    }
}

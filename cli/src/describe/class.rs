//! A MachineClass and what uses it.

use anyhow::Context as _;
use jiff::Timestamp;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use ostler_api::machine::MachineSpec;
use ostler_api::{Machine, MachineClass, MachineDeployment, MachinePool, MachineSet};
use ostler_lifecycle::class::{names_class, users};

use super::fleet::named;
use super::page::{Page, event_lines};
use super::read::{self, Described};

/// A class and what uses it, as far as it could be read.
#[derive(Debug)]
pub(super) struct Subject {
    found: read::Subject<MachineClass>,
    /// Names, by kind.
    users: [(&'static str, Vec<String>); 4],
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
    let users = [
        (
            "machinedeployment",
            users_of::<MachineDeployment>(place, |it| &it.spec.template.spec).await?,
        ),
        ("machineset", users_of::<MachineSet>(place, |it| &it.spec.template.spec).await?),
        ("machinepool", users_of::<MachinePool>(place, |it| &it.spec.template.spec).await?),
        ("machine", users_of::<Machine>(place, |it| &it.spec).await?),
    ];
    Ok(Subject { found, users })
}

/// Names of the objects of a kind that use the class. Of a kind that the cluster does not have there are none.
async fn users_of<K: Described>(
    (client, namespace, class): (&Client, &str, &str),
    spec: fn(&K) -> &MachineSpec,
) -> anyhow::Result<Vec<String>> {
    let all = Api::<K>::namespaced(client.clone(), namespace).list(&ListParams::default()).await;
    let all = match all {
        Ok(list) => list.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(error) => {
            return Err(error).with_context(|| format!("{} cannot be read", K::plural(&())));
        }
    };
    Ok(all.iter().filter(|it| names_class(spec(it), class)).map(ResourceExt::name_any).collect())
}

/// The whole page.
pub(super) fn render(subject: &Subject, now: Timestamp) -> String {
    let Subject { found: read::Subject { object: class, unserved, events }, users: kinds } =
        subject;
    let mut page = Page::wide();
    let used = users(kinds);
    page.line("MachineClass", &named(&class.metadata, now));
    page.line("Provider", class.provider());
    page.line("Used by", if used.is_empty() { "nothing" } else { &used });
    if let Some(unserved) = unserved {
        page.line("Waits for", unserved);
    } else if class.is_deleting() && !used.is_empty() {
        page.line("Waits for", "its machines and machinepools to go");
        page.line("", "hint: delete what uses it, or give it another class");
    }
    event_lines(&mut page, events, now);
    page.text()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
            render(&Subject { found, users }, now)
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
}

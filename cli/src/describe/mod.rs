//! `ostler describe`: what a machine or a fleet is doing, the reason of each wait, and the history.
//!
//! Everything comes from the API: the status of the Machine, its class, its Node and its Events.

mod autoscaler;
mod checks;
mod class;
pub(crate) mod fleet;
mod found;
mod gone;
mod health_check;
mod hints;
mod nodes;
mod objects;
mod page;
mod pool;
mod read;
mod reserve;
mod sheet;
#[cfg(test)]
mod waits;

use std::time::Duration;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};
use ostler_api::{Machine, MachineClass};
use tokio::time::sleep;

use self::found::Found;
pub(crate) use self::hints::hint;
pub(crate) use self::objects::{page_of, waits_for};
use self::page::Subject;
pub(crate) use self::pool::machines_of_pool;
pub(crate) use self::read::Described;
pub(crate) use self::sheet::time_of;
use crate::cluster::{self, Place};
use crate::kinds::{Kind, named};
use crate::output::Output;
use crate::serving::Leases;
use crate::{log, screen, terminal};

/// Events that are shown; the API may have more.
const MOST_EVENTS: usize = 10;
/// So often the objects are read again with `--watch`.
const AGAIN: Duration = Duration::from_secs(1);

/// The objects to describe, and their cluster.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler describe machine fake-1
  ostler describe mc/worker-7 -n shoot--a --kubeconfig seed.kubeconfig
  ostler describe machinedeployment workers   its sets and machines as a tree
  ostler describe mp/workers -w               its group and machines, live
  ostler describe machineclasses -A           every class, and what uses it
  ostler describe machine gone-1              one that is gone: its events
  ostler describe mc/fake-1 -o json           for scripts: waitsFor is a list

It exits with 0 whatever an object waits for, and with 1 if there is no such object.

Kinds: machine (mc), machineclass (mcc), machineset (mcs, ms), machinedeployment (mcd, md), machinepool (mp), \
machinereserve (mr), machinehealthcheck (mhc), also in plural.")]
pub(crate) struct Args {
    /// A kind and names, or KIND/NAME; all objects of a kind without a name
    #[arg(value_name = "KIND [NAME] | KIND/NAME", required = true)]
    objects: Vec<String>,
    #[command(flatten)]
    place: Place,
    /// In all namespaces
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Show it again whenever it changes, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
}

/// Prints the description.
///
/// # Errors
/// The cluster cannot be reached, or there is no such object.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { place, objects, all_namespaces, output, watch } = args;
    let wanted = named(&objects)?;
    if watch {
        output.may_watch()?;
    }
    cluster::within(place, async |client, namespace| {
        let place = (!all_namespaces).then_some(namespace.as_str());
        loop {
            let all = all_of(&client, place, &wanted).await?;
            let pages: Vec<_> = all.iter().map(|found| found.page.trim_end()).collect();
            let page = pages.join("\n\n");
            if !watch {
                return match all.as_slice() {
                    [] => {
                        log::note(format_args!(
                            "there are none in {}",
                            place.unwrap_or("any namespace")
                        ));
                        Ok(())
                    }
                    [one] => output.print(&page, &one.data),
                    _ => output.print(&page, &all.into_iter().map(|it| it.data).collect()),
                };
            }
            screen::keep_page(&terminal::lines(&page));
            sleep(AGAIN).await;
        }
    })
    .await
}

/// Everything that is described. No namespace: it is looked for in all.
async fn all_of(
    client: &Client,
    namespace: Option<&str>,
    wanted: &[(Kind, Option<String>)],
) -> anyhow::Result<Vec<Found>> {
    let mut all = Vec::new();
    for (kind, name) in wanted {
        if let (Some(namespace), Some(name)) = (namespace, name) {
            all.push(objects::read(client, namespace, *kind, name).await?);
            continue;
        }
        let resource = kind.resource();
        let api = match namespace {
            Some(namespace) => {
                Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource)
            }
            None => Api::<DynamicObject>::all_with(client.clone(), &resource),
        };
        let only = name.iter().fold(ListParams::default(), |only, name| {
            only.fields(&format!("metadata.name={name}"))
        });
        let list = api.list_metadata(&only).await;
        let list = list.with_context(|| format!("{} cannot be read", kind.plural()))?;
        if let Some(name) = name.as_ref().filter(|_| list.items.is_empty()) {
            return Err(anyhow!("there is no {} {name:?} in any namespace", kind.singular()));
        }
        for one in list {
            let namespace = one.namespace().unwrap_or_default();
            all.push(objects::read(client, &namespace, *kind, &one.name_any()).await?);
        }
    }
    Ok(all)
}

/// Reads what there is. Only the Machine has to be readable; `None`: it is not there.
async fn gather(
    client: &Client,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> anyhow::Result<Option<Subject>> {
    let Some(machine) = read::find::<Machine>(client, namespace, name).await? else {
        return Ok(None);
    };
    let classes = Api::<MachineClass>::namespaced(client.clone(), namespace);
    let class = classes.get_opt(&machine.spec.class.name).await.ok().flatten();
    let nodes = nodes::of(client, &machine).await;
    let checks = checks::lines(client, namespace, &machine, &nodes, now).await;
    let events = events_of(client, namespace, machine.uid()).await;
    let unserved = unserved(client, namespace, now).await;
    Ok(Some(Subject { machine, class, nodes, unserved, checks, events }))
}

/// That no core serves the namespace, as far as that can be read.
async fn unserved(client: &Client, namespace: &str, now: Timestamp) -> Option<String> {
    Leases::read(client, namespace).await.unserved(namespace, now)
}

/// The last events about an object, oldest first, as far as they can be read.
async fn events_of(client: &Client, namespace: &str, uid: &str) -> Vec<Event> {
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    let about = ListParams::default().fields(&format!("regarding.uid={uid}"));
    let mut events = events.list(&about).await.map(|list| list.items).unwrap_or_default();
    events.sort_by_key(time_of);
    let surplus = events.len().saturating_sub(MOST_EVENTS);
    events.drain(..surplus);
    events
}

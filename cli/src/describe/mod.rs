//! `ostler describe`: what a machine, or a fleet of them, is doing, what it waits for, and how it got there.
//!
//! Everything comes from the API: the status of the Machine, its class, its Node and its Events.

mod autoscaler;
mod checks;
mod class;
pub(crate) mod fleet;
mod health_check;
mod hints;
mod nodes;
mod page;
mod pool;
mod read;
mod reserve;
#[cfg(test)]
mod waits;

use std::path::PathBuf;

use clap::Subcommand;
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::Client;
use kube::api::{Api, ListParams};
use ostler_api::{Machine, MachineClass};

use self::page::Subject;
pub(crate) use self::page::time_of;
use crate::serving::Leases;
use crate::{cluster, log};

/// Events that are shown; the API may have more.
const MOST_EVENTS: usize = 10;

/// What is described, and where it is.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler describe machine fake-1
  ostler describe machine worker-7 -n shoot--a --kubeconfig seed.kubeconfig
  ostler describe machinedeployment workers   its sets and machines as a tree
  ostler describe machinepool workers         its group and its machines
  ostler describe machineclass small          what uses it

Without --kubeconfig: $KUBECONFIG, else the `ostler up` of this folder, else kubectl's own.")]
pub(crate) struct Args {
    /// The kubeconfig of the cluster with the machines
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The namespace; the one of the kubeconfig by default
    #[arg(long, short, global = true)]
    namespace: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the steps of a machine with their durations, what it waits for, and what comes next
    #[command(visible_alias = "mc")]
    Machine {
        /// Its name
        name: String,
    },
    /// Show a class, what uses it, and what its deletion waits for
    #[command(name = "machineclass", visible_alias = "mcc")]
    MachineClass {
        /// Its name
        name: String,
    },
    /// Show a deployment with its sets and machines as a tree, who runs them, and what holds them up
    #[command(name = "machinedeployment", visible_alias = "mcd")]
    MachineDeployment {
        /// Its name
        name: String,
    },
    /// Show a health check with its conditions, and how many machines it finds healthy
    #[command(name = "machinehealthcheck", visible_alias = "mhc")]
    MachineHealthCheck {
        /// Its name
        name: String,
    },
    /// Show a pool with its group and machines, and what holds them up
    #[command(name = "machinepool", visible_alias = "mp")]
    MachinePool {
        /// Its name
        name: String,
    },
    /// Show a reserve with its conditions, how many machines are ready, and how many sets took
    #[command(name = "machinereserve", visible_alias = "mr")]
    MachineReserve {
        /// Its name
        name: String,
    },
    /// Show a set with its machines, who runs it, and what holds it up
    #[command(name = "machineset", visible_alias = "mcs")]
    MachineSet {
        /// Its name
        name: String,
    },
}

/// Prints the description.
///
/// # Errors
/// The cluster cannot be reached, or there is no such object.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { kubeconfig, namespace, command } = args;
    let page = cluster::within(kubeconfig, namespace, async |client, namespace| {
        page_of(&client, &namespace, command).await
    });
    let page = page.await?;
    log::page(page.trim_end());
    Ok(())
}

async fn page_of(client: &Client, namespace: &str, command: Command) -> anyhow::Result<String> {
    let now = Timestamp::now();
    Ok(match command {
        Command::Machine { name } => {
            page::render(&gather(client, namespace, &name, now).await?, now)
        }
        Command::MachineClass { name } => {
            class::render(&class::gather(client, namespace, &name, now).await?, now)
        }
        Command::MachineDeployment { name } => {
            fleet::render(&fleet::of_deployment(client, namespace, &name).await?, now)
        }
        Command::MachineHealthCheck { name } => {
            health_check::render(&read::subject(client, namespace, &name, now).await?, now)
        }
        Command::MachinePool { name } => {
            pool::render(&pool::gather(client, namespace, &name, now).await?, now)
        }
        Command::MachineReserve { name } => {
            reserve::render(&read::subject(client, namespace, &name, now).await?, now)
        }
        Command::MachineSet { name } => {
            fleet::render(&fleet::of_set(client, namespace, &name).await?, now)
        }
    })
}

/// Reads what there is. Only the Machine has to be there and readable.
async fn gather(
    client: &Client,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> anyhow::Result<Subject> {
    let machine = read::get::<Machine>(client, namespace, name).await?;
    let classes = Api::<MachineClass>::namespaced(client.clone(), namespace);
    let class = classes.get_opt(&machine.spec.class.name).await.ok().flatten();
    let nodes = nodes::of(client, &machine).await;
    let checks = checks::lines(client, namespace, &machine, &nodes, now).await;
    let events = events_of(client, namespace, machine.uid()).await;
    let unserved = unserved(client, namespace, now).await;
    Ok(Subject { machine, class, nodes, unserved, checks, events })
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

//! `ostler status`: one page for a whole cluster.

mod page;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::PathBuf;

use anyhow::Context as _;
use jiff::Timestamp;
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use ostler_api::{
    Machine, MachineClass, MachineDeployment, MachineHealthCheck, MachinePool, MachineReserve,
    MachineSet,
};
use ostler_server::Signals;
use serde::de::DeserializeOwned;

use self::page::Report;
pub(crate) use self::page::{api_of, phase, unanswered};
use crate::cluster::{self, Place};
use crate::drivers::AdminArgs;
use crate::groups::Group;
use crate::live::{self, Scope};
use crate::output::Output;
use crate::serving::Leases;
use crate::waits;

/// The cluster and the namespaces to show.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler status                     everything, on one page
  ostler status -n shoot--a -w      one namespace, live
  ostler status -o json             for scripts
  ostler status --admin 127.0.0.1:5001 --admin-token-file token

Drivers and orphans are known to the core alone: its admin listener is asked for them. The others stand in the API.")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// All namespaces, as without --namespace
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Show deployments, pools and machines as they change, until Ctrl-C
    #[arg(long, short)]
    watch: bool,
}

/// Prints the page.
///
/// # Errors
/// The cluster cannot be reached or read. An error of the core stands on the page.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { place, all_namespaces: _, admin, output, watch } = args;
    let (home, namespace) = (place.home(), place.namespace.clone());
    cluster::within(place, async |client, _| {
        let namespace = namespace.as_deref();
        if watch {
            return Box::pin(follow(client, namespace, output)).await;
        }
        let report = Box::pin(gather(&client, namespace, &admin, home.clone())).await?;
        output.print(&report.page(), &report.data())
    })
    .await
}

async fn follow(client: Client, namespace: Option<&str>, output: Output) -> anyhow::Result<()> {
    output.may_watch()?;
    // One that may not be read is an error, and not an empty table.
    list::<Machine>(&client, namespace).await?;
    let namespace = namespace.map(str::to_owned);
    let scope = Scope { namespace, served: None, story_lines: 2, clears: false };
    live::follow(client, scope, Signals::listen()?.end).await;
    Ok(())
}

async fn gather(
    client: &Client,
    namespace: Option<&str>,
    admin: &AdminArgs,
    home: Option<PathBuf>,
) -> anyhow::Result<Report> {
    let now = Timestamp::now();
    let machines = list::<Machine>(client, namespace).await?;
    let deployments = list::<MachineDeployment>(client, namespace).await?;
    let sets = list::<MachineSet>(client, namespace).await?;
    let classes = list::<MachineClass>(client, namespace).await?;
    let pools = list::<MachinePool>(client, namespace).await?;
    let reserves = list::<MachineReserve>(client, namespace).await?;
    let checks = list::<MachineHealthCheck>(client, namespace).await?;
    let groups = deployments.iter().map(Group::of_deployment);
    let groups = groups.chain(sets.iter().filter_map(Group::of_set));
    let groups = groups.chain(pools.iter().map(Group::of_pool));
    let groups: Vec<_> = groups.chain(reserves.iter().map(Group::of_reserve)).collect();
    let mut namespaces: BTreeSet<&str> = groups.iter().map(|it| it.namespace.as_str()).collect();
    namespaces.extend(machines.iter().filter_map(|it| it.metadata.namespace.as_deref()));
    namespaces.extend(classes.iter().filter_map(|it| it.metadata.namespace.as_deref()));
    namespaces.extend(checks.iter().filter_map(|it| it.metadata.namespace.as_deref()));
    let leases = Leases::read(client, namespace.unwrap_or("default")).await;
    let unserved = namespaces.iter().filter_map(|it| leases.unserved(it, now)).collect();
    Ok(Report {
        api: api_of(client).await,
        cores: leases.cores(now),
        unserved,
        known: admin.all(home).await.map_err(|error| format!("{error:#}")),
        waits: waits::grouped(machines.iter()),
        phases: page::phases(&machines),
        groups,
        now,
    })
}

async fn list<K>(client: &Client, namespace: Option<&str>) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let hint = if namespace.is_none() { "; --namespace narrows it" } else { "" };
    let all = cluster::list(client, namespace).await;
    all.with_context(|| format!("{} cannot be read{hint}", K::plural(&())))
}

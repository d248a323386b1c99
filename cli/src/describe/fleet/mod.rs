//! A MachineDeployment or MachineSet with everything below it.

mod tree;
mod why;

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::{Api, ListParams};
use ostler_api::names::{LEADER_LEASE, SETS_LEASE, annotation};
use ostler_api::{Machine, MachineDeployment, MachinePool, MachineSet};

pub(super) use self::tree::{beside, found, machines, named};
pub(super) use self::why::worst_wait;
use super::read;
use crate::serving::{Leases, Server};
use crate::table::span;

/// The described objects, as far as they could be read.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    /// The deployment, if one is described.
    pub(super) deployment: Option<MachineDeployment>,
    /// The sets of the deployment, the newest revision first; or the described set.
    pub(super) sets: Vec<MachineSet>,
    /// Machines, by the UID of their controlling set.
    pub(super) machines: BTreeMap<String, Vec<Machine>>,
    /// Who runs them.
    pub(super) runner: Runner,
    /// Of the deployment and its sets, oldest first.
    pub(super) events: Vec<Event>,
}

/// The process that runs sets and deployments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Runner {
    /// The Leases are elsewhere, or cannot be read.
    #[default]
    Unknown,
    /// None.
    Nobody,
    /// No core serves the namespace at all, as this says with what to do.
    Unserved(String),
    /// The holder of the Lease of the sets.
    Process {
        /// Its name.
        holder: String,
        /// Whether it runs the machines too; `None`: no process does, as far as can be read.
        runs_machines: Option<bool>,
        /// How long ago the holder renewed its Lease, if the Lease has expired by the clock of this computer.
        silent: Option<SignedDuration>,
    },
}

impl Runner {
    /// The holder whose Lease has expired: the process is dead, or a clock is wrong.
    fn silent(&self) -> Option<String> {
        let Self::Process { holder, silent: Some(ago), .. } = self else { return None };
        let ago = span(*ago);
        Some(format!("{holder}, whose Lease was renewed {ago} ago by this computer's clock"))
    }
}

impl Fleet {
    /// Machines of a set.
    pub(super) fn of(&self, set: &MachineSet) -> &[Machine] {
        self.machines.get(set.uid()).map(Vec::as_slice).unwrap_or_default()
    }

    /// All machines.
    pub(super) fn all(&self) -> impl Iterator<Item = &Machine> {
        self.sets.iter().flat_map(|set| self.of(set))
    }
}

/// The number of the rollout that made a set.
pub(crate) fn revision(set: &MachineSet) -> Option<i64> {
    set.annotation(annotation::REVISION)?.parse().ok()
}

/// Whether an object is controlled by the one with this UID.
pub(crate) fn is_controlled_by(metadata: &ObjectMeta, uid: &str) -> bool {
    let owners = metadata.owner_references.iter().flatten();
    owners.into_iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

/// Reads a deployment.
pub(crate) async fn deployment(
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<MachineDeployment> {
    if let Some(found) = read::find(client, namespace, name).await? {
        return Ok(found);
    }
    if let Ok(Some(_)) = read::find::<MachinePool>(client, namespace, name).await {
        bail!(
            "{name} is a machinepool and no machinedeployment; see `ostler describe machinepool {name}`"
        );
    }
    Err(read::absent::<MachineDeployment>(namespace, name))
}

/// The sets of a deployment, newest revision first.
pub(crate) async fn sets_of(
    client: &Client,
    namespace: &str,
    deployment: &MachineDeployment,
) -> anyhow::Result<Vec<MachineSet>> {
    let api = Api::<MachineSet>::namespaced(client.clone(), namespace);
    let list = api.list(&ListParams::default()).await.context("machinesets cannot be read")?;
    let mut sets = list.items;
    sets.retain(|set| is_controlled_by(&set.metadata, deployment.uid()));
    sets.sort_by_key(|set| {
        std::cmp::Reverse((revision(set), set.metadata.creation_timestamp.clone()))
    });
    Ok(sets)
}

/// Reads a deployment with its sets and machines.
pub(super) async fn of_deployment(
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Fleet> {
    let deployment = deployment(client, namespace, name).await?;
    let sets = sets_of(client, namespace, &deployment).await?;
    gather(client, namespace, Some(deployment), sets).await
}

/// Reads a set with its machines.
pub(super) async fn of_set(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Fleet> {
    let set = read::get::<MachineSet>(client, namespace, name).await?;
    gather(client, namespace, None, vec![set]).await
}

async fn gather(
    client: &Client,
    namespace: &str,
    deployment: Option<MachineDeployment>,
    sets: Vec<MachineSet>,
) -> anyhow::Result<Fleet> {
    let api = Api::<Machine>::namespaced(client.clone(), namespace);
    let list = api.list(&ListParams::default()).await.context("machines cannot be read")?;
    let mut machines = BTreeMap::<String, Vec<Machine>>::new();
    for machine in list {
        let set = sets.iter().find(|set| is_controlled_by(&machine.metadata, set.uid()));
        if let Some(set) = set {
            machines.entry(set.uid().to_owned()).or_default().push(machine);
        }
    }
    let uids =
        deployment.iter().map(MachineDeployment::uid).chain(sets.iter().map(MachineSet::uid));
    let mut events = Vec::new();
    for uid in uids {
        events.extend(super::events_of(client, namespace, uid).await);
    }
    events.sort_by_key(super::time_of);
    events.drain(..events.len().saturating_sub(super::MOST_EVENTS));
    let runner = runner(client, namespace).await;
    Ok(Fleet { deployment, sets, machines, runner, events })
}

async fn runner(client: &Client, namespace: &str) -> Runner {
    by_leases(&Leases::read(client, namespace).await, namespace, Timestamp::now())
}

fn by_leases(leases: &Leases, namespace: &str, now: Timestamp) -> Runner {
    match leases.server(SETS_LEASE, namespace, now) {
        Server::Unknown => Runner::Unknown,
        Server::Nobody => leases.unserved(namespace, now).map_or(Runner::Nobody, Runner::Unserved),
        Server::Process { holder, silent } => {
            let runs_machines = match leases.server(LEADER_LEASE, namespace, now) {
                Server::Process { holder: other, silent: None } => Some(other == holder),
                Server::Process { silent: Some(_), .. } | Server::Nobody | Server::Unknown => None,
            };
            Runner::Process { holder, runs_machines, silent }
        }
    }
}

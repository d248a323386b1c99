//! Deletes every machine and every pool, says what is waited for, and shortens the drains that take too long.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, Resource, ResourceExt as _};
use ostler_api::machine_pool::PoolConditionType;
use ostler_api::names;
use ostler_api::{Machine, MachinePool};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, interval_at, sleep_until, timeout_at};

use crate::log;

/// How often the summary of waits is written, if the summary has changed.
const SAY: Duration = Duration::from_secs(5);

/// The longest wait: a clock cannot count any.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// How long machines may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Their pods.
    pub(super) grace: Duration,
    /// All of it.
    pub(super) timeout: Duration,
}

/// Deletes every machine and every pool and waits. Returns the reason of every object that is left.
pub(super) async fn of_all(
    client: Client,
    patience: Patience,
) -> anyhow::Result<BTreeMap<String, String>> {
    let started = Instant::now();
    let [grace, timeout] = [patience.grace, patience.timeout].map(|time| time.min(LONGEST));
    let mut deletion = Deletion {
        machines: Left::default(),
        pools: Left::default(),
        client,
        deleted: 0,
        said: String::new(),
    };
    // Pools first: a pool would replace deleted machines.
    deletion.pools.all = begin::<MachinePool>(&deletion.client).await?;
    deletion.machines.all = begin::<Machine>(&deletion.client).await?;
    let waited = timeout_at(started + timeout, deletion.wait(started, grace));
    // Objects that are left are reported below, with their reasons.
    waited.await.unwrap_or(Ok(()))?;
    Ok(deletion.reasons().collect())
}

/// A kind of object that is deleted and waited for.
trait Goes:
    Clone
    + Debug
    + DeserializeOwned
    + Send
    + Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + 'static
{
    /// The word for the kind in messages.
    const WORD: &'static str;

    fn waits_for(&self) -> String;

    /// With its kind.
    fn key(&self) -> String {
        let namespace = self.namespace().unwrap_or_default();
        format!("{} {namespace}/{}", Self::WORD, self.name_any())
    }

    fn api(&self, client: &Client) -> Api<Self> {
        Api::namespaced(client.clone(), self.namespace().unwrap_or_default().as_str())
    }
}

impl Goes for Machine {
    const WORD: &'static str = "machine";

    fn waits_for(&self) -> String {
        machine_waits_for(self)
    }
}

impl Goes for MachinePool {
    const WORD: &'static str = "pool";

    fn waits_for(&self) -> String {
        pool_waits_for(self)
    }
}

/// Begins the deletion of all of a kind, and returns them.
async fn begin<K: Goes>(client: &Client) -> anyhow::Result<BTreeMap<String, K>> {
    let all = Api::<K>::all(client.clone()).list(&ListParams::default()).await;
    let all = all.with_context(|| format!("{}s cannot be listed", K::WORD))?;
    for one in &all {
        let deleted = one.api(client).delete(&one.name_any(), &DeleteParams::default()).await;
        match deleted {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            other => {
                drop(other.with_context(|| format!("{} cannot be deleted", one.key()))?);
            }
        }
    }
    Ok(all.into_iter().map(|one| (one.key(), one)).collect())
}

/// Objects of a kind that are left.
#[derive(Debug)]
struct Left<K> {
    all: BTreeMap<String, K>,
    relisted: BTreeMap<String, K>,
}

impl<K> Default for Left<K> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), relisted: BTreeMap::new() }
    }
}

impl<K: Goes> Left<K> {
    /// Returns the name of a deleted object.
    fn see(&mut self, event: Event<K>) -> Option<String> {
        match event {
            Event::Init => self.relisted.clear(),
            Event::InitApply(one) => drop(self.relisted.insert(one.key(), one)),
            Event::InitDone => self.all = std::mem::take(&mut self.relisted),
            Event::Apply(one) => drop(self.all.insert(one.key(), one)),
            Event::Delete(one) => {
                let key = one.key();
                self.all.remove(&key);
                return Some(key);
            }
        }
        None
    }

    fn reasons(&self) -> impl Iterator<Item = (String, String)> {
        self.all.iter().map(|(key, one)| (key.clone(), one.waits_for()))
    }
}

struct Deletion {
    client: Client,
    machines: Left<Machine>,
    pools: Left<MachinePool>,
    deleted: usize,
    /// The last summary that was written.
    said: String,
}

impl Deletion {
    async fn wait(&mut self, started: Instant, grace: Duration) -> anyhow::Result<()> {
        let (mut machines, mut pools) = (self.watch::<Machine>(), self.watch::<MachinePool>());
        let mut say = interval_at(started + SAY.min(grace), SAY);
        let mut over = false;
        // A group makes machines for as long as its pool is there.
        while !self.machines.all.is_empty() || !self.pools.all.is_empty() {
            tokio::select! {
                event = machines.try_next() => {
                    let gone = next(event)?.and_then(|event| self.machines.see(event));
                    self.count(gone);
                }
                event = pools.try_next() => {
                    let gone = next(event)?.and_then(|event| self.pools.see(event));
                    self.count(gone);
                }
                () = sleep_until(started + grace), if !over => {
                    over = true;
                    self.say();
                    log::say(format_args!(
                        "{} s (--grace) are over: pods that have not ended are deleted without their grace period",
                        grace.as_secs()
                    ));
                    self.force().await?;
                    say.reset();
                }
                _ = say.tick() => {
                    self.say();
                    if over {
                        self.force().await?;
                    }
                }
            }
        }
        Ok(())
    }

    fn watch<K: Goes>(&self) -> BoxStream<'static, watcher::Result<Event<K>>> {
        let api = Api::<K>::all(self.client.clone());
        watch(api, watcher::Config::default()).default_backoff().boxed()
    }

    fn count(&mut self, gone: Option<String>) {
        let Some(key) = gone else { return };
        self.deleted = self.deleted.saturating_add(1);
        let left = self.machines.all.len().saturating_add(self.pools.all.len());
        let total = self.deleted.saturating_add(left);
        log::say(format_args!("{} of {total} deleted: {key}", self.deleted));
    }

    /// The reason of every object that is left.
    fn reasons(&self) -> impl Iterator<Item = (String, String)> {
        self.pools.reasons().chain(self.machines.reasons())
    }

    /// Writes the summary of the waits, unless the last one was the same.
    fn say(&mut self) {
        let text = summary(self.reasons());
        if text != self.said {
            log::page(&text);
            self.said = text;
        }
    }

    /// Asks for force for each that did not get it yet. Force shortens drains and nothing else (INV-3).
    async fn force(&self) -> anyhow::Result<()> {
        let label = json!({ "metadata": { "labels": { names::label::FORCE_DELETION: "true" } } });
        let (params, label) = (PatchParams::default(), Patch::Merge(&label));
        for machine in self.machines.all.values().filter(|it| !it.wants_force()) {
            let pods = self.pods_of(machine).await;
            if !pods.is_empty() {
                log::say(format_args!("{}: deletes {}", machine.key(), pods.join(", ")));
            }
            let api = machine.api(&self.client);
            match api.patch_metadata(machine.name(), &params, &label).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other.with_context(|| {
                    format!("the deletion of {} cannot be forced", machine.key())
                })?),
            }
        }
        Ok(())
    }

    /// Pods on its Node that have not ended, as far as that can be read.
    async fn pods_of(&self, machine: &Machine) -> Vec<String> {
        let Some(node) = machine.node_name() else { return Vec::new() };
        let on_it = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = Api::<Pod>::all(self.client.clone()).list(&on_it).await;
        let pods = pods.map(|list| list.items).unwrap_or_default();
        let name =
            |pod: Pod| format!("pod {}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
        pods.into_iter().map(name).collect()
    }
}

/// An event of a watch, which backs off and goes on by itself.
fn next<K>(event: watcher::Result<Option<Event<K>>>) -> anyhow::Result<Option<Event<K>>> {
    match event {
        Ok(None) => bail!("a watch ended"),
        Ok(event) => Ok(event),
        Err(error) => {
            tracing::debug!(%error, "a watch was interrupted");
            Ok(None)
        }
    }
}

/// One line for each reason: many machines share few reasons.
fn summary(reasons: impl Iterator<Item = (String, String)>) -> String {
    let mut by_reason = BTreeMap::<String, BTreeSet<String>>::new();
    for (key, why) in reasons {
        by_reason.entry(why).or_default().insert(key);
    }
    let lines = by_reason.into_iter().map(|(why, keys)| {
        let first = keys.first().map(String::as_str).unwrap_or_default();
        let others = match keys.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        crate::terminal::line(&format!("{first}{others}: {why}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// How many machines are left, and what its driver says of the group.
fn pool_waits_for(pool: &MachinePool) -> String {
    let conditions = pool.status.as_ref().map(|status| status.conditions.as_slice());
    let says = |type_: PoolConditionType, is: &str| {
        let of = |it: &&Condition| it.type_ == type_.as_str() && it.status == is;
        let message = conditions.unwrap_or_default().iter().find(of).map(|it| it.message.clone());
        message.filter(|message| !message.is_empty())
    };
    let left = says(PoolConditionType::Deleting, "True");
    let group = says(PoolConditionType::InfrastructureReady, "False");
    let all: Vec<_> = left.into_iter().chain(group).collect();
    if all.is_empty() { "its deletion has not begun".to_owned() } else { all.join("; ") }
}

fn machine_waits_for(machine: &Machine) -> String {
    let status = machine.status.as_ref();
    let Some(waiting) = status.and_then(|status| status.waiting_for.as_ref()) else {
        let step = status.and_then(|status| status.step.as_ref());
        return step.map_or_else(
            || "its deletion has not begun".to_owned(),
            |step| format!("is in step {}", step.as_str()),
        );
    };
    let message = waiting.message.as_deref().unwrap_or("no more is known");
    let drain = status.and_then(|status| status.drain.as_ref());
    let pods = drain.map(|drain| drain.examples.join(", ")).filter(|pods| !pods.is_empty());
    let pods = pods.map(|pods| format!(" ({pods})")).unwrap_or_default();
    format!("waits for {}: {message}{pods}", waiting.reason)
}

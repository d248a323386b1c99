//! Deletes every machine, says what is waited for, and shortens the drains that take too long.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use kube::{Client, ResourceExt as _};
use ostler_api::machine::Machine;
use ostler_api::names;
use serde_json::json;
use tokio::time::{Instant, interval_at, sleep_until, timeout_at};

use crate::log;

/// How often it says what it waits for, if that changes.
const SAY: Duration = Duration::from_secs(5);

/// How long machines may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Their pods.
    pub(super) grace: Duration,
    /// All of it.
    pub(super) timeout: Duration,
}

/// Deletes every machine and waits. Returns those that are left, with what they wait for.
pub(super) async fn of_all(
    client: Client,
    patience: Patience,
) -> anyhow::Result<BTreeMap<String, String>> {
    let started = Instant::now();
    let machines = Api::<Machine>::all(client.clone());
    let mut deletion = Deletion { client, left: BTreeMap::new(), total: 0, said: String::new() };
    for machine in
        machines.list(&ListParams::default()).await.context("machines cannot be listed")?
    {
        deletion.begin(&machine).await?;
        deletion.left.insert(key(&machine), machine);
    }
    deletion.total = deletion.left.len();
    let waited = timeout_at(started + patience.timeout, deletion.wait(machines, started, patience));
    // Those that are left say why.
    waited.await.unwrap_or(Ok(()))?;
    Ok(deletion.left.iter().map(|(key, machine)| (key.clone(), waits_for(machine))).collect())
}

struct Deletion {
    client: Client,
    left: BTreeMap<String, Machine>,
    total: usize,
    /// What was said last of those that are left.
    said: String,
}

impl Deletion {
    async fn begin(&self, machine: &Machine) -> anyhow::Result<()> {
        let deleted = self.api(machine).delete(machine.name(), &DeleteParams::default()).await;
        match deleted {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other
                .map(drop)
                .with_context(|| format!("machine {} cannot be deleted", key(machine))),
        }
    }

    async fn wait(
        &mut self,
        machines: Api<Machine>,
        started: Instant,
        Patience { grace, .. }: Patience,
    ) -> anyhow::Result<()> {
        let events = watch(machines, watcher::Config::default()).default_backoff().boxed();
        let mut events = pin!(events);
        let mut relisted = BTreeMap::new();
        let mut say = interval_at(started + SAY.min(grace), SAY);
        let mut over = false;
        while !self.left.is_empty() {
            tokio::select! {
                event = events.try_next() => match event {
                    Ok(Some(event)) => self.see(event, &mut relisted),
                    Ok(None) => bail!("the watch on machines ended"),
                    // The watcher backs off and goes on by itself.
                    Err(error) => tracing::debug!(%error, "the watch on machines was interrupted"),
                },
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

    fn see(&mut self, event: Event<Machine>, relisted: &mut BTreeMap<String, Machine>) {
        match event {
            Event::Init => relisted.clear(),
            Event::InitApply(machine) => {
                relisted.insert(key(&machine), machine);
            }
            Event::InitDone => self.left = std::mem::take(relisted),
            Event::Apply(machine) => {
                self.left.insert(key(&machine), machine);
            }
            Event::Delete(machine) => {
                let key = key(&machine);
                self.left.remove(&key);
                let done = self.total.saturating_sub(self.left.len());
                log::say(format_args!("{done} of {} deleted: machine {key}", self.total));
            }
        }
    }

    /// Says what those that are left wait for, unless that was said last.
    fn say(&mut self) {
        let text = summary(&self.left);
        if text != self.said {
            log::page(&text);
            self.said = text;
        }
    }

    /// Asks for force for each that did not get it yet. Force shortens drains and nothing else (INV-3).
    async fn force(&self) -> anyhow::Result<()> {
        let label = json!({ "metadata": { "labels": { names::label::FORCE_DELETION: "true" } } });
        let (params, label) = (PatchParams::default(), Patch::Merge(&label));
        for machine in self.left.values().filter(|machine| !machine.wants_force()) {
            let pods = self.pods_of(machine).await;
            if !pods.is_empty() {
                log::say(format_args!("machine {}: deletes {}", key(machine), pods.join(", ")));
            }
            let api = self.api(machine);
            match api.patch_metadata(machine.name(), &params, &label).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other.with_context(|| {
                    format!("the deletion of machine {} cannot be forced", key(machine))
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

    fn api(&self, machine: &Machine) -> Api<Machine> {
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        Api::namespaced(self.client.clone(), namespace)
    }
}

fn key(machine: &Machine) -> String {
    format!("{}/{}", machine.metadata.namespace.as_deref().unwrap_or_default(), machine.name())
}

/// One line for each thing that machines wait for: with many machines these are few.
fn summary(left: &BTreeMap<String, Machine>) -> String {
    let mut by_reason = BTreeMap::<String, BTreeSet<&str>>::new();
    for (key, machine) in left {
        by_reason.entry(waits_for(machine)).or_default().insert(key);
    }
    let lines = by_reason.into_iter().map(|(why, machines)| {
        let first = machines.first().copied().unwrap_or_default();
        let others = match machines.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        crate::terminal::line(&format!("machine {first}{others}: {why}"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn waits_for(machine: &Machine) -> String {
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

//! `ostler rollout`: what `kubectl rollout` does for Deployments, for MachineDeployments. kubectl knows no custom kinds.

mod history;

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use futures::{Stream, StreamExt as _};
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt as _, watcher};
use ostler_api::machine_deployment::{MachineDeploymentSpec, StrategyType};
use ostler_api::names::annotation::CLUSTER_API_PAUSED;
use ostler_api::{MachineDeployment, MachineSet};
use ostler_controllers::status_of;
use ostler_lifecycle::deployment::fenceposts;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::describe::fleet;
use crate::progress::{self, Progress, resuming};
use crate::serving::Leases;
use crate::{cluster, log, table};

/// After so long without a change it is looked whether a core serves the namespace.
const LOOK: Duration = Duration::from_secs(3);
/// For so long a core that was not there may still come.
const GIVE_UP: Duration = Duration::from_secs(30);

/// What is done, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler rollout status workers                  follow it to its end
  ostler rollout history workers                 which templates there were
  ostler rollout undo workers                    back to the one before
  ostler rollout undo workers --to-revision 3    back to that one
  ostler rollout restart workers                 new machines for all
  ostler rollout pause workers                   change it, then roll once:
  ostler rollout resume workers

A rollout begins when the template of a machinedeployment changes. A change of a class that running instances can take \
rolls nothing: it is a hot update (`ostler class name` tells which change is which). `ostler describe machinedeployment` \
says why a rollout does not get on. Scaling is `kubectl scale machinedeployment NAME --replicas N`.")]
pub(crate) struct Args {
    /// The kubeconfig of the cluster with the machines; without it as for `ostler describe`
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
    /// Follow a rollout until it is complete; fails if its deadline is exceeded
    Status {
        /// The machinedeployment
        #[arg(value_parser = name)]
        name: String,
        /// Say how far it is, and do not wait
        #[arg(long)]
        no_watch: bool,
        /// Fail if it takes longer, in seconds; 0: never
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        timeout: u64,
    },
    /// Show the revisions of a deployment, newest last, with their classes and machines
    History {
        /// The machinedeployment
        #[arg(value_parser = name)]
        name: String,
        /// Show the template of this revision
        #[arg(long, value_name = "NUMBER")]
        revision: Option<i64>,
    },
    /// Go back to an earlier template; a rollout like any other
    Undo {
        /// The machinedeployment
        #[arg(value_parser = name)]
        name: String,
        /// The revision; the one before the current one by default
        #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
        to_revision: i64,
    },
    /// Do not roll out changes of the template until `resume`; scaling goes on
    Pause {
        /// The machinedeployment
        #[arg(value_parser = name)]
        name: String,
    },
    /// Roll out what was changed while it was paused
    Resume {
        /// The machinedeployment
        #[arg(value_parser = name)]
        name: String,
    },
    /// Replace every machine, a few at a time, with the template as it is; with InPlaceUpdate its Node is updated
    Restart {
        /// The machinedeployment
        #[arg(value_parser = name)]
        name: String,
    },
}

/// `NAME`, or `machinedeployment/NAME` as kubectl writes it.
fn name(text: &str) -> anyhow::Result<String> {
    match text.split_once('/') {
        None => Ok(text.to_owned()),
        Some((kind, name)) => match kind.split('.').next().unwrap_or_default() {
            "machinedeployment" | "machinedeployments" | "mcd" => Ok(name.to_owned()),
            "machinepool" | "machinepools" | "mp" => bail!(
                "a machinepool has no rollouts here; `ostler describe machinepool {name}` shows its updates"
            ),
            _ => bail!("{kind} has no rollouts here; only machinedeployments have"),
        },
    }
}

/// Does it.
///
/// # Errors
/// The cluster cannot be reached, there is no such deployment, or it cannot be done.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { kubeconfig, namespace, command } = args;
    cluster::within(kubeconfig, namespace, async |client, namespace| {
        ask(Cluster { client, namespace }, command).await
    })
    .await
}

async fn ask(cluster: Cluster, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Status { name, no_watch: true, .. } => cluster.say(&name).await,
        Command::Status { name, timeout: 0, .. } => cluster.follow(&name).await,
        Command::Status { name, timeout: seconds, .. } => {
            let followed = timeout(Duration::from_secs(seconds), cluster.follow(&name)).await;
            followed.unwrap_or_else(|_| {
                bail!(
                    "not complete after {seconds} s; see `ostler describe machinedeployment {name}`"
                )
            })
        }
        Command::History { name, revision } => cluster.history(&name, revision).await,
        Command::Undo { name, to_revision } => cluster.undo(&name, to_revision).await,
        Command::Pause { name } => cluster.pause(&name, true).await,
        Command::Resume { name } => cluster.pause(&name, false).await,
        Command::Restart { name } => cluster.restart(&name).await,
    }
}

/// Says how far a rollout is.
fn told(progress: &Progress) -> anyhow::Result<()> {
    match progress {
        Progress::Failed(why) => bail!("{why}"),
        Progress::Unseen | Progress::Complete(_) | Progress::GoesOn(_) => log::say(progress.text()),
    }
    Ok(())
}

/// Says what changes, until the rollout is complete or its deployment is gone; and where nothing does, that no core serves
/// the namespace, as `unserved` finds out.
async fn follow(
    name: &str,
    events: impl Stream<Item = Result<Event<MachineDeployment>, watcher::Error>>,
    unserved: impl AsyncFn() -> Option<String>,
) -> anyhow::Result<()> {
    let (mut events, mut said, mut there) = (pin!(events), String::new(), false);
    let mut alone = Alone::default();
    loop {
        let Ok(event) = timeout(LOOK, events.next()).await else {
            alone.note(unserved().await)?;
            continue;
        };
        let Some(event) = event else { bail!("the watch ended") };
        let deployment = match event {
            Ok(Event::InitApply(deployment) | Event::Apply(deployment)) => deployment,
            Ok(Event::Init) => {
                there = false;
                continue;
            }
            Ok(Event::InitDone) if there => continue,
            Ok(Event::InitDone | Event::Delete(_)) => bail!("machinedeployment {name} was deleted"),
            Err(error) => {
                if status_of(&error).is_some_and(|it| [401, 403, 404].contains(&it.code)) {
                    return Err(error).context("the machinedeployment cannot be watched");
                }
                // The watcher backs off and goes on by itself.
                tracing::warn!(%error, "the watch was interrupted; trying again");
                continue;
            }
        };
        there = true;
        let progress = progress::of(&deployment);
        if progress.text() != said {
            told(&progress)?;
            progress.text().clone_into(&mut said);
        }
        if progress.is_complete() {
            return Ok(());
        }
    }
}

/// Whether there is no core that would go on with a rollout.
#[derive(Debug, Default)]
struct Alone {
    since: Option<Instant>,
}

impl Alone {
    /// Says once that no core is there, and gives up after a while: a core that is replaced comes back.
    fn note(&mut self, unserved: Option<String>) -> anyhow::Result<()> {
        let Some(why) = unserved else {
            self.since = None;
            return Ok(());
        };
        match self.since {
            None => {
                log::say(&why);
                self.since = Some(Instant::now());
            }
            Some(since) if since.elapsed() >= GIVE_UP => bail!("{why}"),
            Some(_) => {}
        }
        Ok(())
    }
}

struct Cluster {
    client: Client,
    namespace: String,
}

impl Cluster {
    fn api(&self) -> Api<MachineDeployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn get(&self, name: &str) -> anyhow::Result<MachineDeployment> {
        fleet::deployment(&self.client, &self.namespace, name).await
    }

    async fn patch(&self, name: &str, patch: &Value) -> anyhow::Result<()> {
        let api = self.api();
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).with_context(|| format!("machinedeployment {name} cannot be changed"))
    }

    /// That no core serves the namespace.
    async fn unserved(&self) -> Option<String> {
        let leases = Leases::read(&self.client, &self.namespace).await;
        leases.unserved(&self.namespace, Timestamp::now())
    }

    /// How far a rollout is, and whether a core goes on with it.
    async fn say(&self, name: &str) -> anyhow::Result<()> {
        let progress = progress::of(&self.get(name).await?);
        told(&progress)?;
        if !progress.is_complete()
            && let Some(why) = self.unserved().await
        {
            log::say(why);
        }
        Ok(())
    }

    /// Says what changes, until the rollout is complete.
    async fn follow(&self, name: &str) -> anyhow::Result<()> {
        // A name that does not exist is an error, and not waited for.
        self.get(name).await?;
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let unserved = async || self.unserved().await;
        follow(name, watcher(self.api(), only).default_backoff(), unserved).await
    }

    async fn history(&self, name: &str, revision: Option<i64>) -> anyhow::Result<()> {
        let deployment = self.get(name).await?;
        let sets = fleet::sets_of(&self.client, &self.namespace, &deployment).await?;
        let Some(revision) = revision else {
            log::page(table::render(&history::table(&sets, Timestamp::now())));
            return Ok(());
        };
        log::page(history::template(history::find(&sets, name, revision)?)?);
        Ok(())
    }

    async fn undo(&self, name: &str, to: i64) -> anyhow::Result<()> {
        let deployment = self.get(name).await?;
        not_paused(&deployment, "undone")?;
        let sets = fleet::sets_of(&self.client, &self.namespace, &deployment).await?;
        let target = history::target(&sets, name, to)?;
        if is_current(&deployment, &sets, target) {
            log::say(format_args!(
                "machinedeployment {name} is at revision {target} already; nothing changes"
            ));
            return Ok(());
        }
        self.patch(name, &json!({ "spec": { "rollbackTo": { "revision": to } } })).await?;
        log::say(format_args!(
            "machinedeployment {name} goes back to revision {target}; follow it with `ostler rollout status {name}`"
        ));
        Ok(())
    }

    async fn pause(&self, name: &str, pause: bool) -> anyhow::Result<()> {
        let deployment = self.get(name).await?;
        let state = if pause { "paused" } else { "resumed" };
        if deployment.spec.paused.unwrap_or(false) == pause {
            let already = match resuming(&deployment) {
                _ if pause => "is paused already".to_owned(),
                Some(by) => format!("is paused by an annotation; {by} takes it away"),
                None => "is not paused".to_owned(),
            };
            bail!("machinedeployment {name} {already}");
        }
        self.patch(name, &json!({ "spec": { "paused": pause } })).await?;
        log::say(format_args!("machinedeployment {name} {state}"));
        if !pause && deployment.annotation(CLUSTER_API_PAUSED).is_some() {
            log::say(format_args!("annotation {CLUSTER_API_PAUSED} still pauses it"));
        }
        Ok(())
    }

    async fn restart(&self, name: &str) -> anyhow::Result<()> {
        let deployment = self.get(name).await?;
        not_paused(&deployment, "restarted")?;
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let annotations = json!({ ostler_api::names::annotation::RESTARTED_AT: now });
        let template = json!({ "metadata": { "annotations": annotations } });
        self.patch(name, &json!({ "spec": { "template": template } })).await?;
        log::say(format_args!(
            "machinedeployment {name} restarted: {}; follow it with `ostler rollout status {name}`",
            restarts(&deployment.spec)
        ));
        Ok(())
    }
}

/// What a restart does.
fn restarts(spec: &MachineDeploymentSpec) -> &'static str {
    if spec.strategy.type_ != Some(StrategyType::InPlaceUpdate) {
        "every machine is replaced"
    } else if fenceposts::is_manual(spec) {
        "each Node is updated in place once a user selects it"
    } else {
        "each Node is updated in place"
    }
}

/// Whether a revision is that of the template, as far as a controller has seen it.
fn is_current(deployment: &MachineDeployment, sets: &[MachineSet], revision: i64) -> bool {
    let newest = sets.iter().filter_map(fleet::revision).max();
    newest == Some(revision)
        && progress::of(deployment) != Progress::Unseen
        && progress::creation_error(deployment).is_none()
}

fn not_paused(deployment: &MachineDeployment, done: &str) -> anyhow::Result<()> {
    if let Some(resume) = resuming(deployment) {
        let name = deployment.name();
        bail!("machinedeployment {name} is paused and cannot be {done}; first {resume}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_written_as_kubectl_writes_it() {
        for text in
            ["a", "mcd/a", "machinedeployment/a", "machinedeployments.machine.sapcloud.io/a"]
        {
            assert_eq!(name(text).unwrap(), "a");
        }
        assert!(name("deployment/a").unwrap_err().to_string().contains("only machinedeployments"));
        let pool = name("machinepool/a").unwrap_err().to_string();
        assert!(pool.contains("`ostler describe machinepool a`"), "{pool}");
    }

    #[test]
    fn a_paused_deployment_is_neither_undone_nor_restarted_and_the_message_says_what_to_do() {
        let paused = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a" }, "spec": { "paused": true }
        }));
        let refused = not_paused(&paused.unwrap(), "undone").unwrap_err().to_string();
        assert!(refused.contains("`ostler rollout resume a`"), "{refused}");
        let paused = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a", "annotations": { "cluster.x-k8s.io/paused": "" } },
            "spec": {}
        }));
        let refused = not_paused(&paused.unwrap(), "undone").unwrap_err().to_string();
        let expected = "`kubectl annotate machinedeployment a cluster.x-k8s.io/paused-`";
        assert!(refused.contains(expected), "{refused}");
    }

    fn deployment(spec: &Value, status: &Value) -> MachineDeployment {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a", "generation": 2 }, "spec": spec, "status": status
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_rollout_is_followed_over_a_broken_watch_until_it_is_complete_gone_or_refused() {
        let goes_on = || deployment(&json!({ "replicas": 1 }), &json!({}));
        let done = json!({ "observedGeneration": 2, "replicas": 1, "updatedReplicas": 1,
            "readyReplicas": 1, "availableReplicas": 1 });
        let done = || deployment(&json!({ "replicas": 1 }), &done);
        let failed = |code: u16| {
            let status =
                json!({ "status": "Failure", "code": code, "message": "no", "reason": "" });
            Err(watcher::Error::WatchError(serde_json::from_value(status).unwrap()))
        };
        let begins = || [Ok(Event::Init), Ok(Event::InitApply(goes_on())), Ok(Event::InitDone)];
        for (then, expected) in [
            (vec![failed(410), failed(500), Ok(Event::Apply(done()))], None),
            (vec![Ok(Event::Delete(goes_on()))], Some("machinedeployment a was deleted")),
            (vec![Ok(Event::Init), Ok(Event::InitDone)], Some("machinedeployment a was deleted")),
            (vec![failed(403)], Some("the machinedeployment cannot be watched")),
        ] {
            let events = begins().into_iter().chain(then);
            let ended = follow("a", futures::stream::iter(events), async || None).await;
            assert_eq!(ended.err().map(|error| error.to_string()).as_deref(), expected);
        }
    }

    #[test]
    fn that_no_core_goes_on_with_a_rollout_is_said_and_after_a_while_an_error() {
        let mut alone = Alone::default();
        let why = || Some("no core serves namespace shop".to_owned());
        alone.note(why()).unwrap();
        let since = alone.since.unwrap();
        alone.note(why()).unwrap();
        assert_eq!(alone.since, Some(since), "it is said once");
        alone.note(None).unwrap();
        assert_eq!(alone.since, None, "a core came back");
        alone.since = Instant::now().checked_sub(GIVE_UP);
        assert_eq!(alone.note(why()).unwrap_err().to_string(), why().unwrap());
    }

    #[test]
    fn a_restart_replaces_machines_or_updates_their_nodes_in_place() {
        for (strategy, expected) in [
            (json!({ "type": "RollingUpdate" }), "every machine is replaced"),
            (json!({}), "every machine is replaced"),
            (json!({ "type": "InPlaceUpdate" }), "each Node is updated in place"),
            (
                json!({ "type": "InPlaceUpdate", "inPlaceUpdate": { "orchestrationType": "Manual" } }),
                "each Node is updated in place once a user selects it",
            ),
        ] {
            let deployment = deployment(&json!({ "strategy": strategy }), &json!({}));
            assert_eq!(restarts(&deployment.spec), expected, "{strategy}");
        }
    }

    #[test]
    fn the_newest_revision_is_the_current_one_unless_the_template_was_changed_since() {
        let sets = [1, 3, 2].map(|number: i64| {
            serde_json::from_value(json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
                "metadata": { "annotations": { "deployment.kubernetes.io/revision": number.to_string() } },
                "spec": {}
            }))
            .unwrap()
        });
        let failed = json!([{
            "type": "Progressing", "status": "False", "reason": "MachineSetCreateError"
        }]);
        for (status, revision, current) in [
            (json!({ "observedGeneration": 2 }), 3, true),
            (json!({ "observedGeneration": 2 }), 2, false),
            (json!({ "observedGeneration": 1 }), 3, false),
            (json!({ "observedGeneration": 2, "conditions": failed }), 3, false),
        ] {
            let deployment = deployment(&json!({}), &status);
            assert_eq!(is_current(&deployment, &sets, revision), current, "{status} {revision}");
        }
    }
}

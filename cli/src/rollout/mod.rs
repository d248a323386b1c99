//! `ostler rollout`: what `kubectl rollout` does for Deployments, for MachineDeployments and MachinePools. kubectl knows no
//! custom kinds.

mod follow;
mod history;
mod models;

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use ostler_api::machine_deployment::{MachineDeploymentSpec, StrategyType};
use ostler_api::machine_pool::PoolStrategyType;
use ostler_api::{MachineDeployment, MachinePool, MachineSet};
use ostler_lifecycle::deployment::fenceposts;
use serde_json::{Value, json};
use tokio::time::timeout;

use self::follow::{Change, Why, follow};
use crate::cluster::{self, Place};
use crate::describe::{self, Described, fleet};
use crate::kinds::Kind;
use crate::output::Output;
use crate::progress::{self, Progress, resuming, resuming_pool};
use crate::serving::Leases;
use crate::{log, table};

/// What is done, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler rollout status workers                  follow it to its end
  ostler rollout status mp/pool --timeout 10m    of a pool, not for ever
  ostler rollout history workers                 which templates there were
  ostler rollout undo workers                    back to the one before
  ostler rollout undo workers --to-revision 3    back to that one
  ostler rollout restart workers                 new machines for all
  ostler rollout pause workers                   change it, then roll once:
  ostler rollout resume workers

A rollout begins when the template of a machinedeployment changes. A change of a class that running instances can take \
rolls nothing: it is a hot update (`ostler class name` tells which change is which). `ostler describe machinedeployment` \
says why a rollout does not get on. Scaling is `kubectl scale machinedeployment NAME --replicas N`. A machinepool keeps no \
revisions: its history is the models that its instances have, and there is no undo.")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Follow a rollout until it is complete; fails if its deadline is exceeded
    Status {
        #[command(flatten)]
        target: Target,
        /// Say how far it is, and do not wait
        #[arg(long)]
        no_watch: bool,
        /// Fail if it takes longer, e.g. 90s, 10m or 1h30m; 0: never
        #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration)]
        timeout: Duration,
        /// How to print: with json one object for each change
        #[arg(long, short, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Show the revisions of a deployment, newest last, with their classes and machines; of a pool, the models of its instances
    History {
        #[command(flatten)]
        target: Target,
        /// Show the template of this revision
        #[arg(long, value_name = "NUMBER")]
        revision: Option<i64>,
        /// How to print
        #[arg(long, short, value_enum, default_value_t = Output::Text)]
        output: Output,
    },
    /// Go back to an earlier template; a rollout like any other
    Undo {
        #[command(flatten)]
        target: Target,
        /// The revision; the one before the current one by default
        #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
        to_revision: i64,
    },
    /// Do not roll out changes of the template until `resume`; scaling goes on
    Pause(Target),
    /// Roll out what was changed while it was paused
    Resume(Target),
    /// Replace every machine, a few at a time, with the template as it is; with InPlaceUpdate its Node is updated
    Restart(Target),
}

/// A deployment, or with its kind a pool.
#[derive(Debug, clap::Args)]
struct Target {
    /// A machinedeployment; or KIND/NAME, also KIND NAME, of a machinedeployment (md) or machinepool (mp)
    #[arg(value_name = "[KIND/]NAME", required = true, num_args = 1..=2)]
    words: Vec<String>,
}

impl Target {
    fn parse(&self) -> anyhow::Result<(Kind, String)> {
        let (kind, name) = match self.words.as_slice() {
            [kind, name] => (kind.parse()?, name.as_str()),
            [word] => match word.split_once('/') {
                Some((kind, name)) => (kind.parse()?, name),
                None => (Kind::Deployment, word.as_str()),
            },
            _ => bail!("a name is missing"),
        };
        if !matches!(kind, Kind::Deployment | Kind::Pool) {
            bail!(
                "a {} has no rollouts; machinedeployments and machinepools have",
                kind.singular()
            );
        }
        Ok((kind, name.to_owned()))
    }

    /// Of what only deployments have.
    fn deployment(&self, why: &str) -> anyhow::Result<String> {
        match self.parse()? {
            (Kind::Pool, name) => bail!("machinepool {name} {why}"),
            (_, name) => Ok(name),
        }
    }
}

/// `90s`, `10m`, `1h30m`; a number alone is of seconds.
fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    let parsed = text.parse::<SignedDuration>().ok().and_then(|it| it.try_into().ok());
    parsed.ok_or_else(|| "must be a duration such as 90s, 10m or 1h30m".to_owned())
}

/// Does it.
///
/// # Errors
/// The cluster cannot be reached, there is no such deployment, or it cannot be done.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    cluster::within(args.place, async |client, namespace| {
        Box::pin(ask(Cluster { client, namespace }, args.command)).await
    })
    .await
}

async fn ask(cluster: Cluster, command: Command) -> anyhow::Result<()> {
    const NO_REVISIONS: &str = "keeps no revisions; apply what its template and class were before, with another class of that content";
    match command {
        Command::Status { target, no_watch, timeout: longest, output } => {
            let (kind, name) = target.parse()?;
            if no_watch {
                return cluster.say(kind, &name, output).await;
            }
            if longest.is_zero() {
                return cluster.follow(kind, &name, output).await;
            }
            match timeout(longest, cluster.follow(kind, &name, output)).await {
                Ok(followed) => followed,
                Err(_) => Err(cluster.late(kind, &name, longest).await),
            }
        }
        Command::History { target, revision: None, output } if target.parse()?.0 == Kind::Pool => {
            cluster.models(&target.parse()?.1, output).await
        }
        Command::History { target, revision, output } => {
            cluster.history(&target.deployment(NO_REVISIONS)?, revision, output).await
        }
        Command::Undo { target, to_revision } => {
            cluster.undo(&target.deployment(NO_REVISIONS)?, to_revision).await
        }
        Command::Pause(target) => cluster.pause(target.parse()?, true).await,
        Command::Resume(target) => cluster.pause(target.parse()?, false).await,
        Command::Restart(target) => cluster.restart(target.parse()?).await,
    }
}

struct Cluster {
    client: Client,
    namespace: String,
}

impl Cluster {
    fn api<K: Described>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn get(&self, name: &str) -> anyhow::Result<MachineDeployment> {
        fleet::deployment(&self.client, &self.namespace, name).await
    }

    async fn pool(&self, name: &str) -> anyhow::Result<MachinePool> {
        let found = self.api::<MachinePool>().get_opt(name).await;
        found.context("the machinepool cannot be read")?.with_context(|| {
            format!("there is no machinepool {name:?} in namespace {}", self.namespace)
        })
    }

    async fn patch<K: Described>(&self, name: &str, patch: &Value) -> anyhow::Result<()> {
        let kind = K::kind(&()).to_lowercase();
        let api = self.api::<K>();
        let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        patched.map(drop).with_context(|| format!("{kind} {name} cannot be changed"))
    }

    /// How far a rollout is, and what it waits for.
    async fn say(&self, kind: Kind, name: &str, output: Output) -> anyhow::Result<()> {
        let progress = if kind == Kind::Pool {
            progress::of_pool(&self.pool(name).await?)
        } else {
            progress::of(&self.get(name).await?)
        };
        let why = if progress.is_complete() { Why::default() } else { self.why(kind, name).await };
        let change = Change { kind, name, progress: &progress, why: &why };
        change.tell(output)?;
        match progress {
            Progress::Failed(why) => bail!("{why}"),
            Progress::Unseen | Progress::Complete(_) | Progress::GoesOn(_) => Ok(()),
        }
    }

    /// Says what changes, until the rollout is complete.
    async fn follow(&self, kind: Kind, name: &str, output: Output) -> anyhow::Result<()> {
        let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let why = async || self.why(kind, name).await;
        // A name that does not exist is an error, and not waited for.
        if kind == Kind::Pool {
            self.pool(name).await?;
            let events = watcher(self.api::<MachinePool>(), only).default_backoff();
            return follow((kind, name), output, events, progress::of_pool, why).await;
        }
        self.get(name).await?;
        let events = watcher(self.api::<MachineDeployment>(), only).default_backoff();
        follow((kind, name), output, events, progress::of, why).await
    }

    /// The obstacle: no core serves the namespace, or the wait that blocks most.
    async fn why(&self, kind: Kind, name: &str) -> Why {
        let leases = Leases::read(&self.client, &self.namespace).await;
        if let Some(unserved) = leases.unserved(&self.namespace, Timestamp::now()) {
            return Why::Unserved(unserved);
        }
        let waits = describe::waits_for(&self.client, &self.namespace, kind, name).await;
        waits.ok().flatten().map_or(Why::Unknown, Why::Waits)
    }

    /// The error of a timeout, with the reason of the wait.
    async fn late(&self, kind: Kind, name: &str, longest: Duration) -> anyhow::Error {
        let waits = self.why(kind, name).await;
        let waits = waits.text().map(|why| format!("; {why}")).unwrap_or_default();
        let longest = table::span(SignedDuration::try_from(longest).unwrap_or_default());
        anyhow::anyhow!(
            "not complete after {longest}{waits}; see `ostler describe {} {name}`",
            kind.singular()
        )
    }

    async fn history(
        &self,
        name: &str,
        revision: Option<i64>,
        output: Output,
    ) -> anyhow::Result<()> {
        let deployment = self.get(name).await?;
        let sets = fleet::sets_of(&self.client, &self.namespace, &deployment).await?;
        if let Some(revision) = revision {
            let set = history::find(&sets, name, revision)?;
            return output.print(&history::template(set)?, &json!(set.spec.template));
        }
        let page = table::render(&history::table(&sets, Timestamp::now()));
        output.print(&page, &history::data(&sets))
    }

    /// What the instances of a pool are made from.
    async fn models(&self, name: &str, output: Output) -> anyhow::Result<()> {
        let pool = self.pool(name).await?;
        let machines = describe::machines_of_pool(&self.client, &pool).await?;
        let models = models::of(&pool, &machines);
        let page = table::render(&models::table(&models, Timestamp::now()));
        output.print(&page, &json!(models))
    }

    async fn undo(&self, name: &str, to: i64) -> anyhow::Result<()> {
        let deployment = self.get(name).await?;
        not_paused(Kind::Deployment, name, resuming(&deployment), "undone")?;
        let sets = fleet::sets_of(&self.client, &self.namespace, &deployment).await?;
        let target = history::target(&sets, name, to)?;
        if is_current(&deployment, &sets, target) {
            log::say(format_args!(
                "machinedeployment {name} is at revision {target} already; nothing changes"
            ));
            return Ok(());
        }
        let back = json!({ "spec": { "rollbackTo": { "revision": to } } });
        self.patch::<MachineDeployment>(name, &back).await?;
        log::say(format_args!(
            "machinedeployment {name} goes back to revision {target}; follow it with `ostler rollout status {name}`"
        ));
        Ok(())
    }

    async fn pause(&self, (kind, name): (Kind, String), pause: bool) -> anyhow::Result<()> {
        let (paused, resume) = if kind == Kind::Pool {
            let pool = self.pool(&name).await?;
            (pool.spec.paused, resuming_pool(&pool))
        } else {
            let deployment = self.get(&name).await?;
            (deployment.spec.paused, resuming(&deployment))
        };
        let singular = kind.singular();
        if paused.unwrap_or(false) == pause {
            let already = match resume {
                _ if pause => "is paused already".to_owned(),
                Some(by) => format!("is paused by an annotation; {by} takes it away"),
                None => "is not paused".to_owned(),
            };
            bail!("{singular} {name} {already}");
        }
        let patch = json!({ "spec": { "paused": pause } });
        if kind == Kind::Pool {
            self.patch::<MachinePool>(&name, &patch).await?;
        } else {
            self.patch::<MachineDeployment>(&name, &patch).await?;
        }
        log::say(format_args!("{singular} {name} {}", if pause { "paused" } else { "resumed" }));
        // The pause of the spec is over; pauses by annotation are not.
        let left =
            resume.as_deref().map(|all| all.split(" and ").filter(|it| it.contains("annotate")));
        for annotation in left.into_iter().flatten().filter(|_| !pause) {
            log::say(format_args!("it is still paused; {annotation} ends that"));
        }
        Ok(())
    }

    async fn restart(&self, (kind, name): (Kind, String)) -> anyhow::Result<()> {
        let (resume, then) = if kind == Kind::Pool {
            let pool = self.pool(&name).await?;
            (resuming_pool(&pool), restarts_pool(&pool))
        } else {
            let deployment = self.get(&name).await?;
            (resuming(&deployment), restarts(&deployment.spec))
        };
        not_paused(kind, &name, resume, "restarted")?;
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let annotations = json!({ ostler_api::names::annotation::RESTARTED_AT: now });
        let template = json!({ "metadata": { "annotations": annotations } });
        let patch = json!({ "spec": { "template": template } });
        let follow = if kind == Kind::Pool {
            self.patch::<MachinePool>(&name, &patch).await?;
            format!("mp/{name}")
        } else {
            self.patch::<MachineDeployment>(&name, &patch).await?;
            name.clone()
        };
        log::say(format_args!(
            "{} {name} restarted: {then}; follow it with `ostler rollout status {follow}`",
            kind.singular()
        ));
        Ok(())
    }
}

/// The effect of a restart.
fn restarts(spec: &MachineDeploymentSpec) -> &'static str {
    if spec.strategy.type_ != Some(StrategyType::InPlaceUpdate) {
        "every machine is replaced"
    } else if fenceposts::is_manual(spec) {
        "each Node is updated in place once a user selects it"
    } else {
        "each Node is updated in place"
    }
}

/// What a restart of a pool does.
fn restarts_pool(pool: &MachinePool) -> &'static str {
    match pool.spec.strategy.type_ {
        Some(PoolStrategyType::InPlaceUpdate) => {
            "each Node is drained and its instance updated in place"
        }
        Some(PoolStrategyType::OnDelete) => "a machine is replaced once a user deletes it",
        _ => "every instance is replaced",
    }
}

/// Whether a revision is that of the template, as far as a controller has seen it.
fn is_current(deployment: &MachineDeployment, sets: &[MachineSet], revision: i64) -> bool {
    let newest = sets.iter().filter_map(fleet::revision).max();
    newest == Some(revision)
        && progress::of(deployment) != Progress::Unseen
        && progress::creation_error(deployment).is_none()
}

fn not_paused(kind: Kind, name: &str, resume: Option<String>, done: &str) -> anyhow::Result<()> {
    if let Some(resume) = resume {
        bail!("{} {name} is paused and cannot be {done}; first {resume}", kind.singular());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_written_as_kubectl_writes_it() {
        let target = |line: &str| Target { words: line.split(' ').map(str::to_owned).collect() };
        for (line, kind) in [
            ("a", Kind::Deployment),
            ("mcd/a", Kind::Deployment),
            ("machinedeployment a", Kind::Deployment),
            ("machinedeployments.machine.sapcloud.io/a", Kind::Deployment),
            ("mp/a", Kind::Pool),
            ("machinepools a", Kind::Pool),
        ] {
            assert_eq!(target(line).parse().unwrap(), (kind, "a".to_owned()), "{line}");
        }
        let said = target("machineset/a").parse().unwrap_err().to_string();
        assert_eq!(said, "a machineset has no rollouts; machinedeployments and machinepools have");
        let said = target("mp/a").deployment("keeps no revisions").unwrap_err().to_string();
        assert_eq!(said, "machinepool a keeps no revisions");
    }

    #[test]
    fn a_timeout_is_a_duration_or_seconds() {
        for (text, seconds) in
            [("0", 0), ("120", 120), ("90s", 90), ("1h30m", 5400), ("10m0s", 600)]
        {
            assert_eq!(duration(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        assert!(duration("soon").unwrap_err().contains("such as 90s"));
        assert!(duration("-5s").is_err());
    }

    #[test]
    fn a_paused_deployment_is_neither_undone_nor_restarted_and_the_message_says_what_to_do() {
        let refused = |paused: &MachineDeployment| {
            let refused = not_paused(Kind::Deployment, "a", resuming(paused), "undone");
            refused.unwrap_err().to_string()
        };
        let paused = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a" }, "spec": { "paused": true }
        }));
        let refused_by_spec = refused(&paused.unwrap());
        let said = "machinedeployment a is paused and cannot be undone; first ";
        assert_eq!(refused_by_spec, format!("{said}`ostler rollout resume a`"));
        let paused = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment",
            "metadata": { "name": "a", "annotations": { "cluster.x-k8s.io/paused": "" } },
            "spec": {}
        }));
        let refused = refused(&paused.unwrap());
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
    fn a_restart_of_a_pool_goes_as_its_strategy_says() {
        for (strategy, expected) in [
            (json!({}), "every instance is replaced"),
            (json!({ "type": "RollingUpdate" }), "every instance is replaced"),
            (
                json!({ "type": "InPlaceUpdate" }),
                "each Node is drained and its instance updated in place",
            ),
            (json!({ "type": "OnDelete" }), "a machine is replaced once a user deletes it"),
        ] {
            let pool = serde_json::from_value(json!({
                "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
                "metadata": { "name": "p" }, "spec": { "strategy": strategy }
            }));
            assert_eq!(restarts_pool(&pool.unwrap()), expected, "{strategy}");
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

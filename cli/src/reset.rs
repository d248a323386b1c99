//! `ostler reset`: every machine deleted through its driver, then the directory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, watcher as watch};
use ostler_api::machine::Machine;
use tokio::time::{Instant, timeout_at};

use crate::data_dir::DataDir;
use crate::log;
use crate::up::{CoreMode, GatewayFile, Options, Story, System, TargetMode};

/// What `ostler reset` deletes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory of an `ostler up` that has ended
    #[arg(long, value_name = "DIR", default_value = "./.ostler")]
    pub(crate) data_dir: PathBuf,
    /// How long to wait for the machines, in seconds; pods keep their grace period
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) timeout: u64,
    /// Pass one more variable of this environment to drivers, as with `ostler up`; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) driver_env: Vec<String>,
}

/// Deletes all machines, waits, then removes the directory.
///
/// # Errors
/// The directory is in use, or machines are left: each is named with what it waits for, and the directory stays.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    if !args.data_dir.exists() {
        log::say(format_args!("nothing to do: {} does not exist", args.data_dir.display()));
        return Ok(());
    }
    let data = DataDir::open(&args.data_dir)?;
    if data.api().exists() {
        let patience = Duration::from_secs(args.timeout);
        Box::pin(delete_machines(&data, &args.driver_env, patience)).await?;
    }
    let path = data.path().to_owned();
    data.remove()?;
    log::say(format_args!("removed {}", path.display()));
    Ok(())
}

async fn delete_machines(
    data: &DataDir,
    driver_env: &[String],
    patience: Duration,
) -> anyhow::Result<()> {
    let loopback = ([127, 0, 0, 1], 0).into();
    let options = Options {
        api_listen: loopback,
        drivers_listen: loopback,
        drivers: data.known_drivers()?,
        driver_env: driver_env.to_vec(),
        shares: ostler_server::raise_descriptors(),
        core: CoreMode::Embedded,
        target: TargetMode::default(),
        // The machines look for the API server where it was: they must end their pods.
        gateway_port: GatewayFile::of(data).last().map(|address| address.port()),
    };
    let interrupted = ostler_server::on_signal()?;
    let system = Box::pin(System::start(options, data, Story::quiet())).await?;
    let left = tokio::select! {
        left = delete_all(system.client(), patience) => left,
        () = interrupted.cancelled() => Err(anyhow::anyhow!("interrupted; nothing was removed")),
    };
    system.stop().await;
    let left = left?;
    if left.is_empty() {
        return Ok(());
    }
    for (name, why) in &left {
        log::say(format_args!("not deleted: machine {name}: {why}"));
    }
    bail!(
        "{} machines were not deleted, so {} stays; fix what they wait for and run `ostler reset` again",
        left.len(),
        data.path().display()
    )
}

/// Deletes every machine and waits. Returns those that are left, with what they wait for.
async fn delete_all(
    client: Client,
    patience: Duration,
) -> anyhow::Result<BTreeMap<String, String>> {
    let deadline = Instant::now() + patience;
    let machines = Api::<Machine>::all(client.clone());
    let mut left = BTreeMap::new();
    for machine in
        machines.list(&ListParams::default()).await.context("machines cannot be listed")?
    {
        let namespace = machine.metadata.namespace.clone().unwrap_or_default();
        let api = Api::<Machine>::namespaced(client.clone(), &namespace);
        api.delete(machine.name(), &DeleteParams::default())
            .await
            .with_context(|| format!("machine {namespace}/{} cannot be deleted", machine.name()))?;
        left.insert(key(&machine), waits_for(&machine));
    }
    let total = left.len();
    let events = watch(machines, watcher::Config::default()).default_backoff().boxed();
    let mut events = pin!(events);
    let mut relisted = BTreeMap::new();
    while !left.is_empty() {
        let Ok(event) = timeout_at(deadline, events.try_next()).await else { break };
        match event {
            Ok(Some(Event::Init)) => relisted.clear(),
            Ok(Some(Event::InitApply(machine))) => {
                relisted.insert(key(&machine), waits_for(&machine));
            }
            Ok(Some(Event::InitDone)) => left = std::mem::take(&mut relisted),
            Ok(Some(Event::Apply(machine))) => {
                left.insert(key(&machine), waits_for(&machine));
            }
            Ok(Some(Event::Delete(machine))) => {
                left.remove(&key(&machine));
                log::say(format_args!(
                    "{} of {total} deleted: machine {}",
                    total.saturating_sub(left.len()),
                    key(&machine)
                ));
            }
            Ok(None) => bail!("the watch on machines ended"),
            // The watcher backs off and goes on by itself.
            Err(error) => tracing::debug!(%error, "the watch on machines was interrupted"),
        }
    }
    Ok(left)
}

fn key(machine: &Machine) -> String {
    format!("{}/{}", machine.metadata.namespace.as_deref().unwrap_or_default(), machine.name())
}

fn waits_for(machine: &Machine) -> String {
    machine.status.as_ref().and_then(|status| status.waiting_for.as_ref()).map_or_else(
        || "its deletion has not begun".to_owned(),
        |waiting| {
            let message = waiting.message.as_deref().unwrap_or("no more is known");
            format!("waits for {}: {message}", waiting.reason)
        },
    )
}

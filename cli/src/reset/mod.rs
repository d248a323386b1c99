//! `ostler reset`: every machine, every pool and every orphan deleted through its driver, then the directory.

mod deletion;
mod orphans;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{anyhow, bail};
use ostler_controllers::{EnabledControllers, Namespaces};
use ostler_server::Signals;
use ostler_trace::TraceArgs;

use self::deletion::Patience;
use crate::backup::{refuse_half_restored, refuse_other_directory};
use crate::data_dir::DataDir;
use crate::driver_choice::DriverChoice;
use crate::log;
use crate::up::{CoreMode, GatewayFile, Options, Story, System, TargetMode};

/// What `ostler reset` deletes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The data directory of an `ostler up` that has ended
    #[arg(long, value_name = "DIR", default_value = "./.ostler")]
    pub(crate) data_dir: PathBuf,
    /// How long to wait for machines and pools, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) timeout: u64,
    /// How long pods may take to end, in seconds; then they are deleted without their grace period
    ///
    /// A pod whose kubelet is gone never ends by itself: that of an instance that was deleted by hand, or of a container
    /// that stopped with the computer. Nothing else is cut short: each instance is deleted by its driver.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) grace: u64,
    /// Remove the directory even if instances are left that no machine stands for
    ///
    /// Their cluster id is in the directory: without it, no later `ostler up` finds them.
    #[arg(long)]
    pub(crate) leave_orphans: bool,
    /// Pass one more variable of this environment to drivers, as with `ostler up`; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) driver_env: Vec<String>,
    /// Run the drivers without variables that `ostler up` gave them
    ///
    /// Without them a driver may look into another account, find no machine there, and leave those of this directory.
    #[arg(long)]
    pub(crate) without_driver_env: bool,
    /// Delete the machines of a directory that `ostler restore` made
    ///
    /// A restored directory names the same instances as the original directory: both lose their machines.
    #[arg(long)]
    pub(crate) restored: bool,
}

/// Deletes all machines and pools, waits, then removes what `up` wrote.
///
/// # Errors
/// It is no data directory, or in use, or something is left: each is named with what it waits for, and the directory stays.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    if !args.data_dir.exists() {
        log::say(format_args!("nothing to do: {} does not exist", args.data_dir.display()));
        return Ok(());
    }
    // Before it is locked and closed to others, since it may be any directory.
    refuse_half_restored(&args.data_dir)?;
    refuse_other_directory(&args.data_dir)?;
    let data = DataDir::open(&args.data_dir)?;
    if data.restored().exists() && !args.restored {
        bail!(
            "{} was restored from a backup, so its machines may be those of another directory, whose instances would be deleted. If this is only a copy, remove it with `rm -r`; if no other `ostler up` has these machines, give --restored",
            data.path().display()
        );
    }
    if !args.without_driver_env {
        refuse_other_environment(&data, &args.driver_env)?;
    }
    let patience = Patience {
        grace: Duration::from_secs(args.grace),
        timeout: Duration::from_secs(args.timeout),
    };
    let left = Box::pin(delete_all(&data, &args.driver_env, patience)).await?;
    if !left.is_empty() && !args.leave_orphans {
        bail!(
            "orphans may be left, so {} stays, which has the cluster id that they are known by; delete them and run `ostler reset` again, or give --leave-orphans",
            data.path().display()
        );
    }
    let path = data.path().to_owned();
    let others = data.remove()?;
    if others.is_empty() {
        log::say(format_args!("removed {}", path.display()));
    } else {
        log::say(format_args!(
            "removed all that `ostler up` wrote to {}; what else is there stays: {}",
            path.display(),
            others.join(", ")
        ));
    }
    Ok(())
}

/// The drivers have to find what they made: in the same account, by the same variables.
fn refuse_other_environment(data: &DataDir, given: &[String]) -> anyhow::Result<()> {
    let mut known = data.known_driver_env()?;
    known.retain(|name| !given.contains(name) || std::env::var_os(name).is_none());
    if known.is_empty() {
        return Ok(());
    }
    let is_set = |name: &String| std::env::var_os(name).is_some();
    let unset: Vec<_> = known.iter().filter(|name| !is_set(name)).cloned().collect();
    let unset = if unset.is_empty() {
        String::new()
    } else {
        format!(", after you have set {}", unset.join(", "))
    };
    let flags: Vec<_> = known.iter().map(|name| format!("--driver-env {name}")).collect();
    bail!(
        "`ostler up` gave its drivers variables that they would not have now, so they might look into another account: give {}{unset}; or give --without-driver-env. Nothing was deleted",
        flags.join(" ")
    )
}

/// A driver that is gone leaves its own machines, and no others: those wait for it and keep the directory.
fn usable_drivers(data: &DataDir) -> anyhow::Result<Vec<DriverChoice>> {
    let mut drivers = data.known_drivers()?;
    drivers.retain(|driver| {
        let usable = driver.executable();
        if let Err(error) = &usable {
            log::say(format_args!(
                "{error:#}; its machines cannot be deleted before `ostler up --driver PATH` was started with the path that it has now"
            ));
        }
        usable.is_ok()
    });
    Ok(drivers)
}

/// Deletes machines, pools and orphans; returns the orphans that are left, with the reason.
async fn delete_all(
    data: &DataDir,
    driver_env: &[String],
    patience: Patience,
) -> anyhow::Result<BTreeMap<String, String>> {
    let loopback = ([127, 0, 0, 1], 0).into();
    let options = Options {
        api_listen: loopback,
        drivers_listen: loopback,
        autoscaler_listen: None,
        metrics_listen: None,
        drivers: usable_drivers(data)?,
        driver_env: driver_env.to_vec(),
        aliases: data.known_aliases()?,
        shares: ostler_server::raise_descriptors(),
        core: CoreMode::Embedded,
        // All namespaces that any `up` served.
        namespaces: Namespaces::Prefix(String::new()),
        target: TargetMode::default(),
        // No set makes a machine in the place of one that is deleted. Pools are deleted themselves.
        controllers: EnabledControllers::machines(),
        // The machines look for the API server where it was: they must end their pods.
        gateway_port: GatewayFile::of(data).last().map(|address| address.port()),
        node_grace: None,
        ends: true,
        traces: TraceArgs::default(),
    };
    let signals = Signals::listen()?;
    let mut system = Box::pin(System::start(options, data, Story::quiet())).await?;
    let delete = async {
        system.warm_up().await?;
        let left = deletion::of_all(system.client(), patience).await?;
        let orphans = if left.is_empty() {
            orphans::of_all(&system, patience).await?
        } else {
            BTreeMap::new()
        };
        Ok((left, orphans))
    };
    let left = tokio::select! {
        left = delete => left,
        () = signals.end.cancelled() => Err(anyhow!(
            "interrupted: {} stays; what is not deleted yet is marked, and goes on with the next `ostler up` or `ostler reset`",
            data.path().display()
        )),
    };
    system.stop(&signals.immediately, Story::default()).await;
    let (left, orphans) = left?;
    for (name, why) in left.iter().chain(&orphans) {
        log::say(format_args!("not deleted: {name}: {why}"));
    }
    if left.is_empty() {
        return Ok(orphans);
    }
    bail!(
        "{} machines and pools were not deleted, so {} stays; fix what they wait for and run `ostler reset` again",
        left.len(),
        data.path().display()
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use ostler_apiserver::serve::{ApiServer, OBJECTS, Options as ApiOptions};

    use super::*;

    async fn reset(data_dir: &std::path::Path) -> anyhow::Result<()> {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            args: Args,
        }
        let line = ["reset", "--data-dir", data_dir.to_str().unwrap()];
        Box::pin(run(Cli::try_parse_from(line).unwrap().args)).await
    }

    async fn refused(data_dir: &std::path::Path) -> String {
        reset(data_dir).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn a_driver_that_is_gone_does_not_hold_up_the_reset_of_all_others() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let data = DataDir::open(&path).unwrap();
        let gone = DriverChoice::Path { provider: None, path: dir.path().join("my-driver-v1") };
        data.remember_drivers(&[gone]).unwrap();
        ApiServer::open(ApiOptions::directory(data.api())).await.unwrap().close().await;
        drop(data);
        reset(&path).await.unwrap();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_directory_that_no_up_wrote_or_a_restore_did_not_finish_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        std::fs::create_dir(path.join("before-restore-1")).unwrap();
        std::fs::write(path.join("thesis.txt"), "mine").unwrap();
        assert!(refused(path).await.contains("has no api/objects.redb"));
        std::fs::create_dir(path.join("api.restoring")).unwrap();
        assert!(refused(path).await.contains("broken off"));
        let left = std::fs::read_dir(path).unwrap().count();
        assert_eq!(left, 3, "not even a lock is made");
    }

    #[tokio::test]
    async fn the_machines_of_a_restored_directory_are_not_deleted_without_a_flag() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        std::fs::create_dir(data.api()).unwrap();
        std::fs::write(data.api().join(OBJECTS), "").unwrap();
        std::fs::write(data.restored(), "").unwrap();
        drop(data);
        assert!(refused(dir.path()).await.contains("give --restored"));
    }
}

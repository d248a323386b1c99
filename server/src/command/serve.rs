//! A core from flags to end.

use std::io::Write as _;

use anyhow::Context as _;
use kube::Client;
use ostler_controllers::{check_home, check_schemas, until_answered};
use ostler_legacy::LegacyOptions;
use ostler_sessions::Listeners;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::{Args, check, options};
use crate::health::{self, Health};
use crate::signals::on_signal;
use crate::{AdminListener, Core, CoreOptions, Log, raise_descriptors};

/// Runs until a signal, or until the core fails.
pub(super) async fn serve(args: Args) -> anyhow::Result<()> {
    let end = on_signal()?;
    check(&args)?;
    let shares = raise_descriptors();
    let (address, open) = args.upstream.metrics(args.metrics_listen);
    let metrics = health::bind(address, open).await?;
    let drivers = args.drivers.clone().bind().await?;
    let admin = match &args.admin_listen {
        Some(address) => {
            let admin = AdminListener::bind(address, args.admin_token_file.as_deref()).await?;
            Some(admin.with_connections(shares.people))
        }
        None => None,
    };
    let legacy = args.legacy.clone().bind().await?;
    let autoscaler = args.autoscaler.clone().bind().await?;
    let (client, target) = args.clusters.connect(args.upstream.rate()).await?;
    let traces = args.traces.start("ostler-server")?;

    // The start may wait long for the API server; probes are answered meanwhile.
    let (health, end_metrics) = (Health::default(), CancellationToken::new());
    let shown = health::serve(metrics, shares.people, health.clone(), end_metrics.clone());
    let serving = tokio::spawn(shown);
    let starting = async {
        check_cluster(&client, &args).await?;
        let mut registry = Registry::default();
        Log::register_metrics(&mut registry);
        let driver_connections = shares.drivers;
        let options =
            CoreOptions { driver_connections, target, traces: traces.clone(), ..options(args) };
        drivers.register_metrics(&mut registry);
        let mut core = Core::start(client, drivers.incoming(), options, &mut registry).await?;
        if let Some(autoscaler) = autoscaler {
            core.serve_autoscaler(autoscaler);
        }
        health.show(registry, core.synced());
        anyhow::Ok(core)
    };
    let outcome = match end.run_until_cancelled(starting).await {
        None => Ok(()),
        Some(Err(error)) => Err(error),
        Some(Ok(core)) => run(core, admin, legacy, &end).await,
    };
    traces.finish().await;
    end_metrics.cancel();
    serving.await.context("the metrics listener failed")??;
    outcome
}

/// Whether the cluster has the needs of a core, and no unknown other core.
async fn check_cluster(client: &Client, args: &Args) -> anyhow::Result<()> {
    until_answered(|| check_schemas(client, args.fleet.controllers)).await?;
    if args.leader_elect_resource_namespace.is_none() {
        until_answered(|| check_home(client, &args.namespace)).await?;
    }
    Ok(())
}

/// Runs a core until `end`, or until it fails.
async fn run(
    mut core: Core,
    admin: Option<AdminListener>,
    legacy: Option<(Listeners, LegacyOptions)>,
    end: &CancellationToken,
) -> anyhow::Result<()> {
    if let Some(admin) = admin {
        core.serve_admin(admin);
    }
    if let Some((listeners, options)) = legacy {
        core.serve_legacy(listeners.incoming(), options);
    }
    let outcome = tokio::select! {
        outcome = until_failure(&mut core) => outcome,
        () = end.cancelled() => Ok(()),
    };
    core.stop().await;
    outcome
}

async fn until_failure(core: &mut Core) -> anyhow::Result<()> {
    core.ready().await?;
    // A closed stdout is no reason to stop.
    let _closed = writeln!(std::io::stdout(), "ready: this core leads");
    Err(core.failure().await)
}

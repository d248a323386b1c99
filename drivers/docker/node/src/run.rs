//! The life of the agent, from the first signal it can take to the last.

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::boot::{Joined, join};
use crate::identity::{Store, renew};
use crate::machine::facts;
use crate::node::{About, beat, register, report_not_ready};
use crate::options::Options;
use crate::pods::{Work, WorkSetup};

/// Runs the agent until SIGTERM or SIGINT.
///
/// # Errors
/// If the process cannot take signals or its directory cannot be used. Failures of the cluster are waited out.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let level = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    // The first process of a container gets no signal that it has not asked for.
    let shutdown = shutdown()?;
    let store = Store::open(&options.state_dir)?;
    let node = node_name(&options)?;
    let joined = tokio::select! {
        joined = join(&options, &store, &node) => joined?,
        () = shutdown.cancelled() => return Ok(()),
    };
    serve(options, store, node, joined, shutdown).await
}

/// Cancelled by SIGTERM or SIGINT.
fn shutdown() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot take SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot take SIGINT")?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("received a signal to end");
        cancel.cancel();
    });
    Ok(token)
}

fn node_name(options: &Options) -> anyhow::Result<String> {
    let name = match &options.node_name {
        Some(name) => name.clone(),
        None => nix::unistd::gethostname()
            .context("the host name is not known: set OSTLER_NODE_NAME")?
            .to_string_lossy()
            .to_lowercase(),
    };
    if name.is_empty() {
        bail!("the node has no name: set OSTLER_NODE_NAME");
    }
    Ok(name)
}

/// Serves the node until the shutdown.
async fn serve(
    options: Options,
    store: Store,
    node: String,
    joined: Joined,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let Joined { access, identity } = joined;
    let id = options.provider_id.clone().filter(|id| !id.is_empty());
    let about = About {
        facts: facts(id.as_deref().unwrap_or(&node)),
        name: node.clone(),
        provider_id: id,
        taints: options.register_with_taints.clone(),
        labels: options.node_labels.clone(),
        disk: options.state_dir.clone(),
    };
    tokio::select! {
        registered = register(&access, &about) => registered?,
        () = shutdown.cancelled() => return Ok(()),
    }
    let children = signal(SignalKind::child()).context("cannot take SIGCHLD")?;
    let (sender, clients) = watch::channel(access);
    let beats = tokio::spawn(beat(about.clone(), clients.clone()));
    let renewal = tokio::spawn(renew(store, node.clone(), identity, sender));
    let last_report = tokio::spawn({
        let (shutdown, clients) = (shutdown.clone(), clients.clone());
        async move {
            shutdown.cancelled().await;
            beats.abort();
            let access = clients.borrow().clone();
            report_not_ready(&about, &access).await;
        }
    });
    let grace = options.shutdown_grace();
    let log_dir = options.log_dir;
    Work::run(WorkSetup { node, clients, log_dir, grace, shutdown, children }).await;
    renewal.abort();
    last_report.await.context("the node was not reported not ready")?;
    tracing::info!("ended");
    Ok(())
}

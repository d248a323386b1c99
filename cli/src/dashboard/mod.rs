//! `ostler dashboard`: a page for a browser, served on loopback to who has its link. It reads the API as its user, writes nothing,
//! and asks nothing while no page is open.

mod access;
mod follow;
mod model;
mod rows;
mod server;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use kube::Client;
use ostler_server::Signals;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use self::access::Token;
use self::follow::Hub;
use crate::cluster::{self, Place};
use crate::drivers::AdminArgs;
use crate::log;

/// The port that the kernel chooses: the link says it.
pub(crate) const ANY_PORT: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Which cluster is shown, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler dashboard                              prints a link; Ctrl-C ends it
  ostler dashboard -n shoot--a --context seed   one namespace of a cluster
  ostler dashboard --listen 127.0.0.1:8080      a port for a tunnel:
  ssh -L 8080:127.0.0.1:8080 HOST               where the browser is

The page shows the timeline of each machine, waits by reason with what to do about them, rollouts, pools and reserves, the drivers with \
their queues, and orphans. It changes nothing; lists and edits are kubectl's. The link holds a token, new at each start: who has it \
reads what the kubeconfig may read. `ostler up` prints such a link, too.

Keys: j and k choose a machine, Enter describes it, / filters, ? shows all.")]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// All namespaces, as without --namespace
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    #[command(flatten)]
    admin: AdminArgs,
    /// Where the page is served (HTTP, loopback only); port 0: one that is free
    #[arg(long, value_name = "ADDR", default_value_t = ANY_PORT)]
    listen: SocketAddr,
}

/// What is shown.
pub(crate) struct Source {
    pub(crate) client: Client,
    /// The cluster, for people.
    pub(crate) cluster: String,
    /// Only objects of this namespace.
    pub(crate) namespace: Option<String>,
    /// Who is asked for drivers and orphans.
    pub(crate) admin: AdminArgs,
    /// The data directory of the `ostler up` that is shown, if it is one.
    pub(crate) home: Option<PathBuf>,
}

/// A page that is about to be served.
pub(crate) struct Dashboard {
    listener: TcpListener,
    token: Token,
    hub: Arc<Hub>,
    link: String,
}

impl Dashboard {
    /// With a token of its own.
    pub(crate) fn new(listener: TcpListener, source: Source) -> anyhow::Result<Self> {
        let token = Token::new();
        let link = format!("http://{}/#{}", listener.local_addr()?, token.expose());
        Ok(Self { listener, token, hub: Arc::new(Hub::new(source)), link })
    }

    /// Where a browser finds the page, with the token in the part that it sends to no server.
    pub(crate) fn link(&self) -> &str {
        &self.link
    }

    /// Serves until `end`.
    pub(crate) async fn serve(self, end: CancellationToken) {
        server::serve(self.listener, self.token, self.hub, end).await;
    }
}

/// Listens for browsers.
///
/// # Errors
/// `flag` names an address that is not on loopback, or cannot be listened on.
pub(crate) async fn listen(flag: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    if !address.ip().is_loopback() {
        bail!(
            "{flag} {address} is not a loopback address, and the page is plain HTTP; listen on 127.0.0.1, and reach it from elsewhere \
             with `ssh -L`"
        );
    }
    let listener = TcpListener::bind(address).await;
    listener.with_context(|| {
        format!("{flag} {address} cannot be listened on; choose another address with {flag}")
    })
}

/// Serves the page until a signal.
///
/// # Errors
/// The kubeconfig cannot be used, or the address.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { place, all_namespaces: _, admin, listen } = args;
    let (home, namespace) = (place.home(), place.namespace.clone());
    let cluster = place.config().await?.cluster_url.to_string();
    let signals = Signals::listen()?;
    let listener = self::listen("--listen", listen).await?;
    cluster::within(place, async |client, _| {
        // One that does not answer is an error here, and later stands on the page.
        client.apiserver_version().await.context("the API server cannot be asked")?;
        let dashboard =
            Dashboard::new(listener, Source { client, cluster, namespace, admin, home })?;
        log::say(dashboard.link());
        dashboard.serve(signals.end.clone()).await;
        Ok(())
    })
    .await
}

//! How containers reach the API server: at the gateway of Docker's bridge, which is this computer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::Context as _;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use ostler_apiserver::serving::{ApiServer, ServeOptions};
use ostler_driver_docker::{DockerHost, bridge_gateway};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::narrate::Story;
use crate::data_dir::DataDir;

/// The pauses before an engine that did not answer is asked again, each twice as long as the one before.
const PAUSES: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_secs(1))
    .with_max_delay(LONGEST_PAUSE)
    .without_max_times();
/// The longest of them, and how often an engine that answered is asked again: its bridge may move.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Where machines find the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// At this URL.
    At(String),
    /// Nowhere yet; the text says why.
    NotYet(String),
}

/// The listener at the gateway.
pub(crate) struct Gateway {
    api: ApiServer,
    docker: DockerHost,
    port: u16,
    /// Further names of the certificate.
    names: Vec<String>,
    limits: ServeOptions,
    story: Story,
}

/// What listens now.
struct Listening {
    address: SocketAddr,
    end: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Gateway {
    /// A listener of `api` at `port`. Its certificate is good for `names` as well.
    pub(crate) fn new(
        api: ApiServer,
        port: u16,
        names: Vec<String>,
        limits: ServeOptions,
        story: Story,
    ) -> anyhow::Result<Self> {
        Ok(Self { api, docker: docker_host()?, port, names, limits, story })
    }

    /// Listens as soon as the engine says where, until `end`. What it comes to is told to `reach`.
    pub(crate) async fn follow(
        self,
        data: GatewayFile,
        reach: watch::Sender<Reach>,
        end: CancellationToken,
    ) {
        let mut listening = None;
        let mut pauses = PAUSES.build();
        loop {
            let looked = tokio::select! {
                looked = self.look(&mut listening, &data) => looked,
                () = end.cancelled() => break,
            };
            let pause = match looked {
                Ok(address) => {
                    self.tell(&reach, Reach::At(format!("https://{address}")));
                    LONGEST_PAUSE
                }
                Err(error) => {
                    self.tell(&reach, Reach::NotYet(format!("{error:#}")));
                    pauses.next().unwrap_or(LONGEST_PAUSE)
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = end.cancelled() => break,
            }
        }
        stop(listening).await;
    }

    /// Asks the engine, and listens where it says if that is not done already.
    async fn look(
        &self,
        listening: &mut Option<Listening>,
        data: &GatewayFile,
    ) -> anyhow::Result<SocketAddr> {
        let served = listening.as_ref().filter(|one| !one.task.is_finished());
        let served = served.map(|one| one.address);
        let ip = match (bridge_gateway(&self.docker).await, served) {
            (Ok(ip), _) => ip,
            // The engine may be away for a while: the bridge stays.
            (Err(_), Some(address)) => return Ok(address),
            (Err(error), None) => return Err(error.into()),
        };
        let address = SocketAddr::new(ip, self.port);
        if served == Some(address) {
            return Ok(address);
        }
        stop(listening.take()).await;
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("{address}, the gateway of Docker's bridge, cannot be listened on")
        })?;
        data.remember(address)?;
        let tls = self.api.tls(&self.names_with(ip)).context("there is no certificate for it")?;
        let end = CancellationToken::new();
        let (api, limits, until) = (self.api.clone(), self.limits, end.clone());
        let task = tokio::spawn(async move { api.serve_with(listener, tls, limits, until).await });
        *listening = Some(Listening { address, end, task });
        Ok(address)
    }

    fn names_with(&self, ip: IpAddr) -> Vec<String> {
        self.names.iter().cloned().chain([ip.to_string()]).collect()
    }

    /// Tells what is new.
    fn tell(&self, reach: &watch::Sender<Reach>, now: Reach) {
        let news = *reach.borrow() != now;
        if !news {
            return;
        }
        match &now {
            Reach::At(url) => {
                self.story.tell(format_args!("containers reach the API server at {url}"));
            }
            Reach::NotYet(why) => self.story.tell(format_args!(
                "containers cannot reach the API server yet: {why}; trying again"
            )),
        }
        reach.send_replace(now);
    }
}

async fn stop(listening: Option<Listening>) {
    let Some(listening) = listening else { return };
    listening.end.cancel();
    if let Ok(Err(error)) = listening.task.await {
        tracing::warn!(%error, "the listener for containers failed");
    }
}

/// The engine that the driver will use, too.
fn docker_host() -> anyhow::Result<DockerHost> {
    match std::env::var("DOCKER_HOST") {
        Ok(text) if !text.is_empty() => text.parse().context("DOCKER_HOST"),
        Ok(_) | Err(_) => Ok(DockerHost::default()),
    }
}

/// Where the last address is kept: machines that are there go on looking for it.
#[derive(Clone, Debug)]
pub(crate) struct GatewayFile(std::path::PathBuf);

impl GatewayFile {
    pub(crate) fn of(data: &DataDir) -> Self {
        Self(data.path().join("gateway"))
    }

    /// The address that was listened on last.
    pub(crate) fn last(&self) -> Option<SocketAddr> {
        crate::data_dir::read_private(&self.0).ok()??.trim().parse().ok()
    }

    fn remember(&self, address: SocketAddr) -> anyhow::Result<()> {
        if self.last() == Some(address) {
            return Ok(());
        }
        crate::data_dir::write_private(&self.0, &address.to_string())
    }
}

//! How containers reach the API server: at the gateway of Docker's bridge, which is this computer.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use ostler_apiserver::serve::{ApiServer, ServeOptions};
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
    /// Where the API server listens already.
    main: SocketAddr,
    port: u16,
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
    /// A listener of `api`, which listens at `main` already, at `port`. Its certificate is good for both.
    pub(crate) fn new(
        api: ApiServer,
        main: SocketAddr,
        port: u16,
        limits: ServeOptions,
        story: Story,
    ) -> anyhow::Result<Self> {
        // The engine that the driver will use, too.
        let docker = std::env::var("DOCKER_HOST").unwrap_or_default();
        let docker = docker.parse().context("DOCKER_HOST")?;
        Ok(Self { api, docker, main, port, limits, story })
    }

    /// Listens from the moment the engine knows the gateway until `end`. Sends the outcome to `reach`.
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
        self.listen(address, listening, data).await?;
        Ok(address)
    }

    /// Listens there if that is not done already.
    async fn listen(
        &self,
        address: SocketAddr,
        listening: &mut Option<Listening>,
        data: &GatewayFile,
    ) -> anyhow::Result<()> {
        let served = listening.as_ref().filter(|one| !one.task.is_finished());
        if served.is_some_and(|one| one.address == address) {
            return Ok(());
        }
        stop(listening.take()).await;
        if address == self.main {
            return data.remember(address);
        }
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("{address}, the gateway of Docker's bridge, cannot be listened on")
        })?;
        data.remember(address)?;
        let names = [self.main.ip(), address.ip()].map(|ip| ip.to_string());
        let tls = self.api.tls(&names).context("there is no certificate for it")?;
        let end = CancellationToken::new();
        let (api, limits, until) = (self.api.clone(), self.limits, end.clone());
        let task = tokio::spawn(async move { api.serve_with(listener, tls, limits, until).await });
        *listening = Some(Listening { address, end, task });
        Ok(())
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

#[cfg(test)]
mod tests {
    use ostler_apiserver::serve::Options;

    use super::*;

    #[tokio::test]
    async fn an_api_server_at_the_gateway_itself_is_not_asked_to_listen_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path()).unwrap();
        let api = ApiServer::open(Options::directory(data.api())).await.unwrap();
        let (taken, limits) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), ServeOptions { connections: 1 });
        let main = taken.local_addr().unwrap();
        let gateway = Gateway::new(api.clone(), main, main.port(), limits, Story::quiet()).unwrap();
        let (mut listening, file) = (None, GatewayFile::of(&data));
        gateway.listen(main, &mut listening, &file).await.unwrap();
        assert!(listening.is_none());
        assert_eq!(file.last(), Some(main), "containers go on looking for it");
        api.close().await;
    }
}

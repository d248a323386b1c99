//! A core, a proxy before it, and one process of the driver behind that.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ostler_proto::v1alpha1::register_request::Frame;
use ostler_proto::v1alpha1::{Readiness, RoleKind, Welcome};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::cloud::Cloud;
use crate::core::session::Session;
use crate::core::{Core, within};
use crate::observation::{Marks, Observations};
use crate::options::{Invitation, Options, Target};
use crate::outcome::{Outcome, failed, skipped};
use crate::process::{Output, Process};
use crate::proxy::Proxy;

/// For a driver to start and dial in.
const DIAL_IN: Duration = Duration::from_secs(40);
/// Several drivers may start at once, each so much slower than the first one of the run.
const SLOWER: u32 = 20;
/// For an answer to Welcome.
const READY: Duration = Duration::from_secs(10);
/// For a Hello on a new stream.
const HELLO: Duration = Duration::from_secs(10);

/// What all harnesses of a run share.
#[derive(Debug)]
pub(crate) struct RunSetup {
    pub(crate) options: Options,
    pub(crate) target: Target,
    pub(crate) token: String,
    pub(crate) token_file: PathBuf,
    pub(crate) observations: Observations,
    pub(crate) marks: Arc<Marks>,
    /// The suite between driver and cloud, if it is there.
    pub(crate) cloud: Option<Arc<Cloud>>,
    /// Where a unary driver listens that runs apart from its adapter.
    pub(crate) driver_socket: Option<PathBuf>,
}

impl RunSetup {
    /// What the driver's process gets beside what every driver gets.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        self.cloud.as_ref().map(|cloud| cloud.environment()).unwrap_or_default()
    }

    /// The same for another process.
    pub(crate) fn of(&self, target: Target) -> Self {
        Self {
            options: self.options.clone(),
            target,
            token: self.token.clone(),
            token_file: self.token_file.clone(),
            observations: self.observations.clone(),
            marks: Arc::clone(&self.marks),
            cloud: self.cloud.clone(),
            driver_socket: self.driver_socket.clone(),
        }
    }
}

/// A core and a driver process. Both end with the value.
#[derive(Debug)]
pub(crate) struct Harness {
    pub(crate) setup: Arc<RunSetup>,
    pub(crate) proxy: Proxy,
    pub(crate) output: Output,
    core: Mutex<Arc<Core>>,
    driver: Mutex<Option<Arc<Running>>>,
    /// One check at a time waits for the driver.
    connecting: tokio::sync::Mutex<()>,
}

/// A process of the driver.
#[derive(Debug)]
pub(crate) enum Running {
    Command(Process),
    InProcess { task: JoinHandle<()>, shutdown: CancellationToken },
}

impl Running {
    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        match self {
            Self::Command(process) => process.terminate(),
            Self::InProcess { shutdown, .. } => shutdown.cancel(),
        }
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&self) {
        match self {
            Self::Command(process) => process.kill(),
            Self::InProcess { task, .. } => task.abort(),
        }
    }

    /// The exit status, if the process ended.
    pub(crate) fn exited(&self) -> Option<String> {
        match self {
            Self::Command(process) => process.exited(),
            Self::InProcess { task, .. } => task.is_finished().then(|| "it returned".to_owned()),
        }
    }

    /// Waits for its end.
    pub(crate) async fn exit(&self, limit: Duration) -> Option<String> {
        match self {
            Self::Command(process) => process.exit(limit).await,
            Self::InProcess { .. } => {
                let ended = async {
                    while self.exited().is_none() {
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                };
                tokio::time::timeout(limit, ended).await.ok().and_then(|()| self.exited())
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Harness {
    /// A core and a proxy; the driver is started by the first who needs it.
    pub(crate) async fn open(setup: &Arc<RunSetup>) -> std::io::Result<Self> {
        let core = Arc::new(new_core(setup, later_term()).await?);
        let listen = match &setup.target {
            Target::Listen { address, .. } => *address,
            Target::Command(_) | Target::InProcess(_) => ([127, 0, 0, 1], 0).into(),
        };
        let proxy = Proxy::start(listen, core.address).await?;
        Ok(Self {
            setup: Arc::clone(setup),
            proxy,
            output: Output::default(),
            core: Mutex::new(core),
            driver: Mutex::new(None),
            connecting: tokio::sync::Mutex::default(),
        })
    }

    /// The core of now.
    pub(crate) fn core(&self) -> Arc<Core> {
        Arc::clone(&self.core.lock())
    }

    /// Ends the core as a crash would, and starts another that remembers nothing.
    pub(crate) async fn restart_core(&self) -> Outcome {
        self.replace_core(self.core().term() + 1).await
    }

    /// Begins anew with a driver that cannot be started anew: another core, much later,
    /// a healthy link.
    pub(crate) async fn renew(&self) -> Outcome {
        self.proxy.heal();
        self.replace_core(later_term()).await
    }

    async fn replace_core(&self, term: u64) -> Outcome {
        let core = new_core(&self.setup, term).await;
        let core = core.map_err(|error| skipped(format_args!("no core: {error}")))?;
        self.proxy.point_to(core.address);
        *self.core.lock() = Arc::new(core);
        self.proxy.cut();
        Ok(())
    }

    /// The process of the driver, started if there is none.
    pub(crate) fn driver(&self) -> Outcome<Option<Arc<Running>>> {
        let mut driver = self.driver.lock();
        if let Some(running) = driver.as_ref().filter(|running| running.exited().is_none()) {
            return Ok(Some(Arc::clone(running)));
        }
        let Some(started) = self.start()? else { return Ok(None) };
        let started = Arc::new(started);
        *driver = Some(Arc::clone(&started));
        Ok(Some(started))
    }

    /// The process of the driver; the check is skipped if the suite did not start it.
    pub(crate) fn process(&self) -> Outcome<Arc<Running>> {
        self.driver()?.ok_or_else(|| skipped("the suite did not start the driver"))
    }

    /// How the process ended, if it did.
    pub(crate) fn exited(&self) -> Option<String> {
        self.driver.lock().as_ref().and_then(|running| running.exited())
    }

    /// Forgets the process, so that the next use starts another. Kills the process if it still runs.
    pub(crate) fn forget_process(&self) {
        if let Some(running) = self.driver.lock().take() {
            running.kill();
        }
    }

    fn start(&self) -> Outcome<Option<Running>> {
        let url = format!("http://{}", self.proxy.address);
        let token_file = self.setup.token_file.clone();
        match &self.setup.target {
            Target::Command(command) => {
                let keeper = &self.setup.options.keeper;
                let environment = [
                    ("OSTLER_ENDPOINT".to_owned(), url),
                    ("OSTLER_TOKEN_FILE".to_owned(), token_file.display().to_string()),
                ];
                let environment = environment.into_iter().chain(self.setup.environment());
                Process::start(keeper, command, environment, &self.output)
                    .map(|process| Some(Running::Command(process)))
                    .map_err(|error| failed("a driver that can be started", error))
            }
            Target::InProcess(factory) => {
                let shutdown = CancellationToken::new();
                let invitation = Invitation { url, token_file, shutdown: shutdown.clone() };
                let task = tokio::spawn(factory(invitation));
                Ok(Some(Running::InProcess { task, shutdown }))
            }
            Target::Listen { .. } => Ok(None),
        }
    }

    /// A limit for a driver that starts. On a busy computer the first start tells more than any fixed time.
    fn patience(&self, limit: Duration) -> Duration {
        self.setup.options.scaled(limit).max(self.setup.marks.first_start() * SLOWER)
    }

    /// The next stream that says Hello; the driver is started if need be.
    pub(crate) async fn arrival(&self) -> Outcome<Arc<Session>> {
        self.arrival_within(DIAL_IN).await
    }

    /// As [`arrival`](Self::arrival), within this time.
    pub(crate) async fn arrival_within(&self, limit: Duration) -> Outcome<Arc<Session>> {
        self.driver()?;
        let core = self.core();
        let limit = self.patience(limit);
        let gone = async {
            loop {
                if let Some(how) = self.exited() {
                    return how;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let expected = self.setup.options.expected_at_start();
        tokio::select! {
            session = within(limit, expected, core.arrival()) => {
                session?.ok_or_else(|| failed(expected, "the core is gone"))
            }
            how = gone => Err(failed(expected, format_args!("the driver ended: {how}"))),
        }
    }

    /// A session that serves: the one there is, or the next that arrives.
    pub(crate) async fn session(&self) -> Outcome<Arc<Session>> {
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(session) = self.core().current() {
            return Ok(session);
        }
        let session = self.arrival().await?;
        let welcome = self.core().greeting(&session, RoleKind::Active);
        self.admit(&session, welcome).await?;
        Ok(session)
    }

    /// Welcomes a session and waits until the driver is ready.
    pub(crate) async fn admit(&self, session: &Arc<Session>, welcome: Welcome) -> Outcome {
        self.core().welcome(session, welcome)?;
        let ready = session.log.find(0, |entry| match &entry.frame {
            Some(Frame::State(state)) => {
                (state.readiness() == Readiness::Ready && state.max_in_flight > 0).then_some(())
            }
            _ => None,
        });
        let expected = "DriverState READY with max_in_flight above 0 after Welcome";
        let limit = self.patience(READY);
        let ready = within(limit, expected, ready).await?;
        ready.map_err(|how| failed(expected, format_args!("the session ended: {how}")))
    }
}

/// Greater than any that a check has used so far.
fn later_term() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1000);
    NEXT.fetch_add(1000, Ordering::Relaxed)
}

async fn new_core(setup: &RunSetup, term: u64) -> std::io::Result<Core> {
    let hello = setup.options.scaled(HELLO);
    Core::start(&setup.token, hello, setup.observations.clone(), term).await
}

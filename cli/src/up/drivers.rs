//! Drivers as child processes: started, started again when they crash, ended with their parent.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use ostler_adapter::{Restarts, describe};
use ostler_local::{Keeper, Record, SocketDirectory, Tree};
use ostler_proto::v1alpha1::OperationInfo;
use ostler_server::Signals;
use ostler_trace::TraceArgs;
use tokio::process::{ChildStderr, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::narrate::Story;
use super::stderr::relay;
use crate::data_dir::DataDir;
use crate::driver::keeper;
use crate::driver_choice::DriverChoice;
use crate::drivers::show;
use crate::log;

/// How long a driver may finish its work after SIGTERM; the SDK's own drain is shorter (25 s).
const END_WITHIN: Duration = Duration::from_secs(30);

/// How long the last words of a driver that ended are waited for; a process that hid may hold its stderr for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// File in the directory of a driver by which its processes are found.
const PROCESSES: &str = "processes";
/// Between two looks whether a driver listens on its socket.
const LOOK: Duration = Duration::from_millis(50);
const LONGEST_LOOK: Duration = Duration::from_secs(2);
/// Variables that drivers get.
const FOR_DRIVERS: [&str; 9] = [
    "PATH",
    "HOME",
    "USER",
    "TMPDIR",
    "LANG",
    "TZ",
    "RUST_LOG",
    "RUST_BACKTRACE",
    "XDG_RUNTIME_DIR",
];
const FOR_DRIVERS_PREFIXES: [&str; 5] = ["LC_", "DOCKER_", "OTEL_", "SSL_CERT_", "OSTLER_"];
const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "no_proxy", "all_proxy"];

/// How to start one driver.
#[derive(Debug)]
pub(crate) struct DriverProcess {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    endpoint: String,
    token_file: PathBuf,
    directory: PathBuf,
    /// The environment of the driver, without our own variables.
    environment: Vec<(OsString, OsString)>,
    /// Where it may serve `MachineDriverService` instead of dialing in. Ours dial in.
    socket: Option<SocketDirectory>,
    keeper: Keeper,
    /// The record by which the next `up` finds processes that outlive this `up`.
    _record: Record,
}

impl DriverProcess {
    /// Ends processes of this driver that an earlier `up` left. The driver gets more variables, and sends its spans where `up` does.
    pub(crate) async fn new(
        choice: &DriverChoice,
        data: &DataDir,
        core: &str,
        joins: bool,
        (more_env, traces): (&[String], &TraceArgs),
        story: Story,
    ) -> anyhow::Result<Self> {
        let name = choice.name();
        let directory = data.driver(&name)?;
        let foreign = choice.executable()?;
        let args = match choice {
            DriverChoice::Path { .. } => Vec::new(),
            DriverChoice::Fake | DriverChoice::None => {
                let kubeconfig = joins.then(|| data.kubeconfig());
                fake_args(&directory, kubeconfig.as_deref())
            }
            DriverChoice::Docker => ["driver", "docker"].map(str::to_owned).to_vec(),
        };
        let token_file = data.driver_token(&name)?;
        let endpoint = core.to_owned();
        let ours = std::env::vars_os().filter(|(name, _)| is_for_drivers(name, more_env));
        let variable = |endpoint: &String| ("OTEL_EXPORTER_OTLP_ENDPOINT".into(), endpoint.into());
        let environment = ours.chain(traces.otlp_endpoint.as_ref().map(variable)).collect();
        let record = end_left(&name, &directory, story).await?;
        let socket = match &foreign {
            Some(_) => Some(SocketDirectory::new(&directory, true).await?),
            None => None,
        };
        let program = foreign.map_or_else(this_executable, Ok)?;
        let keeper = keeper()?.recorded(&record).grace(END_WITHIN);
        Ok(Self {
            name,
            program,
            args,
            endpoint,
            token_file,
            directory,
            environment,
            socket,
            keeper,
            _record: record,
        })
    }

    /// Keeps the driver running until it is to end, then ends it. For a driver that serves `MachineDriverService`, an
    /// adapter runs beside the driver in a process of its own, and ends first: the memory that a driver makes the adapter
    /// take is not this process's.
    pub(crate) async fn supervise(self, story: Story, signals: Signals) {
        let child = Signals { end: CancellationToken::new(), ..signals.clone() };
        let adapter = async {
            if let Some(directory) = &self.socket {
                self.adapt(&directory.socket(), story, &signals).await;
            }
            signals.end.cancelled().await;
            child.end.cancel();
        };
        let name = format!("driver {}", self.name);
        tokio::join!(self.keep_running(&name, story, &child, || self.start()), adapter);
    }

    /// Serves the core with the driver, once it listens on its socket.
    async fn adapt(&self, socket: &Path, story: Story, signals: &Signals) {
        let mut pause = LOOK;
        while !socket.exists() {
            if tokio::time::timeout(pause, signals.end.cancelled()).await.is_ok() {
                return;
            }
            // A driver that dials in never listens on the socket.
            pause = LONGEST_LOOK.min(pause * 2);
        }
        let name = format!("the adapter of driver {}", self.name);
        self.keep_running(&name, story, signals, || self.start_adapter(socket)).await;
    }

    async fn keep_running(
        &self,
        name: &str,
        story: Story,
        signals: &Signals,
        start: impl Fn() -> anyhow::Result<Tree>,
    ) {
        let mut restarts = Restarts::default();
        while !signals.end.is_cancelled() {
            let started = Instant::now();
            let (status, how) = match start() {
                Ok(mut tree) => {
                    let process = tree.process().await;
                    let shown = process.map_or_else(|| "?".to_owned(), |id| id.to_string());
                    story.tell(format_args!("{name} started, process {shown}"));
                    let stderr = tree.take_errors();
                    let exit = until_exit(name, tree, story, signals);
                    let Some(status) = self.show(stderr, exit).await else { break };
                    (status.as_ref().ok().copied(), format!("ended: {}", describe(status)))
                }
                Err(error) => (None, format!("did not start: {error:#}")),
            };
            let next = restarts.after(started.elapsed(), status);
            let failed = next.never_ran.map(|count| {
                format!("; no start of {count} went well, and what it wrote to stderr says why")
            });
            story.tell(format_args!(
                "{name} {how}{}; it starts again in {:?}",
                failed.unwrap_or_default(),
                next.pause
            ));
            tokio::select! {
                () = tokio::time::sleep(next.pause) => {}
                () = signals.end.cancelled() => break,
            }
        }
        story.tell(format_args!("{name} stopped"));
    }

    /// Shows what the driver writes to stderr while it runs.
    async fn show<T>(&self, stderr: Option<ChildStderr>, exit: impl Future<Output = T>) -> T {
        let Some(stderr) = stderr else { return exit.await };
        let mut said = pin!(relay(&self.name, stderr, log::note));
        let mut exit = pin!(exit);
        tokio::select! {
            ended = &mut exit => {
                let _what_it_started_goes_on = tokio::time::timeout(LAST_WORDS, said).await;
                ended
            }
            () = &mut said => exit.await,
        }
    }

    fn start(&self) -> anyhow::Result<Tree> {
        // The end of its input tells the driver that we are gone.
        let keeper = self.keeper.clone().input();
        let mut command = keeper.command(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("OSTLER_ENDPOINT", &self.endpoint)
            .env("OSTLER_TOKEN_FILE", &self.token_file)
            .envs(self.socket.as_ref().map(|it| ("OSTLER_DRIVER_SOCKET", it.socket())))
            .env("OSTLER_EXIT_ON_STDIN_EOF", "1");
        self.launch(&keeper, command)
    }

    fn start_adapter(&self, socket: &Path) -> anyhow::Result<Tree> {
        let mut command = self.keeper.command(this_executable()?);
        let ours = |name: &OsStr| name.to_string_lossy().starts_with("OSTLER_");
        command
            .args(["driver", "adapt", "--socket"])
            .arg(socket)
            .arg(format!("--instance-name={}", self.name))
            .env_clear()
            // Variables for the driver's own session are not for the adapter.
            .envs(self.environment.iter().filter(|(name, _)| !ours(name)).cloned())
            .env("OSTLER_ENDPOINT", &self.endpoint)
            .env("OSTLER_TOKEN_FILE", &self.token_file);
        self.launch(&self.keeper, command)
    }

    fn launch(&self, keeper: &Keeper, mut command: Command) -> anyhow::Result<Tree> {
        command.current_dir(&self.directory).stdout(Stdio::null());
        // A terminal does what control characters say, so it is shown what a driver writes, and never given to it. A file is:
        // it goes on taking the last words of a driver whose parent was killed.
        if log::is_on_terminal() {
            command.stderr(Stdio::piped());
        }
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "warn");
        }
        keeper
            .start(command)
            .with_context(|| format!("{} cannot be executed", self.program.display()))
    }
}

/// Ends the processes that an earlier `up` left of a driver, and removes their sockets.
pub(crate) async fn end_left(name: &str, directory: &Path, story: Story) -> anyhow::Result<Record> {
    let record = Record::claim(&directory.join(PROCESSES))
        .await
        .with_context(|| format!("driver {name} cannot be started"))?;
    if record.ended() > 0 {
        let count = record.ended();
        story.tell(format_args!(
            "driver {name}: {count} processes of the last start were left, and were ended"
        ));
    }
    SocketDirectory::clear(directory, true).await?;
    Ok(record)
}

/// Whether a variable of our environment is for drivers: where things are and how to reach them, and
/// none of the credentials that happen to be there.
fn is_for_drivers(name: &OsStr, more: &[String]) -> bool {
    let Some(name) = name.to_str() else { return false };
    let lower = name.to_ascii_lowercase();
    FOR_DRIVERS.contains(&name)
        || FOR_DRIVERS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || PROXIES.contains(&lower.as_str())
        || more.iter().any(|wanted| wanted == name)
}

/// Waits for the tree to end by itself (`Some`), or ends it when told to (`None`): what it does is finished unless told twice.
async fn until_exit(
    name: &str,
    tree: Tree,
    story: Story,
    signals: &Signals,
) -> Option<std::io::Result<ExitStatus>> {
    tokio::select! {
        status = tree.wait() => return Some(status),
        () = signals.end.cancelled() => {}
    }
    let stopped = tokio::select! {
        stopped = tree.stop(END_WITHIN) => stopped,
        () = signals.immediately.cancelled() => tree.stop(Duration::ZERO).await,
    };
    if !stopped {
        story.tell(format_args!("{name}: some of its processes do not end, even after SIGKILL"));
    }
    None
}

/// The line about an operation that holds up the end.
pub(super) fn held_by(operation: &OperationInfo) -> String {
    format!(
        "waiting up to {}s for driver {}: {} of {}, for {} now; Ctrl-C again ends it immediately, and the next `up` looks for what it made",
        END_WITHIN.as_secs(),
        operation.provider,
        show::kind(operation.kind()),
        operation.target.as_ref().map(show::target).unwrap_or_default(),
        show::age(operation.age),
    )
}

fn this_executable() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("the path of this executable is not known")
}

/// `kubeconfig`: of the cluster that the instances join; `None`: they join no cluster.
fn fake_args(directory: &Path, kubeconfig: Option<&Path>) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    let args = [
        "driver",
        "fake",
        "--state-file",
        &file("cloud.jsonl"),
        "--call-log",
        &file("calls.jsonl"),
        "--control-file",
        &file("control.json"),
    ];
    let joins = kubeconfig
        .map(|path| ["--node-kubeconfig".to_owned(), path.display().to_string()])
        .into_iter();
    args.map(str::to_owned).into_iter().chain(joins.flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::is_for_drivers;

    #[test]
    fn drivers_get_what_they_need_and_no_credentials() {
        let more = ["AWS_PROFILE".to_owned()];
        let gets = |name: &str| is_for_drivers(name.as_ref(), &more);
        for name in ["PATH", "LC_ALL", "DOCKER_HOST", "HTTPS_PROXY", "no_proxy", "AWS_PROFILE"] {
            assert!(gets(name), "{name}");
        }
        for name in ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "KUBECONFIG", "PATHS", "XPATH"] {
            assert!(!gets(name), "{name}");
        }
    }
}

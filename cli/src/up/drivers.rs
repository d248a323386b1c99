//! Drivers as child processes: started, started again when they crash, ended with their parent.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_adapter::{Restarts, SocketDirectory, describe};
use ostler_driver_sdk::{Connector, DriverArgs, Options};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::narrate::Story;
use super::stderr::relay;
use crate::data_dir::DataDir;
use crate::driver_choice::DriverChoice;
use crate::log;

/// How long a driver may finish its work after SIGTERM; the SDK's own drain is shorter (25 s).
const END_WITHIN: Duration = Duration::from_secs(30);

/// How long the last words of a driver that ended are waited for; what it started may hold its stderr for ever.
const LAST_WORDS: Duration = Duration::from_secs(1);
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
const FOR_DRIVERS_PREFIXES: [&str; 4] = ["LC_", "DOCKER_", "SSL_CERT_", "OSTLER_"];
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
    /// All of its environment but what we say.
    environment: Vec<(OsString, OsString)>,
    /// Where it may serve `MachineDriverService` instead of dialing in. Ours dial in.
    socket: Option<SocketDirectory>,
}

impl DriverProcess {
    pub(crate) fn new(
        choice: &DriverChoice,
        data: &DataDir,
        core: SocketAddr,
        joins: bool,
        more_env: &[String],
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
        let endpoint = format!("http://{core}");
        let environment =
            std::env::vars_os().filter(|(name, _)| is_for_drivers(name, more_env)).collect();
        let socket = foreign.as_ref().map(|_| SocketDirectory::new(&directory)).transpose()?;
        let program = foreign.map_or_else(this_executable, Ok)?;
        Ok(Self { name, program, args, endpoint, token_file, directory, environment, socket })
    }

    /// Keeps the driver running until `end`, then ends it. Should it serve `MachineDriverService`, the adapter
    /// is here, and ends first.
    pub(crate) async fn supervise(self, story: Story, end: CancellationToken) {
        let child = CancellationToken::new();
        let adapter = async {
            if let Err(error) = self.adapt(end.clone()).await {
                story.tell(format_args!("driver {} cannot be served: {error:#}", self.name));
            }
            end.cancelled().await;
            child.cancel();
        };
        tokio::join!(self.keep_running(story, child.clone()), adapter);
    }

    /// Serves the core with the driver, if it listens on its socket.
    async fn adapt(&self, end: CancellationToken) -> anyhow::Result<()> {
        let Some(directory) = &self.socket else { return Ok(()) };
        let args = DriverArgs {
            endpoint: self.endpoint.clone(),
            token_file: Some(self.token_file.clone()),
            ..DriverArgs::default()
        };
        let options = Options::new(Connector::from_args(&args)?).shutdown(end);
        ostler_adapter::serve(directory.socket(), None, options.instance_name(&self.name)).await
    }

    async fn keep_running(&self, story: Story, end: CancellationToken) {
        let name = &self.name;
        let mut restarts = Restarts::default();
        while !end.is_cancelled() {
            let started = Instant::now();
            let (status, how) = match self.start() {
                Ok((child, stdin, stderr)) => {
                    story.tell(format_args!("driver {name} started, process {}", pid(&child)));
                    let exit = until_exit(child, stdin, &end);
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
                "driver {name} {how}{}; it starts again in {:?}",
                failed.unwrap_or_default(),
                next.pause
            ));
            tokio::select! {
                () = tokio::time::sleep(next.pause) => {}
                () = end.cancelled() => break,
            }
        }
        story.tell(format_args!("driver {name} stopped"));
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

    fn start(&self) -> anyhow::Result<(Child, Option<ChildStdin>, Option<ChildStderr>)> {
        let mut command = ending_with_us(&self.program)?;
        command
            .args(&self.args)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("OSTLER_ENDPOINT", &self.endpoint)
            .env("OSTLER_TOKEN_FILE", &self.token_file)
            .envs(self.socket.as_ref().map(|it| ("OSTLER_DRIVER_SOCKET", it.socket())))
            // The end of its input tells the driver that we are gone, even after SIGKILL.
            .env("OSTLER_EXIT_ON_STDIN_EOF", "1")
            .current_dir(&self.directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            // Ctrl-C of a terminal goes to the whole group; the driver is told by us, after the core.
            .process_group(0);
        // A terminal does what control characters say, so it is shown what a driver writes, and never given to it. A file is:
        // it goes on taking the last words of a driver whose parent was killed.
        if log::is_on_terminal() {
            command.stderr(Stdio::piped());
        }
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "warn");
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("{} cannot be executed", self.program.display()))?;
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        Ok((child, stdin, stderr))
    }
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

/// The program, by way of `ostler driver exec`: it ends with us, even after SIGKILL and though it
/// does not look at its input.
#[cfg(target_os = "linux")]
fn ending_with_us(program: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(this_executable()?);
    command.args(["driver", "exec", "--parent", &std::process::id().to_string(), "--"]);
    command.arg(program);
    Ok(command)
}

#[cfg(not(target_os = "linux"))]
fn ending_with_us(program: &Path) -> anyhow::Result<Command> {
    Ok(Command::new(program))
}

/// Waits for the driver to exit by itself (`Some`), or ends it when told to (`None`).
async fn until_exit(
    mut child: Child,
    stdin: Option<ChildStdin>,
    end: &CancellationToken,
) -> Option<std::io::Result<ExitStatus>> {
    tokio::select! {
        status = child.wait() => return Some(status),
        () = end.cancelled() => {}
    }
    drop(stdin);
    if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
        let _already_gone = kill(Pid::from_raw(id), Signal::SIGTERM);
    }
    if tokio::time::timeout(END_WITHIN, child.wait()).await.is_err() {
        let _already_gone = child.kill().await;
    }
    None
}

fn pid(child: &Child) -> String {
    child.id().map_or_else(|| "?".to_owned(), |id| id.to_string())
}

fn this_executable() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("the path of this executable is not known")
}

/// `kubeconfig`: of the cluster that its instances join, if they do.
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

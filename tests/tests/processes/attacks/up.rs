//! `ostler up` as a real process, its output, and its death.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_tests::process::{PATIENCE, binaries};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// How often a condition is looked at that nothing announces.
const LOOK: Duration = Duration::from_millis(20);
/// Output that is kept; the rest is counted only.
const KEPT: usize = 16 << 20;

/// How to start it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Flags besides those for the ports and the directory.
    pub(crate) flags: Vec<String>,
    /// The soft and hard limit of descriptors.
    pub(crate) files: Option<u32>,
    /// Where its data are; a directory of its own if not said.
    pub(crate) data: Option<PathBuf>,
    /// A line to wait for, if it is not `ready`.
    pub(crate) until: Option<&'static str>,
}

impl Options {
    pub(crate) fn flags(flags: &[&str]) -> Self {
        Self { flags: flags.iter().copied().map(str::to_owned).collect(), ..Self::default() }
    }

    /// An API server and nothing else.
    pub(crate) fn api_only() -> Self {
        Self::flags(&["--driver", "none", "--core", "none"])
    }
}

/// A running `ostler up`; killed when dropped.
pub(crate) struct Up {
    options: Options,
    directory: TempDir,
    child: Child,
    pub(crate) pid: u32,
    pub(crate) stdout: Text,
    pub(crate) stderr: Text,
}

impl Up {
    /// Starts `up` and waits until it is ready.
    pub(crate) async fn start(options: Options) -> Self {
        let mut up = Self::spawn(options, TempDir::new().unwrap());
        up.ready().await;
        up
    }

    /// Starts it without waiting for anything.
    pub(crate) fn spawn(options: Options, directory: TempDir) -> Self {
        let data = options.data.clone().unwrap_or_else(|| directory.path().join("data"));
        let program = binaries().join("ostler");
        let mut command = match options.files {
            None => Command::new(program),
            Some(files) => {
                let mut shell = Command::new("sh");
                let line = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
                shell.arg("-c").arg(line).arg(program);
                shell
            }
        };
        let listen = "127.0.0.1:0";
        command.args(["up", "--no-live", "--api-listen", listen, "--drivers-listen", listen]);
        command.arg("--data-dir").arg(data).args(&options.flags).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env_remove("RUST_LOG");
        let mut child = command.spawn().unwrap();
        let stdout = Text::of(child.stdout.take().unwrap());
        let stderr = Text::of(child.stderr.take().unwrap());
        Self { options, directory, pid: child.id().unwrap(), child, stdout, stderr }
    }

    async fn ready(&mut self) {
        let until = self.options.until.unwrap_or("ready: ");
        let line = timeout(PATIENCE, self.stdout.line(|line| line.contains(until)));
        tokio::select! {
            line = line => assert!(line.is_ok(), "not ready: {}", self.said()),
            status = self.child.wait() => panic!("it ended, {status:?}: {}", self.said()),
        }
    }

    /// The whole output.
    pub(crate) fn said(&self) -> String {
        format!("{}\n{}", self.stdout.all(), self.stderr.all())
    }

    /// SIGKILL, and a start on the same directory.
    pub(crate) async fn kill_and_start(mut self) -> Self {
        self.kill().await;
        self.start_again().await
    }

    pub(crate) async fn kill(&mut self) {
        self.child.start_kill().ok();
        self.child.wait().await.unwrap();
    }

    async fn start_again(self) -> Self {
        let Self { options, directory, .. } = self;
        let mut up = Self::spawn(options, directory);
        up.ready().await;
        up
    }

    /// The exit status, if the process ends within the time.
    pub(crate) async fn end(&mut self, within: Duration) -> Option<ExitStatus> {
        timeout(within, self.child.wait()).await.ok().map(Result::unwrap)
    }

    /// The exit status, if the process has ended.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.options.data.clone().unwrap_or_else(|| self.directory.path().join("data"))
    }

    pub(crate) fn kubeconfig(&self) -> Value {
        let text = std::fs::read_to_string(self.data().join("kubeconfig")).unwrap();
        serde_saphyr::from_str(&text).unwrap()
    }

    /// Where the API server listens.
    pub(crate) fn api(&self) -> SocketAddr {
        let config = self.kubeconfig();
        let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned();
        server.trim_start_matches("https://").parse().unwrap()
    }

    /// Where the core takes drivers.
    pub(crate) async fn drivers(&self) -> SocketAddr {
        let line = timeout(PATIENCE, self.stdout.line(|line| line.contains("takes drivers at")));
        line.await.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// The output of a process.
#[derive(Clone)]
pub(crate) struct Text {
    bytes: Arc<Mutex<Vec<u8>>>,
    more: Arc<Notify>,
}

impl Text {
    fn of(mut pipe: impl AsyncRead + Unpin + Send + 'static) -> Self {
        let text = Self { bytes: Arc::default(), more: Arc::default() };
        let into = text.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
                let mut bytes = into.bytes.lock().unwrap();
                let room = KEPT.saturating_sub(bytes.len());
                bytes.extend_from_slice(&buffer[..count.min(room)]);
                into.more.notify_waiters();
            }
        });
        text
    }

    pub(crate) fn all(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap()).into_owned()
    }

    pub(crate) fn lines(&self) -> usize {
        self.all().lines().count()
    }

    /// The first whole line that fits, as soon as it is there.
    pub(crate) async fn line(&self, fits: impl Fn(&str) -> bool) -> String {
        loop {
            let more = self.more.notified();
            tokio::pin!(more);
            more.as_mut().enable();
            let all = self.all();
            let whole = all.rsplit_once('\n').map_or("", |(whole, _)| whole);
            if let Some(line) = whole.lines().find(|line| fits(line)) {
                return line.to_owned();
            }
            more.await;
        }
    }
}

/// Looks again and again, until there is something or the time is over.
pub(crate) async fn within<T>(
    time: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> Option<T> {
    let looking = async {
        loop {
            if let Some(seen) = look().await {
                return seen;
            }
            sleep(LOOK).await;
        }
    };
    timeout(time, looking).await.ok()
}

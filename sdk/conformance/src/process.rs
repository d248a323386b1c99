//! The driver as a process: started, watched, ended.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use ostler_local::{Keeper, Tree};
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::watch;

/// The last lines of a driver that are kept.
const LINES: usize = 5_000;
/// Of each.
const LINE_BYTES: usize = 4 * 1024;
/// What would let a driver dial in otherwise than the suite says: those of the caller may be for another core.
const SESSION: [&str; 8] = [
    "OSTLER_ENDPOINT",
    "OSTLER_TOKEN_FILE",
    "OSTLER_CA_FILE",
    "OSTLER_CERT_FILE",
    "OSTLER_KEY_FILE",
    "OSTLER_ALLOW_PLAINTEXT",
    "OSTLER_INSTANCE_NAME",
    "OSTLER_EXIT_ON_STDIN_EOF",
];
/// What a shell would do more with than start a program.
const SHELL: [char; 9] = [';', '&', '|', '<', '>', '(', ')', '`', '\n'];

/// What a driver printed, over all its starts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Output(Arc<Mutex<Lines>>);

#[derive(Debug, Default)]
struct Lines {
    kept: VecDeque<String>,
    /// So many came before those that are kept.
    dropped: usize,
}

impl Output {
    fn add(&self, mut line: String) {
        line.truncate(line.floor_char_boundary(LINE_BYTES));
        let mut lines = self.0.lock();
        if lines.kept.len() >= LINES {
            lines.kept.pop_front();
            lines.dropped += 1;
        }
        lines.kept.push_back(line);
    }

    /// How many lines came until now.
    pub(crate) fn count(&self) -> usize {
        let lines = self.0.lock();
        lines.dropped + lines.kept.len()
    }

    /// The last lines.
    pub(crate) fn tail(&self, count: usize) -> Vec<String> {
        self.tail_since(0, count)
    }

    /// The last lines of those that came when there were `since` already.
    pub(crate) fn tail_since(&self, since: usize, count: usize) -> Vec<String> {
        let lines = self.0.lock();
        let old = since.saturating_sub(lines.dropped);
        let skipped = old.max(lines.kept.len().saturating_sub(count));
        lines.kept.iter().skip(skipped).cloned().collect()
    }

    /// The first line that holds the text.
    pub(crate) fn find(&self, text: &str) -> Option<String> {
        self.0.lock().kept.iter().find(|line| line.contains(text)).cloned()
    }
}

/// A process of the driver, and all that it started. It dies with the value.
#[derive(Debug)]
pub(crate) struct Process {
    tree: Arc<Tree>,
    exit: watch::Receiver<Option<String>>,
}

impl Process {
    /// Starts `command` with these variables.
    pub(crate) fn start(
        keeper: &Keeper,
        command: &str,
        environment: impl IntoIterator<Item = (String, String)>,
        output: &Output,
    ) -> std::io::Result<Self> {
        let mut shell = shell(keeper, command);
        shell.envs(environment);
        let mut tree = keeper.start(shell)?;
        let readers = (
            tokio::spawn(read(tree.take_output(), output.clone())),
            tokio::spawn(read(tree.take_errors(), output.clone())),
        );
        let tree = Arc::new(tree);
        let (ended, exit) = watch::channel(None);
        let watched = Arc::clone(&tree);
        tokio::spawn(async move {
            let how = match watched.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => format!("it could not be waited for: {error}"),
            };
            drop(tokio::join!(readers.0, readers.1));
            ended.send_replace(Some(how));
        });
        Ok(Self { tree, exit })
    }

    /// Asks it to end (SIGTERM).
    pub(crate) fn terminate(&self) {
        self.tree.terminate();
    }

    /// Ends it without asking (SIGKILL).
    pub(crate) fn kill(&self) {
        self.tree.kill();
    }

    /// The exit status, if the process ended.
    pub(crate) fn exited(&self) -> Option<String> {
        self.exit.borrow().clone()
    }

    /// Waits for its end and says how it came.
    pub(crate) async fn exit(&self, limit: Duration) -> Option<String> {
        let mut exit = self.exit.clone();
        let ended = tokio::time::timeout(limit, exit.wait_for(Option::is_some)).await;
        ended.ok().and_then(Result::ok).and_then(|how| how.clone())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn shell(keeper: &Keeper, command: &str) -> Command {
    let assigns = command.split_whitespace().next().is_some_and(|word| word.contains('='));
    let execs = command.trim_start().starts_with("exec ");
    let script = if assigns || execs || command.contains(SHELL) {
        command.to_owned()
    } else {
        // Signals have to reach the driver, not a shell.
        format!("exec {command}")
    };
    let mut shell = keeper.command("sh");
    for name in SESSION {
        shell.env_remove(name);
    }
    shell.arg("-c").arg(script).stdout(Stdio::piped()).stderr(Stdio::piped());
    shell
}

async fn read(stream: Option<impl AsyncRead + Unpin>, output: Output) {
    let Some(stream) = stream else { return };
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    // A longer line is split.
    let most = u64::try_from(LINE_BYTES).unwrap_or(u64::MAX);
    while (&mut reader).take(most).read_until(b'\n', &mut line).await.is_ok_and(|bytes| bytes > 0) {
        output.add(String::from_utf8_lossy(&line).trim_end().to_owned());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn output_without_end_of_line_is_kept_in_pieces() {
        let output = Output::default();
        read(Some(&vec![b'x'; 3 * LINE_BYTES][..]), output.clone()).await;
        assert_eq!(output.tail(9), vec!["x".repeat(LINE_BYTES); 3]);
    }

    #[test]
    fn a_driver_gets_nothing_of_how_the_caller_would_dial_in() {
        let shell = shell(&Keeper::default(), "driver");
        let removed: Vec<_> = shell.as_std().get_envs().filter(|it| it.1.is_none()).collect();
        assert!(removed.iter().any(|(name, _)| *name == "OSTLER_KEY_FILE"), "{removed:?}");
    }

    #[test]
    fn the_lines_of_one_check_are_those_that_came_since_it_began() {
        let output = Output::default();
        let add = |from: usize, to: usize| (from..to).for_each(|it| output.add(it.to_string()));
        add(0, 3);
        let began = output.count();
        assert!(output.tail_since(began, 8).is_empty());
        add(3, 5);
        assert_eq!(output.tail_since(began, 8), ["3", "4"]);
        assert_eq!(output.tail_since(began, 1), ["4"]);
        assert_eq!(output.tail(3), ["2", "3", "4"]);
        add(5, LINES + 4);
        assert_eq!(output.tail_since(began, LINES).len(), LINES, "older ones are gone");
        let late = output.count();
        add(LINES + 4, LINES + 5);
        assert_eq!(output.tail_since(late, 8), [(LINES + 4).to_string()]);
    }
}

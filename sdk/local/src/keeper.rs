//! How programs are started so that they end as a whole.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::Command;
use uuid::Uuid;

use crate::marks::VARIABLE;
use crate::record::Record;
use crate::tree::{Manner, Tree};

/// For what is left of a tree to end by itself, after its program has ended, unless said.
const GRACE: Duration = Duration::from_secs(5);

/// Starts programs, each below a process that keeps the program's tree together.
#[derive(Debug, Clone)]
pub struct Keeper {
    /// The path of this executable, and the arguments of [`crate::Keep`]. Empty: a tree is a process group.
    words: Vec<OsString>,
    /// The beginning of the marks of its trees.
    mark: String,
    trees: Arc<AtomicU32>,
    grace: Duration,
    kill: bool,
    input: bool,
}

/// Without a process above the trees: for callers whose executable has no [`crate::Keep`].
impl Default for Keeper {
    fn default() -> Self {
        Self {
            words: Vec::new(),
            mark: Uuid::new_v4().to_string(),
            trees: Arc::default(),
            grace: GRACE,
            kill: false,
            input: false,
        }
    }
}

impl Keeper {
    /// `words`: where this executable has [`crate::Keep`].
    ///
    /// # Errors
    /// The path of this executable is not known.
    pub fn new(words: &[&str]) -> anyhow::Result<Self> {
        let this = std::env::current_exe().context("the path of this executable is not known")?;
        Ok(Self::of(this, words))
    }

    /// As [`Self::new`], with another executable.
    pub fn of(executable: PathBuf, words: &[&str]) -> Self {
        if !cfg!(target_os = "linux") {
            return Self::default();
        }
        let words = words.iter().map(Into::into);
        Self { words: [executable.into()].into_iter().chain(words).collect(), ..Self::default() }
    }

    /// The next owner of the record finds the trees.
    #[must_use]
    pub fn recorded(self, record: &Record) -> Self {
        Self { mark: record.mark().to_owned(), ..self }
    }

    /// What is left when the program has ended, or the host is gone, has so much time after SIGTERM.
    #[must_use]
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Trees are killed at once when this process is gone.
    #[must_use]
    pub fn kill(self) -> Self {
        Self { kill: true, ..self }
    }

    /// Programs get an input, which ends when they are to end.
    #[must_use]
    pub fn input(self) -> Self {
        Self { input: true, ..self }
    }

    /// The command that starts a program, without arguments of its own. Its environment may be replaced; its input is not
    /// the caller's to set.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let [executable, words @ ..] = self.words.as_slice() else { return Command::new(program) };
        let mut command = Command::new(executable);
        command.args(words).args(["--grace", &self.grace.as_millis().to_string()]);
        let flags = [("--kill", self.kill), ("--input", self.input)];
        command.args(flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag));
        command.arg("--").arg(program);
        command
    }

    /// Starts what [`Self::command`] gave.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, mut command: Command) -> io::Result<Tree> {
        let number = self.trees.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}.{number};", self.mark);
        let outer = std::env::var(VARIABLE).unwrap_or_default();
        command
            .env(VARIABLE, format!("{outer}{mark}"))
            // Ctrl-C of a terminal goes to the whole group: the process that started the tree ends it.
            .process_group(0);
        let manner = Manner { mark, grace: self.grace };
        if !self.words.is_empty() {
            return Tree::kept(command, manner);
        }
        command.stdin(if self.input { Stdio::piped() } else { Stdio::null() });
        Tree::grouped(command, manner)
    }
}

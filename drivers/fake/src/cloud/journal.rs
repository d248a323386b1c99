//! The journal: one JSON line a change, in a file that outlives the process.
//!
//! Several processes may share it. A lock file orders their changes, and each replays what the
//! others wrote before it decides. A line that a crash cut off is dropped by the next who writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::state::{Record, State};

/// Version of the line format.
const FORMAT: u32 = 1;
/// A journal below this size is not worth rewriting while the driver runs.
const SMALLEST_REWRITE: u64 = 64 << 20;

/// The journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system refused.
    #[error("state file {path}: cannot {what}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// A line is damaged that is not the last.
    #[error("state file {path}, line {line} is damaged: repair it or remove the file")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: u64,
        /// How.
        source: serde_json::Error,
    },
    /// Another version wrote it.
    #[error("state file {path} has format {found}, this driver reads {FORMAT}: remove the file")]
    Format {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: u32,
    },
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    lock: File,
    inode: u64,
    /// How much of the file is in the state.
    replayed: Replayed,
    /// Its size after the last rewrite.
    rewritten: u64,
}

impl Journal {
    /// Opens or makes the file, replays the records, and rewrites the file without outdated records.
    pub fn open(path: &Path) -> Result<(Self, State), JournalError> {
        let fail = |what| move |source| JournalError::Io { path: path.to_owned(), what, source };
        let lock = private().open(beside(path, "lock")).map_err(fail("open its lock"))?;
        lock.lock().map_err(fail("lock it"))?;
        let file = private().open(path).map_err(fail("open it"))?;
        let mut journal = Self {
            path: path.to_owned(),
            file,
            lock,
            inode: 0,
            replayed: Replayed::default(),
            rewritten: 0,
        };
        let mut state = State::default();
        journal.catch_up(&mut state)?;
        journal.rewrite(&state)?;
        journal.lock.unlock().map_err(fail("unlock it"))?;
        Ok((journal, state))
    }

    /// Reads the state without changing the file, also while a driver writes it.
    pub fn read(path: &Path) -> Result<State, JournalError> {
        let fail = |what| move |source| JournalError::Io { path: path.to_owned(), what, source };
        let file = File::open(path).map_err(fail("open it"))?;
        let mut state = State::default();
        replay(&file, path, Replayed::default(), |record| state.apply(record))?;
        Ok(state)
    }

    /// Shuts other processes out and takes in what they wrote.
    pub fn begin(&mut self, state: &mut State) -> Result<(), JournalError> {
        self.lock.lock().map_err(|source| self.failed("lock it", source))?;
        self.catch_up(state).inspect_err(|_| self.end())
    }

    /// Lets other processes in again.
    pub fn end(&self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, path = %self.path.display(), "cannot unlock the state file");
        }
    }

    /// Takes in what other processes wrote.
    pub fn catch_up(&mut self, state: &mut State) -> Result<(), JournalError> {
        let metadata = fs::metadata(&self.path).map_err(|e| self.failed("look at it", e))?;
        if metadata.ino() != self.inode {
            self.file = private().open(&self.path).map_err(|e| self.failed("open it", e))?;
            *state = state.forgotten();
            (self.inode, self.replayed) = (metadata.ino(), Replayed::default());
        }
        if metadata.len() > self.replayed.bytes {
            self.replayed =
                replay(&self.file, &self.path, self.replayed, |record| state.apply(record))?;
        }
        Ok(())
    }

    /// Appends records; they are in the state's file when this returns, and on the disk after
    /// [`handle`](Self::handle)'s `sync_data`. Call between `begin` and `end` only.
    pub fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        let text = lines(records.iter()).map_err(|e| self.failed("write to it", e))?;
        let length = self.file.metadata().map_err(|e| self.failed("look at it", e))?.len();
        if length > self.replayed.bytes {
            // A process was killed while it wrote: what is left over is no line.
            self.file.set_len(self.replayed.bytes).map_err(|e| self.failed("repair it", e))?;
        }
        self.file.write_all(&text).map_err(|e| self.failed("write to it", e))?;
        self.replayed.bytes += text.len() as u64;
        self.replayed.lines += records.len() as u64;
        Ok(())
    }

    /// Rewrites the file if it has grown far beyond its state. Call between `begin` and `end` only.
    pub(crate) fn rewrite_if_grown(&mut self, state: &State) -> Result<(), JournalError> {
        if self.replayed.bytes > SMALLEST_REWRITE.max(self.rewritten.saturating_mul(4)) {
            self.rewrite(state)?;
        }
        Ok(())
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The file that announces an outage of the cloud.
    pub(super) fn outage_file(&self) -> PathBuf {
        beside(&self.path, "outage")
    }

    /// The file, to be synced without the state being locked.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Replaces the file by the shortest one that makes the same state.
    fn rewrite(&mut self, state: &State) -> Result<(), JournalError> {
        let opened = std::iter::once(Record::Opened { format: FORMAT });
        let records: Vec<Record> = opened.chain(state.records()).collect();
        let text = lines(records.iter()).map_err(|e| self.failed("rewrite it", e))?;
        let aside = beside(&self.path, "new");
        let write = || -> io::Result<File> {
            // A file that an earlier crash left there is useless.
            match fs::remove_file(&aside) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = private().open(&aside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&aside, &self.path)?;
            sync_directory(&self.path)?;
            Ok(file)
        };
        self.file = write().map_err(|e| self.failed("rewrite it", e))?;
        let metadata = self.file.metadata().map_err(|e| self.failed("look at it", e))?;
        self.inode = metadata.ino();
        self.replayed = Replayed { bytes: text.len() as u64, lines: records.len() as u64 };
        self.rewritten = self.replayed.bytes;
        Ok(())
    }

    fn failed(&self, what: &'static str, source: io::Error) -> JournalError {
        JournalError::Io { path: self.path.clone(), what, source }
    }
}

/// How far a journal was read.
#[derive(Debug, Clone, Copy, Default)]
struct Replayed {
    bytes: u64,
    lines: u64,
}

/// Reads the whole lines from `read` on; what follows the last of them is left alone.
fn replay(
    file: &File,
    path: &Path,
    mut read: Replayed,
    mut take: impl FnMut(Record),
) -> Result<Replayed, JournalError> {
    let fail = |source| JournalError::Io { path: path.to_owned(), what: "read it", source };
    let mut file = file;
    file.seek(SeekFrom::Start(read.bytes)).map_err(fail)?;
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = reader.read_until(b'\n', &mut line).map_err(fail)?;
        if line.last() != Some(&b'\n') {
            return Ok(read);
        }
        read.lines += 1;
        read.bytes += length as u64;
        let number = read.lines;
        let record = serde_json::from_slice(&line).map_err(|source| JournalError::Damaged {
            path: path.to_owned(),
            line: number,
            source,
        })?;
        if let Record::Opened { format } = record
            && format != FORMAT
        {
            return Err(JournalError::Format { path: path.to_owned(), found: format });
        }
        take(record);
    }
}

fn lines<'a>(records: impl Iterator<Item = &'a Record>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for record in records {
        serde_json::to_writer(&mut text, record)?;
        text.push(b'\n');
    }
    Ok(text)
}

/// Appends, and is for its owner only: the file holds bootstrap tokens.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).append(true).read(true).mode(0o600);
    options
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    name.into()
}

/// A rename is durable when its directory is.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

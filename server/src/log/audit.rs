//! The audit log: who did what, one JSON object a line, in a separate file.

use std::collections::HashMap;
use std::fmt::{Debug, Display, Write as _};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock};

use anyhow::{Context as _, bail};
use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer as FmtWriter;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::AUDIT;

/// Records that wait to be written; some 2 MB. More are dropped and counted: nothing waits for a disk.
const WAITING: usize = 4096;
/// Older files kept besides the newest: FILE.1 is the latest of them.
const KEPT: u32 = 3;
/// Longest text of a field.
const TEXT_BYTES: usize = 1024;
/// Most refusals of a caller written in an interval, so that a caller without rights cannot push out the acts of
/// others. The number of omitted refusals is written.
const REFUSALS: u32 = 50;
/// Callers with separate counts of refusals; later callers share one count.
const CALLERS: usize = 256;

/// Whether there is an audit log, and where.
#[derive(Debug, Clone, clap::Args)]
pub struct AuditArgs {
    /// Write down who did what, as JSON lines, to this file (0600); nowhere by default
    ///
    /// Sessions of drivers, the classes and Secrets that they read, their operations with results, operations by hand,
    /// and refusals. No secrets. Does not depend on RUST_LOG.
    #[arg(long = "audit-log", value_name = "FILE")]
    file: Option<PathBuf>,
    /// Size of the audit log from which on it becomes FILE.1 and a new one begins; three old ones are kept
    #[arg(
        long = "audit-log-max-size",
        value_name = "MIB",
        default_value_t = 100,
        value_parser = clap::value_parser!(u32).range(1..=65_536)
    )]
    max_size: u32,
}

impl AuditArgs {
    /// No audit log.
    pub fn none() -> Self {
        Self { file: None, max_size: 1 }
    }

    pub(super) fn open(&self) -> anyhow::Result<Option<AuditLog>> {
        let Some(path) = &self.file else { return Ok(None) };
        let most = u64::from(self.max_size) << 20;
        AuditLog::open(path, most)
            .with_context(|| format!("--audit-log {} cannot be written", path.display()))
            .map(Some)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    result: &'static str,
}

static RECORDS: LazyLock<Family<OfResult, Counter>> = LazyLock::new(Family::default);

pub(super) fn register(registry: &mut Registry) {
    let help = "Records of the audit log: written, dropped for want of room, held back, or failed";
    registry.register("ostler_audit_records", help, RECORDS.clone());
}

fn count(result: &'static str) {
    RECORDS.get_or_create(&OfResult { result }).inc();
}

/// The log, with its writing thread.
#[derive(Debug)]
pub(super) struct AuditLog {
    sender: SyncSender<Message>,
    denied: Arc<Denied>,
}

#[derive(Debug)]
enum Message {
    Record(String),
    /// Answer when everything before is written.
    Finish(SyncSender<()>),
}

impl AuditLog {
    pub(super) fn open(path: &Path, most: u64) -> anyhow::Result<Self> {
        let file = AuditFile::open(path.to_owned(), most)?;
        let (sender, messages) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("audit-log".to_owned())
            .spawn(move || file.write_all(&messages))
            .context("its thread cannot be started")?;
        let denied = Arc::new(Denied { sender: sender.clone(), callers: Mutex::default() });
        Ok(Self { sender, denied })
    }

    /// Takes all events of the target, whatever `RUST_LOG` says.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'s> LookupSpan<'s>,
    {
        let only = Targets::new().with_target(AUDIT, Level::INFO);
        AuditLayer { denied: Arc::clone(&self.denied) }.with_filter(only)
    }

    pub(super) fn denied(&self) -> Arc<Denied> {
        Arc::clone(&self.denied)
    }

    pub(super) fn finish(&self) {
        self.denied.settle();
        let (done, written) = sync_channel(1);
        if self.sender.send(Message::Finish(done)).is_ok() {
            // Only if the thread is gone.
            let _gone = written.recv();
        }
    }
}

/// Where records go, and who was refused how often.
#[derive(Debug)]
pub(super) struct Denied {
    sender: SyncSender<Message>,
    callers: Mutex<HashMap<String, u32>>,
}

impl Denied {
    fn record(&self, record: Record) {
        if record.refused && !self.allows(&record.who) {
            return count("withheld");
        }
        self.send(record.line);
    }

    fn allows(&self, who: &str) -> bool {
        let mut callers = self.callers.lock();
        let apart = callers.len() < CALLERS || callers.contains_key(who);
        let refusals = callers.entry(if apart { who } else { "(others)" }.to_owned()).or_default();
        *refusals = refusals.saturating_add(1);
        *refusals <= REFUSALS
    }

    /// Writes how many refusals were left out, and begins anew.
    pub(super) fn settle(&self) {
        let callers = std::mem::take(&mut *self.callers.lock());
        for (who, refusals) in callers {
            let left_out = refusals.saturating_sub(REFUSALS);
            if left_out > 0 {
                let mut record = Record::begin();
                record.text("who", &who);
                record.text("verb", "refusals-left-out");
                record.value("records", left_out);
                self.send(record.end().line);
            }
        }
    }

    fn send(&self, line: String) {
        if self.sender.try_send(Message::Record(line)).is_err() {
            count("dropped");
        }
    }
}

struct AuditLayer {
    denied: Arc<Denied>,
}

impl<S: Subscriber> Layer<S> for AuditLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut record = Record::begin();
        event.record(&mut record);
        self.denied.record(record.end());
    }
}

/// One line in the making.
struct Record {
    line: String,
    who: String,
    refused: bool,
}

impl Record {
    fn begin() -> Self {
        let mut time = String::new();
        // Writing to a String cannot fail.
        let _ = SystemTime.format_time(&mut FmtWriter::new(&mut time));
        let mut record = Self { line: "{".to_owned(), who: String::new(), refused: false };
        record.text("time", &time);
        record
    }

    fn end(mut self) -> Self {
        self.line.push_str("}\n");
        self
    }

    fn text(&mut self, name: &str, text: &str) {
        let text = text.get(..text.floor_char_boundary(TEXT_BYTES)).unwrap_or_default();
        match name {
            "who" => text.clone_into(&mut self.who),
            "outcome" => self.refused |= matches!(text, "refused" | "denied"),
            "code" => self.refused |= matches!(text, "401" | "403" | "429"),
            _ => {}
        }
        // As JSON, which also takes the edge off control characters.
        let quoted = serde_json::Value::from(text);
        self.value(name, quoted);
    }

    fn value(&mut self, name: &str, value: impl Display) {
        let comma = if self.line.len() > 1 { "," } else { "" };
        // Names are names of fields in the program. Writing to a String cannot fail.
        let _ = write!(self.line, "{comma}\"{name}\":{value}");
    }
}

impl Visit for Record {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "code" {
            self.refused |= matches!(value, 401 | 403 | 429);
        }
        self.value(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        match u64::try_from(value) {
            Ok(value) => self.record_u64(field, value),
            Err(_) => self.value(field.name(), value),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.value(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field.name(), &format!("{value:?}"));
    }
}

/// The written file, and its longest size.
#[derive(Debug)]
struct AuditFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    most: u64,
    /// The last record is not whole, e.g. because the disk was full.
    torn: bool,
}

impl AuditFile {
    fn open(path: PathBuf, most: u64) -> anyhow::Result<Self> {
        let file = append(&path, false)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            bail!("it is no regular file");
        }
        if metadata.uid() != nix::unistd::geteuid().as_raw() {
            bail!("it belongs to another user (uid {})", metadata.uid());
        }
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        // A process killed in the middle of a record left half of it.
        Ok(Self { bytes: metadata.len(), path, file, most, torn: metadata.len() > 0 })
    }

    /// Until all senders are gone.
    fn write_all(mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            match message {
                Message::Record(line) => match self.write(&line) {
                    Ok(()) => count("written"),
                    Err(error) => {
                        count("failed");
                        let path = self.path.display();
                        tracing::error!(%path, %error, "a record of the audit log was not written");
                    }
                },
                // The asker may have gone.
                Message::Finish(done) => drop(done.send(())),
            }
        }
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.bytes > 0 && self.bytes.saturating_add(line.len() as u64) > self.most {
            self.rotate()?;
        }
        if self.torn {
            self.file.write_all(b"\n")?;
            self.bytes += 1;
        }
        self.torn = true;
        self.file.write_all(line.as_bytes())?;
        self.torn = false;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Until the new file is there, no older file is moved. Today's file may have been moved by another process.
    fn rotate(&mut self) -> io::Result<()> {
        let new = self.beside("new");
        unless_missing(fs::remove_file(&new))?;
        let file = append(&new, true)?;
        if fs::symlink_metadata(&self.path).is_ok() {
            for older in (1..KEPT).rev() {
                unless_missing(fs::rename(self.beside(older), self.beside(older + 1)))?;
            }
            fs::rename(&self.path, self.beside(1))?;
        }
        fs::rename(&new, &self.path)?;
        (self.file, self.bytes, self.torn) = (file, 0, false);
        Ok(())
    }

    fn beside(&self, suffix: impl Display) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{suffix}"));
        name.into()
    }
}

fn unless_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// For its owner only, through no link, and without waiting for a reader of a pipe.
fn append(path: &Path, new: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).create_new(new).mode(0o600);
    options.custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    /// The file's content after `act`.
    fn written(log: &AuditLog, act: impl FnOnce()) {
        let subscriber = tracing_subscriber::registry().with(log.layer());
        tracing::subscriber::with_default(subscriber, act);
        log.finish();
    }

    #[test]
    fn a_record_is_one_line_of_json_in_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = AuditLog::open(&path, 1 << 20).unwrap();
        written(&log, || {
            let long = "x".repeat(5000);
            tracing::info!(target: AUDIT, who = "a\"\n\u{1b}[2J", verb = "get", code = 200, long);
            tracing::info!("not for the audit log");
        });
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let line: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&line["who"], &line["code"]), (&"a\"\n\u{1b}[2J".into(), &200.into()));
        assert_eq!(line["long"].as_str().unwrap().len(), TEXT_BYTES);
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{text}");
        assert!(text.starts_with("{\"time\":") && !text.contains('\u{1b}'), "{text}");
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn it_is_appended_to_and_begins_anew_when_it_is_large() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        fs::write(&path, "{\"torn\":").unwrap();
        for _ in 0..2 {
            let log = AuditLog::open(&path, 300).unwrap();
            written(&log, || {
                for n in 0..5 {
                    tracing::info!(target: AUDIT, verb = "get", n, filler = "x".repeat(50));
                }
            });
        }
        let names = ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.3"];
        let mut whole = 0;
        for name in names {
            let file = dir.path().join(name);
            let text = fs::read_to_string(&file).unwrap();
            assert!(text.len() <= 300 && mode(&file) == 0o600, "{name}");
            whole += text.lines().filter(|it| serde_json::from_str::<Value>(it).is_ok()).count();
        }
        // The oldest went with the fourth file.
        assert!((6..=8).contains(&whole), "{whole}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), names.len());
    }

    #[test]
    fn a_file_that_was_moved_away_or_cannot_be_made_loses_no_older_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = AuditLog::open(&path, 200).unwrap();
        let write = || {
            written(&log, || {
                for n in 0..4 {
                    tracing::info!(target: AUDIT, n, filler = "x".repeat(100));
                }
            });
        };
        let names = || {
            let names = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name());
            names.collect::<std::collections::BTreeSet<_>>().len()
        };
        write();
        fs::rename(&path, dir.path().join("moved.jsonl")).unwrap();
        let first = fs::read_to_string(dir.path().join("audit.jsonl.1")).unwrap();
        written(&log, || tracing::info!(target: AUDIT, filler = "x".repeat(150)));
        assert!(path.exists(), "it is made again");
        assert_eq!(fs::read_to_string(dir.path().join("audit.jsonl.1")).unwrap(), first);
        // No new file can be made.
        let blocked = dir.path().join("audit.jsonl.new");
        fs::create_dir_all(blocked.join("full")).unwrap();
        let before = names();
        write();
        assert_eq!(fs::read_to_string(dir.path().join("audit.jsonl.1")).unwrap(), first);
        assert_eq!(names(), before);
        fs::remove_dir_all(&blocked).unwrap();
        write();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("\"n\":3"), "it goes on: {text}");
    }

    #[test]
    fn links_pipes_and_files_of_another_sort_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        AuditLog::open(&link, 1).unwrap_err();
        AuditLog::open(dir.path(), 1).unwrap_err();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        AuditLog::open(&pipe, 1).unwrap_err();
    }

    #[expect(clippy::cognitive_complexity, reason = "the macros of tracing count")]
    #[test]
    fn whoever_is_refused_again_and_again_does_not_fill_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.jsonl");
        let log = AuditLog::open(&path, 1 << 30).unwrap();
        written(&log, || {
            for n in 0..1000 {
                tracing::info!(target: AUDIT, who = "", verb = "connect", outcome = "refused");
                tracing::info!(target: AUDIT, who = "node", verb = "get", code = 403, n);
                // Bounded, too, though each claims another name.
                let who = n.to_string();
                tracing::info!(target: AUDIT, who, verb = "connect", outcome = "refused");
            }
            tracing::info!(target: AUDIT, who = "node", verb = "get", code = 200);
        });
        let text = fs::read_to_string(&path).unwrap();
        let of = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        assert_eq!((of("\"code\":403"), of("\"code\":200")), (50, 1));
        assert!(text.contains("\"who\":\"node\",\"verb\":\"refusals-left-out\",\"records\":950}"));
        assert!(text.lines().count() < 500, "{}", text.lines().count());
    }
}

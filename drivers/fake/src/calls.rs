//! The call log: what the core asked of the driver, for tests to read.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use ostler_driver_sdk::{Certainty, Context, DriverError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::cloud::Clock;
use crate::fault::{CodeName, Verb};

/// Calls that are kept in memory; the file keeps them all.
const MOST_IN_MEMORY: usize = 10_000;

/// One call of the core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Call {
    /// 1, 2, 3, … in the order in which calls began, also over restarts of the driver.
    pub seq: u64,
    /// When it began.
    pub began: Timestamp,
    /// What was asked.
    pub operation: Verb,
    /// Id of the operation; the same if it was delivered again.
    pub operation_id: String,
    /// Above 1: delivered again.
    pub delivery: u32,
    /// Namespace of the target.
    pub namespace: String,
    /// Name of the target: the machine, or the class.
    pub name: String,
    /// UID of the target.
    pub uid: String,
    /// Name of the class.
    pub class: String,
    /// How it ended; `None` while it runs, and for ever if the process was killed meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// `OK`, the name of an error code, `LostReply`, `Crashed`, or `Dropped` when its time was over.
    pub word: String,
    /// The certainty of a failure: `NOT_APPLIED`, `PARTIAL`, `UNKNOWN`; else empty.
    pub certainty: String,
    /// The reason of a failure; else empty.
    pub reason: String,
    /// The fault rules that were hit.
    pub faults: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Line {
    Began(Call),
    Ended { seq: u64, outcome: Outcome },
}

/// The call log. Clones are the same log.
#[derive(Debug, Clone)]
pub struct CallLog {
    inner: Arc<Mutex<Inner>>,
    clock: Clock,
}

#[derive(Debug)]
struct Inner {
    next: u64,
    recent: VecDeque<Call>,
    file: Option<File>,
}

impl CallLog {
    /// A log that is only kept in memory.
    pub fn in_memory(clock: Clock) -> Self {
        Self::new(1, None, clock)
    }

    /// A log in a file, one JSON line when a call begins and one when it ends. Goes on after what
    /// is there.
    pub fn open(path: &Path, clock: Clock) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        // For its owner only, whatever the umask: it tells what was asked for each machine.
        let options = options.create(true).append(true).read(true).mode(0o600);
        let mut file = options.open(path)?;
        let next = Self::read(path)?.last().map_or(1, |call| call.seq + 1);
        // After a crash the last line may be cut off; it must not swallow the next one.
        file.write_all(b"\n")?;
        Ok(Self::new(next, Some(file), clock))
    }

    /// The calls in the file at `path`; a driver may be writing it meanwhile.
    pub fn read(path: &Path) -> io::Result<Vec<Call>> {
        let mut calls = Vec::<Call>::new();
        for line in BufReader::new(File::open(path)?).lines() {
            // Empty lines and those that a crash cut off say nothing.
            match serde_json::from_str(&line?) {
                Ok(Line::Began(call)) => calls.push(call),
                Ok(Line::Ended { seq, outcome }) => end(calls.iter_mut(), seq, outcome),
                Err(_) => {}
            }
        }
        Ok(calls)
    }

    /// The latest calls, at most 10,000.
    pub fn recent(&self) -> Vec<Call> {
        self.inner.lock().recent.iter().cloned().collect()
    }

    fn new(next: u64, file: Option<File>, clock: Clock) -> Self {
        let inner = Inner { next, recent: VecDeque::new(), file };
        Self { inner: Arc::new(Mutex::new(inner)), clock }
    }

    pub(crate) fn begin(&self, operation: Verb, ctx: &Context) -> Entry {
        let began = self.clock.now();
        let mut inner = self.inner.lock();
        let seq = inner.next;
        inner.next += 1;
        let target = ctx.target();
        let call = Call {
            seq,
            began,
            operation,
            operation_id: ctx.operation_id().to_owned(),
            delivery: ctx.delivery(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            uid: target.uid.clone(),
            class: ctx.class_name().unwrap_or_default().to_owned(),
            outcome: None,
        };
        if inner.recent.len() == MOST_IN_MEMORY {
            inner.recent.pop_front();
        }
        inner.recent.push_back(call.clone());
        inner.write(&Line::Began(call));
        Entry { log: self.clone(), seq, faults: Vec::new(), ended: false }
    }
}

impl Inner {
    fn write(&mut self, line: &Line) {
        let Some(file) = &mut self.file else { return };
        let written = serde_json::to_vec(line).map_err(io::Error::from).and_then(|mut text| {
            text.push(b'\n');
            file.write_all(&text)
        });
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write the call log");
        }
    }
}

fn end<'a>(calls: impl DoubleEndedIterator<Item = &'a mut Call>, seq: u64, outcome: Outcome) {
    if let Some(call) = calls.rev().find(|call| call.seq == seq) {
        call.outcome = Some(outcome);
    }
}

/// A call that has begun. A dropped entry belongs to a call that the session dropped because its time was over.
#[derive(Debug)]
pub(crate) struct Entry {
    log: CallLog,
    seq: u64,
    pub(crate) faults: Vec<String>,
    ended: bool,
}

impl Entry {
    /// It ended with an answer.
    pub(crate) fn answered<T>(mut self, answer: &Result<T, DriverError>) {
        match answer {
            Ok(_) => self.end("OK", "", ""),
            Err(error) => {
                let word = CodeName(error.code()).as_str();
                let certainty = match error.certainty() {
                    Certainty::NotApplied => "NOT_APPLIED",
                    Certainty::Partial => "PARTIAL",
                    Certainty::Unknown | Certainty::Unspecified => "UNKNOWN",
                };
                self.end(word, certainty, error.reason_word());
            }
        }
    }

    /// The call ended without an answer.
    pub(crate) fn silent(mut self, word: &str) {
        self.end(word, "", "");
    }

    fn end(&mut self, word: &str, certainty: &str, reason: &str) {
        self.ended = true;
        let outcome = Outcome {
            word: word.to_owned(),
            certainty: certainty.to_owned(),
            reason: reason.to_owned(),
            faults: std::mem::take(&mut self.faults),
        };
        let mut inner = self.log.inner.lock();
        end(inner.recent.iter_mut(), self.seq, outcome.clone());
        inner.write(&Line::Ended { seq: self.seq, outcome });
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.ended {
            self.end("Dropped", "", "");
        }
    }
}

#[cfg(test)]
mod tests {
    use ostler_driver_sdk::testing::TestContext;

    use super::*;

    fn words(calls: &[Call]) -> Vec<Option<&str>> {
        calls.iter().map(|call| call.outcome.as_ref().map(|o| o.word.as_str())).collect()
    }

    #[test]
    fn calls_are_read_from_the_file_with_their_outcomes_and_numbered_on_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("calls");
        let ctx = TestContext::new("m", "u").build();
        let log = CallLog::open(&path, Clock::system()).unwrap();
        log.begin(Verb::CreateMachine, &ctx).answered(&Ok(()));
        log.begin(Verb::CreateMachine, &ctx)
            .answered::<()>(&Err(DriverError::unavailable("x").not_applied()));
        drop(log.begin(Verb::CreateMachine, &ctx));
        std::mem::forget(log.begin(Verb::CreateMachine, &ctx));
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"{\"began\":{\"se"))
            .unwrap();

        let log = CallLog::open(&path, Clock::system()).unwrap();
        log.begin(Verb::DeleteMachine, &ctx).silent("LostReply");
        let calls = CallLog::read(&path).unwrap();
        assert_eq!(
            words(&calls),
            [Some("OK"), Some("Unavailable"), Some("Dropped"), None, Some("LostReply")]
        );
        assert_eq!(calls.iter().map(|call| call.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        assert_eq!(calls[1].outcome.as_ref().unwrap().certainty, "NOT_APPLIED");
        assert_eq!(words(&log.recent()), [Some("LostReply")]);
    }
}

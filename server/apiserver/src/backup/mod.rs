//! Backups: every object at one revision, in a file that a person can read.
//!
//! A backup is JSON, one value to a line:
//!
//! ```text
//! {"ostlerBackup":1,"program":"0.1.0","time":"2026-08-21T10:00:00Z","cluster":"<UID of kube-system>","revision":1234}
//! {"file":"api/admin-token","text":"…"}
//! {"key":"/configmaps/default/settings","revision":1203,"object":{…}}
//! {"end":{"files":1,"objects":1,"sha256":"<of every byte before this line>"}}
//! ```
//!
//! First what it is, then the files that go with the objects (the server itself sends none), then
//! the objects in the order of their keys, then what all of it must add up to. A backup without its
//! last line is not whole. Objects have no `metadata.resourceVersion`: that is `revision`.
//!
//! * `encode` writes lines, `decode` reads and checks them.
//! * [`crate::store::create`] makes a store of the objects.

mod decode;
mod encode;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::store::Record;

pub use decode::{Decoder, read_line};
pub use encode::Encoder;

/// The format version of backups.
pub const FORMAT: u32 = 1;
/// The greatest revision of a backup: beyond it there has to be room for those of a restored server.
pub const GREATEST: u64 = 1 << 62;
/// Longest line, in bytes: the largest request body is 3 MiB, and no object is much larger.
pub const LINE: u64 = 16 << 20;

/// The origin of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The format: [`FORMAT`].
    #[serde(rename = "ostlerBackup")]
    pub format: u32,
    /// The version of the program that wrote the backup.
    pub program: String,
    /// When it was taken.
    pub time: Timestamp,
    /// The UID of the namespace `kube-system`, by which clusters are told apart.
    pub cluster: String,
    /// The revision of the backed up objects.
    pub revision: u64,
}

/// Totals of the whole backup.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// How many files it has.
    pub files: u64,
    /// How many objects it has.
    pub objects: u64,
    /// SHA-256 of every byte before the last line, in hexadecimal digits.
    pub sha256: String,
}

/// A file that goes with the objects.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptFile {
    /// Its path in the data directory.
    #[serde(rename = "file")]
    pub path: String,
    /// The content: usually a secret.
    pub text: String,
}

impl std::fmt::Debug for KeptFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeptFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// The entry of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The first line.
    Header(Header),
    /// A file.
    File(KeptFile),
    /// An object.
    Object(Record),
    /// The last line: everything was there and is as it was written.
    End(Totals),
}

/// Why a backup cannot be written or used.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The disk or the connection failed.
    #[error("it cannot be read or written")]
    Io(#[from] std::io::Error),
    /// A line is not what was written.
    #[error("line {line}: {what}")]
    Damaged {
        /// Which line, from 1.
        line: u64,
        /// The fault of the line.
        what: String,
    },
    /// The backup ends before its last line.
    #[error("it ends after line {lines} without its last line: it is not whole")]
    Truncated {
        /// How many lines are there.
        lines: u64,
    },
    /// Something was changed, lost or added.
    #[error("it does not add up: {0}")]
    Sum(String),
    /// Another version of the program wrote it.
    #[error(
        "line 1: format {found} is not known, this program reads format {FORMAT}; use the program that wrote it"
    )]
    Format {
        /// The format of the file.
        found: u64,
    },
    /// The server could not go on, and said why.
    #[error("the server broke off: {0}")]
    BrokenOff(String),
    /// An object could not be read back. Delete it, or write it anew, and take the backup again.
    #[error("object {key} at revision {revision} cannot be read back: {why}")]
    Unreadable {
        /// Where it lives.
        key: String,
        /// The revision of the last write.
        revision: u64,
        /// The fault of the object.
        why: String,
    },
}

#[cfg(test)]
mod tests;

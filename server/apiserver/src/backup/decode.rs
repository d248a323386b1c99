//! Reads a backup, and believes nothing of it.

use std::{collections::HashSet, io::BufRead};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{BackupError, Entry, FORMAT, GREATEST, Header, KeptFile, LINE, Totals};
use crate::{
    kinds::access::text,
    store::{Key, Record},
};

/// Any line but the first.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    file: Option<String>,
    text: Option<String>,
    key: Option<String>,
    revision: Option<u64>,
    object: Option<Value>,
    end: Option<Totals>,
    failed: Option<String>,
}

/// Checks line after line, each by itself and against the lines before.
#[derive(Debug, Default)]
pub struct Decoder {
    sum: Sha256,
    lines: u64,
    header: Option<Header>,
    last_key: Option<Key>,
    /// Each revision wrote one object.
    revisions: HashSet<u64>,
    totals: Totals,
    /// The paths of the files.
    files: HashSet<String>,
    ended: bool,
}

/// Reads the next line into `line`; without anything in it: there is none.
///
/// # Errors
/// The line is longer than [`LINE`], or cannot be read.
pub fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<()> {
    line.clear();
    std::io::Read::take(from, LINE).read_until(b'\n', line)?;
    Ok(())
}

impl Decoder {
    /// Takes a line with its line break. Returns the entry of the line.
    ///
    /// # Errors
    /// An encoder does not write such a line there.
    pub fn take(&mut self, line: &[u8]) -> Result<Entry, BackupError> {
        self.lines += 1;
        let text = line.strip_suffix(b"\n").ok_or_else(|| self.unended(line))?;
        if self.ended {
            return Err(self.damaged("something follows the last line"));
        }
        let Some(header) = &self.header else {
            self.sum.update(line);
            return self.first(text);
        };
        let newest = header.revision;
        let parsed: Line = serde_json::from_slice(text).map_err(|error| self.damaged(&error))?;
        if let Some(why) = parsed.failed {
            return Err(BackupError::BrokenOff(why));
        }
        if let Some(totals) = parsed.end {
            return self.end(&totals);
        }
        self.sum.update(line);
        if let (Some(path), Some(text)) = (parsed.file, parsed.text) {
            if self.last_key.is_some() {
                return Err(self.damaged("a file stands after an object"));
            }
            self.totals.files += 1;
            if !self.files.insert(path.clone()) {
                return Err(self.damaged(&format!("file {path} stands here again")));
            }
            return Ok(Entry::File(KeptFile { path, text }));
        }
        let record = object(text).map_err(|why| self.damaged(&why))?;
        self.check(&record, newest)?;
        self.totals.objects += 1;
        self.last_key = Some(record.key.clone());
        Ok(Entry::Object(record))
    }

    /// There are no more lines.
    ///
    /// # Errors
    /// The last one was not the last line of a backup.
    pub fn finish(&self) -> Result<(), BackupError> {
        if self.ended { Ok(()) } else { Err(BackupError::Truncated { lines: self.lines }) }
    }

    fn first(&mut self, text: &[u8]) -> Result<Entry, BackupError> {
        let value: Value = serde_json::from_slice(text)
            .map_err(|_| self.damaged("this is not the first line of a backup"))?;
        let Some(found) = value.get("ostlerBackup").and_then(Value::as_u64) else {
            return Err(self.damaged("this is not the first line of a backup"));
        };
        if found != u64::from(FORMAT) {
            return Err(BackupError::Format { found });
        }
        let header: Header = serde_json::from_value(value).map_err(|error| self.damaged(&error))?;
        if header.revision > GREATEST {
            let what = format!(
                "revision {} leaves no room for later ones, and may be {GREATEST}",
                header.revision
            );
            return Err(self.damaged(&what));
        }
        self.header = Some(header.clone());
        Ok(Entry::Header(header))
    }

    fn check(&mut self, record: &Record, newest: u64) -> Result<(), BackupError> {
        if self.last_key.as_ref().is_some_and(|last| *last >= record.key) {
            return Err(self.damaged(&format!("object {} is not in order", record.key)));
        }
        if record.revision == 0 || record.revision > newest {
            let what = format!("revision {} is not one of 1 to {newest}", record.revision);
            return Err(self.damaged(&what));
        }
        if !self.revisions.insert(record.revision) {
            let what = format!("revision {} wrote another object", record.revision);
            return Err(self.damaged(&what));
        }
        Ok(())
    }

    fn end(&mut self, said: &Totals) -> Result<Entry, BackupError> {
        let sha256 = hex::encode(std::mem::take(&mut self.sum).finalize());
        let found = Totals { sha256, ..self.totals.clone() };
        if (found.files, found.objects) != (said.files, said.objects) {
            let what = format!(
                "there are {} files and {} objects, and it says {} and {}",
                found.files, found.objects, said.files, said.objects
            );
            return Err(BackupError::Sum(what));
        }
        if found.sha256 != said.sha256 {
            let what = format!("its SHA-256 is {}, and it says {}", found.sha256, said.sha256);
            return Err(BackupError::Sum(what));
        }
        self.ended = true;
        Ok(Entry::End(found))
    }

    fn unended(&self, line: &[u8]) -> BackupError {
        if line.len() as u64 >= LINE {
            return self.damaged(&format!("it is longer than {LINE} bytes"));
        }
        BackupError::Truncated { lines: self.lines - 1 }
    }

    fn damaged(&self, what: &(impl ToString + ?Sized)) -> BackupError {
        BackupError::Damaged { line: self.lines, what: what.to_string() }
    }
}

/// Reads the line of an object.
pub(super) fn object(line: &[u8]) -> Result<Record, String> {
    let parsed: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let Line { key: Some(key), revision: Some(revision), object: Some(object), .. } = parsed else {
        return Err("this is neither a file nor an object".to_owned());
    };
    let key = Key::parse(&key).ok_or_else(|| format!("`{key}` is not the key of an object"))?;
    let name = text(&object, "/metadata/name");
    let namespace = text(&object, "/metadata/namespace");
    if (name, namespace) != (key.name(), key.namespace()) {
        return Err(format!("object {key} says of itself that it is {namespace}/{name}"));
    }
    let value = serde_json::to_vec(&object).map_err(|error| error.to_string())?;
    Ok(Record { key, revision, value: Bytes::from(value) })
}

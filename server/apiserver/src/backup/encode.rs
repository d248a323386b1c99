//! Writes a backup.

use std::io::Write;

use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{BackupError, Header, KeptFile, Totals, decode};
use crate::store::Record;

/// Writes line after line, and counts.
#[derive(Debug)]
pub struct Encoder<W> {
    out: W,
    sum: Sha256,
    totals: Totals,
}

impl<W: Write> Encoder<W> {
    /// Begins a backup.
    pub fn begin(out: W, header: &Header) -> Result<Self, BackupError> {
        let mut this = Self { out, sum: Sha256::new(), totals: Totals::default() };
        this.json(header)?;
        Ok(this)
    }

    /// Adds a file. All of them come before the first object.
    pub fn file(&mut self, file: &KeptFile) -> Result<(), BackupError> {
        self.totals.files += 1;
        self.json(file)
    }

    /// Adds an object. Objects come in the order of their keys.
    pub fn object(&mut self, record: &Record) -> Result<(), BackupError> {
        let unreadable = |why: String| BackupError::Unreadable {
            key: record.key.as_str().to_owned(),
            revision: record.revision,
            why,
        };
        let key = serde_json::to_string(record.key.as_str()).map_err(std::io::Error::from)?;
        let head = format!("{{\"key\":{key},\"revision\":{},\"object\":", record.revision);
        let mut line = Vec::with_capacity(head.len() + record.value.len() + 2);
        line.extend_from_slice(head.as_bytes());
        line.extend_from_slice(&record.value);
        line.push(b'}');
        if line.contains(&b'\n') {
            return Err(unreadable("it has more than one line".to_owned()));
        }
        // What cannot be read is found now, while there is something to do about it.
        decode::object(&line).map_err(unreadable)?;
        self.totals.objects += 1;
        self.line(line)
    }

    /// Writes the last line.
    pub fn end(mut self) -> Result<(W, Totals), BackupError> {
        self.totals.sha256 = hex::encode(std::mem::take(&mut self.sum).finalize());
        let totals = self.totals.clone();
        self.json(&json!({ "end": totals }))?;
        self.out.flush()?;
        Ok((self.out, totals))
    }

    /// Says on the last line why there is no more.
    pub fn break_off(mut self, why: &BackupError) -> Result<(), BackupError> {
        self.json(&json!({ "failed": why.to_string() }))?;
        Ok(self.out.flush()?)
    }

    fn json(&mut self, value: &impl Serialize) -> Result<(), BackupError> {
        self.line(serde_json::to_vec(value).map_err(std::io::Error::from)?)
    }

    fn line(&mut self, mut line: Vec<u8>) -> Result<(), BackupError> {
        line.push(b'\n');
        self.sum.update(&line);
        Ok(self.out.write_all(&line)?)
    }
}

//! Reads a whole backup and summarizes its content.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Context as _, bail};
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use ostler_apiserver::backup::{Decoder, Entry, Header, KeptFile, Totals, read_line};
use ostler_apiserver::serve::KEY_FILES;
use ostler_apiserver::store::{Key, Record};
use serde_json::Value;

use super::{API, BESIDES};
use crate::known;

/// The content of a whole backup.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) header: Header,
    pub(super) totals: Totals,
    pub(super) files: Vec<KeptFile>,
    /// What instances of the cluster are tagged with, if a core ever ran.
    pub(super) cluster_id: Option<String>,
    /// Leases: they are not restored.
    pub(super) leases: u64,
}

/// Reads the whole backup.
pub(super) fn survey(path: &Path) -> anyhow::Result<Survey> {
    let open = File::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
    let mut entries = Entries::of(open);
    let (mut header, mut totals, mut files) = (None, None, Vec::new());
    let (mut cluster_id, mut leases) = (None, 0);
    while let Some(entry) = entries.next_entry()? {
        match entry {
            Entry::Header(found) => header = Some(found),
            Entry::File(file) => files.push(file),
            Entry::Object(record) if is_lease(&record.key) => leases += 1,
            Entry::Object(record) if is_cluster_id(&record.key) => cluster_id = id_of(&record),
            Entry::Object(_) => {}
            Entry::End(found) => totals = Some(found),
        }
    }
    let (header, totals) = header.zip(totals).context("it has no first or no last line")?;
    Ok(Survey { header, totals, files, cluster_id, leases })
}

/// Whether the files are those that a data directory needs, and can be read. The keys are looked at by the trial.
pub(super) fn check_files(files: &[KeptFile]) -> anyhow::Result<()> {
    let needed: Vec<String> = KEY_FILES.iter().map(|name| format!("{API}/{name}")).collect();
    for path in &needed {
        if files.iter().all(|file| file.path != *path) {
            bail!("it has no {path}: it was not made by `ostler backup`");
        }
    }
    let known =
        |file: &&KeptFile| needed.contains(&file.path) || BESIDES.contains(&file.path.as_str());
    if let Some(unknown) = files.iter().find(|file| !known(file)) {
        bail!("it has a file {:?}, which this program does not know", unknown.path);
    }
    files.iter().try_for_each(|file| known::check(&file.path, &file.text))
}

/// The entries of a backup, in order, up to its end.
pub(super) struct Entries {
    from: BufReader<File>,
    decoder: Decoder,
    line: Vec<u8>,
}

impl Entries {
    pub(super) fn of(file: File) -> Self {
        Self { from: BufReader::new(file), decoder: Decoder::default(), line: Vec::new() }
    }

    /// The next one; none after the last line, if all was well.
    pub(super) fn next_entry(&mut self) -> anyhow::Result<Option<Entry>> {
        read_line(&mut self.from, &mut self.line)?;
        if self.line.is_empty() {
            self.decoder.finish()?;
            return Ok(None);
        }
        Ok(Some(self.decoder.take(&self.line)?))
    }
}

pub(super) fn is_lease(key: &Key) -> bool {
    (key.group(), key.resource()) == ("coordination.k8s.io", "leases")
}

pub(super) fn is_cluster_id(key: &Key) -> bool {
    (key.group(), key.resource(), key.name()) == ("", "configmaps", CLUSTER_ID_CONFIG_MAP)
}

fn id_of(record: &Record) -> Option<String> {
    record.object().ok()?.pointer("/data/clusterID").and_then(Value::as_str).map(str::to_owned)
}

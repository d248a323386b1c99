//! `ostler restore`: a data directory from a backup.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use ostler_apiserver::backup::{Entry, Header};
use ostler_apiserver::serve::{ApiServer, OBJECTS};
use ostler_apiserver::store::{Key, Prefix, Record, Store, StoreOptions, create, in_memory};
use ostler_controllers::{GivenIds, Settings, known_cluster_ids};
use ostler_lifecycle::orphans::ReportOnly;
use ostler_lifecycle::orphans::hold::Data;
use serde_json::{Value, json};

use super::survey::{Entries, Survey, check_files, is_cluster_id, is_lease, survey};
use super::{API, BESIDES, sync_directory};
use crate::crds;
use crate::data_dir::{DataDir, write_private};
use crate::log;

/// Where a restore works until all of it is there.
const STAGING: &str = "api.restoring";
/// The namespace in which the core of `up` keeps the cluster id.
const HOME: &str = "default";

/// What is restored, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler restore --check ostler.backup             check it, and write nothing
  ostler restore ostler.backup --data-dir ./new    into a new or empty directory
  ostler restore ostler.backup --force             in place of ./.ostler

The whole backup is verified before anything is written, and started in memory as `ostler up` starts it. With --force what was there is moved aside, never \
deleted; what drivers keep in DIR/drivers stays where it is, for it belongs to the instances.

The restored API knows nothing of instances that were made after the backup: to it they are orphans, which \
would be deleted. So orphans are only reported from then on, until you have seen them:
  ostler drivers orphans                               which they are
  ostler drivers orphans --accept                      they may be deleted
docs/backup.md says how to keep one of them.

The restored machines are those that were backed up, with the same instances: only one of both directories may \
ever be used again. To look into a backup, run `ostler up --driver none` on a copy, and remove it with `rm -r`.")]
pub(crate) struct Args {
    /// A file that `ostler backup` wrote
    file: PathBuf,
    /// The data directory; no `ostler up` may run on it
    #[arg(long, value_name = "DIR", default_value = "./.ostler")]
    data_dir: PathBuf,
    /// Restore into a directory that is not empty: move aside what is replaced
    #[arg(long)]
    force: bool,
    /// Only verify the file, and try in memory whether `ostler up` could start with it
    #[arg(long)]
    check: bool,
}

/// Verifies a backup and restores it.
///
/// # Errors
/// The backup is not whole, the directory is in use or not empty, or it cannot be written.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { file, data_dir, force, check } = args;
    let unusable = || format!("{} cannot be restored", file.display());
    let found = survey(&file).with_context(unusable)?;
    check_files(&found.files).with_context(unusable)?;
    let now = Timestamp::now();
    try_out(&file, &found, now).await.with_context(unusable)?;
    tell(&file, &found);
    if check {
        return Ok(());
    }
    if !force && !is_empty(&data_dir)? {
        bail!(
            "{} is not empty; restore into a new directory with --data-dir, or give --force: what is replaced is moved aside then",
            data_dir.display()
        );
    }
    let data = DataDir::open(&data_dir)?;
    let staged = stage(&data, &file, &found, now).await?;
    let aside = put(&data, &found, now)?;
    log::say(format_args!("restored {staged} objects into {}", data.path().display()));
    if let Some(aside) = aside {
        log::say(format_args!("what was there is in {}", aside.display()));
    }
    log::say(format_args!(
        "its machines are those that were backed up: run no other `ostler up` that has them. To look only, `ostler up --driver none`, and `rm -r` afterwards"
    ));
    log::say(format_args!(
        "instances made after {} are orphans to this API. They are only reported: see `ostler drivers orphans` once `ostler up` runs",
        found.header.time
    ));
    Ok(())
}

/// A directory in which a restore was killed at its last step must not be taken for a new one.
pub(crate) fn refuse_half_restored(data_dir: &Path) -> anyhow::Result<()> {
    if !data_dir.join(API).exists() && data_dir.join(STAGING).exists() {
        bail!(
            "a restore of {} was broken off; run `ostler restore FILE --data-dir DIR --force` again",
            data_dir.display()
        );
    }
    Ok(())
}

fn tell(file: &Path, found: &Survey) {
    let Survey { header, totals, cluster_id, leases, .. } = found;
    log::say(format_args!(
        "{}: whole: {} objects at revision {} of {}, cluster {}, by ostler {}",
        file.display(),
        totals.objects,
        header.revision,
        header.time,
        cluster_id.as_deref().unwrap_or(&header.cluster),
        header.program
    ));
    if *leases > 0 {
        log::say(format_args!(
            "not restored: {leases} leases; their holders create them again, so that no term is used twice"
        ));
    }
}

/// Starts what would be restored as `ostler up` starts it, in memory: what that would refuse is refused before
/// anything is written.
async fn try_out(file: &Path, found: &Survey, now: Timestamp) -> anyhow::Result<()> {
    let mut records = Restored::of(file, found, now)?;
    let store = in_memory(found.header.revision, &mut records)?;
    let definitions = store.list(&definitions(), None, None).records;
    for record in &definitions {
        let object = serde_json::from_slice::<CustomResourceDefinition>(&record.value);
        object.with_context(|| format!("object {} cannot be used", record.key))?;
    }
    let text_of = |name: &str| {
        let path = format!("{API}/{name}");
        found.files.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    };
    let api =
        ApiServer::try_out(store, text_of).await.context("`ostler up` could not start with it")?;
    let started = starts(&api).await.context("`ostler up` could not start with it");
    api.close().await;
    started
}

/// Starts the parts of `ostler up` that need the API server first.
async fn starts(api: &ApiServer) -> anyhow::Result<()> {
    api.tls(&[])?;
    let client = Client::new(api.local_service(), HOME);
    crds::install(&client).await?;
    let Settings { home, namespaces, .. } = Settings::default();
    known_cluster_ids(&client, &home, &namespaces, &GivenIds::default()).await?;
    Ok(())
}

/// The CustomResourceDefinitions.
fn definitions() -> Prefix {
    Prefix::resource("apiextensions.k8s.io", "customresourcedefinitions")
}

/// A directory that does not exist, or is empty.
fn is_empty(path: &Path) -> anyhow::Result<bool> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => {
            return Err(error).with_context(|| format!("{} cannot be read", path.display()));
        }
    };
    for entry in entries {
        // The lock is ours; it is made before anything else.
        if entry?.file_name() != "lock" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes everything beside its place, and opens it once as a server would.
async fn stage(data: &DataDir, file: &Path, found: &Survey, now: Timestamp) -> anyhow::Result<u64> {
    let staging = data.path().join(STAGING);
    if staging.exists() {
        fs::remove_dir_all(&staging).context("what an earlier restore left cannot be removed")?;
    }
    private_directory(&staging)?;
    for kept in &found.files {
        if let Some(name) = kept.path.strip_prefix(&format!("{API}/")) {
            let path = staging.join(name);
            if let Some(parent) = path.parent() {
                private_directory(parent)?;
            }
            write_private(&path, &kept.text)?;
        }
    }
    let objects = staging.join(OBJECTS);
    let mut records = Restored::of(file, found, now)?;
    let revision = found.header.revision;
    let written = create(&objects, revision, &mut records)
        .with_context(|| format!("{} cannot be written", objects.display()))?;
    let store = Store::open(StoreOptions::file(&objects)).await;
    let store = store.context("what was written cannot be read")?;
    let read = store.list(&Prefix::all(), None, None).records.len() as u64;
    store.close().await;
    if read != written {
        bail!("{written} objects were written, and {read} can be read: do not trust this disk");
    }
    sync_directory(&staging)?;
    Ok(written)
}

/// Moves what is there aside, and the restored in its place. Returns where the former went.
fn put(data: &DataDir, found: &Survey, now: Timestamp) -> anyhow::Result<Option<PathBuf>> {
    let root = data.path();
    let aside = root.join(format!("before-restore-{}", now.strftime("%Y%m%dT%H%M%S.%fZ")));
    // The database first: from then on `up` refuses the directory until all of it is there. Files that this backup lacks
    // are moved aside as well.
    let names = [API].into_iter().chain(BESIDES);
    let there: Vec<&str> = names.filter(|name| root.join(name).exists()).collect();
    if !there.is_empty() {
        private_directory(&aside)?;
    }
    for name in &there {
        let failed = || format!("{} cannot be moved aside", root.join(name).display());
        fs::rename(root.join(name), aside.join(name)).with_context(failed)?;
    }
    for kept in found.files.iter().filter(|kept| !kept.path.contains('/')) {
        write_private(&root.join(&kept.path), &kept.text)?;
    }
    write_private(&data.restored(), &format!("from the backup of {}\n", found.header.time))?;
    fs::rename(root.join(STAGING), data.api())
        .with_context(|| format!("{} cannot be put in its place", data.api().display()))?;
    sync_directory(root)?;
    Ok((!there.is_empty()).then_some(aside))
}

fn private_directory(path: &Path) -> anyhow::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("{} cannot be made", path.display()))
}

/// The objects as they are restored: without Leases, and with the mark that holds the deletion of
/// orphans.
struct Restored {
    entries: Entries,
    header: Header,
    now: Timestamp,
    marked: bool,
    ended: bool,
}

impl Restored {
    fn of(file: &Path, found: &Survey, now: Timestamp) -> anyhow::Result<Self> {
        let open = File::open(file).with_context(|| format!("{} is gone", file.display()))?;
        let (entries, header) = (Entries::of(open), found.header.clone());
        Ok(Self { entries, header, now, marked: false, ended: false })
    }

    fn next_record(&mut self) -> anyhow::Result<Option<Record>> {
        while let Some(entry) = self.entries.next_entry()? {
            match entry {
                Entry::Object(record) if is_lease(&record.key) => {}
                Entry::Object(record) if is_cluster_id(&record.key) => {
                    self.marked = true;
                    return self.mark(record.object()?, record).map(Some);
                }
                Entry::Object(record) => return Ok(Some(record)),
                Entry::Header(header) if header != self.header => {
                    bail!("the backup was changed while it was restored");
                }
                Entry::Header(_) | Entry::File(_) | Entry::End(_) => {}
            }
        }
        if self.marked {
            return Ok(None);
        }
        // No core had written its id down yet, but one may have since: the next one has the same.
        self.marked = true;
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": CLUSTER_ID_CONFIG_MAP,
                "namespace": HOME,
                "uid": uuid::Uuid::new_v4().to_string(),
                "creationTimestamp": self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            },
        });
        let key = Key::new("", "configmaps", HOME, CLUSTER_ID_CONFIG_MAP);
        let record = Record { key, revision: self.header.revision + 1, value: Vec::new().into() };
        self.mark(object, record).map(Some)
    }

    /// Puts the mark into the ConfigMap with the cluster id.
    fn mark(&self, mut object: Value, record: Record) -> anyhow::Result<Record> {
        let damaged = || format!("object {} cannot be marked", record.key);
        let fields = object.as_object_mut().with_context(damaged)?;
        let mut data: Data = match fields.remove("data") {
            Some(data) => serde_json::from_value(data).with_context(damaged)?,
            None => Data::new(),
        };
        let reason = format!("restored from the backup of {}", self.header.time);
        ReportOnly::lift(&mut data);
        ReportOnly::new(self.now, reason).set(&mut data);
        fields.insert("data".to_owned(), json!(data));
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("resourceVersion");
        }
        Ok(Record { value: serde_json::to_vec(&object)?.into(), ..record })
    }
}

impl Iterator for Restored {
    type Item = io::Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_record().map_err(|error| io::Error::other(format!("{error:#}")));
        self.ended = !matches!(next, Ok(Some(_)));
        next.transpose()
    }
}

//! `ostler backup` and `ostler restore`: everything that `up` knows, in one file, and back.
//!
//! [`ostler_apiserver::backup`] documents the format and its checks. Here the keys are added, without which the
//! certificates and tokens of nodes would be worth nothing, and a restored API is marked: it knows nothing of instances
//! that were made after the backup, and must not delete them. `docs/backup.md` is the page for operators.

mod restore;
mod survey;

use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, ErrorKind};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use futures::{AsyncBufReadExt as _, AsyncReadExt as _};
use http::Request;
use jiff::Timestamp;
use kube::config::Kubeconfig;
use ostler_apiserver::backup::{Decoder, Encoder, Entry, Header, KeptFile, LINE, Totals};
use ostler_apiserver::serve::{KEY_FILES, OBJECTS, backup_header};
use ostler_apiserver::store::{Prefix, Store, StoreOptions};
use ostler_dial::cluster;
use ostler_server::on_signal;
use tokio_util::sync::CancellationToken;

use crate::data_dir::DataDir;
use crate::log;

pub(crate) use restore::{Args as RestoreArgs, refuse_half_restored, run as restore};
use survey::survey;

/// The directory of the API server within the data directory.
const API: &str = "api";
/// Further files of `up` that a backup has: drivers and machines that are allowed, and the variables with which `ostler reset` runs
/// their drivers.
const BESIDES: [&str; 4] = ["drivers.json", "aliases.json", "driver-env.json", "gateway"];

/// Where the backup goes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler backup ostler-$(date +%F).backup
  ostler backup --data-dir /srv/ostler /mnt/backups/ostler.backup --replace

A running `up` goes on meanwhile: the backup shows all objects as they are at one moment. It has every object, \
the authority that signs certificates, the key of ServiceAccount tokens and the admin token, so that nodes \
and clients are still known after a restore. Anyone who can read it has full access: it is created with mode 0600.

It has no instances and nothing that drivers keep: those are the infrastructure. `ostler restore --check FILE` \
verifies a backup at any time, and tries to start with it; docs/backup.md says what to do after a damaged disk.")]
pub(crate) struct Args {
    /// The file to write
    file: PathBuf,
    /// The data directory of an `ostler up`, running or not
    #[arg(long, value_name = "DIR", default_value = "./.ostler")]
    data_dir: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    replace: bool,
}

/// A directory without a database is none of ours, whatever it may be.
pub(crate) fn refuse_other_directory(data_dir: &Path) -> anyhow::Result<()> {
    if !data_dir.join(API).join(OBJECTS).is_file() {
        bail!(
            "{} is not the data directory of an `ostler up`: it has no {API}/{OBJECTS}; name one with --data-dir",
            data_dir.display()
        );
    }
    Ok(())
}

/// Takes a backup and checks it. Interrupted, it leaves nothing.
///
/// # Errors
/// There is nothing to back up, the server refused, or the file cannot be written.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    run_until(on_signal()?, args).await
}

async fn run_until(end: CancellationToken, args: Args) -> anyhow::Result<()> {
    let taken = end.run_until_cancelled(take(args)).await;
    taken.unwrap_or_else(|| Err(anyhow!("interrupted; no backup was taken")))
}

async fn take(args: Args) -> anyhow::Result<()> {
    let Args { file, data_dir, replace } = args;
    refuse_other_directory(&data_dir)?;
    if !replace && fs::symlink_metadata(&file).is_ok() {
        bail!("{} is there already; choose another name, or give --replace", file.display());
    }
    let files = kept_files(&data_dir)?;
    let part = Part::create(&file)?;
    let out = BufWriter::new(part.file.try_clone().context("the file cannot be written")?);
    let written = match DataDir::try_open(&data_dir)? {
        Some(data) => of_the_disk(&data, &files, out).await,
        None => Box::pin(of_the_server(&data_dir.join("kubeconfig"), &files, out)).await,
    };
    let (header, totals) =
        written.with_context(|| format!("no backup was taken of {}", data_dir.display()))?;
    part.file.sync_all().context("the backup cannot be written")?;
    let found = survey(&part.path).context("the backup is not readable as it was written")?;
    if (&found.header, &found.totals) != (&header, &totals) {
        bail!("the backup reads differently from what was written: do not trust this disk");
    }
    part.put(&file)?;
    log::say(format_args!(
        "{}: {} objects at revision {}, {} files, {}",
        file.display(),
        totals.objects,
        header.revision,
        totals.files,
        header.time
    ));
    log::say("it holds every secret of the cluster: keep it where you keep keys");
    Ok(())
}

/// The keys, and what else has to be there again.
fn kept_files(data_dir: &Path) -> anyhow::Result<Vec<KeptFile>> {
    let mut files = Vec::new();
    for name in KEY_FILES {
        let path = format!("{API}/{name}");
        let text = fs::read_to_string(data_dir.join(&path)).with_context(|| {
            format!("{} cannot be read; start `ostler up` once", data_dir.join(&path).display())
        })?;
        files.push(KeptFile { path, text });
    }
    for name in BESIDES {
        match fs::read_to_string(data_dir.join(name)) {
            Ok(text) => files.push(KeptFile { path: name.to_owned(), text }),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("{name} cannot be read")),
        }
    }
    Ok(files)
}

/// No process works in the directory: reads the objects themselves.
async fn of_the_disk(
    data: &DataDir,
    files: &[KeptFile],
    out: BufWriter<File>,
) -> anyhow::Result<(Header, Totals)> {
    let options = StoreOptions::file(data.api().join(OBJECTS));
    let store = Store::open(options).await.context("the objects cannot be read")?;
    let page = store.list(&Prefix::all(), None, None);
    store.close().await;
    let header = backup_header(&page, Timestamp::now());
    let mut encoder = begin(out, &header, files)?;
    for record in &page.records {
        encoder.object(record)?;
    }
    Ok((header, encoder.end()?.1))
}

/// Asks the server that works there, and takes nothing on trust of what comes.
async fn of_the_server(
    kubeconfig: &Path,
    files: &[KeptFile],
    out: BufWriter<File>,
) -> anyhow::Result<(Header, Totals)> {
    let unusable = || format!("{} cannot be used", kubeconfig.display());
    let found = Kubeconfig::read_from(kubeconfig).with_context(unusable)?;
    let config = cluster::config(found).await.with_context(unusable)?;
    let client = cluster::client(config).with_context(unusable)?;
    let request = Request::get("/backup").body(Vec::new())?;
    let answer = client.request_stream(request).await;
    let mut answer = std::pin::pin!(answer.context("the API server gives no backup")?);
    let (mut decoder, mut line) = (Decoder::default(), Vec::new());
    let mut out = Some(out);
    let mut begun = None;
    loop {
        line.clear();
        let read = answer.as_mut().take(LINE).read_until(b'\n', &mut line).await;
        read.context("the API server broke off")?;
        if line.is_empty() {
            decoder.finish()?;
            bail!("the API server sent nothing");
        }
        match (decoder.take(&line)?, begun.take()) {
            (Entry::Header(header), _) => {
                let out = out.take().context("the API server began twice")?;
                begun = Some((begin(out, &header, files)?, header));
            }
            (Entry::Object(record), Some((mut encoder, header))) => {
                encoder.object(&record)?;
                begun = Some((encoder, header));
            }
            (Entry::End(_), Some((encoder, header))) => return Ok((header, encoder.end()?.1)),
            (Entry::File(file), _) => bail!("the API server sent file {}", file.path),
            (Entry::Object(_) | Entry::End(_), None) => bail!("the API server did not begin"),
        }
    }
}

fn begin(
    out: BufWriter<File>,
    header: &Header,
    files: &[KeptFile],
) -> anyhow::Result<Encoder<BufWriter<File>>> {
    let mut encoder = Encoder::begin(out, header)?;
    for file in files {
        encoder.file(file)?;
    }
    Ok(encoder)
}

/// A new file that is not in its place yet. Removed when dropped.
struct Part {
    path: PathBuf,
    file: File,
    placed: bool,
}

impl Part {
    /// Creates the part beside its place, for this user alone, and follows no link there.
    fn create(place: &Path) -> anyhow::Result<Self> {
        let name = place
            .file_name()
            .with_context(|| format!("{} is not the name of a file", place.display()))?;
        let name = format!(".{}.{}.part", name.to_string_lossy(), uuid::Uuid::new_v4().simple());
        let path = place.with_file_name(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(nix::libc::O_NOFOLLOW)
            .open(&path)
            .with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(Self { path, file, placed: false })
    }

    /// Renames the part to its place and syncs the directory, so that a power cut does not undo the rename.
    fn put(mut self, place: &Path) -> anyhow::Result<()> {
        let failed = || format!("{} cannot be put in its place", place.display());
        fs::rename(&self.path, place).with_context(failed)?;
        self.placed = true;
        let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync_directory(parent.unwrap_or_else(|| Path::new("."))).with_context(failed)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.placed {
            // An error was reported already.
            let _gone = fs::remove_file(&self.path);
        }
    }
}

fn sync_directory(path: &Path) -> std::io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests;

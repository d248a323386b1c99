//! The driver's socket: whether it can be trusted with secrets, and a connection to it.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use http::Uri;
use ostler_proto::v1alpha1::machine_driver_service_client::MachineDriverServiceClient;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::channel::Channel;

/// For an adapter that was killed to end.
const PREDECESSOR: Duration = Duration::from_secs(5);
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_millis(100);

/// Calls a driver over one connection, so that a call never reaches another process than the checked one. When the
/// connection is lost, every call fails.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) calls: MachineDriverServiceClient<Channel>,
    /// Cancelled when the connection is lost.
    pub(crate) lost: CancellationToken,
}

/// The socket of a driver, and the user that the driver runs as.
#[derive(Debug, Clone)]
pub(crate) struct Socket {
    pub(crate) path: PathBuf,
    /// User id of the driver.
    uid: u32,
}

/// The right to be the only adapter of the drivers in a directory. Ends with the process at the latest.
#[derive(Debug)]
pub(crate) struct Lock(#[expect(dead_code, reason = "held, never read")] File);

impl Socket {
    pub(crate) const fn new(path: PathBuf, uid: u32) -> Self {
        Self { path, uid }
    }

    fn directory(&self) -> &Path {
        self.path.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
    }

    /// Whether a driver can be listening.
    pub(crate) fn is_there(&self) -> bool {
        self.path.exists()
    }

    /// Refuses a directory in which others than the driver, this process and root could put a socket.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let directory = self.directory();
        let shown = directory.display();
        let found = fs::symlink_metadata(directory).with_context(|| {
            format!("the directory {shown} of the driver's socket cannot be read")
        })?;
        ensure!(found.is_dir(), "{shown} is no directory");
        let own = nix::unistd::geteuid().as_raw();
        ensure!(
            [own, self.uid, 0].contains(&found.uid()),
            "the directory {shown} belongs to user {}: it must belong to the driver (user {}), the adapter \
             (user {own}) or root, since secrets pass through it",
            found.uid(),
            self.uid,
        );
        ensure!(
            found.mode() & 0o022 == 0,
            "the directory {shown} has mode {:o}: others can put a socket there; run `chmod go-w {shown}`",
            found.mode() & 0o7777,
        );
        Ok(())
    }

    /// Keeps every other adapter away from this directory. An adapter that was killed may hold the lock a moment
    /// longer.
    pub(crate) async fn lock(&self) -> anyhow::Result<Lock> {
        let directory = self.directory();
        let shown = directory.display();
        let file = File::open(directory).with_context(|| format!("{shown} cannot be opened"))?;
        let until = Instant::now() + PREDECESSOR;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Lock(file)),
                Err(TryLockError::WouldBlock) if Instant::now() < until => {
                    tokio::time::sleep(LOOK).await;
                }
                Err(TryLockError::WouldBlock) => bail!(
                    "another adapter serves the driver in {shown}: end it, or use another directory"
                ),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("{shown} cannot be locked"));
                }
            }
        }
    }

    /// One connection to the driver. When it is lost the client fails for good.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        self.check()?;
        let shown = self.path.display();
        let found = fs::symlink_metadata(&self.path)
            .with_context(|| format!("no driver listens on {shown}"))?;
        ensure!(found.file_type().is_socket(), "{shown} is no socket");
        let stream = ostler_local::connect(&self.path)
            .await
            .with_context(|| format!("no driver answers on {shown}"))?;
        let peer = stream.peer_cred().context("the driver's user cannot be told")?.uid();
        ensure!(
            peer == self.uid,
            "user {peer} listens on {shown}, and the driver runs as user {}: pass --driver-uid {peer} if that is right",
            self.uid,
        );
        let lost = CancellationToken::new();
        let channel = Channel::over(stream, lost.clone())
            .await
            .with_context(|| format!("no gRPC server answers on {shown}"))?;
        let calls =
            MachineDriverServiceClient::with_origin(channel, Uri::from_static("http://driver"));
        Ok(Client { calls, lost })
    }
}

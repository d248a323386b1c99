//! From the user data to a client of the cluster that is this node's own.

use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use backon::Retryable as _;
use jiff::Timestamp;
use tokio::process::Command;
use tokio::time::timeout;

use crate::client::{Access, NoClient, access, backoff};
use crate::identity::{Identity, NoIdentity, Store, StoreError, inspect, obtain};
use crate::options::Options;
use crate::user_data::{BadUserData, Bootstrap, LONGEST, UserData};

/// User data may come this way instead of in a file. It is no flag, as flags are shown.
const USER_DATA: &str = "OSTLER_USER_DATA";
/// A script that takes longer is ended and executed again.
const SCRIPT: Duration = Duration::from_mins(10);

/// A machine that has joined.
pub(crate) struct Joined {
    pub(crate) access: Access,
    pub(crate) identity: Identity,
}

/// Why the machine has not joined; the next attempt may do better.
#[derive(Debug, thiserror::Error)]
enum NotJoined {
    #[error(transparent)]
    UserData(#[from] BadUserData),
    #[error("there are no user data: neither {USER_DATA} is set nor {0} there")]
    NoUserData(String),
    #[error("{0} cannot be read")]
    Read(String, #[source] std::io::Error),
    #[error("the script of the user data cannot be executed")]
    Execute(#[source] std::io::Error),
    #[error("the script of the user data failed: {0}")]
    Failed(ExitStatus),
    #[error("the script of the user data took longer than {} min", SCRIPT.as_secs() / 60)]
    Slow,
    #[error(
        "the certificate ended at {0} and the bootstrap token was deleted after joining: replace the machine"
    )]
    Expired(Timestamp),
    #[error("the kubeconfig that was kept is gone: replace the machine")]
    Forgotten,
    #[error(transparent)]
    Identity(#[from] NoIdentity),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Client(#[from] NoClient),
}

/// Comes back with what was kept, or joins, however long it takes.
pub(crate) async fn join(options: &Options, store: &Store, node: &str) -> anyhow::Result<Joined> {
    let attempt = || async { Ok(once(options, store, node).await?) };
    let joined = attempt
        .retry(backoff(Duration::from_millis(500), Duration::from_mins(1)))
        .notify(|error: &anyhow::Error, _| {
            tracing::warn!(node, error = format!("{error:#}"), "not joined yet");
        })
        .await?;
    forget_token(options);
    Ok(joined)
}

async fn once(options: &Options, store: &Store, node: &str) -> Result<Joined, NotJoined> {
    match kept(options, store, node)? {
        Some(identity) => {
            if store.kubeconfig()?.is_none() {
                // A machine that was made anew got the identity of before, and what its user data say.
                match bootstrap(options, store).await {
                    Err(NotJoined::NoUserData(_)) => return Err(NotJoined::Forgotten),
                    bootstrap => keep_cluster(store, &bootstrap?)?,
                }
            }
            own(store, identity).await
        }
        None => join_anew(options, store, node).await,
    }
}

/// The identity of before, if it can be used.
fn kept(options: &Options, store: &Store, node: &str) -> Result<Option<Identity>, NotJoined> {
    let Some(identity) = store.identity()? else { return Ok(None) };
    match inspect(&identity.chain, &identity.key, node) {
        Ok(certificate) if certificate.not_after > Timestamp::now() => {
            tracing::info!(node, until = %certificate.not_after, "the node starts with the identity that it kept");
            Ok(Some(identity))
        }
        Ok(certificate) if user_data(options).is_err() => {
            Err(NotJoined::Expired(certificate.not_after))
        }
        Ok(_) => Ok(None),
        Err(error) => {
            tracing::warn!(node, %error, "the identity that was kept cannot be used, the node joins anew");
            Ok(None)
        }
    }
}

async fn join_anew(options: &Options, store: &Store, node: &str) -> Result<Joined, NotJoined> {
    let bootstrap = bootstrap(options, store).await?;
    let joining = access(bootstrap.kubeconfig()).await?;
    let identity = obtain(&joining.api, store, node).await?;
    keep_cluster(store, &bootstrap)?;
    // Last: the stored identity says that this machine has joined.
    store.keep_identity(&identity)?;
    tracing::info!(node, "joined");
    own(store, identity).await
}

fn keep_cluster(store: &Store, bootstrap: &Bootstrap) -> Result<(), StoreError> {
    bootstrap.cluster().map_or(Ok(()), |cluster| store.keep_cluster(cluster))
}

async fn own(store: &Store, identity: Identity) -> Result<Joined, NotJoined> {
    let kubeconfig = store.kubeconfig()?.ok_or(NotJoined::Forgotten)?;
    Ok(Joined { access: access(kubeconfig).await?, identity })
}

/// The kubeconfig to join with: the user data themselves, or what their script leaves.
async fn bootstrap(options: &Options, store: &Store) -> Result<Bootstrap, NotJoined> {
    let left = &options.bootstrap_kubeconfig;
    let bytes = match user_data(options) {
        // The script was executed by another program.
        Err(NotJoined::NoUserData(_)) if left.exists() => {
            return Ok(Bootstrap::read(&read(left)?)?);
        }
        bytes => bytes?,
    };
    match UserData::read(&bytes)? {
        UserData::Kubeconfig(bootstrap) => Ok(*bootstrap),
        UserData::Script => {
            if !store.script_done() {
                execute(store, &bytes).await?;
                store.note_script_done()?;
            }
            Ok(Bootstrap::read(&read(left)?)?)
        }
    }
}

fn user_data(options: &Options) -> Result<Vec<u8>, NotJoined> {
    match std::env::var_os(USER_DATA) {
        Some(text) if !text.is_empty() => Ok(text.into_encoded_bytes()),
        Some(_) | None => read(&options.user_data_file),
    }
}

/// Reads a file up to a byte more than user data may have, which is noticed later.
fn read(path: &Path) -> Result<Vec<u8>, NotJoined> {
    let shown = || path.display().to_string();
    let file = std::fs::File::open(path).map_err(|error| {
        if error.kind() == ErrorKind::NotFound {
            NotJoined::NoUserData(shown())
        } else {
            NotJoined::Read(shown(), error)
        }
    })?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| NotJoined::Read(shown(), error))?;
    Ok(bytes)
}

async fn execute(store: &Store, script: &[u8]) -> Result<(), NotJoined> {
    let path = store.keep_script(script)?;
    tracing::info!("executes the user data");
    let mut process = Command::new(&path)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .env_remove(USER_DATA)
        .spawn()
        .map_err(NotJoined::Execute)?;
    let status = timeout(SCRIPT, process.wait()).await.map_err(|_| NotJoined::Slow)?;
    // It may hold credentials.
    store.drop_script()?;
    match status.map_err(NotJoined::Execute)? {
        status if status.success() => Ok(()),
        status => Err(NotJoined::Failed(status)),
    }
}

/// The token has done its work. What stays in the environment of the container, only the driver can take away.
fn forget_token(options: &Options) {
    for path in [&options.user_data_file, &options.bootstrap_kubeconfig] {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(path = %path.display(), %error, "the bootstrap token stays there");
            }
            Ok(()) | Err(_) => {}
        }
    }
}

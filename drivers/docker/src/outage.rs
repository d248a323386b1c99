//! Takes the engine away from a driver, and from it alone, so that the conformance suite sees what the driver says then:
//! a proxy before the engine's socket, which a file closes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::Context as _;
use hyper::body::Incoming;
use hyper::header::UPGRADE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, client, server, upgrade};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{UnixListener, UnixStream};

use crate::engine::DockerHost;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// What `ostler-driver-docker outage` is told.
#[derive(Debug, Clone, clap::Args)]
pub struct OutageArgs {
    /// Socket of the Docker Engine
    #[arg(long, env = "DOCKER_HOST", value_name = "URL", default_value_t = DockerHost::default())]
    pub docker_host: DockerHost,

    /// Socket to make: the driver is told to use it in place of the engine's
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
}

/// How the engine is taken away, as the conformance suite says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Subcommand)]
pub enum Break {
    /// It answers nothing
    On,
    /// It is there again
    Off,
    /// It takes so many changes more, and then answers nothing
    After {
        /// How many
        changes: u64,
    },
}

/// Forwards what comes on a socket to the engine, but not during an outage. Ends with the process.
pub async fn outage(args: OutageArgs) -> anyhow::Result<()> {
    let left_there = fs::remove_file(&args.socket);
    if let Err(error) = left_there.or_else(unless_absent) {
        return Err(error).with_context(|| format!("cannot replace {}", args.socket.display()));
    }
    let listener = UnixListener::bind(&args.socket)
        .with_context(|| format!("cannot listen on {}", args.socket.display()))?;
    let gate = Arc::new(Gate {
        engine: args.docker_host.path().to_owned(),
        outage: Mutex::new(file_of(&args.socket)),
    });
    loop {
        let (stream, _) = listener.accept().await?;
        let gate = Arc::clone(&gate);
        tokio::spawn(async move {
            let forward = service_fn(|request| forward(request, &gate));
            let served = server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), forward)
                .with_upgrades();
            // Either side may end it, and an outage does.
            drop(served.await);
        });
    }
}

/// Begins or ends an outage of the proxy on this socket.
pub(crate) fn break_engine(socket: &Path, how: Break) -> io::Result<()> {
    let file = file_of(socket);
    match how {
        Break::Off => fs::remove_file(file).or_else(unless_absent),
        Break::On => write(&file, 0),
        Break::After { changes } => write(&file, changes),
    }
}

fn unless_absent(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

/// The file says how many changes are taken before the engine is away; there is none if all are.
fn file_of(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".outage");
    PathBuf::from(name)
}

/// Nobody reads half of it.
fn write(file: &Path, changes: u64) -> io::Result<()> {
    let part = file.with_extension("part");
    fs::write(&part, changes.to_string())?;
    fs::rename(part, file)
}

fn left(file: &Path) -> io::Result<Option<u64>> {
    match fs::read_to_string(file) {
        Ok(text) => u64::from_str(&text).map(Some).map_err(io::Error::other),
        Err(error) => unless_absent(error).map(|()| None),
    }
}

struct Gate {
    engine: PathBuf,
    outage: Mutex<PathBuf>,
}

impl Gate {
    /// Whether a request is let through.
    fn opens(&self, changes: bool) -> io::Result<bool> {
        let file = self.outage.lock();
        match left(&file)? {
            None => Ok(true),
            Some(0) => Ok(false),
            Some(left) => {
                if changes {
                    write(&file, left - 1)?;
                }
                Ok(true)
            }
        }
    }
}

async fn forward(
    mut request: Request<Incoming>,
    gate: &Gate,
) -> Result<Response<Incoming>, Failed> {
    let changes = ![Method::GET, Method::HEAD].contains(request.method());
    if !gate.opens(changes)? {
        return Err(io::Error::from(io::ErrorKind::ConnectionReset).into());
    }
    let stream = TokioIo::new(UnixStream::connect(&gate.engine).await?);
    let (mut engine, connection) = client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection.with_upgrades());
    let upgrades = request.headers().contains_key(UPGRADE);
    let driver = upgrades.then(|| upgrade::on(&mut request));
    let mut response = engine.send_request(request).await?;
    if let Some(driver) = driver
        && response.status() == StatusCode::SWITCHING_PROTOCOLS
    {
        let engine = upgrade::on(&mut response);
        tokio::spawn(async move {
            let (driver, engine) = tokio::try_join!(driver, engine)?;
            let (mut driver, mut engine) = (TokioIo::new(driver), TokioIo::new(engine));
            tokio::io::copy_bidirectional(&mut driver, &mut engine).await?;
            Ok::<(), Failed>(())
        });
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_begins_at_once_or_after_some_changes_and_reads_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let gate = Gate { engine: PathBuf::new(), outage: Mutex::new(file_of(&socket)) };
        let opens = |changes| gate.opens(changes).unwrap();
        assert!(opens(true));
        break_engine(&socket, Break::After { changes: 1 }).unwrap();
        assert!(opens(false) && opens(true));
        assert!(!opens(true) && !opens(false));
        break_engine(&socket, Break::Off).unwrap();
        assert!(opens(true));
        break_engine(&socket, Break::Off).unwrap();
        break_engine(&socket, Break::On).unwrap();
        assert!(!opens(false));
    }
}

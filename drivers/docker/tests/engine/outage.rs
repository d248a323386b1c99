//! Takes the engine away from a driver, and from it alone: a proxy before the engine's socket, and a probe that has the
//! word `break`.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::UPGRADE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, client, server, upgrade};
use hyper_util::rt::TokioIo;
use ostler_driver_docker::DockerHost;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Forwards requests until an outage. It ends with the runtime of the test.
pub(crate) struct Proxy {
    dir: tempfile::TempDir,
}

impl Proxy {
    /// Before this engine.
    pub(crate) fn start(engine: &DockerHost) -> Self {
        // Paths of sockets are short.
        let dir = tempfile::Builder::new().prefix("op-").tempdir_in("/tmp").unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        let gate = Arc::new(Gate {
            engine: engine.path().to_owned(),
            outage: Mutex::new(dir.path().join("outage")),
        });
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
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
        });
        Self { dir }
    }

    /// Where the driver finds it.
    pub(crate) fn host(&self) -> String {
        format!("unix://{}/s", self.dir.path().display())
    }

    /// A command that knows `break`, and leaves all other words to this one.
    pub(crate) fn probe(&self, others: &str) -> String {
        let (script, outage) = (self.dir.path().join("probe"), self.dir.path().join("outage"));
        let outage = outage.display();
        let text = format!(
            "#!/bin/sh\ncase \"$1 $2\" in\n'break on') echo 0 >{outage} ;;\n'break off') rm -f {outage} ;;\n\
             'break after') echo \"$3\" >{outage} ;;\n*) exec {others} \"$@\" ;;\nesac\n"
        );
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o700)).unwrap();
        script.display().to_string()
    }
}

struct Gate {
    engine: PathBuf,
    /// The file says how many changes are taken before the engine is away; there is none if all are.
    outage: Mutex<PathBuf>,
}

impl Gate {
    /// Whether a request is let through.
    async fn opens(&self, changes: bool) -> bool {
        let outage = self.outage.lock().await;
        match left(&outage) {
            None => true,
            Some(0) => false,
            Some(left) => {
                if changes {
                    fs::write(&*outage, (left - 1).to_string()).unwrap();
                }
                true
            }
        }
    }
}

fn left(outage: &Path) -> Option<u64> {
    fs::read_to_string(outage).ok()?.trim().parse().ok()
}

async fn forward(
    mut request: Request<Incoming>,
    gate: &Gate,
) -> Result<Response<Incoming>, Failed> {
    let changes = ![Method::GET, Method::HEAD].contains(request.method());
    if !gate.opens(changes).await {
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

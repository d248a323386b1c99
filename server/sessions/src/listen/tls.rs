//! The certificate that the core shows to drivers, replaced without a restart when its files are.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use tokio::io::AsyncReadExt;

use super::certificate;

/// Between two looks at the files.
const LOOK: Duration = Duration::from_secs(5);
/// Largest readable file; a bundle of all public CAs has a quarter of the limit.
const FILE_BYTES: u64 = 1 << 20;

/// The files that TLS is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates (PEM): the core's own first, then the chain.
    pub certificate: PathBuf,
    /// The private key (PEM) of the first certificate.
    pub key: PathBuf,
    /// CA certificates (PEM) that client certificates must come from. `None`: none are asked for.
    pub client_ca: Option<PathBuf>,
}

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A file has the wrong content.
    #[error("{} {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The fault in the file.
        problem: String,
    },
    /// Certificate and key do not belong together, or cannot be used.
    #[error(
        "the certificate in {} and the key in {} cannot be used together",
        certificate.display(),
        key.display()
    )]
    Pair {
        /// File of the certificate.
        certificate: PathBuf,
        /// File of the key.
        key: PathBuf,
        /// The cause.
        #[source]
        source: rustls::Error,
    },
}

/// TLS for the listeners: current state and files.
#[derive(Debug)]
pub struct ServerTls {
    files: TlsFiles,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    config: Arc<ServerConfig>,
    /// When the certificate in use ends, in seconds since 1970.
    not_after: i64,
    /// The files of the last read, good or not.
    seen: Contents,
    /// Whether these files are in use. Other files are tried again: they may only not be valid yet.
    is_used: bool,
    failures: u64,
}

/// The content of the files.
#[derive(Clone, PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for Contents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Contents(..)")
    }
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, has the wrong content, or the certificate is not valid now.
    pub async fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let seen = read_all(&files).await?;
        let (config, not_after) = build(&files, &seen, unix_now())?;
        let state = State { config: Arc::new(config), not_after, seen, is_used: true, failures: 0 };
        Ok(Self { files, state: Mutex::new(state) })
    }

    /// When the certificate in use ends, in seconds since 1970.
    pub fn not_after(&self) -> i64 {
        self.locked(|state| state.not_after)
    }

    /// How often changed files could not be used.
    pub fn failures(&self) -> u64 {
        self.locked(|state| state.failures)
    }

    /// Looks at the files now; new connections then see the new content. Existing connections go on. Files that cannot
    /// be used change nothing.
    pub async fn refresh(&self) {
        self.refresh_at(unix_now()).await;
    }

    async fn refresh_at(&self, now: i64) {
        let new = match read_all(&self.files).await {
            Ok(new) => new,
            // A file that is missing for a moment is being replaced: only its content can be wrong.
            Err(error) => return self.keep_old(&error),
        };
        let (same, is_used) = self.locked(|state| (state.seen == new, state.is_used));
        if same && is_used {
            return;
        }
        let built = build(&self.files, &new, now);
        self.locked(|state| (state.seen, state.is_used) = (new, built.is_ok()));
        match built {
            Ok((config, not_after)) => {
                self.locked(|state| {
                    state.config = Arc::new(config);
                    state.not_after = not_after;
                });
                let file = self.files.certificate.display();
                tracing::info!(%file, not_after, "the certificate for drivers was replaced");
            }
            // Of the same files it was said before.
            Err(_) if same => {}
            Err(error) => self.keep_old(&error),
        }
    }

    /// Keeps looking at the files. Ends only with its task.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            self.refresh().await;
        }
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        self.locked(|state| Arc::clone(&state.config))
    }

    fn keep_old(&self, error: &TlsError) {
        self.locked(|state| state.failures += 1);
        let cause = std::error::Error::source(error).map(ToString::to_string);
        tracing::error!(%error, cause, "the old certificate for drivers stays in use");
    }

    fn locked<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        // Holders only swap whole values, so a poisoned lock still guards a good state.
        act(&mut self.state.lock())
    }
}

async fn read_all(files: &TlsFiles) -> Result<Contents, TlsError> {
    Ok(Contents {
        certificate: read(&files.certificate).await?,
        key: read(&files.key).await?,
        client_ca: match &files.client_ca {
            Some(path) => Some(read(path).await?),
            None => None,
        },
    })
}

async fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let read = async {
        let mut content = Vec::new();
        let file = tokio::fs::File::open(path).await?;
        file.take(FILE_BYTES).read_to_end(&mut content).await?;
        Ok(content)
    };
    read.await.map_err(|source| TlsError::File { path: path.to_owned(), source })
}

/// The TLS configuration for connections, and its end of validity.
fn build(files: &TlsFiles, contents: &Contents, now: i64) -> Result<(ServerConfig, i64), TlsError> {
    let chain = certificates(&files.certificate, &contents.certificate)?;
    let not_after = check_validity(&files.certificate, &chain, now)?;
    // The cause stays out: it may quote the file.
    let key = PrivateKeyDer::from_pem_slice(&contents.key)
        .map_err(|_| content_error(&files.key, &"holds no private key (PEM)"))?;
    let provider = Arc::new(ring::default_provider());
    let verifier = match (&files.client_ca, &contents.client_ca) {
        (Some(path), Some(content)) => {
            let mut roots = RootCertStore::empty();
            for ca in certificates(path, content)? {
                roots.add(ca).map_err(|error| content_error(path, &error))?;
            }
            // Optional: a driver may show a token instead. A peer that shows nothing is refused later.
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()
                .map_err(|error| content_error(path, &error))?
        }
        _ => WebPkiClientVerifier::no_client_auth(),
    };
    let pair = |source| TlsError::Pair {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        source,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(pair)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(pair)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Every connection authenticates anew: a resumed one would not notice an expired certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok((config, not_after))
}

fn certificates(path: &Path, content: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let none = "holds no certificate (PEM)";
    let found: Vec<_> = CertificateDer::pem_slice_iter(content)
        .collect::<Result<_, _>>()
        .map_err(|_| content_error(path, &none))?;
    if found.is_empty() { Err(content_error(path, &none)) } else { Ok(found) }
}

fn check_validity(path: &Path, chain: &[CertificateDer<'_>], now: i64) -> Result<i64, TlsError> {
    let own = chain.first().and_then(|own| certificate::validity(own));
    let (not_before, not_after) =
        own.ok_or_else(|| content_error(path, &"holds a certificate that cannot be read"))?;
    if now > not_after {
        return Err(content_error(path, &"holds a certificate that is over; renew it"));
    }
    if now < not_before {
        let problem = "holds a certificate that is not valid yet; is the clock of this host right?";
        return Err(content_error(path, &problem));
    }
    Ok(not_after)
}

/// Seconds since 1970. Certificates know no other clock.
pub(super) fn unix_now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn content_error(path: &Path, problem: &dyn std::fmt::Display) -> TlsError {
    TlsError::Content { path: path.to_owned(), problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};
    use tempfile::TempDir;

    use super::*;

    /// Writes a pair for `name` that ends in `year`.
    fn write(dir: &TempDir, name: &str, year: i32) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(dir.path().join("tls.crt"), certificate.pem()).unwrap();
        std::fs::write(dir.path().join("tls.key"), key.serialize_pem()).unwrap();
    }

    fn files(dir: &TempDir) -> TlsFiles {
        TlsFiles {
            certificate: dir.path().join("tls.crt"),
            key: dir.path().join("tls.key"),
            client_ca: None,
        }
    }

    #[tokio::test]
    async fn a_new_pair_is_taken_and_a_broken_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, "core", 2090);
        let tls = ServerTls::load(files(&dir)).await.unwrap();
        let first = tls.config();
        tls.refresh().await;
        assert!(Arc::ptr_eq(&first, &tls.config()), "nothing changed");

        let key = std::fs::read(dir.path().join("tls.key")).unwrap();
        write(&dir, "core", 2091);
        std::fs::write(dir.path().join("tls.key"), key).unwrap();
        tls.refresh().await;
        tls.refresh().await;
        assert!(Arc::ptr_eq(&first, &tls.config()), "key and certificate do not match");
        std::fs::remove_file(dir.path().join("tls.key")).unwrap();
        tls.refresh().await;
        assert!(Arc::ptr_eq(&first, &tls.config()), "a file is missing");
        assert_eq!(tls.failures(), 2, "the same broken pair counts once");

        let before = tls.not_after();
        write(&dir, "core", 2092);
        tls.refresh().await;
        assert!(!Arc::ptr_eq(&first, &tls.config()) && tls.not_after() > before);
    }

    #[tokio::test]
    async fn a_pair_that_was_not_valid_yet_is_taken_once_it_is() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, "core", 2090);
        let tls = ServerTls::load(files(&dir)).await.unwrap();
        let first = tls.config();
        // The certificate is valid from 1975 on.
        write(&dir, "core", 2091);
        for _ in 0..2 {
            tls.refresh_at(0).await;
        }
        assert!(Arc::ptr_eq(&first, &tls.config()));
        assert_eq!(tls.failures(), 1, "the same files count once");
        tls.refresh().await;
        assert!(!Arc::ptr_eq(&first, &tls.config()));
    }

    #[tokio::test]
    async fn each_unusable_file_is_named_and_its_content_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let refused = async || ServerTls::load(files(&dir)).await.unwrap_err().to_string();
        assert!(refused().await.contains("tls.crt cannot be read"));
        write(&dir, "core", 2001);
        assert!(refused().await.contains("tls.crt holds a certificate that is over"));
        write(&dir, "core", 2090);
        std::fs::write(dir.path().join("tls.key"), "-----BEGIN canary").unwrap();
        let error = refused().await;
        assert!(error.contains("tls.key holds no private key"), "{error}");
        assert!(!error.contains("canary"), "{error}");
        std::fs::write(dir.path().join("tls.crt"), "").unwrap();
        assert!(refused().await.contains("tls.crt holds no certificate"));
    }

    #[tokio::test]
    async fn debug_shows_no_key() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir, "core", 2090);
        let shown = format!("{:?}", ServerTls::load(files(&dir)).await.unwrap());
        assert!(shown.contains("tls.key") && !shown.contains("PRIVATE"), "{shown}");
    }
}

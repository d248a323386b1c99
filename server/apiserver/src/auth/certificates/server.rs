//! The certificate that the server serves with.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
    time_provider::TimeProvider,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};

use super::{
    Authority,
    authority::SKEW,
    kept::{Kept, PkiError, read, valid, write},
};
use crate::clock::Clock;

/// How long a certificate is good for.
const LIFE: SignedDuration = SignedDuration::from_hours(24 * 365);

const NAME: &str = "embedded API server";
const FILE: &str = "server.json";
/// The names every certificate is good for.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// How long a renewal that failed is not tried again.
const PAUSE: SignedDuration = SignedDuration::from_hours(1);

/// The material with which a listener serves TLS.
#[derive(Clone)]
pub struct TlsMaterial {
    server: Kept,
    authority: Arc<Authority>,
    directory: Option<PathBuf>,
}

impl fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsMaterial").field("names", &self.server.names).finish_non_exhaustive()
    }
}

impl TlsMaterial {
    /// The kept certificate if it is still good for these names, else a new one.
    pub(crate) fn open(
        authority: &Arc<Authority>,
        directory: Option<&Path>,
        names: &[String],
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        let mut names: Vec<String> =
            OWN_NAMES.iter().map(|&name| name.to_owned()).chain(names.iter().cloned()).collect();
        names.sort();
        names.dedup();
        let usable = |kept: &Kept| {
            kept.is_fresh(now)
                && kept.names == names
                && kept.signed_by.as_deref() == Some(authority.pem())
        };
        let server = match read(directory, FILE)?.filter(usable) {
            Some(kept) => kept,
            None => write(directory, FILE, new(authority, names, now)?)?,
        };
        let directory = directory.map(Path::to_path_buf);
        Ok(Self { server, authority: Arc::clone(authority), directory })
    }

    /// The certificate of the authority, as PEM: what clients must trust.
    pub fn authority_pem(&self) -> &str {
        self.authority.pem()
    }

    fn certified(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, PkiError> {
        let damaged = |_| PkiError::Damaged { file: FILE };
        let certificate =
            CertificateDer::from_pem_slice(self.server.certificate.as_bytes()).map_err(damaged)?;
        let key = PrivateKeyDer::from_pem_slice(self.server.key.as_bytes()).map_err(damaged)?;
        Ok(Arc::new(CertifiedKey::from_der(vec![certificate], key, provider)?))
    }

    /// TLS with the server's certificate, which is renewed before it expires. A client may show a certificate of the
    /// same authority; a certificate of another authority, or not valid by `clock`, ends the handshake.
    pub(crate) fn server_config(&self, clock: Clock) -> Result<ServerConfig, PkiError> {
        let authority = CertificateDer::from_pem_slice(self.authority_pem().as_bytes())
            .map_err(|_| PkiError::Damaged { file: FILE })?;
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()?;
        let renewed = Renewed::new(self.clone(), Arc::clone(&clock), Arc::clone(&provider))?;
        let mut config = ServerConfig::builder_with_details(provider, Arc::new(ServerTime(clock)))
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::new(renewed));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// The certificate of a server that may run for longer than it is good for.
#[derive(Debug)]
struct Renewed {
    time: ServerTime,
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    tls: TlsMaterial,
    shown: Arc<CertifiedKey>,
    /// Before this time the renewal is not tried again.
    again: Timestamp,
}

impl Renewed {
    fn new(
        tls: TlsMaterial,
        clock: Clock,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, PkiError> {
        let shown = tls.certified(&provider)?;
        let current = Mutex::new(Current { tls, shown, again: Timestamp::MIN });
        Ok(Self { time: ServerTime(clock), provider, current })
    }

    fn shown(&self) -> Arc<CertifiedKey> {
        let (mut current, now) = (self.current.lock(), (self.time.0)());
        if !current.tls.server.is_fresh(now) && now >= current.again {
            current.again = now + PAUSE;
            match self.renew(&current.tls, now) {
                Ok((tls, shown)) => (current.tls, current.shown) = (tls, shown),
                Err(error) => {
                    let error: &dyn std::error::Error = &error;
                    tracing::error!(error, "the certificate of the API server is not renewed");
                }
            }
        }
        Arc::clone(&current.shown)
    }

    fn renew(
        &self,
        old: &TlsMaterial,
        now: Timestamp,
    ) -> Result<(TlsMaterial, Arc<CertifiedKey>), PkiError> {
        let names = &old.server.names;
        let tls = TlsMaterial::open(&old.authority, old.directory.as_deref(), names, now)?;
        let shown = tls.certified(&self.provider)?;
        tracing::info!("the certificate of the API server was renewed");
        Ok((tls, shown))
    }
}

impl ResolvesServerCert for Renewed {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown())
    }
}

/// The server's clock, as the TLS library asks for it.
struct ServerTime(Clock);

impl fmt::Debug for ServerTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTime(..)")
    }
}

impl TimeProvider for ServerTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from((self.0)().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

fn new(authority: &Authority, names: Vec<String>, now: Timestamp) -> Result<Kept, PkiError> {
    let key = KeyPair::generate()?;
    let expires = now + LIFE;
    let mut params = CertificateParams::new(names.clone())?;
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    valid(&mut params, now - SKEW, expires);
    let certificate = authority.sign(params, &key)?;
    let signed_by = Some(authority.pem().to_owned());
    Ok(Kept { certificate, key: key.serialize_pem(), expires, names, signed_by })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{auth::certificates::authority, clock::wall_clock};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn material(path: &Path, names: &[String], now: Timestamp) -> TlsMaterial {
        let authority = Arc::new(Authority::open(Some(path), now).unwrap());
        TlsMaterial::open(&authority, Some(path), names, now).unwrap()
    }

    #[test]
    fn certificates_are_kept_until_they_expire_or_the_names_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50);
        let first = material(path, &names(&["10.0.0.1"]), now);
        let again = material(path, &names(&["10.0.0.1"]), now);
        assert_eq!(first.server.certificate, again.server.certificate);

        let other = material(path, &names(&["example.org"]), now);
        assert_ne!(other.server.certificate, first.server.certificate);
        assert_eq!(other.authority_pem(), first.authority_pem());

        let later = now + LIFE;
        let renewed = material(path, &names(&["example.org"]), later);
        assert_ne!(renewed.server.certificate, other.server.certificate);
        assert_eq!(renewed.authority_pem(), first.authority_pem());

        let much_later = material(path, &names(&[]), now + authority::LIFE);
        assert_ne!(much_later.authority_pem(), first.authority_pem());
        assert!(much_later.server_config(wall_clock()).is_ok());
    }

    #[test]
    fn a_server_that_runs_for_longer_than_its_certificate_shows_a_new_one_and_keeps_it() {
        let directory = tempfile::tempdir().unwrap();
        let start = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50);
        let tls = material(directory.path(), &names(&["10.0.0.1"]), start);
        let now = Arc::new(Mutex::new(start));
        let clock: Clock = Arc::new({
            let now = Arc::clone(&now);
            move || *now.lock()
        });
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let renewed = Renewed::new(tls, clock, provider).unwrap();
        let after = |days: i64| {
            *now.lock() = start + SignedDuration::from_hours(24 * days);
            renewed.shown().cert.clone()
        };
        let first = after(0);
        assert_eq!(after(334), first);
        let second = after(336);
        assert_ne!(second, first);
        assert_eq!(after(600), second);
        let kept = material(directory.path(), &names(&["10.0.0.1"]), *now.lock());
        let kept = CertificateDer::from_pem_slice(kept.server.certificate.as_bytes()).unwrap();
        assert_eq!(second, [kept]);
    }
}

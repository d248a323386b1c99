//! The certificate that the server serves with.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose};
use rustls::{
    RootCertStore, ServerConfig, server::WebPkiClientVerifier, time_provider::TimeProvider,
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

/// What a listener needs to serve TLS.
#[derive(Clone)]
pub struct TlsMaterial {
    server: Kept,
    authority_pem: String,
}

impl fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsMaterial").field("names", &self.server.names).finish_non_exhaustive()
    }
}

impl TlsMaterial {
    /// The kept certificate if it is still good for these names, else a new one.
    pub(crate) fn open(
        authority: &Authority,
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
        Ok(Self { server, authority_pem: authority.pem().to_owned() })
    }

    /// The certificate of the authority, as PEM: what clients must trust.
    pub fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    /// TLS with this certificate. A client may show a certificate of the same authority; one that
    /// is of another, or not valid by `clock`, ends the handshake.
    pub(crate) fn server_config(&self, clock: Clock) -> Result<ServerConfig, PkiError> {
        let damaged = |_| PkiError::Damaged { file: FILE };
        let certificate =
            CertificateDer::from_pem_slice(self.server.certificate.as_bytes()).map_err(damaged)?;
        let key = PrivateKeyDer::from_pem_slice(self.server.key.as_bytes()).map_err(damaged)?;
        let authority =
            CertificateDer::from_pem_slice(self.authority_pem.as_bytes()).map_err(damaged)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .allow_unauthenticated()
                .build()?;
        let mut config = ServerConfig::builder_with_details(provider, Arc::new(ServerTime(clock)))
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
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
    use crate::{certificates::authority, clock::wall_clock};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn material(path: &Path, names: &[String], now: Timestamp) -> TlsMaterial {
        let authority = Authority::open(Some(path), now).unwrap();
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
        assert_eq!(other.authority_pem, first.authority_pem);

        let later = now + LIFE;
        let renewed = material(path, &names(&["example.org"]), later);
        assert_ne!(renewed.server.certificate, other.server.certificate);
        assert_eq!(renewed.authority_pem, first.authority_pem);

        let much_later = material(path, &names(&[]), now + authority::LIFE);
        assert_ne!(much_later.authority_pem, first.authority_pem);
        assert!(much_later.server_config(wall_clock()).is_ok());
    }
}

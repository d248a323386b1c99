//! The server's own certificate authority, and the certificate it serves with.

use std::{io, path::Path};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde::{Deserialize, Serialize};

use crate::auth::{read_private, write_private};

/// How long an authority and a certificate are good for.
const AUTHORITY_LIFE: SignedDuration = SignedDuration::from_hours(24 * 3650);
const CERTIFICATE_LIFE: SignedDuration = SignedDuration::from_hours(24 * 365);
/// What is good for less than this is made anew.
const RENEW_BEFORE: SignedDuration = SignedDuration::from_hours(24 * 30);
/// Certificates begin a day early, for clients whose clocks are behind.
const SKEW: SignedDuration = SignedDuration::from_hours(24);

const AUTHORITY_NAME: &str = "embedded API server authority";
const SERVER_NAME: &str = "embedded API server";
/// The names every certificate is good for.
const OWN_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The files could not be read or written.
    #[error("cannot keep certificates in the data directory")]
    Files(#[from] io::Error),
    /// A certificate could not be made: usually a name that is none.
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    /// The TLS library refuses what was made.
    #[error("cannot serve with the certificate")]
    Tls(#[from] rustls::Error),
    /// A file does not hold what was written to it.
    #[error("{file} in the data directory is damaged; remove it to have a new one made")]
    Damaged {
        /// The file.
        file: &'static str,
    },
}

impl PkiError {
    pub(super) fn into_io(self) -> io::Error {
        io::Error::other(self)
    }
}

/// A certificate with its key, as it is kept.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    certificate: String,
    key: String,
    expires: Timestamp,
    /// The names it is good for; none for an authority.
    names: Vec<String>,
    /// The certificate that signed it; none for an authority.
    signed_by: Option<String>,
}

/// What a listener needs to serve TLS.
#[derive(Clone)]
pub struct TlsMaterial {
    server: Kept,
    authority_pem: String,
}

impl std::fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsMaterial").field("names", &self.server.names).finish_non_exhaustive()
    }
}

impl TlsMaterial {
    /// The certificate of the authority, as PEM: what clients must trust.
    pub fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    pub(super) fn server_config(&self) -> Result<ServerConfig, PkiError> {
        let damaged = |_| PkiError::Damaged { file: SERVER_FILE };
        let certificate =
            CertificateDer::from_pem_slice(self.server.certificate.as_bytes()).map_err(damaged)?;
        let key = PrivateKeyDer::from_pem_slice(self.server.key.as_bytes()).map_err(damaged)?;
        let provider = rustls::crypto::ring::default_provider();
        let mut config = ServerConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

const AUTHORITY_FILE: &str = "authority.json";
const SERVER_FILE: &str = "server.json";

/// The kept material if it is still good, else new.
pub(super) fn material(
    directory: Option<&Path>,
    names: &[String],
    now: Timestamp,
) -> Result<TlsMaterial, PkiError> {
    let mut names: Vec<String> =
        OWN_NAMES.iter().map(|&name| name.to_owned()).chain(names.iter().cloned()).collect();
    names.sort();
    names.dedup();
    let authority = match read(directory, AUTHORITY_FILE)?.filter(|kept| fresh(kept, now)) {
        Some(kept) => kept,
        None => write(directory, AUTHORITY_FILE, new_authority(now)?)?,
    };
    let usable = |kept: &Kept| {
        fresh(kept, now)
            && kept.names == names
            && kept.signed_by.as_ref() == Some(&authority.certificate)
    };
    let server = match read(directory, SERVER_FILE)?.filter(usable) {
        Some(kept) => kept,
        None => write(directory, SERVER_FILE, new_certificate(&authority, names, now)?)?,
    };
    Ok(TlsMaterial { server, authority_pem: authority.certificate })
}

fn fresh(kept: &Kept, now: Timestamp) -> bool {
    kept.expires.duration_since(now) > RENEW_BEFORE
}

fn read(directory: Option<&Path>, file: &'static str) -> Result<Option<Kept>, PkiError> {
    let Some(directory) = directory else { return Ok(None) };
    let Some(text) = read_private(&directory.join(file))? else { return Ok(None) };
    serde_json::from_str(&text).map(Some).map_err(|_| PkiError::Damaged { file })
}

fn write(directory: Option<&Path>, file: &'static str, kept: Kept) -> Result<Kept, PkiError> {
    if let Some(directory) = directory {
        let text = serde_json::to_string_pretty(&kept).map_err(io::Error::from)?;
        write_private(&directory.join(file), &text)?;
    }
    Ok(kept)
}

fn authority_params(now: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    valid_for(&mut params, now, AUTHORITY_LIFE);
    params
}

fn new_authority(now: Timestamp) -> Result<Kept, PkiError> {
    let key = KeyPair::generate()?;
    let certificate = authority_params(now).self_signed(&key)?.pem();
    let key = key.serialize_pem();
    let expires = now + AUTHORITY_LIFE;
    Ok(Kept { certificate, key, expires, names: Vec::new(), signed_by: None })
}

fn new_certificate(authority: &Kept, names: Vec<String>, now: Timestamp) -> Result<Kept, PkiError> {
    let issuer = Issuer::new(authority_params(now), KeyPair::from_pem(&authority.key)?);
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names.clone())?;
    params.distinguished_name.push(DnType::CommonName, SERVER_NAME);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    valid_for(&mut params, now, CERTIFICATE_LIFE);
    let certificate = params.signed_by(&key, &issuer)?.pem();
    Ok(Kept {
        certificate,
        key: key.serialize_pem(),
        expires: now + CERTIFICATE_LIFE,
        names,
        signed_by: Some(authority.certificate.clone()),
    })
}

/// Certificates are dated by days.
fn valid_for(params: &mut CertificateParams, now: Timestamp, life: SignedDuration) {
    let date = |at: Timestamp| {
        let at = at.to_zoned(TimeZone::UTC);
        let (month, day) = (at.month().unsigned_abs(), at.day().unsigned_abs());
        rcgen::date_time_ymd(i32::from(at.year()), month, day)
    };
    (params.not_before, params.not_after) = (date(now - SKEW), date(now + life));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn certificates_are_kept_until_they_expire_or_the_names_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = Some(directory.path());
        let now = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 50);
        let first = material(path, &names(&["10.0.0.1"]), now).unwrap();
        let again = material(path, &names(&["10.0.0.1"]), now).unwrap();
        assert_eq!(first.server.certificate, again.server.certificate);

        let other = material(path, &names(&["example.org"]), now).unwrap();
        assert_ne!(other.server.certificate, first.server.certificate);
        assert_eq!(other.authority_pem, first.authority_pem);

        let later = now + CERTIFICATE_LIFE;
        let renewed = material(path, &names(&["example.org"]), later).unwrap();
        assert_ne!(renewed.server.certificate, other.server.certificate);
        assert_eq!(renewed.authority_pem, first.authority_pem);

        let much_later = material(path, &names(&[]), now + AUTHORITY_LIFE).unwrap();
        assert_ne!(much_later.authority_pem, first.authority_pem);
        assert!(much_later.server_config().is_ok());
    }
}

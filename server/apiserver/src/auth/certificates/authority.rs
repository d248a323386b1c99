//! The server's own certificate authority.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};

use rustls::RootCertStore;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use x509_parser::parse_x509_certificate;

use super::kept::{Kept, PkiError, parse, read, valid, write};

/// How long an authority is good for.
pub(super) const LIFE: SignedDuration = SignedDuration::from_hours(24 * 3650);
/// Certificates begin a day early, for clients whose clocks are behind.
pub(super) const SKEW: SignedDuration = SignedDuration::from_hours(24);

const NAME: &str = "embedded API server authority";
const FILE: &str = "authority.json";

/// The authority that signs the certificates of the server and its clients.
pub(crate) struct Authority {
    kept: Kept,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("expires", &self.kept.expires).finish_non_exhaustive()
    }
}

impl Authority {
    /// The authority kept in `directory` if it is still good, else a new one. Without a directory
    /// it lives as long as the process.
    pub(crate) fn open(directory: Option<&Path>, now: Timestamp) -> Result<Self, PkiError> {
        match read(directory, FILE)? {
            Some(kept) if kept.is_fresh(now) => Self::of(kept),
            // Also in place of an unusable authority: nobody could trust certificates that it signed.
            Some(_) | None => Ok(Self { kept: write(directory, FILE, new(now)?)? }),
        }
    }

    /// Parses the file of an authority, to try it.
    pub(crate) fn read(text: &str) -> Result<Self, PkiError> {
        Self::of(parse(FILE, text)?)
    }

    /// An authority that was kept, if certificate and key can be used and belong together.
    fn of(kept: Kept) -> Result<Self, PkiError> {
        let damaged = || PkiError::Damaged { file: FILE };
        let key = KeyPair::from_pem(&kept.key).map_err(|_| damaged())?;
        let certificate = CertificateDer::from_pem_slice(kept.certificate.as_bytes());
        let certificate = certificate.map_err(|_| damaged())?;
        let (_, read) = parse_x509_certificate(&certificate).map_err(|_| damaged())?;
        if read.public_key().raw != key.subject_public_key_info() || !read.is_ca() {
            return Err(damaged());
        }
        RootCertStore::empty().add(certificate.clone()).map_err(|_| damaged())?;
        Ok(Self { kept })
    }

    /// The certificate, as PEM: what clients must trust.
    pub(crate) fn pem(&self) -> &str {
        &self.kept.certificate
    }

    /// When the authority's certificate expires. No signed certificate is valid for longer.
    pub(super) fn expires(&self) -> Timestamp {
        self.kept.expires
    }

    /// Signs a certificate for a key, as PEM.
    pub(super) fn sign(
        &self,
        mut params: CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<String, PkiError> {
        let issuer = Issuer::new(params_of(), KeyPair::from_pem(&self.kept.key)?);
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(key, &issuer)?.pem())
    }
}

fn params_of() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    params
}

fn new(now: Timestamp) -> Result<Kept, PkiError> {
    let key = KeyPair::generate()?;
    let expires = now + LIFE;
    let mut params = params_of();
    valid(&mut params, now - SKEW, expires);
    let certificate = params.self_signed(&key)?.pem();
    let key = key.serialize_pem();
    Ok(Kept { certificate, key, expires, names: Vec::new(), signed_by: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_whose_certificate_and_key_do_not_belong_together_is_refused() {
        let now = Timestamp::UNIX_EPOCH;
        let (good, other) = (new(now).unwrap(), new(now).unwrap());
        let read = |kept: &Kept| Authority::read(&serde_json::to_string(kept).unwrap());
        assert!(read(&good).is_ok());
        let nothing = "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n".to_owned();
        for bad in [
            Kept { key: other.key, ..good.clone() },
            Kept { key: nothing, ..good.clone() },
            Kept { certificate: good.key.clone(), ..good.clone() },
            Kept { certificate: String::new(), ..good },
        ] {
            let refused = read(&bad).unwrap_err().to_string();
            assert!(refused.contains("authority.json"), "{refused}");
        }
    }
}

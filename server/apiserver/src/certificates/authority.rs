//! The server's own certificate authority.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PublicKeyData,
};

use super::kept::{Kept, PkiError, read, valid, write};

/// How long an authority is good for.
pub(super) const LIFE: SignedDuration = SignedDuration::from_hours(24 * 3650);
/// Certificates begin a day early, for clients whose clocks are behind.
pub(super) const SKEW: SignedDuration = SignedDuration::from_hours(24);

const NAME: &str = "embedded API server authority";
const FILE: &str = "authority.json";

/// The authority that signs the server's certificate and those of its clients.
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
        let kept = match read(directory, FILE)?.filter(|kept| kept.is_fresh(now)) {
            Some(kept) => kept,
            None => write(directory, FILE, new(now)?)?,
        };
        Ok(Self { kept })
    }

    /// The certificate, as PEM: what clients must trust.
    pub(crate) fn pem(&self) -> &str {
        &self.kept.certificate
    }

    /// When the authority ends. Nothing that it signs is good for longer.
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

//! The identity behind a client certificate.

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use crate::kinds::{certificate::request::text, identity::Identity};

/// A client certificate that the TLS library has verified: its holder, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    identity: Identity,
    begins: Timestamp,
    expires: Timestamp,
}

impl ClientCertificate {
    /// Reads a certificate: the user is its common name, the groups its organizations. None if it
    /// names no user.
    pub(crate) fn read(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = X509Certificate::from_der(der).ok()?;
        let subject = parsed.subject();
        let username =
            subject.iter_common_name().last().map(text).filter(|name| !name.is_empty())?;
        let groups: Vec<String> = subject.iter_organization().map(text).collect();
        let mut identity = Identity::user(&username, groups);
        let id = format!("X509SHA256={}", hex::encode(Sha256::digest(der)));
        identity.extra.insert("authentication.kubernetes.io/credential-id".to_owned(), vec![id]);
        let validity = parsed.validity();
        let begins = Timestamp::from_second(validity.not_before.timestamp()).ok()?;
        let expires = Timestamp::from_second(validity.not_after.timestamp()).ok()?;
        Some(Self { identity, begins, expires })
    }

    /// Its holder, while it is valid: a connection may live longer than the certificate.
    pub(crate) fn identity(&self, now: Timestamp) -> Option<&Identity> {
        (self.begins <= now && now < self.expires).then_some(&self.identity)
    }

    /// When it ends.
    pub(crate) fn expires(&self) -> Timestamp {
        self.expires
    }
}

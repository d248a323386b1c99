//! The owner and the lifetime of a certificate. Pure.

use jiff::{SignedDuration, Timestamp};
use rcgen::{KeyPair, PublicKeyData as _};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::user;

/// The relevant fields of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Certificate {
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

/// Why a certificate is of no use to this node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadCertificate {
    #[error("the certificate or its key cannot be read")]
    Unreadable,
    #[error("the certificate is for {0}, not for this node")]
    Other(String),
    #[error("the certificate is for another key")]
    Key,
}

/// Checks that the first certificate in `chain` is for `node` and its key, both PEM.
pub(crate) fn inspect(chain: &str, key: &str, node: &str) -> Result<Certificate, BadCertificate> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(chain.as_bytes())
        .map_err(|_| BadCertificate::Unreadable)?;
    let (_, parsed) =
        X509Certificate::from_der(&pem.contents).map_err(|_| BadCertificate::Unreadable)?;
    let pair = KeyPair::from_pem(key).map_err(|_| BadCertificate::Unreadable)?;
    if parsed.public_key().subject_public_key.data.as_ref() != pair.der_bytes() {
        return Err(BadCertificate::Key);
    }
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    if name != Some(user(node).as_str()) {
        return Err(BadCertificate::Other(name.unwrap_or("no user").to_owned()));
    }
    let at = |time: x509_parser::time::ASN1Time| {
        Timestamp::from_second(time.timestamp()).map_err(|_| BadCertificate::Unreadable)
    };
    let validity = parsed.validity();
    Ok(Certificate { not_before: at(validity.not_before)?, not_after: at(validity.not_after)? })
}

impl Certificate {
    /// When to ask for the next: after 70 to 90 % of its life, as kubelets do, so that nodes that joined
    /// together do not all ask at the same time. `spread` is any number that differs between nodes.
    pub(crate) fn renew_at(&self, spread: u8) -> Timestamp {
        let life = self.not_after.duration_since(self.not_before).as_secs().max(0);
        let thousandths = 700 + i64::from(spread) * 200 / 255;
        let wait =
            SignedDuration::from_secs(life / 1000 * thousandths + life % 1000 * thousandths / 1000);
        self.not_before.checked_add(wait).unwrap_or(self.not_before)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use rcgen::{CertificateParams, DnType};

    use super::*;

    /// A certificate of 2026 for the user, signed by itself, and its key.
    pub(crate) fn signed(user: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2027, 1, 1);
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn a_certificate_must_be_for_this_node_and_its_key() {
        let (chain, key) = signed("system:node:a");
        let found = inspect(&chain, &key, "a").unwrap();
        assert_eq!(found.not_before.to_string(), "2026-01-01T00:00:00Z");
        assert_eq!(found.not_after.to_string(), "2027-01-01T00:00:00Z");
        let other = BadCertificate::Other("system:node:a".to_owned());
        assert_eq!(inspect(&chain, &key, "b"), Err(other));
        let (_, another_key) = signed("system:node:a");
        assert_eq!(inspect(&chain, &another_key, "a"), Err(BadCertificate::Key));
        assert_eq!(inspect("", &key, "a"), Err(BadCertificate::Unreadable));
        assert_eq!(inspect(&chain, "", "a"), Err(BadCertificate::Unreadable));
    }

    #[test]
    fn it_is_renewed_between_seventy_and_ninety_percent_of_its_life() {
        let not_before: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let life = |seconds| Certificate {
            not_before,
            not_after: not_before + SignedDuration::from_secs(seconds),
        };
        let after =
            |seconds, spread| life(seconds).renew_at(spread).duration_since(not_before).as_secs();
        assert_eq!(after(10_000, 0), 7000);
        assert_eq!(after(10_000, 255), 9000);
        assert_eq!(after(600, 0), 420);
        assert_eq!(after(-5, 0), 0);
    }
}

//! Reads a certificate: identity and end of validity.

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::PeerCertificate;

/// Longest identity that counts; SPIFFE's own limit.
const IDENTITY_BYTES: usize = 2048;

/// The identity in a verified client certificate: its SPIFFE id, else its first DNS name, else,
/// without any alternative name, its common name. `None` if it has no name, or more than one SPIFFE
/// id.
pub(super) fn peer(der: &[u8]) -> Option<PeerCertificate> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let identity = match certificate.subject_alternative_name().ok()? {
        Some(names) => by_alternative_name(&names.value.general_names)?,
        None => plain(certificate.subject().iter_common_name().next()?.as_str().ok()?)?,
    };
    let plausible = !identity.is_empty()
        && identity.len() <= IDENTITY_BYTES
        && identity.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    plausible.then(|| PeerCertificate {
        identity: identity.to_owned(),
        not_after: certificate.validity().not_after.timestamp(),
    })
}

fn by_alternative_name<'a>(names: &[GeneralName<'a>]) -> Option<&'a str> {
    let spiffe = |name: &GeneralName<'a>| {
        if let GeneralName::URI(uri) = name { Some(*uri) } else { None }
            .filter(|uri| uri.starts_with("spiffe://"))
    };
    let dns = |name: &GeneralName<'a>| {
        if let GeneralName::DNSName(name) = name { Some(*name) } else { None }
    };
    let mut ids = names.iter().filter_map(spiffe);
    match (ids.next(), ids.next()) {
        (Some(id), None) => Some(id),
        (Some(_), Some(_)) => None,
        (None, _) => plain(names.iter().find_map(dns)?),
    }
}

/// A name of another kind that does not pose as a URI.
fn plain(name: &str) -> Option<&str> {
    (!name.contains("://")).then_some(name)
}

/// When a certificate starts and ends, in seconds since 1970.
pub(super) fn validity(der: &[u8]) -> Option<(i64, i64)> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let validity = certificate.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    /// Kinds and names.
    type Names<'a> = &'a [(&'a str, &'a str)];

    /// The identity read from a certificate with these names.
    fn identity(names: Names<'_>) -> Option<String> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in names {
            let text = || name.1.try_into().expect("ASCII");
            match name.0 {
                "uri" => params.subject_alt_names.push(SanType::URI(text())),
                "dns" => params.subject_alt_names.push(SanType::DnsName(text())),
                _ => params.distinguished_name.push(DnType::CommonName, name.1),
            }
        }
        let certificate = params.self_signed(&KeyPair::generate().expect("a key"));
        peer(certificate.expect("a certificate").der()).map(|peer| peer.identity)
    }

    #[test]
    fn a_certificate_speaks_for_its_strongest_name() {
        let cases: [(Names<'_>, Option<&str>); 9] = [
            (
                &[("cn", "a"), ("dns", "b.example.com"), ("uri", "spiffe://td/driver/c")],
                Some("spiffe://td/driver/c"),
            ),
            (
                &[("cn", "a"), ("uri", "https://x"), ("dns", "b.example.com"), ("dns", "c")],
                Some("b.example.com"),
            ),
            (&[("cn", "a")], Some("a")),
            (&[("cn", "a"), ("uri", "https://x")], None),
            (&[("cn", "a"), ("uri", "spiffe://td/b"), ("uri", "spiffe://td/c")], None),
            (&[("dns", "spiffe://td/driver")], None),
            (&[("cn", "a\u{0}b")], None),
            (&[("cn", "")], None),
            (&[], None),
        ];
        for (names, expected) in cases {
            assert_eq!(identity(names).as_deref(), expected, "{names:?}");
        }
    }

    #[test]
    fn a_common_name_cannot_pose_as_a_spiffe_id() {
        assert_eq!(identity(&[("cn", "spiffe://td/driver/a")]), None);
    }

    #[test]
    fn what_is_no_certificate_speaks_for_nobody() {
        assert_eq!(peer(b"nonsense"), None);
        assert_eq!(validity(&[]), None);
    }
}

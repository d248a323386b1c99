//! Explains a TLS failure, with the remedy.

use std::error::Error;
use std::io;

use rustls::CertificateError;

/// What is wrong, if `error` or one of its causes is a failure of TLS that has a usual remedy. For
/// people only: nothing is decided by it.
pub(crate) fn of(error: &(dyn Error + 'static)) -> Option<&'static str> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(remedy) = tls(error).and_then(remedy).or_else(|| alert(&error.to_string())) {
            return Some(remedy);
        }
        next = error.source();
    }
    None
}

/// An alert of the peer that came after the handshake: HTTP/2 keeps no more of it than its text.
fn alert(text: &str) -> Option<&'static str> {
    let (_, name) = text.split_once("received fatal alert: ")?;
    match name.split(|c: char| !c.is_ascii_alphanumeric()).next()? {
        "UnknownCA" | "CertificateUnknown" | "BadCertificate" | "DecryptError" => Some(
            "the core does not accept the certificate in --cert-file; is it from the CA that the core trusts?",
        ),
        "CertificateExpired" => Some("the certificate in --cert-file is over; renew it"),
        "NoApplicationProtocol" => Some("what listens there does not speak gRPC (no HTTP/2)"),
        _ => None,
    }
}

/// TLS hides its errors inside those of input and output.
fn tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.downcast_ref().or_else(|| inner?.downcast_ref())
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the usual ones; others speak for themselves")]
fn remedy(error: &rustls::Error) -> Option<&'static str> {
    use rustls::Error::{InvalidCertificate, InvalidMessage};
    match error {
        InvalidCertificate(certificate) => match certificate {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Some("the certificate there does not come from the CA in --ca-file")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Some("the certificate there is for another name; dial a name that it has")
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                Some("the certificate there is over; it must be renewed, or a clock is wrong")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Some("the certificate there is not valid yet; a clock is wrong")
            }
            _ => None,
        },
        InvalidMessage(_) => Some(
            "what listens there speaks no TLS; dial it with http:// if it is on this host, or look for another port",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_found_under_other_errors() {
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        let wrapped = io::Error::other(expired);
        assert!(of(&wrapped).unwrap().contains("is over"));
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired);
        let text = io::Error::other(format!("connection error: {alert}"));
        assert!(of(&text).unwrap().contains("--cert-file"));
        assert_eq!(of(&io::Error::other("plain")), None);
    }
}

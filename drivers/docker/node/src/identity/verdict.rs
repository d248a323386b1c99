//! The state of a signing request. Pure.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

/// The state of a signing request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// There is no decision yet, or the certificate is not there yet.
    Waiting,
    /// The certificate, in PEM.
    Signed(String),
    /// It will never be signed; why.
    Refused(String),
    /// An object of this name asks for something else.
    Foreign,
}

/// Judges the object that was made for `request` (PEM).
pub(super) fn judge(object: &CertificateSigningRequest, request: &[u8]) -> Verdict {
    if object.spec.request.0 != request {
        return Verdict::Foreign;
    }
    let Some(status) = &object.status else { return Verdict::Waiting };
    let says = |kind: &str| {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        conditions.iter().find(|condition| condition.type_ == kind && condition.status == "True")
    };
    for kind in ["Denied", "Failed"] {
        if let Some(condition) = says(kind) {
            let reason = condition.reason.as_deref().unwrap_or("no reason");
            let message = condition.message.as_deref().unwrap_or("no message");
            return Verdict::Refused(format!("{kind} ({reason}): {message}"));
        }
    }
    let certificate = status.certificate.as_ref().filter(|bytes| !bytes.0.is_empty());
    match (says("Approved"), certificate) {
        (Some(_), Some(bytes)) => match String::from_utf8(bytes.0.clone()) {
            Ok(pem) => Verdict::Signed(pem),
            Err(_) => Verdict::Refused("the certificate is no text".to_owned()),
        },
        (None, _) | (_, None) => Verdict::Waiting,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn object(conditions: &[&str], certificate: Option<&[u8]>) -> CertificateSigningRequest {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|kind| json!({"type": kind, "status": "True", "reason": "r", "message": "m"}))
            .collect();
        let mut object: CertificateSigningRequest = serde_json::from_value(json!({
            "metadata": {}, "spec": {"request": "", "signerName": ""},
            "status": {"conditions": conditions},
        }))
        .unwrap();
        object.spec.request = ByteString(b"ours".to_vec());
        if let Some(status) = &mut object.status {
            status.certificate = certificate.map(|bytes| ByteString(bytes.to_vec()));
        }
        object
    }

    /// Conditions, certificate, verdict.
    type Case = (&'static [&'static str], Option<&'static [u8]>, Verdict);

    #[test]
    fn a_certificate_counts_when_it_was_approved_and_a_refusal_always() {
        let refused = |kind: &str| Verdict::Refused(format!("{kind} (r): m"));
        let cases: [Case; 8] = [
            (&[], None, Verdict::Waiting),
            (&["Approved"], None, Verdict::Waiting),
            (&["Approved"], Some(b""), Verdict::Waiting),
            (&[], Some(b"pem"), Verdict::Waiting),
            (&["Approved"], Some(b"pem"), Verdict::Signed("pem".to_owned())),
            (&["Denied"], None, refused("Denied")),
            (&["Approved", "Failed"], None, refused("Failed")),
            (&["Approved", "Denied"], Some(b"pem"), refused("Denied")),
        ];
        for (conditions, certificate, expected) in cases {
            let found = judge(&object(conditions, certificate), b"ours");
            assert_eq!(found, expected, "{conditions:?} {certificate:?}");
        }
    }

    #[test]
    fn a_request_of_somebody_else_is_not_ours_whatever_became_of_it() {
        let object = object(&["Approved"], Some(b"pem"));
        assert_eq!(judge(&object, b"other"), Verdict::Foreign);
        let fresh = CertificateSigningRequest { status: None, ..object };
        assert_eq!(judge(&fresh, b"ours"), Verdict::Waiting);
    }
}

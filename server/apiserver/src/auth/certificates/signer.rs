//! A client certificate for a request that was approved.

use jiff::{SignedDuration, Timestamp};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyUsagePurpose};

use super::{
    Authority,
    kept::{PkiError, valid},
};
use crate::kinds::certificate::{Request, request::KeyError};

/// How long a certificate is good for if the request does not say, and at most. Nothing takes it
/// back, not even the end of its Node: this is how long a stolen one is of use. Kubelets ask for the
/// next one after 70 to 90 % of it.
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 30);
/// How long it is good for at least.
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);
/// Certificates begin that much early, for servers whose clocks are behind.
const SKEW: SignedDuration = SignedDuration::from_mins(5);

/// Why a request was not signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SignError {
    /// The request's own fault.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The authority's.
    #[error(transparent)]
    Authority(#[from] PkiError),
}

/// Signs a request for client authentication: the certificate as PEM. Of the request only the
/// common name, the organizations and the key are taken over.
///
/// # Errors
/// The request is not signed with its own key, or the key is of a sort that is not supported.
pub(crate) fn sign(
    authority: &Authority,
    request: &Request,
    seconds: Option<i64>,
    now: Timestamp,
) -> Result<String, SignError> {
    let key = request.key()?;
    let mut params = CertificateParams::default();
    for organization in &request.organizations {
        params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
    }
    params.distinguished_name.push(DnType::CommonName, request.common_name.as_str());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let life = lifetime(seconds);
    valid(&mut params, now - SKEW, (now + life).min(authority.expires()));
    Ok(authority.sign(params, &key)?)
}

fn lifetime(seconds: Option<i64>) -> SignedDuration {
    seconds.map_or(LONGEST, |seconds| SignedDuration::from_secs(seconds).clamp(SHORTEST, LONGEST))
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;
    use rustls_pki_types::{CertificateDer, pem::PemObject};

    use super::*;
    use crate::auth::certificates::ClientCertificate;

    #[test]
    fn a_certificate_names_its_holder_and_lives_as_long_as_asked_within_bounds() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let authority = Authority::open(None, now).unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        params.distinguished_name.push(DnType::CommonName, "system:node:n1");
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        let request = Request::parse(request.pem().unwrap().as_bytes()).unwrap();
        for (asked, seconds) in
            [(None, 30 * 86400), (Some(3600), 3600), (Some(1), 600), (Some(1 << 31), 30 * 86400)]
        {
            let pem = sign(&authority, &request, asked, now).unwrap();
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
            let client = ClientCertificate::read(&der).unwrap();
            assert_eq!(client.expires(), now + SignedDuration::from_secs(seconds), "{asked:?}");
            assert!(client.identity(now).is_some() && client.identity(client.expires()).is_none());
            let identity = client.identity(now).unwrap();
            assert_eq!(identity.username, "system:node:n1");
            assert_eq!(identity.groups, ["system:nodes", "system:authenticated"]);
        }
    }
}

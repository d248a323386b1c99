//! The signing request of a node. Pure, but for the random key.

use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use sha2::{Digest as _, Sha256};

use super::{GROUP, user};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Of a key on an elliptic curve; one for RSA would name key encipherment, too.
const USAGES: [&str; 2] = ["digital signature", "client auth"];
const KEY_END: &str = "-----END PRIVATE KEY-----";

/// A key and the request for it, kept until the certificate is there.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Pending {
    key: String,
    request: String,
    name: String,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending({})", self.name)
    }
}

impl Pending {
    /// A new key, and a request for the node.
    pub(super) fn new(node: &str) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, GROUP);
        params.distinguished_name.push(DnType::CommonName, user(node));
        let request = params.serialize_request(&key)?.pem()?;
        Ok(Self { name: name(&key), key: key.serialize_pem(), request })
    }

    /// Parses the text of [`Self::as_pem`]; `None`: another format.
    pub(super) fn from_pem(text: &str) -> Option<Self> {
        let (key, request) = text.split_at(text.find(KEY_END)? + KEY_END.len());
        let request = request.trim_start();
        if !request.contains("-----END CERTIFICATE REQUEST-----") {
            return None;
        }
        let pair = KeyPair::from_pem(key).ok()?;
        Some(Self { name: name(&pair), key: format!("{key}\n"), request: request.to_owned() })
    }

    /// Key and request, for a file.
    pub(super) fn as_pem(&self) -> String {
        format!("{}\n{}", self.key.trim_end(), self.request)
    }

    /// The name of the request: of the key, so that a restarted node finds it again.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The key, in PEM.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The request, in PEM.
    pub(super) fn request(&self) -> &[u8] {
        self.request.as_bytes()
    }

    /// The object that asks for the certificate.
    pub(super) fn object(&self) -> CertificateSigningRequest {
        CertificateSigningRequest {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: CertificateSigningRequestSpec {
                request: ByteString(self.request().to_vec()),
                signer_name: SIGNER.to_owned(),
                usages: Some(USAGES.map(str::to_owned).to_vec()),
                ..CertificateSigningRequestSpec::default()
            },
            status: None,
        }
    }
}

fn name(key: &KeyPair) -> String {
    let digest = Sha256::digest(key.der_bytes());
    format!("node-csr-{:.40}", hex::encode(digest))
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

    use super::*;

    #[test]
    fn the_request_is_what_the_signer_of_kubelets_takes() {
        let pending = Pending::new("worker-1").unwrap();
        let object = pending.object();
        assert_eq!(object.spec.signer_name, "kubernetes.io/kube-apiserver-client-kubelet");
        assert_eq!(object.spec.usages.unwrap(), ["digital signature", "client auth"]);
        assert!(object.metadata.name.unwrap().starts_with("node-csr-"));
        let (_, pem) = x509_parser::pem::parse_x509_pem(&object.spec.request.0).unwrap();
        let (_, request) = X509CertificationRequest::from_der(&pem.contents).unwrap();
        let subject = &request.certification_request_info.subject;
        let names: Vec<_> = subject
            .iter_organization()
            .chain(subject.iter_common_name())
            .map(|name| name.as_str().unwrap())
            .collect();
        assert_eq!(names, ["system:nodes", "system:node:worker-1"]);
        assert_eq!(subject.iter_rdn().count(), 2);
    }

    #[test]
    fn what_is_kept_is_read_again_and_finds_the_same_request() {
        let pending = Pending::new("worker-1").unwrap();
        let again = Pending::from_pem(&pending.as_pem()).unwrap();
        assert_eq!(again, pending);
        assert_ne!(Pending::new("worker-1").unwrap().name(), pending.name());
        let half = pending.as_pem().replace("REQUEST", "");
        for other in ["", "-----END PRIVATE KEY-----", half.as_str()] {
            assert_eq!(Pending::from_pem(other), None);
        }
    }

    #[test]
    fn debug_never_shows_the_key() {
        assert!(!format!("{:?}", Pending::new("n").unwrap()).contains("PRIVATE"));
    }
}

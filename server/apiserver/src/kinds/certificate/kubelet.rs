//! The requests that the signer `kubernetes.io/kube-apiserver-client-kubelet` signs.

use std::collections::BTreeSet;

use crate::kinds::certificate::{Request, refusal::Refusal};

/// The signer.
pub(crate) const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// The group of all nodes.
pub(crate) const NODES: &str = "system:nodes";
/// The prefix of a node's user name.
pub(crate) const NODE_PREFIX: &str = "system:node:";

/// What a kubelet's certificate is for; without the key encipherment if its key is no RSA key.
const USAGES: [&str; 3] = ["client auth", "digital signature", "key encipherment"];
const OPTIONAL_USAGE: &str = "key encipherment";

/// The name of the node whose user has this name.
pub(crate) fn node_of(username: &str) -> Option<&str> {
    username.strip_prefix(NODE_PREFIX).filter(|name| !name.is_empty())
}

/// Whether the signer may sign a request for these usages.
///
/// # Errors
/// It may not: the first reason, in the order in which Kubernetes looks.
pub(crate) fn check(request: &Request, usages: &[&str]) -> Result<(), Refusal> {
    if request.organizations != [NODES] {
        return Err(Refusal::Organization);
    }
    if let Some(refusal) = request.alternatives.first() {
        return Err(refusal.clone());
    }
    if node_of(&request.common_name).is_none() {
        return Err(Refusal::CommonName);
    }
    let mut wanted: BTreeSet<&str> = usages.iter().copied().collect();
    wanted.insert(OPTIONAL_USAGE);
    if wanted != BTreeSet::from(USAGES) {
        return Err(Refusal::Usages);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, DnValue, KeyPair, SanType};

    use super::*;

    fn request(names: &[(DnType, &str)], alternatives: &[SanType]) -> Request {
        let mut params = CertificateParams::default();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), DnValue::Utf8String((*name).to_owned()));
        }
        params.subject_alt_names = alternatives.to_vec();
        let key = KeyPair::generate().unwrap();
        Request::parse(params.serialize_request(&key).unwrap().pem().unwrap().as_bytes()).unwrap()
    }

    #[test]
    fn only_a_plain_request_of_a_node_is_signed() {
        let (cn, o) = (DnType::CommonName, DnType::OrganizationName);
        let node = [(o.clone(), NODES), (cn.clone(), "system:node:n1")];
        let usual: &[&str] = &["digital signature", "client auth"];
        let dns = || vec![SanType::DnsName("n1".try_into().unwrap())];
        let email = || vec![SanType::Rfc822Name("a@b".try_into().unwrap())];
        let ip = || vec![SanType::IpAddress([10, 0, 0, 1].into())];
        let uri = || vec![SanType::URI("spiffe://n1".try_into().unwrap())];
        for (names, alternatives, usages, expected) in [
            (&node[..], vec![], usual, Ok(())),
            (&node, vec![], &USAGES, Ok(())),
            (&node, vec![], &["client auth", "client auth", "digital signature"], Ok(())),
            (&node[1..], vec![], usual, Err(Refusal::Organization)),
            (
                &[(o.clone(), "system:masters"), (cn.clone(), "system:node:n1")],
                vec![],
                usual,
                Err(Refusal::Organization),
            ),
            (&node[..1], vec![], usual, Err(Refusal::CommonName)),
            (
                &[(o.clone(), NODES), (cn.clone(), "system:node:")],
                vec![],
                usual,
                Err(Refusal::CommonName),
            ),
            (
                &[(o.clone(), NODES), (cn.clone(), "system:admin")],
                vec![],
                usual,
                Err(Refusal::CommonName),
            ),
            (&node, dns(), usual, Err(Refusal::Dns)),
            (&node, email(), usual, Err(Refusal::Email)),
            (&node, ip(), usual, Err(Refusal::Ip)),
            (&node, uri(), usual, Err(Refusal::Uri)),
            (&node, vec![], &[], Err(Refusal::Usages)),
            (&node, vec![], &["client auth"], Err(Refusal::Usages)),
            (&node, vec![], &["digital signature", "server auth"], Err(Refusal::Usages)),
            (
                &node,
                vec![],
                &["client auth", "digital signature", "server auth"],
                Err(Refusal::Usages),
            ),
        ] {
            let request = request(names, &alternatives);
            assert_eq!(check(&request, usages), expected, "{names:?} {alternatives:?} {usages:?}");
        }
    }

    #[test]
    fn a_request_with_another_signature_than_its_own_has_no_key() {
        let key = KeyPair::generate().unwrap();
        let mut der =
            CertificateParams::default().serialize_request(&key).unwrap().der().as_ref().to_vec();
        let good = pem(&der);
        assert!(Request::parse(good.as_bytes()).unwrap().key().is_ok());
        // the last byte belongs to the signature
        *der.last_mut().unwrap() ^= 1;
        let touched = Request::parse(pem(&der).as_bytes()).unwrap();
        assert_eq!(touched.key().unwrap_err(), super::super::request::KeyError::Signature);
        for text in ["", "no PEM", &good.replace("CERTIFICATE REQUEST", "CERTIFICATE")] {
            assert!(Request::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    fn pem(der: &[u8]) -> String {
        use base64::{Engine, prelude::BASE64_STANDARD};
        let label = "CERTIFICATE REQUEST";
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
    }
}

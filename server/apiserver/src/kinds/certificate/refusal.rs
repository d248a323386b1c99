//! Why a request for a certificate is refused.

/// Why a request is none that the signer signs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("subject organization is not system:nodes")]
    Organization,
    #[error("DNS subjectAltNames are not allowed")]
    Dns,
    #[error("email subjectAltNames are not allowed")]
    Email,
    #[error("IP subjectAltNames are not allowed")]
    Ip,
    #[error("URI subjectAltNames are not allowed")]
    Uri,
    #[error("subjectAltNames are not allowed")]
    OtherName,
    #[error("subject common name does not begin with system:node:")]
    CommonName,
    #[error(
        "usages did not match [client auth digital signature key encipherment] or \
         [client auth digital signature]"
    )]
    Usages,
}

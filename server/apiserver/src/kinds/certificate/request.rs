//! The content of a PKCS#10 request.

use std::collections::BTreeSet;

use rcgen::SubjectPublicKeyInfo;
use rustls_pki_types::{CertificateSigningRequestDer, pem::PemObject};
use x509_parser::{
    certification_request::X509CertificationRequest,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer,
    x509::AttributeTypeAndValue,
};

use crate::kinds::certificate::refusal::Refusal;

/// Why a text is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RequestError {
    /// There is no PEM block of a request, or its text is broken.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    NoBlock,
    /// The content of the block is malformed.
    #[error("the PEM block holds no PKCS#10 certificate request")]
    Malformed,
}

/// Why a request cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyError {
    /// The requester does not hold the key that the request names.
    #[error("the certificate request is not signed with its own key")]
    Signature,
    /// A key of a sort that is not supported.
    #[error("the key of the certificate request cannot be used: {0}")]
    Unsupported(rcgen::Error),
}

/// A certificate request. Whether it is signed with its own key is not known before
/// [`Request::key`] has looked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    der: CertificateSigningRequestDer<'static>,
    /// The last common name of the subject; empty if it has none.
    pub(crate) common_name: String,
    /// The organizations of the subject.
    pub(crate) organizations: Vec<String>,
    /// Why no kubelet gets the other names that it asks for, the first reason first.
    pub(crate) alternatives: BTreeSet<Refusal>,
}

impl Request {
    /// Reads the first request of a PEM text. A request is read field by field, each to its known shape:
    /// nothing recurses over what is nested in it.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub(crate) fn parse(pem: &[u8]) -> Result<Self, RequestError> {
        let der =
            CertificateSigningRequestDer::from_pem_slice(pem).map_err(|_| RequestError::NoBlock)?;
        let (rest, parsed) =
            X509CertificationRequest::from_der(&der).map_err(|_| RequestError::Malformed)?;
        if !rest.is_empty() {
            return Err(RequestError::Malformed);
        }
        let subject = &parsed.certification_request_info.subject;
        let common_name = subject.iter_common_name().last().map(text).unwrap_or_default();
        let organizations = subject.iter_organization().map(text).collect();
        let alternatives =
            parsed.requested_extensions().into_iter().flatten().flat_map(alternatives).collect();
        Ok(Self { common_name, organizations, alternatives, der: der.clone() })
    }

    /// The public key, if the request is signed with its private one.
    ///
    /// # Errors
    /// It is not, or the key is of a sort that is not supported.
    pub(crate) fn key(&self) -> Result<SubjectPublicKeyInfo, KeyError> {
        let (_, parsed) =
            X509CertificationRequest::from_der(&self.der).map_err(|_| KeyError::Signature)?;
        parsed.verify_signature().map_err(|_| KeyError::Signature)?;
        let key = parsed.certification_request_info.subject_pki.raw;
        SubjectPublicKeyInfo::from_der(key).map_err(KeyError::Unsupported)
    }
}

/// A part of a name; one that is no text becomes the replacement character, which no rule accepts.
pub(crate) fn text(attribute: &AttributeTypeAndValue<'_>) -> String {
    attribute.as_str().unwrap_or("\u{fffd}").to_owned()
}

fn alternatives(extension: &ParsedExtension<'_>) -> Vec<Refusal> {
    let ParsedExtension::SubjectAlternativeName(names) = extension else { return Vec::new() };
    let sort = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(_) => Refusal::Dns,
        GeneralName::RFC822Name(_) => Refusal::Email,
        GeneralName::IPAddress(_) => Refusal::Ip,
        GeneralName::URI(_) => Refusal::Uri,
        GeneralName::OtherName(..)
        | GeneralName::X400Address(_)
        | GeneralName::DirectoryName(_)
        | GeneralName::EDIPartyName(_)
        | GeneralName::RegisteredID(..)
        | GeneralName::Invalid(..) => Refusal::OtherName,
    };
    names.general_names.iter().map(sort).collect()
}

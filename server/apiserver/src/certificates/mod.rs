//! Certificates: those the server shows, and those by which clients show who they are.
//!
//! * `authority`: the server's own authority, which signs all of them.
//! * `server`: the certificate that the listeners serve with.
//! * `request`: what stands in a PKCS#10 request.
//! * `refusal`: why a request is refused.
//! * `kubelet`: which requests the signer `kubernetes.io/kube-apiserver-client-kubelet` signs.
//! * `signer`: a client certificate for a request that was approved.
//! * `client`: who a connection with a client certificate is from.
//! * `kept`: the files that keys and certificates are kept in.

mod authority;
mod client;
mod kept;
pub(crate) mod kubelet;
mod refusal;
mod request;
mod server;
mod signer;

pub(crate) use authority::Authority;
pub(crate) use client::ClientCertificate;
pub use kept::PkiError;
pub(crate) use request::Request;
pub use server::TlsMaterial;
pub(crate) use signer::sign;

/// Reads a certificate request as it is sent: for the fuzz target.
#[cfg(any(feature = "fuzz", test))]
pub(crate) fn fuzz(data: &[u8]) {
    let encoded = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, data);
    let pem = format!(
        "-----BEGIN CERTIFICATE REQUEST-----\n{encoded}\n-----END CERTIFICATE REQUEST-----\n"
    );
    for text in [data, pem.as_bytes()] {
        if let Ok(request) = request::Request::parse(text) {
            request.key().ok();
        }
    }
}

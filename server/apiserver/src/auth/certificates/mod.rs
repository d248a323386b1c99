//! Certificates of the server, and client certificates, which identify clients.
//!
//! * `authority`: the server's own authority, which signs all of them.
//! * `server`: the certificate that the listeners serve with.
//! * `signer`: a client certificate for a request that was approved.
//! * `client`: who a connection with a client certificate is from.
//! * `kept`: the files that keys and certificates are kept in.

mod authority;
mod client;
mod kept;
mod server;
mod signer;

pub(crate) use authority::Authority;
pub(crate) use client::ClientCertificate;
pub use kept::PkiError;
pub use server::TlsMaterial;
pub(crate) use signer::sign;

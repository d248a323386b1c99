//! The driver contract: the `.proto` files and the code generated from them, with their `Debug`
//! and, by the feature `json`, their JSON; and [`scrub`], which keeps secrets out of texts.
//!
//! The comments of the `.proto` files are the driver author's manual.

pub mod codec;
mod faults;
#[cfg(feature = "json")]
pub mod json;
pub mod legacy;
mod mutation;
mod reason;
mod redaction;
mod scrub;
mod weight;

pub use scrub::{Scrubber, scrub, scrub_bootstrap_tokens};
pub use weight::Weight;

/// The contract, version `v1alpha1`.
#[expect(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod v1alpha1 {
    tonic::include_proto!("ostler.driver.v1alpha1");

    /// The file descriptor set of the contract, for reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/driver_descriptor.bin"));

    /// What a driver serves to its adapter, for reflection on the driver's own socket.
    pub const UNARY_FILE_DESCRIPTOR_SET: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/unary_descriptor.bin"));

    /// The contract of the stream with the debug service, for reflection on the admin listener and for tools.
    pub const ADMIN_FILE_DESCRIPTOR_SET: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/admin_descriptor.bin"));
}

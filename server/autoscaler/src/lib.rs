//! cluster-autoscaler as a client of the core: with `--cloud-provider=externalgrpc` it asks this service for groups and their
//! instances, and says how many there are to be. Decisions are in `ostler_lifecycle::autoscaler`.

mod listener;
mod node;
mod service;

pub use listener::AutoscalerListener;
pub use service::{Autoscaler, routes};

/// The messages, the service and its client.
#[expect(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod wire {
    tonic::include_proto!("clusterautoscaler.cloudprovider.v1.externalgrpc");

    /// Their description, for reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/externalgrpc.bin"));
}

//! What kubelets of ours share, the simulated ones of the fake driver and the node agent of container machines:
//! a Node is registered, its Lease renewed, its status reported, and a pod that ended is deleted.
//!
//! [`KubeletApi`] sends the requests; [`node`] has the objects. Credentials, the description of the machine in the Node
//! and the handling of pods are up to each kubelet.

mod api;
pub mod node;

pub use api::{KubeletApi, NotRegistered, RequestError};

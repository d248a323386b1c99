//! What kubelets of ours share, the simulated ones of the fake driver and the node agent of container machines:
//! a Node is registered, its Lease renewed, its status reported, and a pod that ended is deleted.
//!
//! [`KubeletApi`] sends the requests; [`node`] has the objects. How a kubelet gets its credentials, what its Node says of
//! the machine and what it does with pods is the business of each.

mod api;
pub mod node;

pub use api::{KubeletApi, NotRegistered, RequestError};

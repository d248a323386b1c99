//! The node agent of container machines: what a kubelet is to a server, as far as a container without privileges can be one.
//!
//! The agent is the first process of the container. In this order the agent
//!
//! 1. reads the user data (`user_data`): a script is executed, anything else is a bootstrap kubeconfig;
//! 2. joins by standard TLS bootstrap (`identity`) and keeps key, certificate and kubeconfig, so that a restarted container comes
//!    back as itself; the bootstrap token is deleted;
//! 3. registers its Node and keeps it alive (`node`) with what the container's limits say (`machine`);
//! 4. runs the pods bound to it (`pods`) as processes beside itself;
//! 5. at SIGTERM ends the pods with their grace, says that the Node is not ready, and ends.
//!
//! Decisions are pure functions with tables of tests; everything that touches the system or the API is thin.

mod boot;
mod client;
mod identity;
mod machine;
mod node;
mod options;
mod pods;
mod run;
mod user_data;
#[path = "../../../../proto/version.rs"]
mod version;

pub use options::{Labels, Options, Taints};
pub use run::run;

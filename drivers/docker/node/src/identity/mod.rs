//! The identity of the node: a key of its own and a certificate from the cluster.
//!
//! First by bootstrap token, later by the certificate itself, always by a CertificateSigningRequest for the signer
//! `kubernetes.io/kube-apiserver-client-kubelet`, as kubelets do it.

mod certificate;
mod join;
mod renewal;
mod request;
mod store;
mod verdict;

pub(crate) use certificate::inspect;
pub(crate) use join::{NoIdentity, obtain};
pub(crate) use renewal::{Clients, renew};
pub(crate) use store::{Identity, Store, StoreError};

/// The user name of a node.
pub(crate) fn user(node: &str) -> String {
    format!("system:node:{node}")
}

/// The group of all nodes.
pub(crate) const GROUP: &str = "system:nodes";

//! What a node may write into the objects that it may write, as the admission plugin
//! NodeRestriction of Kubernetes has it.

use serde_json::Value;

use crate::kinds::{
    BuiltIn, Resource, Subresource,
    access::{entries, flag, items, text},
    certificate::{self, Request, kubelet},
    identity::Identity,
};

use super::node;

/// A write that has not been done yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write<'a> {
    /// The resource of the object.
    pub(crate) resource: &'a Resource,
    /// The written subresource.
    pub(crate) part: Option<Subresource>,
    /// The object as it is; none if it is new.
    pub(crate) old: Option<&'a Value>,
    /// The object as it shall be.
    pub(crate) new: &'a Value,
}

/// Whether the requester may write this object. Administrators may; joining machines and nodes are restricted.
///
/// # Errors
/// They may not: the text says why.
pub(crate) fn restrict(identity: &Identity, write: Write<'_>) -> Result<(), String> {
    let Some(kind) = write.resource.built_in() else { return Ok(()) };
    let asks = kind == BuiltIn::CertificateSigningRequest && write.old.is_none();
    if asks && !identity.is_master() {
        bare_request(write.new)?;
        if let Some(node) = identity.bound_node() {
            request_of(node, write.new)?;
        }
    }
    let Some(node) = identity.node() else { return Ok(()) };
    #[expect(clippy::wildcard_enum_match_arm, reason = "nodes write nothing else")]
    match kind {
        BuiltIn::Node => node_object(node, write),
        BuiltIn::Lease | BuiltIn::CsiNode => own_name(node, write),
        BuiltIn::Pod => pod(node, write),
        BuiltIn::CertificateSigningRequest => request(node, write.new),
        _ => Ok(()),
    }
}

fn own_name(node: &str, write: Write<'_>) -> Result<(), String> {
    if text(write.new, "/metadata/name") == node {
        return Ok(());
    }
    let plural = &write.resource.plural;
    Err(format!("node {node:?} can only access {plural} of its own name"))
}

fn node_object(node: &str, write: Write<'_>) -> Result<(), String> {
    own_name(node, write)?;
    let labels = forbidden_labels(write);
    if !labels.is_empty() {
        let verb = if write.old.is_none() { "set the following labels" } else { "modify labels" };
        return Err(format!("is not allowed to {verb}: {}", labels.join(", ")));
    }
    // only the controllers that set a finalizer know when the node may go
    let finalizers = "/metadata/finalizers";
    if items(write.new, finalizers) != write.old.map_or(&[][..], |old| items(old, finalizers)) {
        return Err(format!("node {node:?} is not allowed to set or remove finalizers"));
    }
    let Some(old) = write.old else {
        if items(write.new, "/metadata/ownerReferences").is_empty() {
            return Ok(());
        }
        return Err(format!("node {node:?} is not allowed to set ownerReferences"));
    };
    // a write of the status does not write the spec, whatever it says of it
    if write.part.is_none() && items(old, "/spec/taints") != items(write.new, "/spec/taints") {
        return Err(format!("node {node:?} is not allowed to modify taints"));
    }
    let owners = "/metadata/ownerReferences";
    if items(old, owners) != items(write.new, owners) {
        return Err(format!("node {node:?} is not allowed to modify ownerReferences"));
    }
    Ok(())
}

/// The labels that the write changes and a node must not change.
fn forbidden_labels(write: Write<'_>) -> Vec<String> {
    let pointer = "/metadata/labels";
    let label = |object: Option<&Value>, name: &str| {
        object.and_then(|one| one.pointer(pointer)?.get(name)).cloned()
    };
    let before = write.old.into_iter().flat_map(|old| entries(old, pointer));
    let names = before.chain(entries(write.new, pointer)).map(|(name, _)| name);
    let changed = names.filter(|name| label(write.old, name) != label(Some(write.new), name));
    let mut names: Vec<String> = changed.filter(|name| is_forbidden(name)).cloned().collect();
    names.sort();
    names.dedup();
    names
}

/// Labels of Kubernetes' own domains that a node may set all the same.
const OWN_LABELS: [&str; 12] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

fn is_forbidden(label: &str) -> bool {
    let Some((domain, _)) = label.split_once('/') else { return false };
    let is_below = |root: &str| {
        domain.strip_suffix(root).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if is_below("node-restriction.kubernetes.io") {
        return true;
    }
    let known = OWN_LABELS.contains(&label)
        || is_below("kubelet.kubernetes.io")
        || is_below("node.kubernetes.io");
    (is_below("kubernetes.io") || is_below("k8s.io")) && !known
}

fn pod(node: &str, write: Write<'_>) -> Result<(), String> {
    let Some(old) = write.old else { return mirror_pod(node, write.new) };
    if text(old, "/spec/nodeName") != node {
        return Err(format!("node {node:?} can only update pods with spec.nodeName set to itself"));
    }
    if old.pointer("/metadata/labels") != write.new.pointer("/metadata/labels") {
        return Err(format!("node {node:?} cannot update labels through pod status"));
    }
    let finalizers = "/metadata/finalizers";
    if items(old, finalizers) != items(write.new, finalizers) {
        return Err(format!("node {node:?} cannot update finalizers through pod status"));
    }
    Ok(())
}

/// The annotation of a pod that a node runs by itself.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether a pod is a mirror pod.
pub(super) fn is_mirror(pod: &Value) -> bool {
    entries(pod, "/metadata/annotations").any(|(name, _)| name == MIRROR)
}

/// A node creates mirror pods only.
fn mirror_pod(node: &str, pod: &Value) -> Result<(), String> {
    if !is_mirror(pod) {
        return Err("pod does not have the annotation kubernetes.io/config.mirror: a node can \
                    only create mirror pods"
            .to_owned());
    }
    if text(pod, "/spec/nodeName") != node {
        return Err(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
    }
    let owned = match items(pod, "/metadata/ownerReferences") {
        [owner] => {
            text(owner, "/apiVersion") == "v1"
                && text(owner, "/kind") == "Node"
                && text(owner, "/name") == node
                && flag(owner, "/controller")
                && !flag(owner, "/blockOwnerDeletion")
        }
        _ => false,
    };
    if !owned {
        return Err(format!(
            "node {node:?} can only create pods with one owner reference, to itself as their \
             controller"
        ));
    }
    let account = text(pod, "/spec/serviceAccountName");
    let claims =
        items(pod, "/spec/volumes").iter().any(|one| one.get("persistentVolumeClaim").is_some());
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let refers =
        ["secrets", "configmaps"].iter().any(|kind| !node::references(spec, kind).is_empty());
    if !account.is_empty() || claims || refers {
        return Err(format!(
            "node {node:?} can not create pods that reference a service account, secrets, config \
             maps or persistent volume claims"
        ));
    }
    Ok(())
}

/// A node asks for certificates of its own only.
fn request(node: &str, object: &Value) -> Result<(), String> {
    if text(object, "/spec/signerName") != kubelet::SIGNER {
        return Ok(());
    }
    request_of(node, object)
}

/// Whether a request is for the certificate of this node.
fn request_of(node: &str, object: &Value) -> Result<(), String> {
    let wanted = format!("{}{node}", kubelet::NODE_PREFIX);
    match certificate::request_of(object) {
        Some(Request { common_name, .. }) if common_name == wanted => Ok(()),
        // what is no request is told by validation
        None => Ok(()),
        Some(_) => Err(format!("can only create a node CSR with CN={wanted}")),
    }
}

/// The most bytes of a request: one with an RSA key of 4096 bits and a dozen names has 3 KB.
const LONGEST_REQUEST: usize = 10 << 10;

/// A request is one block of PEM and nothing around it: what is not read is not stored either.
fn bare_request(object: &Value) -> Result<(), String> {
    let request = certificate::bytes(object, "/spec/request").unwrap_or_default();
    if request.len() > LONGEST_REQUEST {
        let length = request.len();
        return Err(format!(
            "spec.request has {length} bytes, and a certificate request may have {LONGEST_REQUEST}"
        ));
    }
    let text = String::from_utf8_lossy(&request);
    let text = text.trim();
    let dashes = "-----";
    let alone = text.starts_with("-----BEGIN ")
        && text.ends_with(dashes)
        && text.matches(dashes).count() == 4;
    // what holds no block at all is told by validation
    if alone || !text.contains("-----BEGIN ") {
        return Ok(());
    }
    Err("spec.request has text besides the one PEM block: leave it out".to_owned())
}

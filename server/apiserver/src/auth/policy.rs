//! Rules: what a group of users may do with which resources.

use super::{Attributes, Target};

/// The objects of a resource that a rule covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All.
    Any,
    /// The object with the name of the node.
    Own,
    /// Leases of nodes, with the name of the node.
    OwnLease,
    /// Pods that are bound to the node; of a collection, if it is selected by that.
    Bound,
    /// Objects that pods of the node refer to.
    Used,
}

/// Some verbs on some objects of a resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    pub(super) group: &'static str,
    pub(super) resource: &'static str,
    pub(super) subresource: &'static str,
    pub(super) verbs: &'static [&'static str],
    pub(super) scope: Scope,
}

impl Rule {
    /// Whether the rule speaks of this verb on this resource.
    pub(super) fn covers(&self, attributes: &Attributes) -> bool {
        let Target::Resource { group, resource, subresource, .. } = &attributes.target else {
            return false;
        };
        *group == self.group
            && *resource == self.resource
            && *subresource == self.subresource
            && self.verbs.contains(&attributes.verb.as_str())
    }

    /// `resource` or `resource/subresource`.
    pub(super) fn resource_name(&self) -> String {
        match self.subresource {
            "" => self.resource.to_owned(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

pub(super) const CERTIFICATES: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";

const fn rule(
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    verbs: &'static [&'static str],
    scope: Scope,
) -> Rule {
    Rule { group, resource, subresource, verbs, scope }
}

/// What the holder of a bootstrap token may do: ask for a certificate, which is signed then.
pub(super) const BOOTSTRAPPER: [Rule; 2] = [
    rule(CERTIFICATES, REQUESTS, "", &["create", "get", "list", "watch"], Scope::Any),
    rule(CERTIFICATES, REQUESTS, "nodeclient", &["create"], Scope::Any),
];

/// The permissions of a node. `restriction` limits the content of a node's writes further.
pub(super) const NODE: [Rule; 17] = [
    rule("", "services", "", &["get", "list", "watch"], Scope::Any),
    rule("storage.k8s.io", "csidrivers", "", &["get", "list", "watch"], Scope::Any),
    rule("node.k8s.io", "runtimeclasses", "", &["get", "list", "watch"], Scope::Any),
    rule("", "nodes", "", &["create", "get", "list", "watch", "update", "patch"], Scope::Own),
    rule("", "nodes", "status", &["get", "update", "patch"], Scope::Own),
    rule("", "pods", "", &["create"], Scope::Any),
    rule("", "pods", "", &["get", "list", "watch", "delete"], Scope::Bound),
    rule("", "pods", "status", &["get", "update", "patch"], Scope::Bound),
    rule("", "pods", "eviction", &["create"], Scope::Bound),
    rule("", "secrets", "", &["get", "list", "watch"], Scope::Used),
    rule("", "configmaps", "", &["get", "list", "watch"], Scope::Used),
    rule("", "events", "", &["create", "update", "patch"], Scope::Any),
    rule("events.k8s.io", "events", "", &["create", "update", "patch"], Scope::Any),
    rule(
        "coordination.k8s.io",
        "leases",
        "",
        &["create", "get", "update", "patch", "delete"],
        Scope::OwnLease,
    ),
    rule(
        "storage.k8s.io",
        "csinodes",
        "",
        &["create", "get", "update", "patch", "delete"],
        Scope::Own,
    ),
    rule(CERTIFICATES, REQUESTS, "", &["create", "get", "list", "watch"], Scope::Any),
    rule(CERTIFICATES, REQUESTS, "selfnodeclient", &["create"], Scope::Any),
];

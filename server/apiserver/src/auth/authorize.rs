//! The whole authorization policy.

use super::{
    Attributes, Target,
    bootstrap::BOOTSTRAPPERS,
    node::{self, Bindings},
    policy::{BOOTSTRAPPER, NODE, Rule},
};
use crate::kinds::identity::Identity;

/// Paths that everybody may read.
const PUBLIC: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
/// Paths below which every authenticated user may read: how clients find their way.
const DISCOVERY: [&str; 3] = ["/api", "/apis", "/openapi"];
/// Reviews that every authenticated user may create for the own user.
const SELF_REVIEWS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

/// Whether `identity` may do this.
pub(crate) fn permits(
    identity: &Identity,
    attributes: &Attributes,
    bindings: &dyn Bindings,
) -> bool {
    if identity.is_master() {
        return true;
    }
    let authenticated = identity.is_authenticated();
    match &attributes.target {
        Target::Path(path) => {
            let reads = matches!(attributes.verb.as_str(), "get" | "head");
            let known = DISCOVERY.iter().any(|root| is_below(path, root));
            let public = PUBLIC.iter().any(|root| is_below(path, root));
            reads && (public || (authenticated && known))
        }
        Target::Resource { group, resource, .. } => {
            let about_itself = SELF_REVIEWS.contains(&(group.as_str(), resource.as_str()));
            let itself = about_itself && attributes.verb == "create";
            let by_node = |node| node::permits(node, attributes, bindings);
            authenticated
                && (itself
                    || is_bootstrapper(identity)
                        && BOOTSTRAPPER.iter().any(|one| one.covers(attributes))
                    || identity.node().is_some_and(by_node))
        }
    }
}

/// The rules that are good for a user besides what everybody may do. Those of nodes are narrower
/// than they look: each is about some objects only.
pub(super) fn rules(identity: &Identity) -> impl Iterator<Item = &'static Rule> {
    let bootstrapper: &[Rule] = if is_bootstrapper(identity) { &BOOTSTRAPPER } else { &[] };
    let node: &[Rule] = if identity.node().is_some() { &NODE } else { &[] };
    bootstrapper.iter().chain(node)
}

/// Whether the user showed a bootstrap token.
pub(crate) fn is_bootstrapper(identity: &Identity) -> bool {
    identity.groups.iter().any(|group| group == BOOTSTRAPPERS)
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    /// No pods.
    struct Nothing;

    impl Bindings for Nothing {
        fn node_of_pod(&self, _namespace: &str, _pod: &str) -> Option<String> {
            None
        }

        fn is_used(&self, _: &str, _: &str, _: &str, _: &str) -> bool {
            false
        }
    }

    #[test]
    fn each_identity_may_do_what_the_policy_says_and_no_more() {
        let admin = Identity::admin();
        let bot = Identity::service_account("default", "bot", "uid");
        let nobody = Identity::anonymous();
        let group = |group: &str| vec![group.to_owned()];
        let booting = Identity::user("system:bootstrap:abcdef", group("system:bootstrappers"));
        let node = Identity::user("system:node:n1", group("system:nodes"));
        // in the order of: admin, service account, bootstrapper, node, anonymous
        let (all, known) = ([true; 5], [true, true, true, true, false]);
        let (admins, nodes) =
            ([true, false, false, false, false], [true, false, false, true, false]);
        let joining = [true, false, true, true, false];
        let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
        for (method, path, expected) in [
            (Method::GET, "/healthz", all),
            (Method::GET, "/readyz/ping", all),
            (Method::GET, "/version", all),
            (Method::POST, "/version", admins),
            (Method::GET, "/versions", admins),
            (Method::GET, "/apis", known),
            (Method::GET, "/openapi/v3/api/v1", known),
            (Method::GET, "/metrics", admins),
            (Method::GET, "/backup", admins),
            (Method::GET, "/api/v1/namespaces/default/secrets/x", admins),
            (Method::GET, "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef", admins),
            (Method::GET, "/api/v1/nodes", admins),
            (Method::GET, "/api/v1/nodes/n1", nodes),
            (Method::GET, "/api/v1/nodes/n2", admins),
            (Method::POST, "/api/v1/nodes", nodes),
            (Method::POST, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", known),
            (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", admins),
            (Method::POST, requests, joining),
            (Method::GET, requests, joining),
            (Method::GET, &format!("{requests}/x"), joining),
            (Method::DELETE, &format!("{requests}/x"), admins),
            (Method::PUT, &format!("{requests}/x/approval"), admins),
            (Method::PUT, &format!("{requests}/x/status"), admins),
        ] {
            let attributes = Attributes::of(&method, path, None);
            let found = [&admin, &bot, &booting, &node, &nobody]
                .map(|identity| permits(identity, &attributes, &Nothing));
            assert_eq!(found, expected, "{method} {path}");
        }
    }
}

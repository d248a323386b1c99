//! The whole policy of who may do what.

use crate::status::Answer;

use super::{Attributes, Identity, Target};

/// Paths that everybody may read.
const PUBLIC: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];
/// Paths below which every authenticated user may read: how clients find their way.
const DISCOVERY: [&str; 3] = ["/api", "/apis", "/openapi"];
/// What every authenticated user may ask about itself.
const SELF_REVIEWS: [(&str, &str); 3] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];
const AUTHENTICATED: &str = "system:authenticated";

/// Whether `identity` may do this.
pub(crate) fn permits(identity: &Identity, attributes: &Attributes) -> bool {
    if identity.is_master() {
        return true;
    }
    let authenticated = identity.groups.iter().any(|group| group == AUTHENTICATED);
    match &attributes.target {
        Target::Path(path) => {
            let reads = matches!(attributes.verb.as_str(), "get" | "head");
            let known = DISCOVERY.iter().any(|root| is_below(path, root));
            let public = PUBLIC.iter().any(|root| is_below(path, root));
            reads && (public || (authenticated && known))
        }
        Target::Resource { group, resource, .. } => {
            let about_itself = SELF_REVIEWS.contains(&(group.as_str(), resource.as_str()));
            authenticated && about_itself && attributes.verb == "create"
        }
    }
}

/// Refuses what `identity` may not do.
pub(crate) fn check(identity: &Identity, attributes: &Attributes) -> Answer<()> {
    if permits(identity, attributes) { Ok(()) } else { Err(attributes.forbidden(identity)) }
}

fn is_below(path: &str, root: &str) -> bool {
    path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn each_identity_may_do_what_the_policy_says_and_no_more() {
        let admin = Identity::admin();
        let bot = Identity::service_account("default", "bot", "uid");
        let nobody = Identity::anonymous();
        for (method, path, expected) in [
            (Method::GET, "/healthz", [true, true, true]),
            (Method::GET, "/readyz/ping", [true, true, true]),
            (Method::GET, "/version", [true, true, true]),
            (Method::POST, "/version", [true, false, false]),
            (Method::GET, "/versions", [true, false, false]),
            (Method::GET, "/apis", [true, true, false]),
            (Method::GET, "/openapi/v3/api/v1", [true, true, false]),
            (Method::GET, "/metrics", [true, false, false]),
            (Method::GET, "/api/v1/namespaces/default/secrets/x", [true, false, false]),
            (Method::GET, "/api/v1/nodes", [true, false, false]),
            (
                Method::POST,
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                [true, true, false],
            ),
            (Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", [true, false, false]),
        ] {
            let attributes = Attributes::of(&method, path, None);
            let found = [&admin, &bot, &nobody].map(|identity| permits(identity, &attributes));
            assert_eq!(found, expected, "{method} {path}");
        }
    }
}

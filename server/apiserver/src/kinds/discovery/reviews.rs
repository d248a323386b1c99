//! Resources that are not stored: requests that are answered and forgotten.

use super::Listed;

/// A resource that can only be created.
#[derive(Clone, Copy, Debug)]
pub(super) struct Review {
    pub(super) group: &'static str,
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
}

const fn cluster(group: &'static str, plural: &'static str, kind: &'static str) -> Review {
    Review { group, plural, kind, namespaced: false }
}

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// All of them.
pub(super) const ALL: [Review; 5] = [
    Review { group: "", plural: "bindings", kind: "Binding", namespaced: true },
    cluster(AUTHENTICATION, "selfsubjectreviews", "SelfSubjectReview"),
    cluster(AUTHENTICATION, "tokenreviews", "TokenReview"),
    cluster(AUTHORIZATION, "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    cluster(AUTHORIZATION, "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
];

/// The reviews of one group and version.
pub(super) fn listed(group: &str, version: &str) -> impl Iterator<Item = Listed> {
    ALL.into_iter().filter(move |one| one.group == group && version == "v1").map(|one| Listed {
        plural: one.plural.to_owned(),
        singular: one.kind.to_lowercase(),
        namespaced: one.namespaced,
        kind: one.kind.to_owned(),
        verbs: &["create"],
        ..Listed::default()
    })
}

//! The identity of a requester.

use std::collections::BTreeMap;

use k8s_openapi::api::authentication::v1::UserInfo;

/// The identity of a requester. Put into the extensions of every request that reaches the handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The user name, such as `system:admin` or `system:serviceaccount:default:bot`.
    pub(crate) username: String,
    /// The uid of the object behind the user, if there is one.
    pub(crate) uid: Option<String>,
    /// The groups the user is in.
    pub(crate) groups: Vec<String>,
    /// Further facts about how the user authenticated.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// On the secret of a token: the one node that may be joined with it. Without it the token is good
/// for every node that is not there yet.
pub const NODE_ANNOTATION: &str = "ostler.dev/node-name";
/// The group whose members may do everything.
const MASTERS: &str = "system:masters";
/// The group of all who showed valid credentials.
const AUTHENTICATED: &str = "system:authenticated";

impl Identity {
    /// The administrator: a caller in process, or the holder of the admin token.
    pub(crate) fn admin() -> Self {
        Self::named("system:admin", &[MASTERS, AUTHENTICATED])
    }

    /// A client without credentials.
    pub(crate) fn anonymous() -> Self {
        Self::named("system:anonymous", &["system:unauthenticated"])
    }

    /// A ServiceAccount.
    pub(crate) fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let username = format!("system:serviceaccount:{namespace}:{name}");
        let own = format!("system:serviceaccounts:{namespace}");
        let groups = ["system:serviceaccounts", own.as_str(), AUTHENTICATED];
        Self { uid: Some(uid.to_owned()), ..Self::named(&username, &groups) }
    }

    /// A user in groups, and in that of all who are known.
    pub(crate) fn user(username: &str, mut groups: Vec<String>) -> Self {
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self { groups, ..Self::named(username, &[]) }
    }

    /// Whether the user is authenticated.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.groups.iter().any(|group| group == AUTHENTICATED)
    }

    /// Whether everything is allowed.
    pub(crate) fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
    }

    /// The one node that the user may ask a certificate for, if there is such a bound: see
    /// [`NODE_ANNOTATION`].
    pub(crate) fn bound_node(&self) -> Option<&str> {
        self.extra.get(NODE_ANNOTATION)?.first().map(String::as_str)
    }

    /// The same as a review shows it.
    pub(crate) fn user_info(&self) -> UserInfo {
        UserInfo {
            username: Some(self.username.clone()),
            uid: self.uid.clone(),
            groups: Some(self.groups.clone()),
            extra: (!self.extra.is_empty()).then(|| self.extra.clone()),
        }
    }

    fn named(username: &str, groups: &[&str]) -> Self {
        Self {
            username: username.to_owned(),
            uid: None,
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
            extra: BTreeMap::new(),
        }
    }
}

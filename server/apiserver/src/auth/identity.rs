//! The one who asks.

use std::collections::BTreeMap;

/// Who a request is from. Put into the extensions of every request that reaches the handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user name, such as `system:admin` or `system:serviceaccount:default:bot`.
    pub username: String,
    /// The uid of the object behind the user, if there is one.
    pub uid: Option<String>,
    /// The groups the user is in.
    pub groups: Vec<String>,
    /// Further facts about how the user authenticated.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// The group whose members may do everything.
const MASTERS: &str = "system:masters";

impl Identity {
    /// The administrator: whoever reaches the server in process or holds the admin token.
    pub fn admin() -> Self {
        Self::named("system:admin", &[MASTERS, "system:authenticated"])
    }

    /// Whoever shows no credentials.
    pub fn anonymous() -> Self {
        Self::named("system:anonymous", &["system:unauthenticated"])
    }

    /// Whether everything is allowed.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|group| group == MASTERS)
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

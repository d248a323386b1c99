//! Bootstrap tokens: what a machine shows that is to become a node.

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    kinds::{
        access::text,
        identity::{Identity, NODE_ANNOTATION},
    },
    store::{Key, Store},
};

use super::{Auth, authenticate::same};

/// The group of all users with a bootstrap token. Further groups of a token must begin with this name.
pub(crate) const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// The type of the secrets that stand for tokens.
pub(crate) const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The prefix of the user names of bootstrap tokens.
const USER_PREFIX: &str = "system:bootstrap:";
const NAMESPACE: &str = "kube-system";
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;
/// The longest rest of a group after `system:bootstrappers:`.
const GROUP_LENGTH: usize = 256;

impl Auth {
    /// The identity of a bootstrap token. None if the token has another form, or no valid secret stands for the token.
    pub(super) fn bootstrapper(&self, token: &str) -> Option<Identity> {
        let (id, secret) = split(token)?;
        let name = format!("bootstrap-token-{id}");
        let key = Key::new("", "secrets", NAMESPACE, &name);
        let object = self.context.store.get(&key)?.readable()?;
        match holder(&object, id, secret, (self.context.clock)()) {
            Ok(identity) => Some(identity),
            Err(refusal) => {
                // the name of the secret says which token; the token itself is never written
                tracing::debug!(secret = name, %refusal, "a bootstrap token is refused");
                None
            }
        }
    }
}

/// The id and the secret of a token: `abcdef.0123456789abcdef`.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |part: &str| part.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let fits = id.len() == ID_LENGTH && secret.len() == SECRET_LENGTH;
    (fits && plain(id) && plain(secret)).then_some((id, secret))
}

/// Why a secret does not stand for a token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    #[error("the secret is being deleted")]
    Deleting,
    #[error("the secret is not of type {SECRET_TYPE}")]
    Type,
    #[error("the token is another one")]
    Other,
    #[error("the token has expired, or its expiration is no RFC 3339 time")]
    Expired,
    #[error("usage-bootstrap-authentication is not true")]
    Usage,
    #[error("auth-extra-groups names a group that is not below system:bootstrappers")]
    Group,
}

fn holder(object: &Value, id: &str, secret: &str, now: Timestamp) -> Result<Identity, Refusal> {
    if !text(object, "/metadata/deletionTimestamp").is_empty() {
        return Err(Refusal::Deleting);
    }
    if text(object, "/type") != SECRET_TYPE {
        return Err(Refusal::Type);
    }
    let kept = value(object, "token-secret");
    if kept.is_empty() || !same(&kept, secret) || value(object, "token-id") != id {
        return Err(Refusal::Other);
    }
    if expiration(object).is_some_and(|ends| ends <= now) {
        return Err(Refusal::Expired);
    }
    if value(object, "usage-bootstrap-authentication") != "true" {
        return Err(Refusal::Usage);
    }
    let further = value(object, "auth-extra-groups");
    let further: Vec<&str> = further.split(',').filter(|group| !group.is_empty()).collect();
    if !further.iter().all(|group| is_group(group)) {
        return Err(Refusal::Group);
    }
    let mut groups = vec![BOOTSTRAPPERS.to_owned()];
    groups.extend(further.iter().map(|&group| group.to_owned()));
    groups.dedup();
    let mut identity = Identity::user(&format!("{USER_PREFIX}{id}"), groups);
    if let Some(node) = bound_to(object) {
        identity.extra.insert(NODE_ANNOTATION.to_owned(), vec![node.to_owned()]);
    }
    Ok(identity)
}

/// The one node that may be joined with the token of a secret.
pub(crate) fn bound_to(object: &Value) -> Option<&str> {
    object.pointer("/metadata/annotations")?.get(NODE_ANNOTATION)?.as_str()
}

/// The secret of a user's token, if that still works.
pub(crate) fn standing_token(store: &Store, username: &str, now: Timestamp) -> Option<Value> {
    let name = format!("bootstrap-token-{}", username.strip_prefix(USER_PREFIX)?);
    let object = store.get(&Key::new("", "secrets", NAMESPACE, &name))?.readable()?;
    let stands = text(&object, "/metadata/deletionTimestamp").is_empty()
        && expiration(&object).is_none_or(|ends| ends > now);
    stands.then_some(object)
}

/// When the token of a secret ends, if it does. A malformed time counts as long ago.
pub(crate) fn expiration(object: &Value) -> Option<Timestamp> {
    let expiration = value(object, "expiration");
    (!expiration.is_empty()).then(|| expiration.parse().unwrap_or(Timestamp::MIN))
}

/// A value of a secret; empty if it is missing or no text.
fn value(object: &Value, name: &str) -> String {
    let encoded = object.get("data").and_then(|data| data.get(name)).and_then(Value::as_str);
    let decoded = encoded.and_then(|value| BASE64_STANDARD.decode(value).ok());
    decoded.and_then(|value| String::from_utf8(value).ok()).unwrap_or_default()
}

/// `system:bootstrappers:` and then lower-case letters, digits, `:` and `-`, of which the last is
/// a letter or a digit.
fn is_group(group: &str) -> bool {
    let Some(rest) = group.strip_prefix(BOOTSTRAPPERS).and_then(|rest| rest.strip_prefix(':'))
    else {
        return false;
    };
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let ends_well = rest.bytes().last().is_some_and(plain);
    ends_well && rest.len() <= GROUP_LENGTH && rest.bytes().all(|c| plain(c) || b":-".contains(&c))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "0123456789abcdef";

    fn secret(changes: &[(&str, Option<&str>)]) -> Value {
        let mut data = json!({
            "token-id": "abcdef",
            "token-secret": SECRET,
            "usage-bootstrap-authentication": "true",
            "expiration": "2026-01-01T01:00:00Z",
        });
        for (name, value) in changes {
            match value {
                Some(value) => data[*name] = json!(value),
                None => drop(data.as_object_mut().unwrap().remove(*name)),
            }
        }
        for (_, value) in data.as_object_mut().unwrap() {
            *value = json!(BASE64_STANDARD.encode(value.as_str().unwrap()));
        }
        json!({"metadata": {}, "type": SECRET_TYPE, "data": data})
    }

    #[test]
    fn a_token_stands_for_its_secret_alone() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let usage = "usage-bootstrap-authentication";
        let plain = || vec!["system:bootstrappers"];
        for (changes, expected) in [
            (vec![], Ok(plain())),
            (vec![("expiration", None)], Ok(plain())),
            (vec![("expiration", Some("2026-01-01T00:00:00Z"))], Err(Refusal::Expired)),
            (vec![("expiration", Some("tomorrow"))], Err(Refusal::Expired)),
            (vec![(usage, None)], Err(Refusal::Usage)),
            (vec![(usage, Some("false"))], Err(Refusal::Usage)),
            (vec![("token-secret", Some("0123456789abcdee"))], Err(Refusal::Other)),
            (vec![("token-secret", Some(""))], Err(Refusal::Other)),
            (vec![("token-secret", None)], Err(Refusal::Other)),
            (vec![("token-id", Some("abcdee"))], Err(Refusal::Other)),
            (vec![("auth-extra-groups", Some(""))], Ok(plain())),
            (
                vec![(
                    "auth-extra-groups",
                    Some("system:bootstrappers:a:b-2,system:bootstrappers:c"),
                )],
                Ok(vec![
                    "system:bootstrappers",
                    "system:bootstrappers:a:b-2",
                    "system:bootstrappers:c",
                ]),
            ),
            (vec![("auth-extra-groups", Some("system:masters"))], Err(Refusal::Group)),
            (vec![("auth-extra-groups", Some("system:bootstrappers"))], Err(Refusal::Group)),
            (vec![("auth-extra-groups", Some("system:bootstrappers:a:"))], Err(Refusal::Group)),
            (vec![("auth-extra-groups", Some("system:bootstrappers:A"))], Err(Refusal::Group)),
            (
                vec![("auth-extra-groups", Some("system:bootstrappers:a,system:nodes"))],
                Err(Refusal::Group),
            ),
        ] {
            let found = holder(&secret(&changes), "abcdef", SECRET, now);
            let mut expected = expected;
            if let Ok(groups) = &mut expected {
                groups.push("system:authenticated");
            }
            let groups = found.as_ref().map(|one| one.groups.iter().map(String::as_str).collect());
            assert_eq!(groups.map_err(Clone::clone), expected, "{changes:?}");
        }
        let mut opaque = secret(&[]);
        opaque["type"] = json!("Opaque");
        assert_eq!(holder(&opaque, "abcdef", SECRET, now), Err(Refusal::Type));
        let mut deleting = secret(&[]);
        deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(holder(&deleting, "abcdef", SECRET, now), Err(Refusal::Deleting));
    }

    #[test]
    fn a_token_is_bound_to_the_node_that_its_secret_names() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut object = secret(&[]);
        assert_eq!(holder(&object, "abcdef", SECRET, now).unwrap().bound_node(), None);
        object["metadata"] = json!({"annotations": {NODE_ANNOTATION: "n1"}});
        assert_eq!(holder(&object, "abcdef", SECRET, now).unwrap().bound_node(), Some("n1"));
    }

    #[test]
    fn only_texts_of_the_right_form_are_looked_up() {
        assert_eq!(split("abcdef.0123456789abcdef"), Some(("abcdef", SECRET)));
        for token in [
            "",
            "abcdef",
            "abcdef.",
            "abcdef.0123456789abcde",
            "abcdef.0123456789abcdef0",
            "abcde.0123456789abcdef",
            "ABCDEF.0123456789abcdef",
            "../../.0123456789abcdef",
            "abcdef.0123456789abc.ef",
        ] {
            assert_eq!(split(token), None, "{token}");
        }
    }
}

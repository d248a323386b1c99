//! A kubelet's settings in the user data of its instance.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

/// The taint of a node that is not ready to be used: what it gets if its user data names no taints.
const NOT_READY_TAINT: &str = "node.machine.sapcloud.io/instance-not-ready";

/// Longer than any taint or label of Kubernetes: 253 + 1 + 63 for a key, 63 for a value.
const LONGEST_FLAG_ITEM: usize = 512;

/// Longer user data are not kept: they stand in the state file, once for each instance.
const KEPT_BYTES: usize = 20 * 1024;

/// User data, byte for byte, in base64.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserData(String);

impl UserData {
    /// Keeps `user_data`.
    pub fn new(user_data: &[u8]) -> Self {
        Self(BASE64_STANDARD.encode(user_data))
    }

    /// In base64. Holds credentials.
    pub fn as_base64(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UserData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserData(<{} characters>)", self.0.len())
    }
}

/// A kubelet's settings in user data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// The first bootstrap token in the text.
    pub token: Option<BootstrapToken>,
    /// Taints with which the Node registers: `--register-with-taints=key=value:Effect,…`.
    pub taints: Vec<StartupTaint>,
    /// Labels with which the Node registers: `--node-labels=key=value,…`.
    pub labels: Vec<(String, String)>,
    /// All of it, as long as it is not too long to be kept.
    #[serde(default)]
    pub user_data: Option<UserData>,
}

/// `<id>.<secret>`: the credential with which a kubelet joins.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootstrapToken {
    /// Names the Secret `kube-system/bootstrap-token-<id>`; public.
    pub id: String,
    /// Never printed.
    pub secret: String,
}

/// A taint with which a Node registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartupTaint {
    /// Key.
    pub key: String,
    /// Value, may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootstrapToken({}.…)", self.id)
    }
}

impl Bootstrap {
    /// Reads user data. Bytes that are no text hold no settings.
    pub fn read(user_data: &[u8]) -> Self {
        let text = String::from_utf8_lossy(user_data);
        let taints = match flag(&text, "--register-with-taints=") {
            Some(list) => list.filter_map(parse_taint).collect(),
            None => vec![StartupTaint {
                key: NOT_READY_TAINT.to_owned(),
                value: String::new(),
                effect: "NoSchedule".to_owned(),
            }],
        };
        let labels = flag(&text, "--node-labels=").map_or_else(Vec::new, |list| {
            list.filter_map(|label| label.split_once('='))
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect()
        });
        let user_data = (user_data.len() <= KEPT_BYTES).then(|| UserData::new(user_data));
        Self { token: find_token(&text), taints, labels, user_data }
    }
}

/// The items of a command line flag that stands somewhere in the text.
fn flag<'a>(text: &'a str, name: &str) -> Option<impl Iterator<Item = &'a str>> {
    let (_, rest) = text.split_once(name)?;
    let end = rest
        .find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'))
        .unwrap_or(rest.len());
    let (list, _) = rest.split_at(end);
    Some(list.split(',').filter(|item| !item.is_empty() && item.len() <= LONGEST_FLAG_ITEM))
}

fn parse_taint(item: &str) -> Option<StartupTaint> {
    let (pair, effect) = item.rsplit_once(':')?;
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    (!key.is_empty()).then(|| StartupTaint {
        key: key.to_owned(),
        value: value.to_owned(),
        effect: effect.to_owned(),
    })
}

/// The first word of the form `[a-z0-9]{6}.[a-z0-9]{16}`.
fn find_token(text: &str) -> Option<BootstrapToken> {
    let is_token_char = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let word_end = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
    text.split(word_end).find_map(|word| {
        // A sentence may end with the token.
        let (id, secret) = word.trim_end_matches('.').split_once('.')?;
        let fits = id.len() == 6 && secret.len() == 16;
        (fits && id.chars().all(is_token_char) && secret.chars().all(is_token_char))
            .then(|| BootstrapToken { id: id.to_owned(), secret: secret.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_found_wherever_it_stands() {
        for text in [
            "abcdef.0123456789abcdef",
            "#cloud-config\nkubeadm join --token=abcdef.0123456789abcdef --x",
            "token: \"abcdef.0123456789abcdef\"",
            "a.b short.words then abcdef.0123456789abcdef.",
        ] {
            let token = Bootstrap::read(text.as_bytes()).token.unwrap();
            assert_eq!((token.id.as_str(), token.secret.len()), ("abcdef", 16), "{text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_token_is_none() {
        for text in
            ["", "abcdef.0123456789abcde", "xabcdef.0123456789abcdef", "ABCDEF.0123456789abcdef"]
        {
            assert_eq!(Bootstrap::read(text.as_bytes()).token, None, "{text}");
        }
        assert_eq!(Bootstrap::read(&[0xff, 0xfe]).token, None);
    }

    #[test]
    fn taints_and_labels_are_those_of_the_command_line() {
        let text = "kubelet --register-with-taints=a=b:NoExecute,c:NoSchedule \
                    --node-labels=pool=x,zone=y\n";
        let found = Bootstrap::read(text.as_bytes());
        let taints: Vec<_> =
            found.taints.iter().map(|t| (&*t.key, &*t.value, &*t.effect)).collect();
        assert_eq!(taints, [("a", "b", "NoExecute"), ("c", "", "NoSchedule")]);
        assert_eq!(found.labels, [("pool".into(), "x".into()), ("zone".into(), "y".into())]);
    }

    #[test]
    fn without_taints_the_node_is_not_ready_to_be_used() {
        assert_eq!(Bootstrap::read(b"").taints[0].key, NOT_READY_TAINT);
    }

    #[test]
    fn debug_never_shows_the_secret_half() {
        let shown = format!("{:?}", Bootstrap::read(b"abcdef.0123456789abcdef"));
        assert!(shown.contains("abcdef") && !shown.contains("0123456789"), "{shown}");
    }
}

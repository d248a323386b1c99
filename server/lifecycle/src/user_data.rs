//! User data of one machine: placeholders replaced, bootstrap token named.

use std::fmt::Write as _;

use ostler_api::{
    Machine,
    names::bootstrap::{NAME_PLACEHOLDER, TOKEN_PLACEHOLDER},
};
use sha2::{Digest as _, Sha256};

use crate::operation::{SecretText, UserData};

/// The most bytes of user data that a driver accepts.
pub const MAX_USER_DATA: usize = 256 * 1024;
/// The most bytes of provider spec that a driver accepts.
pub const MAX_PROVIDER_SPEC: usize = 128 * 1024;

const TOKEN_ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// The id of the bootstrap token of the Machine or pool with this UID: six characters, so that the Secret
/// is `bootstrap-token-<id>`. Made from the UID, because names of machines are alike.
///
/// There are 36^6 ids. Among 5,000 machines that create at the same time, two want the same id about once in 200 times;
/// the second machine takes the next id, see [`token_id_after`].
pub fn token_id(uid: &str) -> String {
    id_from(uid)
}

/// The id to try when `taken` belongs to another object.
pub fn token_id_after(uid: &str, taken: &str) -> String {
    id_from(&format!("{uid}/{taken}"))
}

/// The id of the bootstrap token that a Machine has or, if it has none, would take.
pub fn token_id_of(machine: &Machine) -> String {
    let recorded = machine.status.as_ref().and_then(|status| status.bootstrap_token_id.clone());
    recorded.unwrap_or_else(|| token_id(machine.uid()))
}

fn id_from(text: &str) -> String {
    Sha256::digest(text.as_bytes())
        .iter()
        .take(6)
        .filter_map(|byte| TOKEN_ALPHABET.get(usize::from(*byte) % TOKEN_ALPHABET.len()))
        .map(|byte| char::from(*byte))
        .collect()
}

/// Whether the user data asks for a bootstrap token.
pub fn wants_token(user_data: &UserData) -> bool {
    contains(user_data.bytes(), TOKEN_PLACEHOLDER.as_bytes())
        || contains(user_data.bytes(), url_encoded(TOKEN_PLACEHOLDER).as_bytes())
}

/// Replaces the placeholders, plain and URL-encoded; an encoded one gets an encoded value. `token`
/// is `<id>.<secret>`.
pub fn fill(template: &UserData, machine_name: &str, token: Option<&SecretText>) -> UserData {
    let bytes = replace(template.bytes(), NAME_PLACEHOLDER, machine_name);
    let named = UserData::new(bytes).in_format(template.format());
    if let Some(token) = token { with_token(&named, token) } else { named }
}

/// Replaces the placeholder of a bootstrap token by `<id>.<secret>`.
pub fn with_token(template: &UserData, token: &SecretText) -> UserData {
    let bytes = replace(template.bytes(), TOKEN_PLACEHOLDER, token.expose());
    UserData::new(bytes).in_format(template.format())
}

fn replace(bytes: &[u8], placeholder: &str, value: &str) -> Vec<u8> {
    let plain = replace_bytes(bytes, placeholder.as_bytes(), value.as_bytes());
    replace_bytes(&plain, url_encoded(placeholder).as_bytes(), url_encoded(value).as_bytes())
}

fn replace_bytes(mut bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    while let Some(at) = find(bytes, from) {
        let (before, rest) = bytes.split_at(at);
        out.extend_from_slice(before);
        out.extend_from_slice(to);
        bytes = rest.get(from.len()..).unwrap_or_default();
    }
    out.extend_from_slice(bytes);
    out
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    find(bytes, part).is_some()
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// As Go's `url.QueryEscape`: everything but letters, digits and `-_.~` is escaped.
fn url_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else if byte == b' ' {
            out.push('+');
        } else {
            let _infallible = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(template: &str) -> String {
        let token = SecretText::new("abcdef.0123456789abcdef".to_owned());
        let data = fill(&UserData::new(template.as_bytes().to_vec()), "m-1", Some(&token));
        String::from_utf8(data.into_bytes()).unwrap()
    }

    #[test]
    fn every_placeholder_is_replaced() {
        assert_eq!(
            filled("a=<<BOOTSTRAP_TOKEN>> b=<<MACHINE_NAME>> c=<<BOOTSTRAP_TOKEN>>"),
            "a=abcdef.0123456789abcdef b=m-1 c=abcdef.0123456789abcdef"
        );
    }

    #[test]
    fn an_encoded_placeholder_is_replaced_too() {
        assert_eq!(
            filled("t=%3C%3CBOOTSTRAP_TOKEN%3E%3E&n=%3C%3CMACHINE_NAME%3E%3E"),
            "t=abcdef.0123456789abcdef&n=m-1"
        );
    }

    #[test]
    fn the_format_is_kept() {
        let template = UserData::new(b"{}".to_vec()).in_format("ignition");
        assert_eq!(fill(&template, "m", None).format(), "ignition");
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        let data = fill(&UserData::new(vec![0xff, 0, b'<', b'<']), "m", None);
        assert_eq!(data.bytes(), [0xff, 0, b'<', b'<']);
    }

    #[test]
    fn only_user_data_with_the_placeholder_wants_a_token() {
        assert!(wants_token(&UserData::new(b"x <<BOOTSTRAP_TOKEN>>".to_vec())));
        assert!(wants_token(&UserData::new(b"%3C%3CBOOTSTRAP_TOKEN%3E%3E".to_vec())));
        assert!(!wants_token(&UserData::new(b"<<MACHINE_NAME>>".to_vec())));
    }

    #[test]
    fn machines_with_alike_names_have_different_tokens() {
        let one = token_id("0f0e0d0c-0000-4000-8000-000000000001");
        let two = token_id("0f0e0d0c-0000-4000-8000-000000000002");
        assert_ne!(one, two);
        assert_eq!(one.len(), 6);
        assert!(one.bytes().all(|byte| TOKEN_ALPHABET.contains(&byte)));
        let next = token_id_after("0f0e0d0c-0000-4000-8000-000000000001", &one);
        assert!(next.len() == 6 && next != one);
    }

    #[test]
    fn user_data_is_never_printed() {
        assert_eq!(format!("{:?}", UserData::new(b"hunter2".to_vec())), "UserData(7 bytes)");
        assert_eq!(format!("{:?}", SecretText::new("hunter2".to_owned())), "SecretText(redacted)");
    }
}

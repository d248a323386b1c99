//! Canonical JSON and digests: two specs are equal when these are.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// JSON with the keys of every object in order and no white space. Calls itself once for each level of the
/// value: values are read from text, by readers that stop at 127.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, &mut text);
    text
}

/// The canonical form of a JSON text; `None` if it is not JSON.
pub fn canonical_text(text: &str) -> Option<String> {
    serde_json::from_str(text).ok().map(|value| canonical(&value))
}

/// The first twelve hexadecimal digits of the SHA-256 of a text.
pub fn of_text(text: &str) -> String {
    of_bytes(text.as_bytes())
}

/// The same of bytes.
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut digits = hex::encode(Sha256::digest(bytes));
    digits.truncate(12);
    digits
}

/// FNV-1a of 32 bits.
pub(crate) fn fnv(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (index, (key, inner)) in keys.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_value(inner, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, inner) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_value(inner, text);
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            text.push_str(&value.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_order_of_keys_and_white_space_change_nothing() {
        let one = canonical_text(r#"{ "b": [1, {"z":1,"a":"x\"y"}], "a": null }"#).unwrap();
        let two = canonical(&json!({ "a": null, "b": [1, { "a": "x\"y", "z": 1 }] }));
        assert_eq!(one, two);
        assert_eq!(of_text(&one), of_text(&two));
        assert_eq!(of_text(&one).len(), 12);
    }

    #[test]
    fn the_order_of_a_list_matters() {
        assert_ne!(canonical(&json!([1, 2])), canonical(&json!([2, 1])));
    }

    #[test]
    fn fnv_is_the_published_one() {
        assert_eq!(fnv(""), 0x811c_9dc5);
        assert_eq!(fnv("a"), 0xe40c_292c);
        assert_eq!(fnv("foobar"), 0xbf9c_f968);
    }
}

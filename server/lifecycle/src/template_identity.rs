//! When a template is another one, and what the set of a template is called.

use ostler_api::machine::MachineSpec;
use ostler_api::machine_set::MachineTemplateSpec;
use ostler_api::names::label;
use serde_json::Value;

use crate::digest::{self, canonical};
use crate::push_down::push_down;

/// Letters that form no words.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// A set's name ends with so many letters.
const SUFFIX: usize = 5;
/// After so many collisions it ends with more.
const MANY_COLLISIONS: i32 = 5;

/// The identity of a template in rollouts: templates with the same identity are the same. Sets of other controllers are
/// recognised by identity, never by hash, which only those controllers can compute. Empty values count as absent, as in
/// Go, but for an annotation.
pub fn identity(template: &MachineTemplateSpec) -> String {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|it| it.labels.as_mut()) {
        labels.remove(label::TEMPLATE_HASH);
    }
    let annotations = template.metadata.iter_mut().filter_map(|it| it.annotations.as_mut());
    for value in annotations.flat_map(|all| all.values_mut()).filter(|value| value.is_empty()) {
        value.push('\0');
    }
    push_down(&MachineSpec::default(), &mut template.spec);
    let value = serde_json::to_value(template).unwrap_or_default();
    canonical(&without_empty(value).unwrap_or_default())
}

/// The identity in a few letters, as a Machine in reserve carries it.
pub fn digest(template: &MachineTemplateSpec) -> String {
    digest::of_text(&identity(template))
}

/// `None` for an empty value. Calls itself once for each level of a value that was read by a reader with a limit.
fn without_empty(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(ref text) if text.is_empty() => None,
        Value::Array(ref items) if items.is_empty() => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter_map(|(key, it)| Some((key, without_empty(it)?)));
            let kept: serde_json::Map<_, _> = kept.collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Some(value),
    }
}

/// Label value that tells the sets of a deployment apart: a hash (FNV-1a) of the template and the number of names that
/// were taken.
pub fn hash(template: &MachineTemplateSpec, collisions: i32) -> String {
    digest::fnv(&format!("{}{collisions}", identity(template))).to_string()
}

/// Name of the set with this hash.
pub fn set_name(deployment: &str, hash: &str, collisions: i32) -> String {
    let letter = |byte: u8| ALPHABET.get(usize::from(byte) % ALPHABET.len());
    let letters = hash.bytes().filter_map(letter).map(|byte| char::from(*byte));
    let count = if collisions < MANY_COLLISIONS { SUFFIX } else { usize::MAX };
    format!("{deployment}-{}", letters.take(count).collect::<String>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_annotation_without_a_value_is_another_template_and_a_label_without_one_is_none() {
        let of = |key: &str| {
            let metadata = json!({ key: { "x": "" } });
            identity(&serde_json::from_value(json!({ "metadata": metadata })).unwrap())
        };
        let none = identity(&MachineTemplateSpec::default());
        assert_eq!(of("labels"), none);
        assert_ne!(of("annotations"), none);
    }
}

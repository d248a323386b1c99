//! Which part of a provider spec is fixed when an instance is made.
//!
//! [`HotSpec`] explains the idea; the derive macro calls the code of this module.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

pub use serde_json::Value;

/// A provider spec that knows which of its fields can be changed on a running instance.
///
/// Derive it. Fields marked `#[ostler(hot)]` reach running instances by UpdateMachine; fields marked
/// `#[ostler(nested)]` have marks of their own inside; all others are fixed when an instance is made.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use ostler_driver_sdk::{HotSpec, hot};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, HotSpec)]
/// #[serde(rename_all = "camelCase", deny_unknown_fields)]
/// struct Spec {
///     image: String,
///     machine_type: String,
///     #[ostler(nested)]
///     #[serde(default)]
///     disks: Vec<Disk>,
///     #[ostler(hot)]
///     #[serde(default)]
///     tags: BTreeMap<String, String>,
/// }
///
/// #[derive(Serialize, Deserialize, HotSpec)]
/// struct Disk {
///     size: u64,
///     #[ostler(hot)]
///     iops: u64,
/// }
///
/// let read = |json: &str| serde_json::from_str::<Spec>(json).unwrap();
/// let old = read(r#"{"image": "a", "machineType": "m", "disks": [{"size": 1, "iops": 2}]}"#);
/// let hot = read(r#"{"image": "a", "machineType": "m", "disks": [{"size": 1, "iops": 9}], "tags": {"k": "v"}}"#);
/// let cold = read(r#"{"image": "a", "machineType": "l", "disks": [{"size": 5, "iops": 2}]}"#);
///
/// assert!(hot::fixed_changes(&old, &hot).unwrap().is_empty());
/// assert_eq!(hot::fixed_changes(&old, &cold).unwrap(), ["disks[0].size", "machineType"]);
/// // Tools put this into the name of a class: it is another one exactly when machines have to be
/// // replaced.
/// assert_eq!(hot::fixed_digest(&old).unwrap(), hot::fixed_digest(&hot).unwrap());
/// assert_ne!(hot::fixed_digest(&old).unwrap(), hot::fixed_digest(&cold).unwrap());
/// ```
///
/// A field whose value is absent (`None`, serialized as `null` or not at all) is no part of what is
/// fixed. So a new field is an `Option`: it does not replace the machines of those who do not use it.
///
/// Only structs with named fields can be derived:
///
/// ```compile_fail
/// #[derive(serde::Serialize, ostler_driver_sdk::HotSpec)]
/// enum Spec { Small, Large }
/// ```
///
/// a mark that does not exist is refused:
///
/// ```compile_fail
/// #[derive(serde::Serialize, ostler_driver_sdk::HotSpec)]
/// struct Spec {
///     #[ostler(mutable)]
///     tags: String,
/// }
/// ```
///
/// so is a field that serde gives no name to:
///
/// ```compile_fail
/// #[derive(serde::Serialize, ostler_driver_sdk::HotSpec)]
/// struct Spec {
///     #[ostler(hot)]
///     #[serde(flatten)]
///     tags: std::collections::BTreeMap<String, String>,
/// }
/// ```
///
/// and `nested` needs a type that has marks of its own:
///
/// ```compile_fail
/// #[derive(serde::Serialize, ostler_driver_sdk::HotSpec)]
/// struct Spec {
///     #[ostler(nested)]
///     image: String,
/// }
/// ```
pub trait HotSpec: Serialize {
    /// The fixed part as JSON, by the names of serde.
    fn fixed_part(&self) -> Result<Value, NotJson>;
}

impl<T: HotSpec> HotSpec for Option<T> {
    fn fixed_part(&self) -> Result<Value, NotJson> {
        self.as_ref().map_or(Ok(Value::Null), T::fixed_part)
    }
}

impl<T: HotSpec> HotSpec for Box<T> {
    fn fixed_part(&self) -> Result<Value, NotJson> {
        T::fixed_part(self)
    }
}

impl<T: HotSpec> HotSpec for Vec<T> {
    fn fixed_part(&self) -> Result<Value, NotJson> {
        self.iter().map(T::fixed_part).collect::<Result<_, _>>().map(Value::Array)
    }
}

impl<T: HotSpec> HotSpec for BTreeMap<String, T> {
    fn fixed_part(&self) -> Result<Value, NotJson> {
        let parts = self.iter().map(|(key, value)| Ok((key.clone(), value.fixed_part()?)));
        parts.collect::<Result<_, _>>().map(Value::Object)
    }
}

/// The spec cannot be written as JSON, e.g. because keys of a map are no texts.
#[derive(Debug, thiserror::Error)]
#[error("the provider spec cannot be written as JSON: {0}")]
pub struct NotJson(#[from] serde_json::Error);

/// Paths that differ in what is fixed when an instance is made, in order; empty: the change from
/// `old` to `new` can be applied to a running instance.
pub fn fixed_changes<T: HotSpec>(old: &T, new: &T) -> Result<Vec<String>, NotJson> {
    let mut found = Vec::new();
    compare(&old.fixed_part()?, &new.fixed_part()?, &Path::Root, &mut found);
    Ok(found)
}

/// Digest of what is fixed when an instance is made, lower-case hex. The same for two specs exactly
/// if [`fixed_changes`] between them are none.
pub fn fixed_digest<T: HotSpec>(spec: &T) -> Result<String, NotJson> {
    let part = without_nulls(spec.fixed_part()?);
    // Keys come in order: serde_json keeps maps sorted.
    Ok(hex::encode(Sha256::digest(part.to_string())))
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            let mut kept: Vec<_> = kept.map(|(key, value)| (key, without_nulls(value))).collect();
            kept.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(kept.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(without_nulls).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// Where a value stands.
enum Path<'a> {
    Root,
    Key(&'a Self, &'a str),
    Index(&'a Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) => f.write_str(key),
            Path::Key(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A list that got longer or shorter is named as a whole: what is where in it has changed anyway.
fn compare(old: &Value, new: &Value, at: &Path<'_>, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let (old, new) = (old.get(key), new.get(key));
                let (old, new) = (old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null));
                compare(old, new, &Path::Key(at, key), found);
            }
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                compare(old, new, &Path::Index(at, index), found);
            }
        }
        (old, new) if old == new => {}
        _ => found.push(at.to_string()),
    }
}

/// The fixed part while it is made. For the derive.
#[doc(hidden)]
#[derive(Debug)]
pub struct Part(Value);

impl Part {
    /// All of a spec.
    pub fn of<T: Serialize + ?Sized>(spec: &T) -> Result<Self, NotJson> {
        Ok(Self(serde_json::to_value(spec)?))
    }

    /// Without a field.
    pub fn without(&mut self, name: &str) {
        if let Value::Object(fields) = &mut self.0 {
            fields.remove(name);
        }
    }

    /// With only a part of a field.
    pub fn with(&mut self, name: &str, part: Value) {
        if let Value::Object(fields) = &mut self.0 {
            fields.insert(name.to_owned(), part);
        }
    }

    /// The part.
    pub fn into_value(self) -> Value {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A spec all of which is fixed.
    #[derive(Serialize)]
    struct Fixed(Value);

    impl HotSpec for Fixed {
        fn fixed_part(&self) -> Result<Value, NotJson> {
            Ok(self.0.clone())
        }
    }

    fn changes(old: Value, new: Value) -> Vec<String> {
        fixed_changes(&Fixed(old), &Fixed(new)).unwrap()
    }

    #[test]
    fn every_change_is_named_by_its_path() {
        let old = json!({ "a": 1, "b": { "c": [1, { "d": 2 }] }, "e": "x", "f": [1] });
        let new = json!({ "a": 1, "b": { "c": [1, { "d": 3 }] }, "g": "x", "f": [1, 2] });
        assert_eq!(changes(old.clone(), new), ["b.c[1].d", "e", "f", "g"]);
        assert!(changes(old.clone(), old).is_empty());
    }

    #[test]
    fn what_is_absent_is_no_part_of_it() {
        let (without, with) = (json!({ "a": 1 }), json!({ "a": 1, "new": null }));
        assert!(changes(without.clone(), with.clone()).is_empty());
        let digest = |value: Value| fixed_digest(&Fixed(value)).unwrap();
        assert_eq!(digest(without), digest(with));
        assert_ne!(digest(json!([null])), digest(json!([])), "in a list its place counts");
    }

    #[test]
    fn the_digest_is_the_same_exactly_if_nothing_fixed_changed() {
        let all = [json!({}), json!({ "a": 1 }), json!({ "a": 2 }), json!({ "a": { "b": [] } })];
        for one in &all {
            for other in &all {
                let same = changes(one.clone(), other.clone()).is_empty();
                let digest = |value: &Value| fixed_digest(&Fixed(value.clone())).unwrap();
                assert_eq!(same, digest(one) == digest(other), "{one} {other}");
            }
        }
        assert_eq!(fixed_digest(&Fixed(json!({}))).unwrap().len(), 64);
    }
}

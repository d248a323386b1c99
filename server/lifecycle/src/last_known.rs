//! What is kept of a class and its credentials while a Machine may need them to be deleted, should
//! a user delete both: the data of a Secret beside them. User data is not kept; nothing is ever
//! made with it.

use ostler_api::Revision;
use std::collections::BTreeMap;

use ostler_api::{MachineClass, names};
use serde_json::{Value, json};

use crate::digest;

/// `type` of the Secret.
pub const TYPE: &str = "ostler.dev/last-known-class";
/// The most that is kept. An API server takes a Secret of 1 MiB.
pub const MOST_BYTES: usize = 768 << 10;

const PREFIX: &str = "ostler-class-";
const CLASS: &str = "class.json";
const REVISION: &str = "secret-revision";
const KEY: &str = "data.";

/// A class as it was last seen with everything that it needs.
#[derive(Clone, PartialEq)]
pub struct LastKnown {
    /// The class: name, namespace, annotations left out, and its fields.
    pub class: MachineClass,
    /// Revision of its merged secret; `None` if it named none.
    pub secret_revision: Option<Revision>,
    /// The merged secret, without user data.
    pub secret: BTreeMap<String, Vec<u8>>,
}

impl std::fmt::Debug for LastKnown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LastKnown")
            .field("class", &self.class.metadata.name)
            .field("secret_revision", &self.secret_revision)
            .field("secret", &format_args!("<{} keys>", self.secret.len()))
            .finish()
    }
}

/// Name of the Secret for a class of this name: as short for a long name as for a short one.
pub fn secret_name(class: &str) -> String {
    format!("{PREFIX}{}", digest::of_text(class))
}

impl LastKnown {
    /// Takes a class down. `None`: with its secret it is too large to be kept.
    pub fn encode(&self) -> Option<BTreeMap<String, Vec<u8>>> {
        let mut class = serde_json::to_value(&self.class).ok()?;
        let meta = &self.class.metadata;
        *class.get_mut("metadata")? = json!({ "name": meta.name, "namespace": meta.namespace });
        let mut data: BTreeMap<String, Vec<u8>> =
            self.secret.iter().map(|(key, value)| (format!("{KEY}{key}"), value.clone())).collect();
        data.insert(CLASS.to_owned(), digest::canonical(&class).into_bytes());
        if let Some(revision) = &self.secret_revision {
            data.insert(REVISION.to_owned(), revision.as_str().into());
        }
        let bytes: usize = data.iter().map(|(key, value)| key.len() + value.len()).sum();
        (bytes <= MOST_BYTES).then_some(data)
    }

    /// Reads what was kept; `None` if it belongs to another object, or is spoiled.
    pub fn decode(data: &BTreeMap<String, Vec<u8>>) -> Option<Self> {
        let class: Value = serde_json::from_slice(data.get(CLASS)?).ok()?;
        let of_class = class.get("kind").and_then(Value::as_str) == Some(names::MACHINE_CLASS);
        let class: MachineClass = serde_json::from_value(class).ok().filter(|_| of_class)?;
        let secret_revision = data
            .get(REVISION)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .map(Revision::from);
        let secret = data
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(KEY)?.to_owned(), value.clone())))
            .collect();
        Some(Self { class, secret_revision, secret })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> LastKnown {
        let class = serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": "MachineClass",
            "metadata": {
                "name": "c", "namespace": "default", "resourceVersion": "7",
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "{}" }
            },
            "provider": "p", "providerSpec": { "a": 1 }, "secretRef": { "name": "s" }
        }))
        .unwrap();
        LastKnown {
            class,
            secret_revision: Some("3.5".into()),
            secret: [("token".to_owned(), b"canary".to_vec())].into(),
        }
    }

    #[test]
    fn a_class_reads_as_it_was_taken_down_but_for_its_metadata() {
        let known = known();
        let read = LastKnown::decode(&known.encode().unwrap()).unwrap();
        assert_eq!(read.class.spec, known.class.spec);
        assert_eq!(read.class.metadata.name.as_deref(), Some("c"));
        assert_eq!(read.class.metadata.namespace.as_deref(), Some("default"));
        assert_eq!(read.class.metadata.annotations, None);
        assert_eq!((&read.secret, &read.secret_revision), (&known.secret, &known.secret_revision));
        assert_eq!(read.encode(), known.encode(), "what did not change is not written again");
    }

    #[test]
    fn what_is_too_large_or_spoiled_is_not_kept() {
        let mut large = known();
        large.secret.insert("blob".to_owned(), vec![0; MOST_BYTES]);
        assert_eq!(large.encode(), None);
        assert_eq!(LastKnown::decode(&BTreeMap::new()), None);
        let spoiled = [(CLASS.to_owned(), b"{}".to_vec())].into();
        assert_eq!(LastKnown::decode(&spoiled), None);
    }

    #[test]
    fn the_name_of_the_secret_fits_whatever_the_class_is_called() {
        assert!(secret_name(&"x".repeat(253)).len() < 63);
        assert_ne!(secret_name("a"), secret_name("b"));
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", known());
        assert!(shown.contains("<1 keys>") && !shown.contains("canary"), "{shown}");
    }
}

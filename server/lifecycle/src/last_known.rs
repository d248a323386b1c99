//! The stored copy of a class and its credentials while a Machine may need them for its deletion, should a user delete
//! both: the data of a Secret beside them. User data is not kept; nothing is ever made with it. The former versions of
//! the class are kept as well: an instance whose creation has no known outcome is in the place that the former version
//! names.

use ostler_api::Revision;
use std::collections::{BTreeMap, BTreeSet};

use ostler_api::{MachineClass, names};
use serde_json::{Value, json};

use crate::{class_facts::ClassFacts, digest};

/// `type` of the Secret.
pub const TYPE: &str = "ostler.dev/last-known-class";
/// The most that is kept. An API server takes a Secret of 1 MiB.
pub const MOST_BYTES: usize = 768 << 10;

const PREFIX: &str = "ostler-class-";
const CLASS: &str = "class.json";
const REVISION: &str = "secret-revision";
/// Prefix of the stored keys. Every core reads it so.
const KEY: &str = "data.";
/// The API's limit for a key. A longer key with [`KEY`] before it cannot be stored.
const LONGEST_KEY: usize = 253;
const EARLIER: &str = "earlier.";

/// A class in its last complete state.
#[derive(Clone, PartialEq)]
pub struct LastKnown {
    /// The class: name, namespace, annotations left out, and its fields, but not its status.
    pub class: MachineClass,
    /// Revision of the merged secret; `None` without a secret.
    pub secret_revision: Option<Revision>,
    /// The merged secret, without user data.
    pub secret: BTreeMap<String, Vec<u8>>,
    /// Former versions of the class: the last one, and every version with which a creation of unknown outcome was
    /// begun. The secrets of all versions have their current content.
    pub earlier: BTreeMap<Revision, MachineClass>,
}

impl std::fmt::Debug for LastKnown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LastKnown")
            .field("class", &self.class.metadata.name)
            .field("secret_revision", &self.secret_revision)
            .field("secret", &format_args!("<{} keys>", self.secret.len()))
            .field("earlier", &self.earlier.keys())
            .finish()
    }
}

/// Name of the Secret for a class of this name: as short for a long name as for a short one.
pub fn secret_name(class: &str) -> String {
    format!("{PREFIX}{}", digest::of_text(class))
}

impl LastKnown {
    /// The class with the former versions from the previous copy. `open`: the revisions of creations without a known
    /// outcome.
    #[must_use]
    pub fn after(mut self, before: Option<Self>, open: &BTreeSet<Revision>) -> Self {
        let Some(before) = before else { return self };
        let (now, was) =
            (ClassFacts::of(&self.class).revision, ClassFacts::of(&before.class).revision);
        self.earlier = before.earlier;
        if now != was {
            self.earlier.retain(|revision, _| open.contains(revision));
            self.earlier.insert(was, before.class);
            self.earlier.remove(&now);
        }
        self
    }

    /// Encodes a class for storage. `None`: too large with the secret, or a key of the secret is too long. Former
    /// versions are left out if the copy is too large only with them.
    pub fn encode(&self) -> Option<BTreeMap<String, Vec<u8>>> {
        let mut data: BTreeMap<String, Vec<u8>> =
            self.secret.iter().map(|(key, value)| (format!("{KEY}{key}"), value.clone())).collect();
        data.insert(CLASS.to_owned(), text(&self.class)?);
        if let Some(revision) = &self.secret_revision {
            data.insert(REVISION.to_owned(), revision.as_str().into());
        }
        let bytes = |data: &BTreeMap<String, Vec<u8>>| -> usize {
            data.iter().map(|(key, value)| key.len() + value.len()).sum()
        };
        let earlier = self.earlier.iter();
        let earlier = earlier
            .filter_map(|(revision, class)| Some((format!("{EARLIER}{revision}"), text(class)?)))
            .collect();
        if bytes(&data) + bytes(&earlier) <= MOST_BYTES {
            data.extend(earlier);
        }
        let fits = bytes(&data) <= MOST_BYTES && data.keys().all(|key| key.len() <= LONGEST_KEY);
        fits.then_some(data)
    }

    /// Reads the stored copy; `None` if it belongs to another object, or is spoiled.
    pub fn decode(data: &BTreeMap<String, Vec<u8>>) -> Option<Self> {
        let class = class(data.get(CLASS)?)?;
        let secret_revision = data
            .get(REVISION)
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .map(Revision::from);
        let secret = data
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix(KEY)?.to_owned(), value.clone())))
            .collect();
        let earlier = earlier(data.iter().map(|(key, value)| (key.as_str(), value.as_slice())));
        Some(Self { class, secret_revision, secret, earlier })
    }
}

/// The former versions of the class in the stored data.
pub fn earlier<'a>(
    data: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> BTreeMap<Revision, MachineClass> {
    data.filter_map(|(key, value)| Some((key.strip_prefix(EARLIER)?.into(), class(value)?)))
        .collect()
}

fn text(class: &MachineClass) -> Option<Vec<u8>> {
    let mut value = serde_json::to_value(class).ok()?;
    value.as_object_mut()?.remove("status");
    let meta = &class.metadata;
    *value.get_mut("metadata")? = json!({ "name": meta.name, "namespace": meta.namespace });
    Some(digest::canonical(&value).into_bytes())
}

fn class(text: &[u8]) -> Option<MachineClass> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let of_class = value.get("kind").and_then(Value::as_str) == Some(names::MACHINE_CLASS);
    serde_json::from_value(value).ok().filter(|_| of_class)
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
            earlier: BTreeMap::new(),
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
        for (length, kept) in [(248, true), (249, false), (253, false)] {
            let mut named = known();
            named.secret.insert("k".repeat(length), Vec::new());
            assert_eq!(named.encode().is_some(), kept, "the API refuses a longer key: {length}");
        }
        let spoiled = [(CLASS.to_owned(), b"{}".to_vec())].into();
        assert_eq!(LastKnown::decode(&spoiled), None);
    }

    fn at(place: &str) -> LastKnown {
        let mut known = known();
        known.class.spec.provider_spec = json!({ "place": place });
        known
    }

    fn revision(place: &str) -> Revision {
        ClassFacts::of(&at(place).class).revision
    }

    #[test]
    fn what_a_class_was_last_and_what_open_creations_need_is_kept() {
        let keep = |known: LastKnown, before: &LastKnown, open: &[&str]| {
            let open = open.iter().map(|place| revision(place)).collect();
            let before = LastKnown::decode(&before.encode().unwrap());
            known.after(before, &open)
        };
        let places = |known: &LastKnown| {
            let place = |(revision, class): (&Revision, &MachineClass)| {
                assert_eq!(*revision, ClassFacts::of(class).revision);
                class.spec.provider_spec["place"].as_str().unwrap().to_owned()
            };
            let mut all: Vec<_> = known.earlier.iter().map(place).collect();
            all.sort();
            all
        };
        let first = at("a");
        let second = keep(at("b"), &first, &[]);
        assert_eq!(places(&second), ["a"], "a creation with it may not be seen yet");
        assert_eq!(places(&keep(at("b"), &second, &[])), ["a"], "until the class changes again");
        assert_eq!(places(&keep(at("c"), &second, &[])), ["b"]);
        let third = keep(at("c"), &second, &["a"]);
        assert_eq!(places(&third), ["a", "b"]);
        assert_eq!(places(&keep(at("a"), &third, &["a"])), ["c"], "it is as it was");
        let mut large = third.clone();
        large.secret.insert("blob".to_owned(), vec![0; MOST_BYTES - 400]);
        assert_eq!(LastKnown::decode(&large.encode().unwrap()).unwrap().earlier, [].into());
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

//! Where an object lives in the one ordered key space.

use std::{borrow::Borrow, fmt, sync::Arc};

/// The address of one object: `<group>/<resource>/<namespace>/<name>`, group `""` for the core
/// group and namespace `""` for cluster-scoped objects.
///
/// Keys order as their text does, which is the order clients know from lists: by namespace, then
/// by name, both terminated by `/`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// Builds a key. The parts are taken as they are; none may contain `/`, which the API's name
    /// rules guarantee.
    pub fn new(group: &str, resource: &str, namespace: &str, name: &str) -> Self {
        Self(format!("{group}/{resource}/{namespace}/{name}").into())
    }

    /// Parses a key: four parts, with a resource and a name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let key = Self(text.into());
        let four = text.split('/').count() == 4;
        (four && !key.resource().is_empty() && !key.name().is_empty()).then_some(key)
    }

    /// Reads a key back from its text, as it stands in the log.
    pub(super) fn from_text(text: &str) -> Self {
        Self(text.into())
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The API group, empty for the core group.
    pub fn group(&self) -> &str {
        self.part(0)
    }

    /// The plural resource name.
    pub fn resource(&self) -> &str {
        self.part(1)
    }

    /// The namespace, empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        self.part(2)
    }

    /// The object's name.
    pub fn name(&self) -> &str {
        self.part(3)
    }

    fn part(&self, index: usize) -> &str {
        self.0.splitn(4, '/').nth(index).unwrap_or_default()
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A range of keys: everything, all objects of a resource, or those in one namespace.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Prefix(Arc<str>);

impl Prefix {
    /// Every object of every resource.
    pub fn all() -> Self {
        Self("".into())
    }

    /// All objects of a resource, over all namespaces.
    pub fn resource(group: &str, resource: &str) -> Self {
        Self(format!("{group}/{resource}/").into())
    }

    /// The objects of a resource in one namespace. `""` as the namespace is the same as
    /// [`Prefix::resource`].
    pub fn namespace(group: &str, resource: &str, namespace: &str) -> Self {
        if namespace.is_empty() {
            return Self::resource(group, resource);
        }
        Self(format!("{group}/{resource}/{namespace}/").into())
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &Key) -> bool {
        key.as_str().starts_with(&*self.0)
    }

    /// The text every key of the range starts with.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

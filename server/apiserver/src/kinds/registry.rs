//! The registry of served kinds.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock, OnceLock},
};

use serde_json::Value;

use super::{BuiltIn, Resource, StorageKey, custom};
use crate::kinds::document::{Document, Documents};

/// A snapshot of all served kinds: the built-in ones and those of the definitions it was made of.
/// Cheap to clone; a new one is made whenever a definition changes.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    by_address: Arc<BTreeMap<Address, Arc<Resource>>>,
    documents: Arc<OnceLock<Documents>>,
    whole: Arc<OnceLock<[Arc<Document>; 2]>>,
}

/// Group, version, plural.
type Address = (String, String, String);

static BUILT_IN: LazyLock<Vec<Arc<Resource>>> =
    LazyLock::new(|| BuiltIn::ALL.iter().map(|kind| Arc::new(kind.resource())).collect());

impl Registry {
    /// The built-in kinds alone.
    pub(crate) fn built_in() -> Self {
        Self::with_definitions(std::iter::empty())
    }

    /// The built-in kinds, and those of all established definitions among `definitions`
    /// (CustomResourceDefinition objects as they are stored).
    pub(crate) fn with_definitions<'a>(definitions: impl IntoIterator<Item = &'a Value>) -> Self {
        Self::with_custom(definitions.into_iter().flat_map(Self::defined_by))
    }

    /// The kinds of one definition; none before it is established.
    pub(crate) fn defined_by(definition: &Value) -> Vec<Arc<Resource>> {
        custom::resources(definition).into_iter().map(Arc::new).collect()
    }

    /// The built-in kinds and these.
    pub(crate) fn with_custom(custom: impl IntoIterator<Item = Arc<Resource>>) -> Self {
        let by_address = BUILT_IN
            .iter()
            .cloned()
            .chain(custom)
            .map(|resource| {
                let address =
                    (resource.group.clone(), resource.version.clone(), resource.plural.clone());
                (address, resource)
            })
            .collect();
        Self { by_address: Arc::new(by_address), documents: Arc::default(), whole: Arc::default() }
    }

    /// The OpenAPI documents of these kinds, made at the first request for one.
    pub(crate) fn documents(&self) -> &OnceLock<Documents> {
        &self.documents
    }

    /// The one document of OpenAPI v2, as JSON and in binary form, made at the first request for it.
    pub(crate) fn whole_document(&self) -> &OnceLock<[Arc<Document>; 2]> {
        &self.whole
    }

    /// The resource at `/apis/{group}/{version}/{plural}`.
    pub(crate) fn lookup(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<&Arc<Resource>> {
        self.by_address.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The resource that serves a kind.
    pub(crate) fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.of_version(group, version).find(|resource| resource.kind == kind)
    }

    /// All resources, by group, version and plural.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_address.values()
    }

    /// The resources of one group and version, by plural.
    pub(crate) fn of_version(
        &self,
        group: &str,
        version: &str,
    ) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources()
            .filter(move |resource| resource.group == group && resource.version == version)
    }

    /// A resource of each stored set of objects: what collectors that walk all objects need.
    pub(crate) fn stored(&self) -> BTreeMap<StorageKey, Arc<Resource>> {
        let mut stored = BTreeMap::new();
        for resource in self.resources() {
            stored.entry(resource.storage.clone()).or_insert_with(|| Arc::clone(resource));
        }
        stored
    }
}

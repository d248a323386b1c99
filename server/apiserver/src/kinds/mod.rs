//! What can be stored: the built-in kinds and those that CustomResourceDefinitions add.
//!
//! A [`Resource`] says everything the request handlers need to know about one kind in one version,
//! and does everything that differs by kind. All of it is a pure function over JSON, called in this
//! order: [`Resource::decode`] (types, unknown fields), [`Resource::default`], then
//! [`Resource::prepare_create`] or [`Resource::prepare_update`] (fields that the server owns), then
//! [`Resource::validate_create`] or [`Resource::validate_update`] (what is refused with 422).
//!
//! `metadata` is the same for all kinds and is not handled here, except for its types.

pub(crate) mod access;
mod budget;
pub mod builtin;
pub(crate) mod certificate;
mod config;
pub mod custom;
mod definition;
mod dispatch;
pub(crate) mod event;
mod lease;
pub mod names;
mod namespace;
pub(crate) mod node;
mod pod;
pub mod quantity;
pub mod registry;
mod service;
mod strategy;
mod volume;
mod workload;

use std::{fmt, sync::Arc};

use serde_json::Value;

pub use self::{
    builtin::BuiltIn, custom::CustomVersion, names::NameRule, registry::Registry,
    strategy::Strategy,
};
use crate::field::FieldError;

/// A group, version and kind, as it stands in an object's `apiVersion` and `kind`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

/// Where objects of a resource lie in the store. Resources that share it are the same objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorageKey {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name.
    pub plural: String,
}

/// A part of an object, or an action on it, with an address of its own below the object's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subresource {
    /// `/status`: only the status moves.
    Status,
    /// `/scale`: an autoscaling/v1 Scale made of the paths of [`ScalePaths`].
    Scale,
    /// `/eviction` of a pod.
    Eviction,
    /// `/binding` of a pod.
    Binding,
    /// `/token` of a service account.
    Token,
    /// `/finalize` of a namespace.
    Finalize,
    /// `/approval` of a certificate signing request.
    Approval,
}

impl Subresource {
    /// The last segment of the address.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::Scale => "scale",
            Self::Eviction => "eviction",
            Self::Binding => "binding",
            Self::Token => "token",
            Self::Finalize => "finalize",
            Self::Approval => "approval",
        }
    }
}

/// Where a Scale finds its numbers: JSON paths below the object, such as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// The wanted replicas.
    pub spec_replicas: String,
    /// The replicas there are.
    pub status_replicas: String,
    /// The serialised label selector, if the kind has one.
    pub label_selector: Option<String>,
}

/// The subresources of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subresources {
    /// `/status` is served, and the main address ignores the status.
    pub status: bool,
    /// `/scale` is served.
    pub scale: Option<ScalePaths>,
    /// Those that only built-in kinds have.
    pub others: &'static [Subresource],
}

impl Subresources {
    /// Whether `wanted` is served.
    pub fn has(&self, wanted: Subresource) -> bool {
        match wanted {
            Subresource::Status => self.status,
            Subresource::Scale => self.scale.is_some(),
            Subresource::Eviction
            | Subresource::Binding
            | Subresource::Token
            | Subresource::Finalize
            | Subresource::Approval => self.others.contains(&wanted),
        }
    }
}

/// A field of the sent object that the schema does not know; it is not stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// Its path, `spec.nope`.
    pub path: String,
}

/// Unknown fields of one object that are told, as many as Kubernetes tells.
const MOST_UNKNOWN: usize = 100;

impl UnknownField {
    /// Notes an unknown field, unless enough are. Long paths are shortened: a body may be one.
    pub(crate) fn note(unknown: &mut Vec<Self>, path: crate::field::Path<'_>) {
        if unknown.len() < MOST_UNKNOWN {
            let path = crate::field::shorten(path.text(), crate::field::SHOWN_PATH);
            unknown.push(Self { path });
        }
    }
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown field {}", crate::field::quote(&self.path))
    }
}

/// A field of the sent object has a type that the kind cannot hold: 400, not 422.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("json: cannot unmarshal {found} into field {path} of type {wanted}")]
pub struct DecodeError {
    /// The field's path, beginning with the kind.
    pub path: String,
    /// The JSON type that was sent.
    pub found: &'static str,
    /// What the field holds.
    pub wanted: String,
}

/// One kind in one version, as it is served.
#[derive(Clone, Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The kind of its lists.
    pub list_kind: String,
    /// The plural name: the address.
    pub plural: String,
    /// The singular name.
    pub singular: String,
    /// Short names for command lines.
    pub short_names: Vec<String>,
    /// Groups of kinds this one belongs to, such as `all`.
    pub categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// What lies below an object's address.
    pub subresources: Subresources,
    /// The verbs of the main address, in the order discovery shows them.
    pub verbs: &'static [&'static str],
    /// Where the objects lie.
    pub storage: StorageKey,
    /// The definition is being deleted: what is there can be read and deleted, nothing be created.
    pub terminating: bool,
    /// What differs by kind.
    pub strategy: Strategy,
}

impl Resource {
    /// `v1` or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
        }
    }

    /// `plural` or `plural.group`, as messages name a resource.
    pub fn qualified_plural(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// `Kind` or `Kind.group`, as validation messages name a kind.
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// Whether a definition made it, and not this program.
    pub fn is_custom(&self) -> bool {
        matches!(self.strategy, Strategy::Custom(_))
    }

    /// Checks types and drops fields that the kind does not have; they are returned, in the order
    /// Kubernetes names them.
    ///
    /// # Errors
    /// A field of a built-in kind, or of `metadata`, holds a value of the wrong type (400).
    pub fn decode(&self, object: &mut Value) -> Result<Vec<UnknownField>, DecodeError> {
        self.strategy.decode(object)
    }

    /// Fills in defaults. Call it on every write, and on reads of custom objects.
    pub fn default(&self, object: &mut Value) {
        self.strategy.default(object);
    }

    /// Sets and clears the fields that the server owns on create. The name must be known by now.
    pub fn prepare_create(&self, object: &mut Value) {
        self.strategy.prepare_create(object, self.subresources.status);
    }

    /// Sets and clears the fields that the server owns on update: the status is kept on the main
    /// address, all but the status on `/status` (and, for custom objects, the metadata as well).
    pub fn prepare_update(&self, new: &mut Value, old: &Value, part: Option<Subresource>) {
        self.strategy.prepare_update(new, old, part, self.subresources.status);
    }

    /// Brings an object of this version into the form it is stored in: custom objects get the
    /// `apiVersion` of the storage version, events their core form.
    pub fn to_stored(&self, object: &mut Value) {
        match &self.strategy {
            Strategy::Custom(version) => {
                access::set(object, "apiVersion", version.stored_api_version.clone());
            }
            Strategy::BuiltIn(BuiltIn::Event) => event::to_core(object),
            Strategy::BuiltIn(_) => {}
        }
    }

    /// Brings a stored object into this version. Custom objects are pruned and defaulted by the
    /// schema of now, which may be newer than the object.
    #[expect(clippy::wrong_self_convention, reason = "the object is turned, not the resource")]
    pub fn from_stored(&self, object: &mut Value) {
        match &self.strategy {
            Strategy::Custom(version) => {
                access::set(object, "apiVersion", self.api_version());
                if let Err(error) = version.schema.prune(object) {
                    tracing::debug!(%error, "a stored object has malformed metadata");
                }
                version.schema.default(object);
            }
            Strategy::BuiltIn(BuiltIn::Event) => event::from_core(object),
            Strategy::BuiltIn(_) => {}
        }
    }

    /// What is wrong with a new object, apart from its metadata.
    pub fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        self.strategy.validate_create(object)
    }

    /// What is wrong with a change, apart from its metadata.
    pub fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        part: Option<Subresource>,
    ) -> Vec<FieldError> {
        self.strategy.validate_update(new, old, part)
    }

    /// Whether Kubernetes checks the metadata of a changed object of this kind as if it were new,
    /// besides what it checks of every change: each check that fails is told.
    pub fn rechecks_metadata(&self) -> bool {
        match self.strategy {
            Strategy::BuiltIn(kind) => kind.rechecks_metadata(),
            Strategy::Custom(_) => false,
        }
    }

    /// Whether objects carry `metadata.generation`.
    pub fn has_generation(&self) -> bool {
        self.strategy.has_generation()
    }

    /// Whether the change from `old` to `new` raises the generation: for most kinds, any change
    /// outside `metadata` and `status`.
    pub fn raises_generation(&self, new: &Value, old: &Value) -> bool {
        self.has_generation() && strategy::body_differs(new, old, self.subresources.status)
    }

    /// The labels that a field selector may name, with this object's values.
    pub fn field_labels(&self, object: &Value) -> Vec<(String, String)> {
        let mut labels =
            vec![("metadata.name".to_owned(), access::text(object, "/metadata/name").to_owned())];
        if self.namespaced || !self.is_custom() {
            let namespace = access::text(object, "/metadata/namespace").to_owned();
            labels.push(("metadata.namespace".to_owned(), namespace));
        }
        self.strategy.field_labels(object, &mut labels);
        labels
    }

    /// Whether a field selector may name `label`.
    pub fn supports_field_label(&self, label: &str) -> bool {
        self.field_labels(&Value::Null).iter().any(|(name, _)| name == label)
    }

    /// What names of objects must look like.
    pub fn name_rule(&self) -> NameRule {
        self.strategy.name_rule()
    }

    /// The custom version behind it, if a definition made it.
    pub fn custom(&self) -> Option<&Arc<CustomVersion>> {
        match &self.strategy {
            Strategy::Custom(version) => Some(version),
            Strategy::BuiltIn(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;

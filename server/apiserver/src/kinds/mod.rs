//! The kinds of stored objects: built-in kinds, and kinds of CustomResourceDefinitions.
//!
//! A [`Resource`] says everything the request handlers need to know about one kind in one version,
//! and does everything that differs by kind. All of it is a pure function over JSON, called in this
//! order: [`Resource::decode`] (types, unknown fields), [`Resource::default`], then
//! [`Resource::prepare_create`] or [`Resource::prepare_update`] (fields that the server owns), then
//! [`Resource::validate_create`] or [`Resource::validate_update`] (what is refused with 422).
//!
//! `metadata` is the same for all kinds and is not handled here, except for its types.

pub(crate) mod access;
pub(crate) mod apply;
mod budget;
pub(crate) mod builtin;
mod builtin_types;
pub(crate) mod certificate;
pub(crate) mod conditions;
mod config;
pub(crate) mod custom;
mod defaults;
pub(crate) mod definition;
pub(crate) mod discovery;
mod dispatch;
pub(crate) mod document;
pub(crate) mod event;
pub(crate) mod field;
pub(crate) mod identity;
mod lease;
pub(crate) mod names;
mod namespace;
pub(crate) mod node;
pub(crate) mod openapi;
pub(crate) mod patch;
mod pod;
pub(crate) mod query;
pub(crate) mod registry;
pub(crate) mod schema;
pub(crate) mod selector;
mod service;
pub(crate) mod status;
mod stored;
mod strategy;
pub(crate) mod table;
mod workload;

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

pub(crate) use self::{
    builtin::{BuiltIn, type_name},
    custom::CustomVersion,
    definition::begin_deletion,
    names::NameRule,
    registry::Registry,
};
use crate::kinds::{
    apply::{Scope, Type, Writes},
    field::FieldError,
    schema::{
        catalogue,
        decode::{DecodeError, UnknownField},
    },
};

/// The behaviour of a kind.
#[derive(Clone, Debug)]
pub(crate) enum Strategy {
    /// Compiled in.
    BuiltIn(BuiltIn),
    /// From a definition's schema.
    Custom(Arc<CustomVersion>),
}

/// The place of a resource's objects in the store. Resources with the same key have the same objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StorageKey {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    /// The plural name.
    pub(crate) plural: String,
}

/// A part of an object, or an action on it, with an address of its own below the object's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Subresource {
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
    /// All subresources, in the order of discovery.
    pub(crate) const ALL: [Self; 7] = [
        Self::Binding,
        Self::Eviction,
        Self::Finalize,
        Self::Approval,
        Self::Status,
        Self::Scale,
        Self::Token,
    ];

    /// Group and kind (in version v1) of what is sent there, if it is not the kind of the object.
    pub(crate) const fn foreign_kind(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Scale => Some(("autoscaling", "Scale")),
            Self::Eviction => Some(("policy", "Eviction")),
            Self::Binding => Some(("", "Binding")),
            Self::Token => Some(("authentication.k8s.io", "TokenRequest")),
            Self::Status | Self::Finalize | Self::Approval => None,
        }
    }

    /// The verbs of the subresource.
    pub(crate) const fn verbs(self) -> &'static [&'static str] {
        match self {
            Self::Status | Self::Approval | Self::Scale => &["get", "patch", "update"],
            Self::Finalize => &["update"],
            Self::Eviction | Self::Binding | Self::Token => &["create"],
        }
    }

    /// The last segment of the address.
    pub(crate) const fn name(self) -> &'static str {
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
pub(crate) struct ScalePaths {
    /// The wanted replicas.
    pub(crate) spec_replicas: String,
    /// The replicas there are.
    pub(crate) status_replicas: String,
    /// The serialised label selector, if the kind has one.
    pub(crate) label_selector: Option<String>,
}

/// The subresources of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Subresources {
    /// `/status` is served, and the main address ignores the status.
    pub(crate) status: bool,
    /// `/scale` is served.
    pub(crate) scale: Option<ScalePaths>,
    /// Subresources that only built-in kinds have.
    pub(crate) others: &'static [Subresource],
}

impl Subresources {
    /// Whether `wanted` is served.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others stand in a list")]
    pub(crate) fn has(&self, wanted: Subresource) -> bool {
        match wanted {
            Subresource::Status => self.status,
            Subresource::Scale => self.scale.is_some(),
            _ => self.others.contains(&wanted),
        }
    }
}

/// What the request handlers do with some kinds and not with others, as Kubernetes has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Objects carry `metadata.generation`.
    Generation,
    /// The metadata of a changed object is checked as if it were new, besides what is checked of
    /// every change: each check that fails is told.
    RechecksMetadata,
    /// A deletion that is done answers with the object.
    ShownWhenDeleted,
    /// A PUT may create.
    PutCreates,
    /// A PUT must name the version that it is meant for.
    PutNeedsVersion,
}

/// A kind in a served version.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    /// The version.
    pub(crate) version: String,
    /// The kind.
    pub(crate) kind: String,
    /// The kind of its lists.
    pub(crate) list_kind: String,
    /// The plural name: the address.
    pub(crate) plural: String,
    /// The singular name.
    pub(crate) singular: String,
    /// Short names for command lines.
    pub(crate) short_names: Vec<String>,
    /// The kind's groups, such as `all`.
    pub(crate) categories: Vec<String>,
    /// Whether objects live in namespaces.
    pub(crate) namespaced: bool,
    /// The subresources of an object.
    pub(crate) subresources: Subresources,
    /// The verbs of the main address, in the order discovery shows them.
    pub(crate) verbs: &'static [&'static str],
    /// Where the objects lie.
    pub(crate) storage: StorageKey,
    /// The definition is being deleted: what is there can be read and deleted, nothing be created.
    pub(crate) terminating: bool,
    /// The rule for names of objects.
    pub(crate) names: NameRule,
    /// The rules of the kind.
    pub(crate) rules: &'static [Rule],
    /// Behaviour that differs by kind.
    pub(crate) strategy: Strategy,
}

impl Resource {
    /// `v1` or `group/version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `plural` or `plural.group`, as messages name a resource.
    pub(crate) fn qualified_plural(&self) -> String {
        self.qualified(&self.plural)
    }

    /// `Kind` or `Kind.group`, as validation messages name a kind.
    pub(crate) fn qualified_kind(&self) -> String {
        self.qualified(&self.kind)
    }

    fn qualified(&self, name: &str) -> String {
        if self.group.is_empty() { name.to_owned() } else { format!("{name}.{}", self.group) }
    }

    /// Whether a definition made the resource, and not this program.
    pub(crate) fn is_custom(&self) -> bool {
        matches!(self.strategy, Strategy::Custom(_))
    }

    /// Whether objects are stored in the form of this version.
    pub(crate) fn is_stored_version(&self) -> bool {
        match &self.strategy {
            Strategy::Custom(version) => version.stored_api_version == self.api_version(),
            Strategy::BuiltIn(_) => self.group == self.storage.group,
        }
    }

    /// Checks types and drops fields that the kind does not have; they are returned, in the order
    /// Kubernetes names them.
    ///
    /// # Errors
    /// A field of a built-in kind, or of `metadata`, holds a value of the wrong type (400).
    pub(crate) fn decode(&self, object: &mut Value) -> Result<Vec<UnknownField>, DecodeError> {
        match &self.strategy {
            Strategy::BuiltIn(kind) => catalogue::decode(*kind, object),
            Strategy::Custom(version) => version.schema.prune(object),
        }
    }

    /// Fills in defaults. Call it on every write, and on reads of custom objects.
    pub(crate) fn default(&self, object: &mut Value) {
        match &self.strategy {
            Strategy::BuiltIn(kind) => kind.default(object),
            Strategy::Custom(version) => version.schema.default(object),
        }
    }

    /// Sets and clears the fields that the server owns on create. The name must be known by now.
    pub(crate) fn prepare_create(&self, object: &mut Value) {
        match &self.strategy {
            Strategy::BuiltIn(kind) => kind.prepare_create(object),
            Strategy::Custom(_) if self.subresources.status => access::remove(object, "status"),
            Strategy::Custom(_) => {}
        }
    }

    /// Sets and clears the fields that the server owns on update: the status is kept on the main
    /// address, all but the status on `/status` (and, for custom objects and definitions, the
    /// metadata as well).
    pub(crate) fn prepare_update(&self, new: &mut Value, old: &Value, part: Option<Subresource>) {
        let definition = self.built_in() == Some(BuiltIn::CustomResourceDefinition);
        match part {
            None if self.subresources.status => access::keep(new, old, "status"),
            Some(Subresource::Status) if self.is_custom() || definition => {
                strategy::keep_all_but_status(new, old);
            }
            Some(Subresource::Status) => strategy::keep_body_but_status(new, old),
            _ => {}
        }
        if let Some(kind) = self.built_in() {
            kind.prepare_update(new, old, part);
        }
    }

    /// Brings an object of this version into the form it is stored in: custom objects get the
    /// `apiVersion` of the storage version, events their core form.
    pub(crate) fn to_stored(&self, object: &mut Value) {
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
    pub(crate) fn from_stored(&self, object: &mut Value) {
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

    /// The errors of a new object, apart from its metadata.
    pub(crate) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        match &self.strategy {
            Strategy::BuiltIn(kind) => kind.validate(object),
            Strategy::Custom(version) => version.schema.validate(object),
        }
    }

    /// The errors of a change, apart from the metadata.
    pub(crate) fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        part: Option<Subresource>,
    ) -> Vec<FieldError> {
        match &self.strategy {
            Strategy::BuiltIn(kind) => kind.validate_update(new, old, part),
            Strategy::Custom(version) if part == Some(Subresource::Status) => {
                version.schema.validate_status_change(new, old)
            }
            Strategy::Custom(version) => version.schema.validate_change(new, old),
        }
    }

    /// The types of fields, as far as ownership needs them.
    pub(crate) fn fields(&self) -> Cow<'_, Type> {
        match &self.strategy {
            Strategy::BuiltIn(kind) => Cow::Owned(Type::named(kind.type_name())),
            Strategy::Custom(version) => Cow::Borrowed(&version.fields),
        }
    }

    /// What is written of its objects, of these types, through the address of a part.
    pub(crate) fn writes<'a>(&self, of: &'a Type, part: Option<Subresource>) -> Writes<'a> {
        let definition = self.built_in() == Some(BuiltIn::CustomResourceDefinition);
        let scope = match part {
            None if self.subresources.status => Scope::AllButStatus,
            Some(Subresource::Status) if self.is_custom() || definition => Scope::OnlyStatus,
            Some(Subresource::Status) => Scope::StatusAndMetadata,
            _ => Scope::Whole,
        };
        // programs make these, by the thousands, and alone
        let of_programs = [BuiltIn::Lease, BuiltIn::Event, BuiltIn::CoreEvent];
        let tracks_new = self.built_in().is_none_or(|kind| !of_programs.contains(&kind));
        let part = part.map_or("", Subresource::name);
        Writes { of, api_version: self.api_version(), part, scope, tracks_new }
    }

    /// Whether a rule holds for the kind.
    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.rules.contains(&rule)
    }

    /// The built-in kind, if the resource is built in.
    pub(crate) fn built_in(&self) -> Option<BuiltIn> {
        match self.strategy {
            Strategy::BuiltIn(kind) => Some(kind),
            Strategy::Custom(_) => None,
        }
    }

    /// Whether the change from `old` to `new` raises the generation: for most kinds, any change
    /// outside `metadata` and `status`.
    pub(crate) fn raises_generation(&self, new: &Value, old: &Value) -> bool {
        self.has(Rule::Generation) && strategy::body_differs(new, old, self.subresources.status)
    }

    /// The labels that a field selector may name, with this object's values.
    pub(crate) fn field_labels(&self, object: &Value) -> Vec<(String, String)> {
        let mut labels =
            vec![("metadata.name".to_owned(), access::text(object, "/metadata/name").to_owned())];
        if self.namespaced || !self.is_custom() {
            let namespace = access::text(object, "/metadata/namespace").to_owned();
            labels.push(("metadata.namespace".to_owned(), namespace));
        }
        match &self.strategy {
            Strategy::BuiltIn(kind) => kind.field_labels(object, |name, value| {
                labels.push((name.to_owned(), value));
            }),
            Strategy::Custom(version) => labels.extend(version.selectable_values(object)),
        }
        labels
    }

    /// Whether a field selector may name `label`.
    pub(crate) fn supports_field_label(&self, label: &str) -> bool {
        self.field_labels(&Value::Null).iter().any(|(name, _)| name == label)
    }

    /// Whether it is a built-in kind that is selected by its name alone.
    pub(crate) fn has_no_field_labels(&self) -> bool {
        !self.is_custom() && self.field_labels(&Value::Null).len() == 2
    }

    /// The custom version behind it, if a definition made it.
    pub(crate) fn custom(&self) -> Option<&Arc<CustomVersion>> {
        match &self.strategy {
            Strategy::Custom(version) => Some(version),
            Strategy::BuiltIn(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;

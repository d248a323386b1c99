//! What differs by kind, dispatched to one file per kind.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    BuiltIn, CustomVersion, DecodeError, NameRule, Subresource, UnknownField,
    access::{keep, remove, set},
    budget, config, definition, event, lease, namespace, node, pod, service, volume, workload,
};
use crate::{field::FieldError, schema::catalogue};

/// The behaviour of a kind.
#[derive(Clone, Debug)]
pub enum Strategy {
    /// Compiled in.
    BuiltIn(BuiltIn),
    /// From a definition's schema.
    Custom(Arc<CustomVersion>),
}

impl Strategy {
    pub(super) fn decode(&self, object: &mut Value) -> Result<Vec<UnknownField>, DecodeError> {
        match self {
            Self::BuiltIn(kind) => catalogue::decode(*kind, object),
            Self::Custom(version) => version.schema.prune(object),
        }
    }

    pub(super) fn default(&self, object: &mut Value) {
        match self {
            Self::BuiltIn(kind) => kind.default(object),
            Self::Custom(version) => version.schema.default(object),
        }
    }

    pub(super) fn prepare_create(&self, object: &mut Value, has_status: bool) {
        match self {
            Self::BuiltIn(kind) => kind.prepare_create(object),
            Self::Custom(_) if has_status => remove(object, "status"),
            Self::Custom(_) => {}
        }
    }

    /// On `/status` a custom object keeps all its metadata, a built-in one takes labels,
    /// annotations and the rest of the new metadata.
    pub(super) fn prepare_update(
        &self,
        new: &mut Value,
        old: &Value,
        part: Option<Subresource>,
        has_status: bool,
    ) {
        match (self, part) {
            (_, None) if has_status => keep(new, old, "status"),
            (
                Self::Custom(_) | Self::BuiltIn(BuiltIn::CustomResourceDefinition),
                Some(Subresource::Status),
            ) => {
                keep_all_but_status(new, old);
            }
            (Self::BuiltIn(_), Some(Subresource::Status)) => keep_body_but_status(new, old),
            _ => {}
        }
        if let Self::BuiltIn(kind) = self {
            kind.prepare_update(new, old, part);
        }
    }

    pub(super) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        match self {
            Self::BuiltIn(kind) => kind.validate(object),
            Self::Custom(version) => version.schema.validate(object),
        }
    }

    pub(super) fn validate_update(
        &self,
        new: &Value,
        old: &Value,
        part: Option<Subresource>,
    ) -> Vec<FieldError> {
        match self {
            Self::BuiltIn(kind) => kind.validate_update(new, old, part),
            Self::Custom(version) => version.schema.validate(new),
        }
    }

    pub(super) fn has_generation(&self) -> bool {
        match self {
            Self::BuiltIn(kind) => kind.has_generation(),
            Self::Custom(_) => true,
        }
    }

    pub(super) fn field_labels(&self, object: &Value, labels: &mut Vec<(String, String)>) {
        match self {
            Self::BuiltIn(kind) => {
                let add = |name: &str, value: String| labels.push((name.to_owned(), value));
                kind.field_labels(object, add);
            }
            Self::Custom(version) => labels.extend(version.selectable_values(object)),
        }
    }

    pub(super) fn name_rule(&self) -> NameRule {
        match self {
            Self::BuiltIn(kind) => kind.name_rule(),
            Self::Custom(_) => NameRule::Subdomain,
        }
    }
}

/// Whether anything but the envelope (and, where it is apart, the status) differs.
pub(super) fn body_differs(new: &Value, old: &Value, status_apart: bool) -> bool {
    let skip = |name: &str| {
        matches!(name, "metadata" | "apiVersion" | "kind") || (status_apart && name == "status")
    };
    let empty = Map::new();
    let new = new.as_object().unwrap_or(&empty);
    let old = old.as_object().unwrap_or(&empty);
    new.iter().any(|(name, value)| !skip(name) && old.get(name) != Some(value))
        || old.keys().any(|name| !skip(name) && !new.contains_key(name))
}

/// Gives `new` everything of `old` but the status; of its metadata only what identifies the write
/// and `managedFields` stay.
fn keep_all_but_status(new: &mut Value, old: &Value) {
    let kept = ["resourceVersion", "uid", "managedFields"].map(|name| {
        let value = new.get("metadata").and_then(|metadata| metadata.get(name)).cloned();
        (name, value)
    });
    keep_body_but_status(new, old);
    keep(new, old, "metadata");
    let Some(metadata) = new.get_mut("metadata") else { return };
    for (name, value) in kept {
        match value {
            Some(value) => set(metadata, name, value),
            None if name == "managedFields" => remove(metadata, name),
            None => {}
        }
    }
}

/// Gives `new` every top-level field of `old` but the status and the metadata.
fn keep_body_but_status(new: &mut Value, old: &Value) {
    let (Some(fields), Some(old_fields)) = (new.as_object_mut(), old.as_object()) else { return };
    let own = |name: &str| matches!(name, "status" | "metadata" | "apiVersion" | "kind");
    fields.retain(|name, _| own(name));
    for (name, value) in old_fields.iter().filter(|(name, _)| !own(name)) {
        fields.insert(name.clone(), value.clone());
    }
}

impl BuiltIn {
    fn default(self, object: &mut Value) {
        match self {
            Self::Pod => pod::default(object),
            Self::Secret => config::default_secret(object),
            Self::Namespace => namespace::default(object),
            Self::Node => node::default(object),
            Self::Service => service::default(object),
            Self::DaemonSet | Self::Deployment | Self::ReplicaSet | Self::StatefulSet => {
                workload::default(self, object);
            }
            Self::PersistentVolume | Self::PersistentVolumeClaim => volume::default(self, object),
            Self::CustomResourceDefinition => definition::default(object),
            Self::ConfigMap
            | Self::CoreEvent
            | Self::Event
            | Self::ServiceAccount
            | Self::PodDisruptionBudget
            | Self::Lease
            | Self::CsiNode
            | Self::VolumeAttachment => {}
        }
    }

    fn prepare_create(self, object: &mut Value) {
        match self {
            Self::Pod => pod::prepare_create(object),
            Self::Namespace => namespace::prepare_create(object),
            Self::Node => node::prepare_create(object),
            Self::PodDisruptionBudget => budget::prepare_create(object),
            Self::PersistentVolume | Self::PersistentVolumeClaim => volume::prepare_create(object),
            Self::CustomResourceDefinition => definition::prepare_create(object),
            Self::DaemonSet | Self::Deployment | Self::ReplicaSet | Self::StatefulSet => {
                workload::prepare_create(self, object);
            }
            Self::VolumeAttachment => set(object, "status", serde_json::json!({"attached": false})),
            Self::ConfigMap
            | Self::CoreEvent
            | Self::Event
            | Self::Secret
            | Self::ServiceAccount
            | Self::Service
            | Self::Lease
            | Self::CsiNode => {}
        }
    }

    fn prepare_update(self, new: &mut Value, old: &Value, part: Option<Subresource>) {
        match self {
            Self::Pod => pod::prepare_update(new, part),
            Self::Namespace => namespace::prepare_update(new, old, part),
            Self::CustomResourceDefinition => definition::prepare_update(new, part),
            Self::Secret
            | Self::ConfigMap
            | Self::CoreEvent
            | Self::Event
            | Self::Node
            | Self::PersistentVolumeClaim
            | Self::PersistentVolume
            | Self::ServiceAccount
            | Self::Service
            | Self::DaemonSet
            | Self::Deployment
            | Self::ReplicaSet
            | Self::StatefulSet
            | Self::PodDisruptionBudget
            | Self::Lease
            | Self::CsiNode
            | Self::VolumeAttachment => {}
        }
    }

    fn validate(self, object: &Value) -> Vec<FieldError> {
        match self {
            Self::Pod => pod::validate(object),
            Self::Node => node::validate(object),
            Self::Secret => config::validate_secret(object),
            Self::ConfigMap => config::validate_config_map(object),
            Self::CoreEvent | Self::Event => event::validate(self, object),
            Self::Lease => lease::validate(object),
            Self::PodDisruptionBudget => budget::validate(object),
            Self::Service => service::validate(object),
            Self::DaemonSet | Self::Deployment | Self::ReplicaSet | Self::StatefulSet => {
                workload::validate(object)
            }
            Self::CustomResourceDefinition => definition::validate(object),
            Self::Namespace
            | Self::PersistentVolumeClaim
            | Self::PersistentVolume
            | Self::ServiceAccount
            | Self::CsiNode
            | Self::VolumeAttachment => Vec::new(),
        }
    }

    fn validate_update(
        self,
        new: &Value,
        old: &Value,
        part: Option<Subresource>,
    ) -> Vec<FieldError> {
        let status = part == Some(Subresource::Status);
        let mut errors = match self {
            Self::Pod => Vec::new(),
            Self::CoreEvent | Self::Event => return event::validate_update(self, new, old),
            Self::DaemonSet | Self::Deployment | Self::ReplicaSet | Self::StatefulSet if status => {
                Vec::new()
            }
            Self::CustomResourceDefinition if status => Vec::new(),
            _ => self.validate(new),
        };
        errors.extend(match self {
            Self::Pod if status => pod::validate_status_update(new, old),
            Self::Pod => pod::validate_update(new, old),
            Self::Node => node::validate_update(new, old),
            Self::Secret => config::validate_secret_update(new, old),
            Self::ConfigMap => config::validate_config_map_update(new, old),
            Self::DaemonSet | Self::Deployment | Self::ReplicaSet | Self::StatefulSet => {
                workload::validate_update(new, old)
            }
            Self::CustomResourceDefinition => definition::validate_update(new, old),
            Self::CoreEvent
            | Self::Event
            | Self::Namespace
            | Self::PersistentVolumeClaim
            | Self::PersistentVolume
            | Self::ServiceAccount
            | Self::Service
            | Self::PodDisruptionBudget
            | Self::Lease
            | Self::CsiNode
            | Self::VolumeAttachment => Vec::new(),
        });
        errors
    }

    fn field_labels(self, object: &Value, mut add: impl FnMut(&str, String)) {
        let mut texts = |names: &[&str]| {
            for name in names {
                let pointer = format!("/{}", name.replace('.', "/"));
                let value = object.pointer(&pointer).map_or_else(String::new, shown);
                add(name, value);
            }
        };
        match self {
            Self::Pod => {
                texts(pod::FIELD_LABELS);
                add(
                    "spec.hostNetwork",
                    super::access::flag(object, "/spec/hostNetwork").to_string(),
                );
            }
            Self::Node => {
                let unschedulable = super::access::flag(object, "/spec/unschedulable");
                add("spec.unschedulable", unschedulable.to_string());
            }
            Self::Namespace => texts(&["status.phase", "name"]),
            Self::Secret => texts(&["type"]),
            Self::Service => texts(&["spec.clusterIP", "spec.type"]),
            Self::ReplicaSet => texts(&["status.replicas"]),
            Self::CoreEvent => {
                texts(event::CORE_FIELD_LABELS);
                add("source", event::source(object));
            }
            Self::Event => texts(event::FIELD_LABELS),
            Self::ConfigMap
            | Self::PersistentVolumeClaim
            | Self::PersistentVolume
            | Self::ServiceAccount
            | Self::DaemonSet
            | Self::Deployment
            | Self::StatefulSet
            | Self::PodDisruptionBudget
            | Self::Lease
            | Self::CsiNode
            | Self::VolumeAttachment
            | Self::CustomResourceDefinition => {}
        }
    }
}

/// A value as a field selector compares it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

//! Kinds that CustomResourceDefinitions add.

use std::sync::Arc;

use serde_json::Value;

use super::{
    NameRule, Resource, Rule, ScalePaths, StorageKey, Strategy, Subresources,
    access::{flag, is_true, items, text},
    strategy,
};
use crate::kinds::{apply::Type, schema::Schema};

/// One version of a custom kind: its schema, columns and selectable fields.
#[derive(Clone, Debug)]
pub(crate) struct CustomVersion {
    /// The parsed schema.
    pub(crate) schema: Schema,
    /// The merge types of its lists.
    pub(crate) fields: Type,
    /// The schema as the definition has it, for publishing.
    pub(crate) document: Value,
    /// The columns that tables show besides the name.
    pub(crate) columns: Vec<Column>,
    /// JSON paths (`.spec.color`) that field selectors may name.
    pub(crate) selectable: Vec<String>,
    /// The `apiVersion` under which objects are stored.
    pub(crate) stored_api_version: String,
    /// A webhook makes one version of another.
    pub(crate) needs_webhook: bool,
}

/// A printer column of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// The heading.
    pub(crate) name: String,
    /// `integer`, `number`, `string`, `boolean` or `date`.
    pub(crate) kind: String,
    /// A format beside the type, or empty.
    pub(crate) format: String,
    /// The description of the column, or empty.
    pub(crate) description: String,
    /// 0 is always shown, more only in wide output.
    pub(crate) priority: i64,
    /// Where the value is.
    pub(crate) json_path: String,
}

impl CustomVersion {
    /// The labels and values that field selectors compare, beyond name and namespace.
    pub(super) fn selectable_values(&self, object: &Value) -> Vec<(String, String)> {
        let value = |path: &String| {
            let label = path.trim_start_matches('.').to_owned();
            let pointer = format!("/{}", label.replace('.', "/"));
            let value = object.pointer(&pointer).map_or_else(String::new, strategy::shown);
            (label, value)
        };
        self.selectable.iter().map(value).collect()
    }
}

/// The verbs of custom resources, in the order discovery shows them.
const VERBS: &[&str] =
    &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// The resources of a definition: one for each served version, none before the definition is established.
pub(super) fn resources(definition: &Value) -> Vec<Resource> {
    if !is_true(definition, "Established") {
        return Vec::new();
    }
    let versions = items(definition, "/spec/versions");
    let stored = versions.iter().find(|version| flag(version, "/storage"));
    let stored = stored.map(|version| text(version, "/name")).unwrap_or_default();
    versions
        .iter()
        .filter(|version| flag(version, "/served"))
        .map(|version| resource(definition, version, stored))
        .collect()
}

fn resource(definition: &Value, version: &Value, stored: &str) -> Resource {
    let group = text(definition, "/spec/group").to_owned();
    let names = definition.pointer("/status/acceptedNames").unwrap_or(&Value::Null);
    let owned = |pointer: &str| {
        let list = items(names, pointer).iter().filter_map(Value::as_str);
        list.map(str::to_owned).collect::<Vec<_>>()
    };
    let plural = text(names, "/plural").to_owned();
    Resource {
        version: text(version, "/name").to_owned(),
        kind: text(names, "/kind").to_owned(),
        list_kind: text(names, "/listKind").to_owned(),
        singular: text(names, "/singular").to_owned(),
        short_names: owned("/shortNames"),
        categories: owned("/categories"),
        namespaced: text(definition, "/spec/scope") == "Namespaced",
        subresources: Subresources {
            status: version.pointer("/subresources/status").is_some(),
            scale: version.pointer("/subresources/scale").map(scale_paths),
            others: &[],
        },
        verbs: VERBS,
        storage: StorageKey { group: group.clone(), plural: plural.clone() },
        terminating: definition.pointer("/metadata/deletionTimestamp").is_some(),
        names: NameRule::Subdomain,
        rules: &[Rule::Generation, Rule::PutNeedsVersion],
        strategy: Strategy::Custom(Arc::new(custom_version(definition, version, stored))),
        group,
        plural,
    }
}

fn scale_paths(scale: &Value) -> ScalePaths {
    let selector = text(scale, "/labelSelectorPath");
    ScalePaths {
        spec_replicas: text(scale, "/specReplicasPath").to_owned(),
        status_replicas: text(scale, "/statusReplicasPath").to_owned(),
        label_selector: (!selector.is_empty()).then(|| selector.to_owned()),
    }
}

fn custom_version(definition: &Value, version: &Value, stored: &str) -> CustomVersion {
    let document = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
    let column = |column: &Value| Column {
        name: text(column, "/name").to_owned(),
        kind: text(column, "/type").to_owned(),
        format: text(column, "/format").to_owned(),
        description: text(column, "/description").to_owned(),
        priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
        json_path: text(column, "/jsonPath").to_owned(),
    };
    let columns: Vec<Column> =
        items(version, "/additionalPrinterColumns").iter().map(column).collect();
    let selectable = items(version, "/selectableFields");
    CustomVersion {
        schema: Schema::parse(&document),
        fields: Type::of_schema(&document),
        document,
        columns,
        selectable: selectable.iter().map(|one| text(one, "/jsonPath").to_owned()).collect(),
        stored_api_version: format!("{}/{stored}", text(definition, "/spec/group")),
        needs_webhook: text(definition, "/spec/conversion/strategy") == "Webhook",
    }
}

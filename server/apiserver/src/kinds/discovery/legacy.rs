//! The documents of old: one for each group and version.

use serde_json::{Map, Value, json};

use crate::kinds::access::set;

use super::{Group, Listed, put_list};

/// `/api`.
pub(super) fn api_versions() -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [],
    })
}

/// `/apis`.
pub(super) fn group_list(groups: &[Group]) -> Value {
    let groups: Vec<Value> = groups.iter().map(group_fields).map(Value::Object).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/{group}`.
pub(super) fn group(group: &Group) -> Value {
    let mut fields = group_fields(group);
    fields.insert("kind".to_owned(), json!("APIGroup"));
    fields.insert("apiVersion".to_owned(), json!("v1"));
    Value::Object(fields)
}

fn group_fields(group: &Group) -> Map<String, Value> {
    let named = |version: &String| json!({ "groupVersion": format!("{}/{version}", group.name), "version": version });
    let versions: Vec<Value> = group.versions.iter().map(named).collect();
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(group.name));
    fields.insert("preferredVersion".to_owned(), versions.first().cloned().unwrap_or_default());
    fields.insert("versions".to_owned(), Value::Array(versions));
    fields
}

/// `/api/v1` and `/apis/{group}/{version}`.
pub(super) fn resource_list(group: &str, version: &str, resources: &[Listed]) -> Value {
    let core = group.is_empty();
    let group_version = if core { version.to_owned() } else { format!("{group}/{version}") };
    let resources: Vec<Value> = resources.iter().map(resource).collect();
    let mut list = json!({
        "kind": "APIResourceList", "groupVersion": group_version, "resources": resources,
    });
    if !core {
        set(&mut list, "apiVersion", "v1");
    }
    list
}

fn resource(listed: &Listed) -> Value {
    let name = match listed.sub {
        Some(sub) => format!("{}/{sub}", listed.plural),
        None => listed.plural.clone(),
    };
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(name));
    fields.insert("singularName".to_owned(), json!(listed.singular));
    fields.insert("namespaced".to_owned(), json!(listed.namespaced));
    if let Some(group) = listed.foreign {
        fields.insert("group".to_owned(), json!(group));
        fields.insert("version".to_owned(), json!("v1"));
    }
    fields.insert("kind".to_owned(), json!(listed.kind));
    fields.insert("verbs".to_owned(), json!(listed.verbs));
    put_list(&mut fields, "shortNames", &listed.short_names);
    put_list(&mut fields, "categories", &listed.categories);
    Value::Object(fields)
}

//! The aggregated document: everything in one answer.

use serde_json::{Map, Value, json};

use super::{Found, Group, Listed, put_list, resources};
use crate::kinds::{Registry, document::tagged};

/// The version of the aggregated form that an Accept header prefers; `None` for the old form.
pub(super) fn version_of(accept: Option<&str>) -> Option<&'static str> {
    for clause in accept?.split(',') {
        let mut parts = clause.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        let has = |wanted: &str| parameters.contains(&wanted);
        let asked = has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList");
        match media_type {
            "application/json" if asked && has("v=v2") => return Some("v2"),
            "application/json" if asked && has("v=v2beta1") => return Some("v2beta1"),
            "application/json" | "*/*" if !parameters.iter().any(|one| one.starts_with("as=")) => {
                return None;
            }
            _ => {}
        }
    }
    None
}

/// `/api`: the core group.
pub(super) fn core(registry: &Registry, form: &str) -> Found {
    let group = Group { name: String::new(), versions: vec!["v1".to_owned()] };
    document(&[item(registry, &group)], form)
}

/// `/apis`: all other groups.
pub(super) fn groups(registry: &Registry, groups: &[Group], form: &str) -> Found {
    let items: Vec<Value> = groups.iter().map(|group| item(registry, group)).collect();
    document(&items, form)
}

fn document(items: &[Value], form: &str) -> Found {
    let body = json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{form}"),
        "metadata": {},
        "items": items,
    });
    let content_type =
        format!("application/json;g=apidiscovery.k8s.io;v={form};as=APIGroupDiscoveryList");
    Found::Document(tagged(&content_type, &body))
}

fn item(registry: &Registry, group: &Group) -> Value {
    let metadata = if group.name.is_empty() { json!({}) } else { json!({ "name": group.name }) };
    let version = |version: &String| {
        let custom = registry.of_version(&group.name, version).any(|one| one.is_custom());
        let parent = if custom { (group.name.as_str(), version.as_str()) } else { ("", "") };
        let listed = resources(registry, &group.name, version);
        json!({
            "version": version,
            "resources": nested(&listed, parent),
            "freshness": "Current",
        })
    };
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({ "metadata": metadata, "versions": versions })
}

/// Subresources stand below their resources here.
fn nested(listed: &[Listed], parent: (&str, &str)) -> Vec<Value> {
    let mut nested: Vec<Map<String, Value>> = Vec::new();
    for one in listed {
        match one.sub {
            None => nested.push(resource(one, parent)),
            Some(sub) => {
                let Some(owner) = nested.last_mut() else { continue };
                let subresources = owner.entry("subresources").or_insert_with(|| json!([]));
                if let Some(list) = subresources.as_array_mut() {
                    list.push(json!({
                        "subresource": sub,
                        "responseKind": response_kind(one, parent),
                        "verbs": one.verbs,
                    }));
                }
            }
        }
    }
    nested.into_iter().map(Value::Object).collect()
}

fn resource(listed: &Listed, parent: (&str, &str)) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("resource".to_owned(), json!(listed.plural));
    fields.insert("responseKind".to_owned(), response_kind(listed, parent));
    let scope = if listed.namespaced { "Namespaced" } else { "Cluster" };
    fields.insert("scope".to_owned(), json!(scope));
    fields.insert("singularResource".to_owned(), json!(listed.singular));
    fields.insert("verbs".to_owned(), json!(listed.verbs));
    put_list(&mut fields, "shortNames", &listed.short_names);
    put_list(&mut fields, "categories", &listed.categories);
    fields
}

/// Built-in kinds of the same group and version leave both empty.
fn response_kind(listed: &Listed, parent: (&str, &str)) -> Value {
    let (group, version) = listed.foreign.map_or(parent, |group| (group, "v1"));
    json!({ "group": group, "version": version, "kind": listed.kind })
}

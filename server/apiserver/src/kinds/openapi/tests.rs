use serde_json::{Value, json};

use super::answer;
use crate::kinds::Registry;

pub(super) fn registry() -> Registry {
    let definition = json!({
        "spec": {"group": "example.org", "scope": "Namespaced", "versions": [{
            "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "description": "A widget.", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}}}]},
        "status": {
            "conditions": [{"type": "Established", "status": "True"}],
            "acceptedNames": {"plural": "widgets", "kind": "Widget", "listKind": "WidgetList", "singular": "widget"},
        },
    });
    Registry::with_definitions([&definition])
}

fn document(path: &str) -> Value {
    let published = answer(&registry(), path, None).unwrap();
    serde_json::from_slice(&published.document.bytes).unwrap()
}

#[test]
fn the_index_names_each_document_by_its_hash() {
    let index = document("/openapi/v3");
    for name in ["api/v1", "apis/apps/v1", "apis/example.org/v1"] {
        let url = index["paths"][name]["serverRelativeURL"].as_str().unwrap();
        let (path, query) = url.split_once('?').unwrap();
        let published = answer(&registry(), path, Some(query)).unwrap();
        assert!(published.immutable, "{url}");
    }
    assert!(answer(&registry(), "/openapi/v3/apis/nope/v1", None).is_none());
}

#[test]
fn every_write_offers_strict_validation_and_dry_run() {
    for path in ["/openapi/v3/api/v1", "/openapi/v3/apis/example.org/v1"] {
        let document = document(path);
        for (address, item) in document["paths"].as_object().unwrap() {
            for method in ["post", "put", "patch"] {
                let Some(operation) = item.get(method) else { continue };
                let named = |name: &str| {
                    operation["parameters"]
                        .as_array()
                        .unwrap()
                        .iter()
                        .any(|one| one["name"] == name)
                };
                assert!(named("fieldValidation") && named("dryRun"), "{method} {address}");
                assert!(operation["x-kubernetes-group-version-kind"]["kind"].is_string());
            }
        }
    }
}

#[test]
fn every_reference_of_a_document_is_in_it() {
    for path in
        ["/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/openapi/v3/apis/example.org/v1"]
    {
        let document = document(path);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for name in super::schemas::references_in(&document) {
            assert!(schemas.contains_key(&name), "{path}: {name}");
        }
    }
}

#[test]
fn custom_schemas_have_the_fields_of_every_object() {
    let document = document("/openapi/v3/apis/example.org/v1");
    let widget = &document["components"]["schemas"]["org.example.v1.Widget"];
    assert_eq!(widget["description"], "A widget.");
    assert_eq!(widget["properties"]["spec"]["properties"]["size"]["type"], "integer");
    assert!(widget["properties"]["metadata"]["allOf"].is_array());
    assert_eq!(
        widget["x-kubernetes-group-version-kind"],
        json!([{"group": "example.org", "kind": "Widget", "version": "v1"}])
    );
}

#[test]
fn lists_of_built_in_kinds_name_their_merge_keys() {
    let document = document("/openapi/v3/api/v1");
    let spec = &document["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert_eq!(spec["containers"]["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(spec["volumes"]["x-kubernetes-patch-strategy"], "merge,retainKeys");
}

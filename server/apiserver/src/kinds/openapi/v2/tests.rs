use serde_json::{Value, json};

use super::{super::tests::registry, BINARY, BINARY_BEFORE, answer, schema};

fn document() -> Value {
    serde_json::from_slice(&answer(&registry(), None).unwrap().bytes).unwrap()
}

#[test]
fn the_form_is_the_first_that_is_asked_for_and_known() {
    let kubectl = format!("text/html, {BINARY_BEFORE}, application/json");
    for (accept, expected) in [
        (None, Some("application/json")),
        (Some(""), Some("application/json")),
        (Some("*/*;q=0.8"), Some("application/json")),
        (Some(BINARY), Some(BINARY)),
        (Some(kubectl.as_str()), Some(BINARY)),
        (Some("application/json, application/vnd.kubernetes.protobuf"), Some("application/json")),
        (Some("text/html"), None),
    ] {
        let registry = registry();
        let found = answer(&registry, accept);
        assert_eq!(found.map(|it| it.content_type.as_str()), expected, "{accept:?}");
        assert!(found.is_none_or(|it| !it.bytes.is_empty()), "{accept:?}");
    }
}

#[test]
fn one_document_has_the_kinds_of_all_groups_and_what_they_refer_to() {
    let document = document();
    let definitions = document["definitions"].as_object().unwrap();
    for (name, group, kind) in [
        ("io.k8s.api.core.v1.Pod", "", "Pod"),
        ("io.k8s.api.apps.v1.Deployment", "apps", "Deployment"),
        ("org.example.v1.Widget", "example.org", "Widget"),
    ] {
        let expected = json!([{"group": group, "kind": kind, "version": "v1"}]);
        assert_eq!(definitions[name]["x-kubernetes-group-version-kind"], expected, "{name}");
    }
    for name in super::super::schemas::references_in(&document) {
        assert!(definitions.contains_key(&name), "{name}");
    }
    assert!(!document.to_string().contains("#/components/"));
}

#[test]
fn an_operation_names_its_body_and_its_answer() {
    let document = document();
    let path = "/apis/example.org/v1/namespaces/{namespace}/widgets/{name}";
    let put = &document["paths"][path]["put"];
    let body = put["parameters"].as_array().unwrap().last().unwrap();
    let widget = json!({"$ref": "#/definitions/org.example.v1.Widget"});
    assert_eq!(*body, json!({"name": "body", "in": "body", "required": true, "schema": widget}));
    assert_eq!(put["responses"]["200"]["schema"], widget);
    assert_eq!(put["consumes"], json!(["application/json", "application/yaml"]));
    assert_eq!(put["parameters"][0]["type"], "string");
    assert_eq!(document["paths"][path]["parameters"][0]["in"], "path");
}

#[test]
fn a_schema_says_what_version_2_can_say() {
    for (v3, v2) in [
        (json!({"type": "string", "nullable": true}), json!({})),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {}}),
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        ),
        (
            json!({"anyOf": [{"type": "integer"}], "x-kubernetes-int-or-string": true}),
            json!({"x-kubernetes-int-or-string": true}),
        ),
        (
            json!({"description": "d", "allOf": [{"$ref": "#/components/schemas/a.B"}]}),
            json!({"description": "d", "$ref": "#/definitions/a.B"}),
        ),
        (
            json!({"properties": {"not": {"type": "object"}, "allOf": {"items": {"not": {}}}}}),
            json!({"properties": {"not": {"type": "object"}, "allOf": {"items": {}}}}),
        ),
    ] {
        assert_eq!(schema(v3.clone()), v2, "{v3}");
    }
}

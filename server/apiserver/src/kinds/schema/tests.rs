use serde_json::{Value, json};

use super::Schema;
use crate::kinds::field::summary;

fn schema(spec: &Value) -> Schema {
    Schema::parse(&json!({ "type": "object", "properties": { "spec": spec } }))
}

fn said(spec: &Value, value: &Value) -> String {
    let errors = schema(spec).validate(&json!({ "spec": value }));
    if errors.is_empty() { String::new() } else { summary(&errors) }
}

#[test]
fn values_of_the_wrong_type_are_named_with_both_types() {
    let cases = [
        (
            json!({"type": "integer"}),
            json!("1"),
            r#"spec: Invalid value: "string": spec in body must be of type integer: "string""#,
        ),
        (json!({"type": "number"}), json!(3), ""),
        (json!({"type": "integer"}), json!(3.0), ""),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!([null]),
            r#"spec[0]: Invalid value: "null": spec[0] in body must be of type string: "null""#,
        ),
        (
            json!({"type": "integer", "format": "int32"}),
            json!(2_147_483_648.0),
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec"#,
        ),
        (json!({"type": "integer", "format": "int32"}), json!(2_147_483_647.0), ""),
        (json!({"type": "integer", "format": "int64"}), json!(i64::MAX), ""),
        (
            json!({"type": "integer", "format": "int64"}),
            json!(9_223_372_036_854_775_808_u64),
            r#"[spec: Invalid value: "number": spec in body must be of type integer: "number", <nil>: Invalid value: "": Checked value must be of type integer with format int64 in spec]"#,
        ),
        (
            json!({"type": "integer"}),
            json!(1e30),
            r#"[spec: Invalid value: "number": spec in body must be of type integer: "number", <nil>: Invalid value: "": Checked value must be of type integer (default format) in spec]"#,
        ),
        (
            json!({"x-kubernetes-int-or-string": true}),
            json!(true),
            r#"spec: Invalid value: "boolean": spec in body must be of type integer,string: "boolean""#,
        ),
        (
            json!({"type": "integer"}),
            json!(1.5),
            r#"[spec: Invalid value: "number": spec in body must be of type integer: "number", <nil>: Invalid value: "": Checked value must be of type integer (default format) in spec]"#,
        ),
    ];
    for (spec, value, text) in cases {
        assert_eq!(said(&spec, &value), text);
    }
}

#[test]
fn limits_read_as_a_real_server_says_them() {
    let cases = [
        (
            json!({"enum": ["A", "B"]}),
            json!(""),
            r#"spec: Unsupported value: "": supported values: "A", "B""#,
        ),
        (
            json!({"minimum": 1}),
            json!(0),
            "spec: Invalid value: 0: spec in body should be greater than or equal to 1",
        ),
        (
            json!({"minimum": 0, "exclusiveMinimum": true}),
            json!(0),
            "spec: Invalid value: 0: spec in body should be greater than 0",
        ),
        (
            json!({"multipleOf": 5}),
            json!(7),
            "spec: Invalid value: 7: spec in body should be a multiple of 5",
        ),
        (json!({"multipleOf": 0.1}), json!(0.3), ""),
        (
            json!({"multipleOf": 0.1}),
            json!(0.25),
            "spec: Invalid value: 0.25: spec in body should be a multiple of 0.1",
        ),
        (
            json!({"pattern": "^[a-z]+$"}),
            json!("A"),
            r#"spec: Invalid value: "A": spec in body should match '^[a-z]+$'"#,
        ),
        (json!({"maxLength": 4}), json!("abcde"), "spec: Too long: may not be more than 4 bytes"),
        (
            json!({"minItems": 1}),
            json!([]),
            "spec: Invalid value: 0: spec in body should have at least 1 items",
        ),
        (json!({"maxItems": 2}), json!([1, 2, 3]), "spec: Too many: 3: must have at most 2 items"),
        (json!({"required": ["e"]}), json!({}), "spec.e: Required value"),
        (
            json!({"type": "string", "format": "date-time"}),
            json!("yesterday"),
            r#"spec: Invalid value: "yesterday": spec in body must be of type date-time: "yesterday""#,
        ),
    ];
    for (spec, value, text) in cases {
        assert_eq!(said(&spec, &value), text);
    }
}

#[test]
fn lists_that_are_maps_refuse_the_same_key_twice() {
    let spec = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "string"}}},
    });
    let text = said(&spec, &json!([{"k": "a"}, {"k": "b"}, {"k": "a"}]));
    assert_eq!(text, r#"spec[2]: Duplicate value: {"k":"a"}"#);
}

#[test]
fn unknown_fields_go_and_are_named_in_order() {
    let schema = schema(&json!({"type": "object", "properties": {
        "known": {"type": "string"},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {
            "closed": {"type": "object", "properties": {"a": {"type": "string"}}}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
        "emb": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
    }}));
    let mut object = json!({
        "apiVersion": "g/v1", "kind": "W", "metadata": {"name": "a", "bogus": 1},
        "spec": {"known": "x", "un": 1, "open": {"any": [{"x": null}], "closed": {"a": "x", "b": "y"}},
            "list": [{"a": "1", "z": 2}], "emb": {"kind": "X", "metadata": {"no": 1}, "spec": 1}},
        "extra": 1,
    });
    let unknown = schema.prune(&mut object).unwrap();
    let paths: Vec<&str> = unknown.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "extra",
            "metadata.bogus",
            "spec.emb.metadata.no",
            "spec.list[0].z",
            "spec.open.closed.b",
            "spec.un"
        ]
    );
    assert_eq!(object["spec"]["open"], json!({"any": [{"x": null}], "closed": {"a": "x"}}));
    assert_eq!(object["spec"]["emb"]["spec"], 1);
}

#[test]
fn defaults_are_filled_in_and_null_gives_way_unless_it_is_allowed() {
    let schema = schema(&json!({"type": "object", "default": {}, "properties": {
        "size": {"type": "integer", "default": 3},
        "mode": {"type": "string", "default": "auto", "nullable": true},
        "deep": {"type": "object", "default": {"q": 1}, "properties": {
            "q": {"type": "integer"}, "r": {"type": "integer", "default": 2}}},
        "list": {"type": "array", "items": {"type": "object", "properties": {
            "proto": {"type": "string", "default": "TCP"}}}},
        "plain": {"type": "string"},
    }}));
    let cases = [
        (json!({}), json!({"spec": {"deep": {"q": 1, "r": 2}, "mode": "auto", "size": 3}})),
        (
            json!({"spec": {"size": null, "mode": null, "plain": null, "deep": {}, "list": [{}]}}),
            json!({"spec": {"deep": {"r": 2}, "mode": null, "size": 3, "list": [{"proto": "TCP"}]}}),
        ),
    ];
    for (mut given, filled) in cases {
        schema.default(&mut given);
        assert_eq!(given, filled);
    }
}

#[test]
fn what_was_wrong_before_may_stay_as_it_is() {
    let schema = schema(&json!({"type": "object", "required": ["name"], "properties": {
        "size": {"type": "integer", "maximum": 10}, "color": {"type": "string"}}}));
    let old = json!({"spec": {"size": 100, "color": "red"}});
    let cases = [
        (json!({"spec": {"size": 100, "color": "red"}, "status": {}}), vec![]),
        (json!({"spec": {"size": 100, "color": "blue", "name": "x"}}), vec![]),
        (json!({"spec": {"size": 99, "color": "red", "name": "x"}}), vec!["spec.size"]),
        (json!({"spec": {"size": 100, "color": "blue"}}), vec!["spec.name"]),
    ];
    for (new, fields) in cases {
        let errors = schema.validate_change(&new, &old);
        let found: Vec<&str> = errors.iter().map(crate::kinds::field::FieldError::field).collect();
        assert_eq!(found, fields, "{new}");
    }
}

#[test]
fn what_occurs_twice_in_a_set_may_stay_only_with_the_whole_set() {
    let schema = schema(&json!({"type": "array", "x-kubernetes-list-type": "set",
        "items": {"type": "string"}}));
    for (old, new, wrong) in
        [(["b", "b"], ["b", "b"], 0), (["a", "b"], ["b", "b"], 1), (["a", "a"], ["b", "b"], 1)]
    {
        let errors = schema.validate_change(&json!({"spec": new}), &json!({"spec": old}));
        assert_eq!(errors.len(), wrong, "{new:?}");
    }
}

#[test]
fn the_status_is_checked_by_itself() {
    let schema = Schema::parse(&json!({"type": "object", "properties": {
        "spec": {"type": "integer"},
        "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}}));
    let new = json!({"spec": "wrong", "status": {"phase": 1}});
    let errors = schema.validate_status_change(&new, &json!({}));
    assert_eq!(
        summary(&errors),
        r#"status.phase: Invalid value: "integer": phase in body must be of type string: "integer""#
    );
}

#[test]
fn schemas_that_are_not_structural_are_refused_by_field() {
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let cases = [
        (json!({}), vec!["s.type"]),
        (json!({"type": "array", "items": {"type": "string"}}), vec!["s.type"]),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            vec!["s.additionalProperties"],
        ),
        (object(json!({"a": {}})), vec!["s.properties[a].type"]),
        (object(json!({"a": {"type": "array"}})), vec!["s.properties[a].items"]),
        (object(json!({"a": {"type": "string", "pattern": "("}})), vec!["s.properties[a].pattern"]),
        (
            object(json!({"a": {"type": "integer", "default": "x"}})),
            vec!["s.properties[a].default"],
        ),
        (
            object(
                json!({"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}),
            ),
            vec!["s.properties[metadata]"],
        ),
        (
            object(json!({"a": {"type": "object", "anyOf": [{"type": "object"}]}})),
            vec!["s.properties[a].anyOf[0].type"],
        ),
        (
            object(
                json!({"a": {"type": "object", "oneOf": [{"properties": {"b": {"minimum": 1}}}]}}),
            ),
            vec!["s.properties[a].properties[b]"],
        ),
        (
            object(
                json!({"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}),
            ),
            vec![],
        ),
        (
            object(json!({"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}})),
            vec![],
        ),
    ];
    for (schema, fields) in cases {
        let errors = super::structural::validate(&schema, "s");
        let found: Vec<&str> = errors.iter().map(crate::kinds::field::FieldError::field).collect();
        assert_eq!(found, fields, "{schema}");
    }
}

#[test]
fn whole_numbers_lose_their_fraction() {
    let schema = schema(&json!({"type": "number"}));
    for (given, kept) in [(json!(1.0), "1"), (json!(1.5), "1.5"), (json!(-2.0), "-2")] {
        let mut object = json!({"spec": given});
        schema.prune(&mut object).unwrap();
        assert_eq!(object["spec"].to_string(), kept);
    }
}

#[test]
fn nested_compositions_are_looked_at_once_for_each_level() {
    let mut schema = json!({"properties": {"a": {"minimum": 5}}});
    for _ in 0..40 {
        schema = json!({ "allOf": [schema] });
    }
    // Twice for each level would be a trillion times.
    let errors = Schema::parse(&schema).validate(&json!({"a": 1}));
    assert_eq!(errors.len(), 41, "one for each level, and the cause");
}

#[test]
fn a_million_wrong_values_behind_a_long_name_are_a_few_errors() {
    let schema = json!({"type": "object", "additionalProperties":
        {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}});
    let long = "x".repeat(500_000);
    let object = json!({ long: vec![7; 200_000] });
    let errors = Schema::parse(&schema).validate(&object);
    let size: usize = errors.iter().map(|error| error.path.len() + error.body.len()).sum();
    assert!(errors.len() < 100 && size < 64 << 20, "{} errors, {size} bytes", errors.len());
    let last = errors.last().unwrap();
    assert!(last.body.contains("more errors than are looked for"), "{last}");
}

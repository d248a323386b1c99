use serde_json::{Value, json};

use super::check;
use crate::kinds::{field::summary, schema::Schema};

fn summed(errors: &[crate::kinds::field::FieldError]) -> String {
    if errors.is_empty() { String::new() } else { summary(errors) }
}

/// What is said of a change of `spec`, or of a new one.
fn said(spec: &Value, new: &Value, old: Option<&Value>) -> String {
    let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": spec}}));
    let object = |value: &Value| json!({"spec": value});
    let errors = match old {
        Some(old) => schema.validate_change(&object(new), &object(old)),
        None => schema.validate(&object(new)),
    };
    summed(&errors)
}

#[test]
fn a_new_object_breaks_the_rules_of_each_level() {
    let rule = |rule: &str| json!([{"rule": rule, "message": "no"}]);
    let cases = [
        (
            json!({"type": "string", "x-kubernetes-validations": rule("self != 'x'")}),
            json!("x"),
            r#"spec: Invalid value: "x": no"#,
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": rule("self.a < 2"),
            "properties": {"a": {"type": "integer"}}}),
            json!({"a": 2}),
            "spec: Invalid value: no",
        ),
        (
            json!({"type": "array", "items": {"type": "integer",
            "x-kubernetes-validations": rule("self < 2")}}),
            json!([1, 2]),
            "spec[1]: Invalid value: 2: no",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "integer",
            "x-kubernetes-validations": rule("self < 2")}}),
            json!({"a/b": 2, "c": 1}),
            "spec[a/b]: Invalid value: 2: no",
        ),
        (
            json!({"type": "object", "properties": {"a-b": {"type": "string"}, "in": {"type": "string"}},
            "x-kubernetes-validations": rule("self.a__dash__b == self.__in__")}),
            json!({"a-b": "x", "in": "y"}),
            "spec: Invalid value: no",
        ),
        (
            json!({"x-kubernetes-int-or-string": true,
            "x-kubernetes-validations": rule("string(self) != '0'")}),
            json!(0),
            "spec: Invalid value: 0: no",
        ),
        (
            json!({"type": "string", "format": "date-time",
            "x-kubernetes-validations": rule("self > timestamp('2024-01-01T00:00:00Z')")}),
            json!("2023-01-01T00:00:00Z"),
            r#"spec: Invalid value: "2023-01-01T00:00:00Z": no"#,
        ),
        (
            json!({"type": "string", "format": "duration",
            "x-kubernetes-validations": rule("self <= duration('1h')")}),
            json!("2h"),
            r#"spec: Invalid value: "2h": no"#,
        ),
        (
            json!({"type": "string", "x-kubernetes-validations": rule("quantity(self).isLessThan(quantity('1Gi'))")}),
            json!("2Gi"),
            r#"spec: Invalid value: "2Gi": no"#,
        ),
        (
            json!({"type": "object", "properties": {"a": {"type": "string"}},
            "x-kubernetes-validations": rule("self.a == 'x'")}),
            json!({}),
            "spec: Invalid value: no such key: a evaluating rule: no",
        ),
        (
            json!({"type": "string", "nullable": true, "x-kubernetes-validations": rule("self == 'x'")}),
            json!(null),
            "",
        ),
    ];
    for (spec, value, text) in cases {
        assert_eq!(said(&spec, &value, None), text, "{spec}");
    }
}

#[test]
fn a_rule_says_what_is_wrong_where_and_why() {
    let cases = [
        (json!({"rule": "self.a != 'x'"}), "spec: Invalid value: failed rule: self.a != 'x'"),
        (json!({"rule": "self.a != 'x'", "message": " no "}), "spec: Invalid value: no"),
        (
            json!({"rule": "self.a != 'x'", "message": "no", "messageExpression": "self.a + ' is bad'"}),
            "spec: Invalid value: x is bad",
        ),
        (
            json!({"rule": "self.a != 'x'", "message": "no", "messageExpression": "self.b"}),
            "spec: Invalid value: no",
        ),
        (
            json!({"rule": "self.a != 'x'", "message": "no", "reason": "FieldValueRequired", "fieldPath": ".a"}),
            "spec.a: Required value: no",
        ),
        (
            json!({"rule": "self.a != 'x'", "message": "no", "reason": "FieldValueForbidden", "fieldPath": "['a']"}),
            "spec.a: Forbidden: no",
        ),
    ];
    for (rule, text) in cases {
        let spec = json!({"type": "object", "x-kubernetes-validations": [rule],
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}}});
        assert_eq!(said(&spec, &json!({"a": "x"}), None), text, "{rule}");
    }
}

#[test]
fn a_change_breaks_rules_about_the_old_value_and_not_what_it_left_as_it_was() {
    let keyed = |rule: Value| {
        json!({"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object",
        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}, "x-kubernetes-validations": [rule]}})
    };
    let grows = json!({"rule": "self.v >= oldSelf.v", "message": "no"});
    let small = json!({"rule": "self.v < 2", "message": "no"});
    let once = json!({"type": "string", "x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "no"}]});
    let optional = json!({"type": "string", "x-kubernetes-validations": [
        {"rule": "oldSelf.hasValue() || self == 'a'", "message": "no", "optionalOldSelf": true}]});
    let (a1, a2, b1, b2) = (
        json!({"k": "a", "v": 1}),
        json!({"k": "a", "v": 2}),
        json!({"k": "b", "v": 1}),
        json!({"k": "b", "v": 2}),
    );
    let cases = [
        (once.clone(), json!("b"), Some(json!("a")), r#"spec: Invalid value: "b": no"#),
        (once.clone(), json!("a"), Some(json!("a")), ""),
        (once, json!("b"), None, ""),
        (optional.clone(), json!("b"), None, r#"spec: Invalid value: "b": no"#),
        (optional, json!("b"), Some(json!("a")), ""),
        (
            keyed(grows.clone()),
            json!([b1, a1]),
            Some(json!([a2, b1])),
            "spec[1]: Invalid value: no",
        ),
        (keyed(grows), json!([b2, a2]), Some(json!([a2, b1])), ""),
        (keyed(small.clone()), json!([b1, a2]), Some(json!([a2])), ""),
        (keyed(small), json!([b2, a2]), Some(json!([a2])), "spec[0]: Invalid value: no"),
    ];
    for (spec, new, old, text) in cases {
        assert_eq!(said(&spec, &new, old.as_ref()), text, "{spec} {new}");
    }
}

/// The message about a definition with a rule.
fn refused(rule: &Value) -> String {
    let item = json!({"type": "object", "properties": {"c": {"type": "string"}}});
    let schema = json!({"type": "object", "x-kubernetes-validations": [rule], "properties": {
        "a": {"type": "string"},
        "m": {"type": "object", "additionalProperties": {"type": "string"}},
        "list": {"type": "array", "items": item}}});
    summed(&check(&schema, "s", true))
}

#[test]
fn a_definition_may_use_the_whole_language() {
    for rule in [
        "has(self.a) && self.list.exists(x, x.c == self.a) && self.a.startsWith('x') && math.greatest(1, 2) == 2 && !('y' in self.m)",
        "self.a.matches('^a$') ? size(self.list) > 1 : self.list.map(x, x.c).filter(c, c != '').size() == 0",
        "type(self.a) == string && int(1.0) == 1 && self.metadata.name != ''",
    ] {
        assert_eq!(refused(&json!({"rule": rule})), "", "{rule}");
    }
}

#[test]
fn a_definition_with_a_bad_rule_is_refused_with_the_place() {
    let cases = [
        (json!({"rule": ""}), "rule: Required value: rule is not specified"),
        (
            json!({"rule": "self.x == 1"}),
            "rule: Invalid value: \"self.x == 1\": compilation failed: ERROR: <input>:1:5: undefined field 'x'\n | self.x == 1\n | ....^",
        ),
        (
            json!({"rule": "foo == 1"}),
            "rule: Invalid value: \"foo == 1\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo == 1\n | ^",
        ),
        (
            json!({"rule": "foo(self)"}),
            "rule: Invalid value: \"foo(self)\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo(self)\n | ^",
        ),
        (
            json!({"rule": "self.a == 1"}),
            "rule: Invalid value: \"self.a == 1\": compilation failed: ERROR: <input>:1:7: found no matching overload for '_==_' applied to '(string, int)'\n | self.a == 1\n | ......^",
        ),
        (
            json!({"rule": "self.list.all(x, x.b == 'y')"}),
            "rule: Invalid value: \"self.list.all(x, x.b == 'y')\": compilation failed: ERROR: <input>:1:19: undefined field 'b'\n | self.list.all(x, x.b == 'y')\n | ..................^",
        ),
        (
            json!({"rule": "self.a"}),
            "rule: Invalid value: \"self.a\": cel expression must evaluate to a bool",
        ),
        (
            json!({"rule": "size(self.a)"}),
            "rule: Invalid value: \"size(self.a)\": cel expression must evaluate to a bool",
        ),
        (
            json!({"rule": "true", "messageExpression": "1"}),
            "messageExpression: Invalid value: \"1\": messageExpression must evaluate to a string",
        ),
        (
            json!({"rule": "true", "message": " "}),
            "message: Invalid value: \" \": message must be non-empty if specified",
        ),
        (
            json!({"rule": "true", "fieldPath": ".z"}),
            "fieldPath: Invalid value: \".z\": fieldPath must be a valid path: does not refer to a valid field",
        ),
        (
            json!({"rule": "true", "optionalOldSelf": true}),
            "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
    ];
    for (rule, text) in cases {
        let wanted = format!("s.x-kubernetes-validations[0].{text}");
        assert_eq!(refused(&rule), wanted, "{rule}");
    }
    let old = json!({"x-kubernetes-validations": [{"rule": "self == oldSelf"}], "type": "string"});
    assert!(summed(&check(&old, "s", false)).contains("uncorrelatable"));
    for text in ["1 +", "Foo{a: 1} == 1", "'\\q' == ''"] {
        let schema = json!({"x-kubernetes-validations": [{"rule": text}], "type": "string"});
        assert!(summed(&check(&schema, "s", true)).contains("compilation failed"), "{text}");
    }
}

#[test]
fn a_rule_neither_runs_without_an_end_nor_fills_the_stack() {
    let list: Vec<u32> = (0..3000).collect();
    let spec = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [
        {"rule": "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))"}, {"rule": "false"}]});
    let found = said(&spec, &json!(list), None);
    assert!(
        found.starts_with("spec: Invalid value: 'operation cancelled: actual cost limit exceeded'"),
        "{found}"
    );
    assert!(!found.contains("failed rule: false"), "no rule is evaluated after it: {found}");
    let worker = std::thread::Builder::new().stack_size(2 << 20);
    let deep = worker.spawn(|| {
        for text in [
            "1+".repeat(2000) + "1 == 1",
            "(".repeat(2000) + "1" + &")".repeat(2000),
            "self.a".to_owned() + &".a".repeat(2000) + " == 1",
            "[".repeat(2000) + &"]".repeat(2000),
        ] {
            let schema = json!({"x-kubernetes-validations": [{"rule": text}], "type": "object"});
            assert!(!check(&schema, "s", true).is_empty(), "{text}");
        }
        let spec = json!({"type": "integer", "x-kubernetes-validations": [
            {"rule": "1+".repeat(40) + "1 > self"}]});
        assert_eq!(said(&spec, &json!(40), None), "", "the deepest that is accepted");
    });
    deep.unwrap().join().unwrap();
}

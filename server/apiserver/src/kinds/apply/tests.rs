use proptest::{collection::btree_map, prelude::*};

use super::*;

fn widget() -> Type {
    Type::of_schema(&json!({ "type": "object", "properties": { "spec": {
        "type": "object",
        "properties": {
            "size": { "type": "integer" },
            "map": { "type": "object", "additionalProperties": { "type": "string" } },
            "set": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
            "plain": { "type": "array", "items": { "type": "string" } },
            "one": { "type": "object", "properties": { "a": { "type": "string" } },
                "x-kubernetes-map-type": "atomic" },
            "ports": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": { "type": "object", "properties": {
                    "name": { "type": "string" }, "port": { "type": "integer" } } },
            },
        },
    } } }))
}

fn writes(of: &Type) -> Writes<'_> {
    let api_version = "x.io/v1".to_owned();
    Writes { of, api_version, part: "", scope: Scope::AllButStatus, tracks_new: true }
}

fn author(manager: &str) -> Author {
    Author { manager: manager.to_owned(), now: "2026-01-01T00:00:00Z".to_owned() }
}

fn config(spec: Value) -> Value {
    let mut object =
        json!({ "apiVersion": "x.io/v1", "kind": "Widget", "metadata": { "name": "a" } });
    object["spec"] = spec;
    object
}

fn apply(old: Option<&Value>, spec: Value, manager: &str, force: bool) -> Result<Value, Refusal> {
    let of = widget();
    writes(&of).apply(old, &config(spec), &author(manager), force)
}

#[test]
fn a_set_is_read_and_written_as_fields_v1() {
    let text = json!({ "f:spec": { ".": {}, "f:a": {}, "k:{\"name\":\"x\"}": { ".": {}, "f:name": {} },
        "v:1": {}, "i:0": {} } });
    let set = FieldSet::read(&text).unwrap();
    assert_eq!(set.write(), text);
    let mut paths = Vec::new();
    set.each_path(&mut |path| paths.push(path.to_owned()));
    assert_eq!(
        paths,
        [
            ".spec",
            ".spec.a",
            ".spec[0]",
            ".spec[name=\"x\"]",
            ".spec[name=\"x\"].name",
            ".spec[=1]"
        ]
    );
    for wrong in [json!([]), json!({ "f:a": 1 }), json!({ "a": {} }), json!({ "": {} })] {
        assert_eq!(FieldSet::read(&wrong), None, "{wrong}");
    }
}

#[test]
fn new_items_keep_their_order_and_the_others_their_place() {
    let of = widget();
    let merged = |old: Value, new: Value| {
        let merged =
            walk::merge(&of, &config(json!({ "set": old })), &config(json!({ "set": new })));
        merged["spec"]["set"].clone()
    };
    let cases = [
        (json!(["a", "b", "c"]), json!(["c", "a"]), json!(["b", "c", "a"])),
        (json!(["a", "b", "c"]), json!(["a", "x", "c"]), json!(["a", "b", "x", "c"])),
        (json!(["a"]), json!(["b"]), json!(["a", "b"])),
        (json!([]), json!(["b", "a"]), json!(["b", "a"])),
        (json!(["a", "b"]), json!(["b", "a"]), json!(["b", "a"])),
    ];
    for (old, new, wanted) in cases {
        assert_eq!(merged(old.clone(), new.clone()), wanted, "{old} {new}");
    }
}

#[test]
fn an_item_that_is_given_up_goes_unless_another_owns_a_field_of_it() {
    let ports = |ports: Value| json!({ "ports": ports });
    let first =
        apply(None, ports(json!([{ "name": "a", "port": 1 }, { "name": "b" }])), "one", false);
    let shared =
        apply(Some(&first.unwrap()), ports(json!([{ "name": "a", "port": 1 }])), "two", false);
    let left = apply(Some(&shared.unwrap()), json!({}), "one", false).unwrap();
    assert_eq!(left["spec"], ports(json!([{ "name": "a", "port": 1 }])));
    let of = widget();
    let nothing = json!({ "apiVersion": "x.io/v1", "kind": "Widget", "metadata": { "name": "a" } });
    let gone = writes(&of).apply(Some(&left), &nothing, &author("one"), false).unwrap();
    let gone = writes(&of).apply(Some(&gone), &nothing, &author("two"), false).unwrap();
    assert_eq!(gone.get("spec"), None);
    assert_eq!(gone["metadata"].get("managedFields"), None);
}

#[test]
fn a_list_that_became_one_value_is_owned_whole_by_who_owned_an_item() {
    let mut old = apply(None, json!({ "plain": ["a"] }), "one", false).unwrap();
    old["metadata"]["managedFields"][0]["fieldsV1"] =
        json!({ "f:spec": { "f:plain": { "v:\"a\"": {} } } });
    let refused = apply(Some(&old), json!({ "plain": ["b"] }), "two", false).unwrap_err();
    let conflict = ("\"one\"".to_owned(), ".spec.plain".to_owned());
    assert_eq!(refused, Refusal::Conflicts(vec![conflict]));
}

#[test]
fn the_oldest_of_many_updaters_become_one() {
    let of = widget();
    let mut object = config(json!({ "map": {} }));
    writes(&of).update(None, &mut object, &author("first"));
    for number in 0..20 {
        let mut new = object.clone();
        new["spec"]["map"][format!("k{number}")] = json!("v");
        let now = format!("2026-01-01T00:00:{number:02}Z");
        writes(&of).update(Some(&object), &mut new, &Author { manager: format!("m{number}"), now });
        object = new;
    }
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 10);
    let ancient = entries.iter().find(|entry| entry["manager"] == "ancient-changes").unwrap();
    assert!(ancient["fieldsV1"]["f:spec"]["f:map"].get("f:k0").is_some());
}

#[test]
fn who_set_the_fields_is_forgotten_on_request_and_then_not_noted() {
    let of = widget();
    let old = apply(None, json!({ "size": 1 }), "one", false).unwrap();
    let mut new = old.clone();
    new["metadata"]["managedFields"] = json!([{}]);
    writes(&of).update(Some(&old), &mut new, &author("two"));
    assert_eq!(new["metadata"].get("managedFields"), None);
    let mut later = new.clone();
    later["spec"]["size"] = json!(2);
    writes(&of).update(Some(&new), &mut later, &author("two"));
    assert_eq!(later["metadata"].get("managedFields"), None);
    // a later apply then conflicts with the manager before it
    let refused = apply(Some(&later), json!({ "size": 3 }), "one", false).unwrap_err();
    let before = "\"before-first-apply\" using x.io/v1".to_owned();
    assert_eq!(refused, Refusal::Conflicts(vec![(before, ".spec.size".to_owned())]));
}

#[test]
fn a_pod_merges_containers_by_name_and_ports_by_number_and_protocol() {
    let of = Type::named("io.k8s.api.core.v1.Pod".to_owned());
    let pod = |spec: Value| json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": spec });
    let mut all = writes(&of);
    all.api_version = "v1".to_owned();
    let one = pod(json!({ "containers": [{ "name": "c", "ports": [{ "containerPort": 80 }] }] }));
    let one = all.apply(None, &one, &author("one"), false).unwrap();
    let two = pod(json!({ "containers": [{ "name": "c", "image": "i",
        "ports": [{ "containerPort": 80, "protocol": "UDP" }] }] }));
    let two = all.apply(Some(&one), &two, &author("two"), false).unwrap();
    assert_eq!(
        two["spec"]["containers"],
        json!([{ "name": "c", "image": "i",
            "ports": [{ "containerPort": 80 }, { "containerPort": 80, "protocol": "UDP" }] }])
    );
    let refused = all.apply(
        Some(&two),
        &pod(json!({ "containers": [{ "name": "c", "bogus": 1 }] })),
        &author("one"),
        false,
    );
    let why = ".spec.containers[name=\"c\"].bogus: field not declared in schema".to_owned();
    assert_eq!(refused, Err(Refusal::Malformed(vec![why])));
}

#[test]
fn every_list_of_the_table_is_one_of_the_catalogue() {
    let named = Type::named("io.k8s.api.core.v1.PodSpec".to_owned());
    let Type::Fields(fields) = named.resolved() else { panic!("a PodSpec is a structure") };
    let (containers, known) = fields.field("containers");
    assert!(known && matches!(containers, Type::List(items::Items::Keyed(_), _)));
    assert!(matches!(fields.field("tolerations").0, Type::List(items::Items::Atomic, _)));
}

/// A spec whose fields are among those that `part` takes; two parts have nothing in common.
fn spec(part: &'static str) -> impl Strategy<Value = Value> {
    let names = move |count: usize| btree_map(0..count, 0..3i32, 0..count);
    (names(4), names(4), names(4), any::<Option<bool>>()).prop_map(move |(map, set, ports, own)| {
        let mut spec = json!({});
        let named = |number: &usize| format!("{part}{number}");
        if !map.is_empty() {
            let entries = map.iter().map(|(name, value)| (named(name), json!(value.to_string())));
            spec["map"] = Value::Object(entries.collect());
        }
        if !set.is_empty() {
            spec["set"] = set.keys().map(named).collect();
        }
        if !ports.is_empty() {
            let port = |(name, port): (&usize, &i32)| json!({ "name": named(name), "port": port });
            spec["ports"] = ports.iter().map(port).collect();
        }
        match (part, own) {
            ("x", Some(flag)) => spec["size"] = json!(i32::from(flag)),
            ("y", Some(flag)) => spec["plain"] = json!([flag.to_string()]),
            _ => {}
        }
        spec
    })
}

/// A structure with fields. Upstream, an empty structure is a field of its own: its owner keeps the field, though the
/// structure goes with its last field.
fn filled(part: &'static str) -> impl Strategy<Value = Value> {
    spec(part).prop_filter("a spec with fields", |spec| *spec != json!({}))
}

proptest! {
    #[test]
    fn applied_twice_changes_nothing(first in spec("x"), other in spec("y"), again in spec("x")) {
        let object = apply(None, first, "one", false).unwrap();
        let object = apply(Some(&object), other, "two", true).unwrap();
        let once = apply(Some(&object), again.clone(), "one", true).unwrap();
        let twice = apply(Some(&once), again, "one", false).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn managers_of_other_fields_never_conflict(ours in prop::collection::vec(filled("x"), 1..4),
        theirs in prop::collection::vec(filled("y"), 1..4), order in prop::collection::vec(any::<bool>(), 8))
    {
        let (mut ours, mut theirs) = (ours.into_iter(), theirs.into_iter());
        let mut object = None;
        let mut wanted = (json!({}), json!({}));
        for first in order {
            let next = if first { ours.next() } else { theirs.next() };
            let Some(spec) = next else { continue };
            let manager = if first { "one" } else { "two" };
            *(if first { &mut wanted.0 } else { &mut wanted.1 }) = spec.clone();
            let applied = apply(object.as_ref(), spec, manager, false);
            prop_assert!(applied.is_ok(), "{applied:?}");
            object = applied.ok();
        }
        // and what both want last is what there is, field by field
        if let Some(object) = object {
            let of = widget();
            let has = walk::collect(&of, &object);
            for spec in [wanted.0, wanted.1] {
                let mut missing = walk::collect(&of, &json!({ "spec": spec })).minus(&has);
                // an empty structure is one that the other may fill
                missing.children.retain(|_, below| !below.children.is_empty());
                prop_assert!(missing.is_empty(), "{:?}", missing.write());
            }
        }
    }

    #[test]
    fn what_its_only_owner_removes_is_gone(first in spec("x"), other in spec("y"), left in spec("x")) {
        let of = widget();
        let object = apply(None, other.clone(), "two", false).unwrap();
        let object = apply(Some(&object), first, "one", false).unwrap();
        let object = apply(Some(&object), left.clone(), "one", false).unwrap();
        let mut wanted = walk::collect(&of, &json!({ "spec": left }));
        wanted.add(&walk::collect(&of, &json!({ "spec": other })));
        let has = walk::collect(&of, &json!({ "spec": object.get("spec").cloned().unwrap_or_default() }));
        let mut left = has.minus(&wanted);
        // a structure may stay that is empty
        left.children.entry("f:spec".to_owned()).or_default().member = false;
        left.children.retain(|_, below| !below.is_empty());
        prop_assert!(left.is_empty(), "{:?}", left.write());
    }

    #[test]
    fn no_order_of_updates_and_applies_loses_a_field(changes in prop::collection::vec((spec("x"), 0..3usize), 1..6)) {
        let of = widget();
        let mut object: Option<Value> = None;
        for (spec, manager) in changes {
            let name = format!("m{manager}");
            let new = if manager == 0 {
                let mut new = object.clone().unwrap_or_else(|| config(json!({})));
                new["spec"] = spec;
                writes(&of).update(object.as_ref(), &mut new, &author(&name));
                new
            } else {
                apply(object.as_ref(), spec, &name, true).unwrap()
            };
            object = Some(new);
        }
        // every plain field has an owner, and nobody owns what is not there
        let object = object.unwrap();
        let has = walk::collect(&of, &json!({ "spec": object.get("spec").cloned().unwrap_or_default() }));
        let mut owned = FieldSet::default();
        for entry in Managers::of(&object).0 {
            owned.add(&entry.fields);
        }
        if !owned.is_empty() {
            let mut unowned = Vec::new();
            has.minus(&owned).each_path(&mut |path| unowned.push(path.to_owned()));
            unowned.retain(|path| path != ".spec");
            prop_assert!(unowned.is_empty(), "{unowned:?} of {object}");
        }
    }
}

//! Sets whose Machines get copies of a template of a bootstrap provider.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::MachineSet;
use ostler_lifecycle::bootstrap::{ConfigFacts, ConfigView};
use ostler_lifecycle::copies::{CopiesView, Made, template_of};
use ostler_lifecycle::set::{Blind, Blocker, Snapshot, decide, plan};
use ostler_lifecycle::write::{Part, Verb, Write};
use serde_json::{Value, json};

use crate::set::objects::{running, set, snapshot};

fn named(template: &str, status: &Value) -> MachineSet {
    let config =
        json!({ "apiVersion": "a.example/v1", "kind": "RecipeTemplate", "name": template });
    let spec = json!({ "template": { "spec": { "bootstrap": { "configRef": config } } } });
    set(2, json!({ "spec": spec, "status": status }))
}

fn template(generation: i64) -> ConfigView {
    let metadata = ObjectMeta { generation: Some(generation), ..ObjectMeta::default() };
    let content = json!({ "spec": { "template": { "spec": {} } } });
    ConfigView::Known(Arc::new(ConfigFacts::of_template(&metadata, &content)))
}

/// With so many Machines, and copies of these names that no Machine has.
fn seen(set: MachineSet, machines: usize, template: ConfigView, left: &[&str]) -> Snapshot {
    let of = template_of(Some("default"), &set.spec.template.spec).unwrap().unwrap();
    let made = |name: &&str| Made {
        kind: of.copies.clone(),
        plural: "recipes".to_owned(),
        name: (*name).to_owned(),
        uid: format!("uid-{name}"),
        of: Some("one".to_owned()),
    };
    let left = left.iter().map(made).collect();
    let (kind, plural) = (ConfigView::Absent, "recipes".to_owned());
    let copies = CopiesView { template, kind, plural, left, of };
    Snapshot { copies: Some(copies), ..snapshot(set, running(machines)) }
}

fn writes(snap: &Snapshot, part: Part) -> Vec<Write> {
    let plan = plan(snap);
    let batches = plan.writes.into_iter().filter(|batch| batch.part == part);
    batches.flat_map(|batch| batch.writes).collect()
}

#[test]
fn each_new_machine_comes_after_a_copy_of_its_name() {
    let snap = seen(named("one", &json!({})), 0, template(1), &[]);
    let made = writes(&snap, Part::Create);
    assert_eq!(made.len(), 2);
    for write in made {
        let machine = write.of.machine().unwrap();
        let copy = write.first.as_ref().unwrap();
        let config = machine.spec.bootstrap.as_ref().unwrap().config_ref.as_ref().unwrap();
        assert_eq!((config.kind.as_str(), config.name.as_str()), ("Recipe", machine.name()));
        assert_eq!((copy.kind.kind.as_str(), copy.name.as_str()), ("Recipe", machine.name()));
        assert!(matches!(write.verb, Verb::Create(_)));
    }
}

#[test]
fn nothing_is_sent_while_no_copy_can_be_made_and_the_refusal_names_the_template() {
    let snap = seen(named("one", &json!({})), 0, ConfigView::Absent, &[]);
    for write in writes(&snap, Part::Create) {
        let Verb::Refuse(why) = &write.verb else { panic!("{write:?}") };
        assert!(why.contains("RecipeTemplate one does not exist"), "{why}");
        assert_eq!(write.first, None);
    }
}

#[test]
fn a_template_that_was_not_read_yet_is_awaited() {
    let plan = decide(&seen(named("one", &json!({})), 1, ConfigView::Unknown, &[]));
    assert_eq!((plan.create, plan.blocker), (0, Some(Blocker::TemplateUnread)));
}

#[test]
fn a_copy_without_a_machine_goes_unless_its_machine_may_be_there() {
    let gone = |snap: &Snapshot| -> Vec<String> {
        let deleted = writes(snap, Part::Delete).into_iter().filter_map(|write| {
            if let Verb::DeleteCopy(copy) = write.verb { Some(copy.name) } else { None }
        });
        deleted.collect()
    };
    let mut snap = seen(named("one", &json!({})), 2, template(1), &["s-left0", "s-asked"]);
    snap.unanswered = vec!["s-asked".to_owned()];
    assert_eq!(gone(&snap), ["s-left0"]);
    snap.blind = Some(Blind::OwnWrites);
    assert_eq!(gone(&snap), [""; 0]);
}

/// A core died between both writes.
#[test]
fn a_machine_is_made_for_a_copy_that_is_there_if_a_new_copy_would_be_the_same() {
    let seen_before = |generation: i64| json!({ "bootstrapTemplate": { "name": "one", "generation": generation } });
    for (before, machines, made, gone) in [
        (seen_before(1), 0, 2, 0),
        (seen_before(1), 1, 1, 1),
        (seen_before(1), 2, 0, 2),
        (seen_before(2), 0, 0, 2),
        (json!({ "bootstrapTemplate": { "name": "two", "generation": 1 } }), 0, 0, 2),
        (json!({}), 0, 0, 2),
    ] {
        let snap = seen(named("one", &before), machines, template(1), &["s-left0", "s-left1"]);
        let plan = decide(&snap);
        assert_eq!((plan.repeat.len(), plan.left.len()), (made, gone), "{before}");
        assert_eq!(plan.create + plan.repeat.len() + machines, 2, "{before}");
        let creates = writes(&snap, Part::Create);
        assert!(plan.repeat.iter().all(|name| creates.iter().any(|it| it.of.name() == name)));
    }
    let mut snap = seen(named("one", &seen_before(1)), 0, template(1), &["s-left0"]);
    snap.copies.as_mut().unwrap().left[0].of = Some("two".to_owned());
    assert_eq!(decide(&snap).left.len(), 1);
}

#[test]
fn a_template_that_was_changed_in_place_is_told_once_and_another_one_is_none() {
    let told = |seen_before: Value, generation: i64, machines: usize| {
        let set = named("one", &json!({ "bootstrapTemplate": seen_before }));
        let plan = plan(&seen(set, machines, template(generation), &[]));
        let told =
            |it: &&ostler_lifecycle::plan::Event| it.reason.name() == "TemplateChangedInPlace";
        plan.events.iter().filter(told).count()
    };
    let before = |name: &str| json!({ "name": name, "generation": 1 });
    assert_eq!(told(before("one"), 2, 2), 1);
    assert_eq!(told(before("one"), 1, 2), 0);
    assert_eq!(told(before("other"), 2, 2), 0);
    assert_eq!(told(Value::Null, 2, 2), 0);
    assert_eq!(told(before("one"), 2, 0), 0, "no Machine has a copy of it");
}

//! The one copy of a template of a bootstrap provider that a pool has.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use ostler_api::{
    driver::OperationKind,
    machine_pool::PoolBootstrapConfig,
    operation::{OperationView, Request, Success},
};
use ostler_lifecycle::{
    bootstrap::{ConfigFacts, ConfigView},
    class::FinalizerChange,
    copies::CopiesView,
    operation::UserData,
    plan::EventReason,
    pool::{
        ConfigsView, DataSecret, Decision, Noted, broken, config_template, data_secret, model_hash,
        noted, plan,
    },
    write::{Part, Verb},
};
use serde_json::{Value, json};

use crate::pool::world::{World, changed, class, request};

fn named(template: &str) -> Value {
    let config =
        json!({ "apiVersion": "a.example/v1", "kind": "RecipeTemplate", "name": template });
    json!({ "template": { "spec": { "bootstrap": { "configRef": config } } } })
}

fn template(generation: i64) -> ConfigView {
    let metadata = ObjectMeta { generation: Some(generation), ..ObjectMeta::default() };
    let content = json!({ "spec": { "template": { "spec": {} } } });
    ConfigView::Known(Arc::new(ConfigFacts::of_template(&metadata, &content)))
}

fn world(template: &str) -> World {
    let mut world = World::new(2, named(template));
    see(&mut world, self::template(1));
    world
}

/// What is observed now of its template, and of copies that are not there.
fn see(world: &mut World, template: ConfigView) {
    let of = config_template(&world.pool).unwrap().unwrap();
    let (kind, plural) = (ConfigView::Absent, "recipes".to_owned());
    world.configs.copies = Some(CopiesView { of, template, kind, plural, left: Vec::new() });
    let noted = noted(&world.pool).map(|name| {
        let before = world.configs.noted.iter().find(|it| it.name == name);
        let view = before.map_or(ConfigView::Absent, |it| it.view.clone());
        Noted { name, plural: "recipes".to_owned(), view }
    });
    world.configs.noted = noted.collect();
}

/// A pass after which its own writes, and no others, are seen.
fn pass(world: &mut World) -> Decision {
    let done = world.pass();
    let template =
        world.configs.copies.as_ref().map_or_else(|| template(1), |it| it.template.clone());
    see(world, template);
    done
}

/// The provider says this of a copy.
fn says(world: &mut World, at: usize, status: &Value, finalizers: &[&str]) {
    let owner = OwnerReference { uid: "pool-uid".to_owned(), ..OwnerReference::default() };
    let metadata = ObjectMeta {
        uid: Some(format!("uid-{at}")),
        owner_references: Some(vec![owner]),
        finalizers: Some(finalizers.iter().map(|it| (*it).to_owned()).collect()),
        ..ObjectMeta::default()
    };
    let facts = ConfigFacts::of(&metadata, &json!({ "status": status }));
    world.configs.noted[at].view = ConfigView::Known(Arc::new(facts));
}

fn ready() -> Value {
    json!({ "ready": true, "dataSecretName": "join" })
}

fn joins(text: &str) -> DataSecret {
    DataSecret::Known(UserData::new(text.as_bytes().to_vec()))
}

fn names(configs: &[PoolBootstrapConfig]) -> Vec<&str> {
    configs.iter().map(|it| it.copy.name.as_str()).collect()
}

fn said(plan: &Decision) -> (String, String) {
    let mut all = plan.status.conditions.iter();
    let one = all.find(|it| it.type_ == "BootstrapReady").unwrap();
    (one.reason.clone(), one.message.clone())
}

/// A pool of a template whose group runs with the copy of that.
fn running() -> World {
    let mut world = World::running(2, named("one"));
    see(&mut world, template(1));
    pass(&mut world);
    says(&mut world, 0, &ready(), &[]);
    world.data = joins("first");
    assert_eq!(brought(&mut world), "first");
    world
}

/// The user data of an update of the group that goes well, and replaces no instance.
fn brought(world: &mut World) -> String {
    let plan = pass(world);
    let Some(Request::UpdatePool { model: Some(model), .. }) = request(&plan) else {
        panic!("{plan:?}")
    };
    assert!(plan.delete.is_empty() && plan.create.is_empty());
    let text = model.user_data.as_ref().unwrap().bytes().to_vec();
    world.answer(OperationKind::UpdatePool, changed());
    pass(world);
    world.operation = OperationView::Idle;
    String::from_utf8(text).unwrap()
}

#[test]
fn the_copy_is_noted_then_made_and_the_group_after_its_data_are_there() {
    let mut world = world("one");
    let first = pass(&mut world);
    let [name] = names(&first.status.bootstrap_configs)[..] else { panic!() };
    assert!(name.starts_with("p-"), "{name}");
    assert!(first.copy.is_none() && first.dispatch.is_none() && first.news.is_empty());
    for _ in 0..2 {
        // Also if the core died before, or after, it was made.
        let copy = pass(&mut world).copy.unwrap();
        assert_eq!((copy.kind.kind.as_str(), copy.name.as_str()), ("Recipe", name));
        let owner = &copy.object["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["kind"], &owner["uid"]), (&json!("MachinePool"), &json!("pool-uid")));
        let labels = &copy.object["metadata"]["labels"];
        assert_eq!(
            (&labels["role"], &labels["cluster.x-k8s.io/pool-name"]),
            (&json!("worker"), &json!("p"))
        );
    }
    says(&mut world, 0, &json!({}), &[]);
    let waits = pass(&mut world);
    assert_eq!(said(&waits).0, "BootstrapNotReady");
    assert!(waits.copy.is_none() && waits.dispatch.is_none() && waits.news.is_empty());
    says(&mut world, 0, &ready(), &[]);
    assert_eq!(data_secret(&world.pool, &world.configs), Some("join"));
    world.data = joins("kubelet");
    let made = pass(&mut world);
    let Some(Request::CreatePool { model, .. }) = request(&made) else { panic!("{made:?}") };
    assert_eq!(model.user_data.as_ref().unwrap().bytes(), b"kubelet");
    assert_eq!(made.status.bootstrap_configs[0].data_secret_name.as_deref(), Some("join"));
}

#[test]
fn what_is_missing_has_a_reason_and_names_the_reference() {
    let forbidden = || ConfigView::Unreadable("forbidden".to_owned());
    for (template, reason, says) in [
        (ConfigView::Absent, "BootstrapConfigMissing", "does not exist"),
        (ConfigView::KindMissing, "BootstrapKindMissing", "does not serve"),
        (forbidden(), "BootstrapKindUnreadable", "forbidden"),
    ] {
        let mut world = world("one");
        see(&mut world, template);
        let plan = pass(&mut world);
        let (found, message) = said(&plan);
        assert_eq!(found, reason);
        assert!(message.contains("RecipeTemplate one") && message.contains(says), "{message}");
        assert!(plan.status.bootstrap_configs.is_empty() && plan.dispatch.is_none());
        assert_eq!(plan.news.len(), 1, "{:?}", plan.news);
        assert_eq!(plan.news[0].reason, EventReason::DataMissing);
    }
    let failed = json!({ "failureReason": "Oven", "failureMessage": "it is cold" });
    for (status, reason, says_so) in [
        (failed, "DataMissing", "failed: it is cold"),
        (json!({ "ready": true }), "DataMissing", "neither status.dataSecretName"),
    ] {
        let mut world = world("one");
        pass(&mut world);
        says(&mut world, 0, &status, &[]);
        let (found, message) = said(&pass(&mut world));
        assert!(found == reason && message.contains(says_so), "{found}: {message}");
    }
    // An object of another has the name.
    let mut world = world("one");
    pass(&mut world);
    let strange = ConfigFacts::of(&ObjectMeta::default(), &json!({ "status": ready() }));
    world.configs.noted[0].view = ConfigView::Known(Arc::new(strange));
    let plan = pass(&mut world);
    assert_eq!(said(&plan).0, "BootstrapConfigOwned");
    assert!(plan.copy.is_none() && plan.left.is_empty());
}

#[test]
fn only_a_template_is_followed_and_data_of_the_pool_itself_come_first() {
    let mut spec = named("one");
    spec["template"]["spec"]["bootstrap"]["configRef"]["kind"] = json!("Recipe");
    let world = World::new(2, spec.clone());
    assert!(broken(&world.pool).join("; ").contains("name one of kind RecipeTemplate"));
    let plan = world.plan();
    assert!(plan.copy.is_none() && plan.dispatch.is_none(), "{plan:?}");
    assert_eq!(said(&plan).0, "BootstrapConfigInvalid");
    for data in [json!({ "data": "kubelet" }), json!({ "dataSecretName": "" })] {
        let mut spec = named("one");
        let bootstrap = &mut spec["template"]["spec"]["bootstrap"];
        json_patch::merge(bootstrap, &data);
        let plan = World::new(2, spec).plan();
        assert!(plan.status.bootstrap_configs.is_empty() && plan.dispatch.is_some());
    }
}

/// As with a renewed token: no instance is replaced.
#[test]
fn a_renewed_secret_and_another_one_reach_the_model_and_an_edit_in_place_is_told_once() {
    let mut world = running();
    world.data = joins("second");
    assert_eq!(brought(&mut world), "second");
    says(&mut world, 0, &json!({ "ready": true, "dataSecretName": "other" }), &[]);
    world.data = joins("third");
    assert_eq!(brought(&mut world), "third");
    assert!(pass(&mut world).dispatch.is_none());
    see(&mut world, template(2));
    let edited = pass(&mut world);
    assert_eq!(edited.news[0].reason, EventReason::TemplateChangedInPlace);
    assert!(edited.copy.is_none() && edited.left.is_empty() && edited.dispatch.is_none());
    assert!(pass(&mut world).news.is_empty());
}

#[test]
fn another_template_is_another_copy_and_the_one_before_goes_once_the_group_has_its_model() {
    let mut world = running();
    let first = names(&pass(&mut world).status.bootstrap_configs)[0].to_owned();
    let World { pool, .. } = self::world("two");
    world.pool.spec = pool.spec;
    see(&mut world, template(1));
    let noted = pass(&mut world);
    let both = names(&noted.status.bootstrap_configs);
    assert!(both.len() == 2 && both[0] == first, "{both:?}");
    assert!(noted.left.is_empty(), "what boots now needs it");
    assert!(pass(&mut world).copy.is_some());
    says(&mut world, 1, &ready(), &[]);
    assert_eq!(brought(&mut world), "first");
    world.group.as_mut().unwrap().model_hash = model_hash(&world.pool, &class());
    let [gone] = &pass(&mut world).left[..] else { panic!() };
    assert_eq!((gone.name.as_str(), gone.uid.as_str()), (first.as_str(), "uid-0"));
    world.configs.noted[0].view = ConfigView::Absent;
    assert_eq!(pass(&mut world).status.bootstrap_configs.len(), 1);
}

#[test]
fn a_pool_waits_for_its_copy_that_a_finalizer_holds_and_asks_no_driver_again() {
    let mut world = running();
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    let all = std::mem::take(&mut world.machines);
    assert!(!all.is_empty());
    world.group.as_mut().unwrap().instances.clear();
    assert!(pass(&mut world).left.is_empty(), "its group is there");
    world.answer(OperationKind::DeletePool, Ok(Success::Deleted { was_absent: false }));
    world.group = None;
    says(&mut world, 0, &ready(), &["example.com/oven"]);
    let first = pass(&mut world);
    assert_eq!((first.left.len(), first.finalizer), (1, FinalizerChange::Keep));
    world.operation = OperationView::Idle;
    let mut all = first.status.conditions.iter();
    let deleting = all.find(|it| it.type_ == "Deleting").unwrap();
    assert!(deleting.message.contains("example.com/oven"), "{}", deleting.message);
    for _ in 0..3 {
        assert!(pass(&mut world).dispatch.is_none());
    }
    for (view, over) in [(ConfigView::Unknown, false), (ConfigView::Absent, true)] {
        world.configs.noted[0].view = view;
        assert_eq!(world.plan().finalizer == FinalizerChange::Remove, over);
    }
}

#[test]
fn the_writes_are_the_copy_and_its_deletion_and_a_status_that_is_new_comes_again_at_once() {
    let mut world = world("one");
    let verbs = |world: &World| -> Vec<_> {
        let batches = plan(&world.snapshot()).writes.into_iter();
        batches.map(|it| (it.part, it.writes.into_iter().map(|it| it.verb).next())).collect()
    };
    assert!(verbs(&world).is_empty());
    pass(&mut world);
    assert!(matches!(verbs(&world)[..], [(Part::Tell, Some(Verb::MakeCopy(_)))]));
    assert_ne!(world.configs, ConfigsView::default());
}

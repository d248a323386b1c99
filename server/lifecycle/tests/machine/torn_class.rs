//! Classes and secrets that a user deleted by force: what was made with them can still be deleted,
//! and nothing new is made.

use ostler_api::{
    driver::{ErrorCode, OperationKind},
    machine::WaitReason,
};
use ostler_lifecycle::{
    operation::OperationView,
    snapshot::{ClassFacts, ClassView, SecretFacts, SecretView},
};

use crate::machine::world::World;

fn tear_class(world: &mut World) {
    let class = world.class.take().unwrap();
    world.class_view = Some(ClassView::LastKnown(ClassFacts::of(&class)));
}

fn tear_secret(world: &mut World) {
    let facts = SecretFacts { revision: "s1".into(), user_data: None };
    world.secret = SecretView::LastKnown(facts, vec!["default/s".to_owned()]);
}

#[test]
fn a_machine_is_deleted_with_the_last_known_class_and_secret() {
    for tear in [&[tear_class as fn(&mut World)][..], &[tear_secret], &[tear_class, tear_secret]] {
        let mut world = World::running();
        for tear in tear {
            tear(&mut world);
        }
        world.delete();
        world.settle();
        assert!(world.machine.is_none() && world.instances.is_empty());
        let delete = world.sent.last().unwrap();
        assert_eq!(delete.kind(), OperationKind::DeleteMachine);
        assert_eq!(
            (delete.class.as_ref().unwrap().name.as_str(), delete.provider.as_str()),
            ("small", "fake.ostler.dev")
        );
    }
}

#[test]
fn nothing_is_made_with_a_class_or_secret_that_is_gone() {
    let mut world = World::new();
    tear_class(&mut world);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::ClassMissing));
    let mut world = World::new();
    tear_secret(&mut world);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::SecretMissing));
    assert!(world.sent.is_empty());
}

/// A deletion that the infrastructure refuses because of stale credentials.
fn refused(world: &mut World) -> String {
    world.delete();
    world.pass();
    while !matches!(world.operation, OperationView::InFlight(_)) {
        world.pass();
    }
    world.says = "401";
    world.refuse(ErrorCode::Unauthenticated);
    world.settle();
    assert_eq!(world.waits_for(), Some(WaitReason::CredentialsRefused));
    world.status().waiting_for.unwrap().message.unwrap()
}

#[test]
fn stale_credentials_say_what_to_mend_and_a_mended_secret_is_tried_at_once() {
    let mut world = World::running();
    world.class.as_mut().unwrap().spec.secret_ref =
        serde_json::from_value(serde_json::json!({ "name": "s" })).unwrap();
    let message = refused(&mut world);
    assert_eq!(
        message,
        "401; fix secret default/s; the operation is retried as soon as it changes"
    );
    let SecretView::Known(old) = world.secret.clone() else { panic!() };
    world.secret = SecretView::Known(SecretFacts { revision: "s2".into(), ..old });
    world.settle();
    assert!(world.machine.is_none());
}

#[test]
fn stale_credentials_that_were_kept_say_what_to_make_again() {
    let mut world = World::running();
    tear_secret(&mut world);
    let message = refused(&mut world);
    assert!(message.contains("secret default/s was deleted: create it again"), "{message}");
    let mut world = World::running();
    tear_class(&mut world);
    let message = refused(&mut world);
    assert!(message.contains("machine class small was deleted: create it again"), "{message}");
}

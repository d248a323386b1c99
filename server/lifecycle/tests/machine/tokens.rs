//! Bootstrap tokens: of one machine alone, for as long as it may join, and not longer.

use jiff::SignedDuration;
use ostler_api::Uid;
use ostler_api::{
    driver::OperationKind,
    machine::{MachinePhase, MachineStep},
    names,
};
use ostler_lifecycle::{
    operation::{OperationView, Request, SecretText},
    plan::{Action, Plan, TokenRequest},
    snapshot::{BootstrapToken, Observed},
    user_data::{token_id, token_id_after},
};

use crate::machine::world::{UID, World, looks_again, pod};

/// A world in which a create is in flight.
fn creating() -> World {
    let mut world = World::new();
    world.pass();
    world.answer();
    world.pass();
    world
}

/// A world in which the instance is made and its Node has to come.
fn joining() -> World {
    let mut world = World::new();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Pending);
    world.later(2);
    world.settle();
    world
}

fn token(world: &World) -> &BootstrapToken {
    world.token.known().expect("there is a token")
}

fn seconds_left(world: &World) -> i64 {
    token(world).expires.unwrap().duration_since(world.now).as_secs()
}

fn of(uid: &str, secret: &str, expires: jiff::Timestamp) -> Observed<BootstrapToken> {
    Observed::Known(BootstrapToken {
        owner: Some(uid.into()),
        secret: SecretText::new(secret.to_owned()),
        expires: Some(expires),
        node: None,
    })
}

fn user_data(world: &World) -> String {
    let Request::Create { user_data: Some(data), .. } = &world.sent.last().unwrap().request else {
        panic!("no create with user data was sent")
    };
    String::from_utf8(data.bytes().to_vec()).unwrap()
}

fn asks_for(actions: &[Action]) -> Option<&TokenRequest> {
    actions.iter().find_map(|action| match action {
        Action::EnsureBootstrapToken(request) => Some(request),
        _ => None,
    })
}

#[test]
fn a_token_is_written_down_with_the_create_that_carries_it_and_outlives_the_creation_timeout() {
    let world = creating();
    let id = token_id(UID);
    assert_eq!(world.status().bootstrap_token_id.as_ref(), Some(&id));
    assert!(user_data(&world).contains(&format!("{id}.0123456789abcdef")));
    assert_eq!(token(&world).owner.as_ref().map(Uid::as_str), Some(UID));
    assert_eq!(seconds_left(&world), 25 * 60, "20 minutes and a little more");
}

#[test]
fn a_token_covers_the_timeout_of_its_machine() {
    let mut world = World::new();
    let key = names::annotation::EFFECTIVE_CREATION_TIMEOUT.to_owned();
    world.machine_mut().metadata.annotations = Some([(key, "90m".to_owned())].into());
    world.settle();
    assert_eq!(seconds_left(&world), 95 * 60);
}

#[test]
fn an_id_that_another_object_has_is_left_alone_and_the_next_one_is_taken_immediately() {
    let strangers = [Some("another machine".to_owned()), None];
    for stranger in strangers {
        let mut world = World::new();
        world.token = Observed::Known(BootstrapToken {
            owner: stranger.map(Uid::from),
            secret: SecretText::new("theirs".to_owned()),
            expires: None,
            node: None,
        });
        world.pass();
        world.answer();
        let plan = world.pass();
        assert_eq!(asks_for(&plan.actions), None, "{plan:#?}");
        assert_eq!(plan.dispatch, None);
        let next = token_id_after(UID, &token_id(UID));
        assert_eq!(world.status().bootstrap_token_id.as_ref(), Some(&next));
        assert_eq!(looks_again(&world, &plan), Some(0), "no event tells of the next one");
        // The shell looks the next one up.
        world.token = Observed::Absent;
        world.settle();
        assert_eq!(world.status().bootstrap_token_id.as_ref(), Some(&next));
        let created = world.sent.iter().find_map(|one| match &one.request {
            Request::Create { user_data: Some(data), .. } => Some(data.bytes().to_vec()),
            _ => None,
        });
        let text = String::from_utf8(created.unwrap()).unwrap();
        assert!(text.contains(&format!("{next}.0123456789abcdef")), "{text}");
    }
}

#[test]
fn a_token_that_an_instance_may_have_keeps_its_secret_and_gets_the_time_that_it_needs() {
    for (left, renewed) in [(60, true), (21 * 60, false)] {
        let mut world = World::new();
        let expires = world.now.checked_add(SignedDuration::from_secs(left)).unwrap();
        world.token = of(UID, "old", expires);
        world.pass();
        world.answer();
        let plan = world.pass();
        assert!(user_data(&world).contains(".old "), "{}", user_data(&world));
        assert_eq!(asks_for(&plan.actions).is_some(), renewed, "{left} s left");
    }
}

#[test]
fn a_token_is_bound_to_the_node_that_the_driver_named_unless_it_joins_within_moments_and_once() {
    let mut world = creating();
    assert_eq!(token(&world).node, None, "it is not known yet");
    world.settle();
    let plan = world.pass();
    assert_eq!(token(&world).node, None, "it may join any moment, and the token goes");
    assert_eq!(looks_again(&world, &plan), Some(2));
    world.later(2);
    world.settle();
    let name = world.machine_mut().node_name().unwrap().to_owned();
    assert_eq!(token(&world).node.as_deref(), Some(name.as_str()));
    assert_eq!(token(&world).secret.expose(), "0123456789abcdef", "the instance has this one");
    world.later(60);
    assert_eq!(asks_for(&world.pass().actions), None, "once is enough");
}

#[test]
fn no_token_is_bound_where_the_api_server_does_not_look_at_that() {
    let mut world = creating();
    world.binds_tokens = false;
    world.settle();
    world.later(60);
    assert_eq!(asks_for(&world.pass().actions), None);
    assert_eq!(token(&world).node, None);
}

#[test]
fn a_token_goes_once_the_kubelet_has_registered_its_node_though_that_is_not_ready() {
    let mut world = joining();
    world.node_is("Unknown");
    world.settle();
    assert!(world.token.known().is_some(), "no kubelet said that");
    world.node_is("False");
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Pending);
    assert_eq!(world.token, Observed::Absent);
    let plan = world.pass();
    assert!(plan.actions.is_empty(), "once is enough: {:?}", plan.actions);
}

#[test]
fn a_token_is_renewed_when_the_machine_gets_more_time_to_join() {
    let mut world = joining();
    world.later(58);
    assert_eq!(asks_for(&world.pass().actions), None);
    world.machine_mut().spec.creation_timeout = Some("3h".into());
    let plan = world.pass();
    let renewed = asks_for(&plan.actions).expect("the token is renewed");
    assert_eq!(renewed.secret.expose(), "0123456789abcdef", "the instance has this one");
    assert_eq!(seconds_left(&world), 3 * 3600 + 4 * 60);
    world.later(1);
    assert_eq!(asks_for(&world.pass().actions), None, "once is enough");
}

#[test]
fn a_token_is_renewed_while_the_driver_works_too() {
    let mut world = creating();
    world.machine_mut().spec.creation_timeout = Some("3h".into());
    assert!(asks_for(&world.pass().actions).is_some());
}

#[test]
fn a_token_goes_when_its_node_has_joined() {
    let mut world = joining();
    world.join();
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Running);
    assert_eq!((&world.token, world.status().bootstrap_token_id), (&Observed::Absent, None));
}

#[test]
fn a_token_goes_when_its_machine_has_failed() {
    let mut world = joining();
    world.later(20 * 60);
    world.settle();
    assert_eq!(world.phase(), MachinePhase::Failed);
    assert_eq!((&world.token, world.status().bootstrap_token_id), (&Observed::Absent, None));
}

#[test]
fn a_token_goes_as_soon_as_its_machine_is_deleted() {
    for begun in [creating, joining] {
        let mut world = begun();
        world.delete();
        world.pass();
        assert_eq!((&world.token, world.status().bootstrap_token_id), (&Observed::Absent, None));
    }
}

#[test]
fn the_instance_is_deleted_in_the_pass_after_its_token_and_after_another_look_for_its_node() {
    let mut world = joining();
    world.delete();
    world.pass();
    assert_eq!(world.token, Observed::Absent);
    assert_eq!(world.count(OperationKind::DeleteMachine), 0);
    world.pass();
    assert_eq!(world.count(OperationKind::DeleteMachine), 1);
}

#[test]
fn a_node_that_joined_just_before_its_token_was_deleted_is_drained() {
    let mut world = joining();
    world.delete();
    world.pass();
    world.join();
    world.pods = Observed::Known(vec![pod("a")]);
    world.pass();
    assert_eq!(world.count(OperationKind::DeleteMachine), 0);
    assert_eq!(world.step(), Some(MachineStep::CordonNode));
}

#[test]
fn a_token_that_was_made_and_never_written_down_goes_with_its_machine() {
    let mut world = creating();
    // The core died between the token and the status.
    world.machine_mut().status = None;
    world.lose_operation();
    world.delete();
    world.settle();
    world.later(61);
    world.settle();
    assert!(world.machine.is_none());
    assert_eq!(world.token, Observed::Absent);
}

/// The names of the actions of a plan that are performed at the same time.
fn beside(plan: &Plan) -> Vec<[&str; 2]> {
    let pairs = plan.actions.iter().zip(plan.actions.iter().skip(1));
    let pairs = pairs.filter(|(one, next)| one.goes_beside(next));
    pairs.map(|(one, next)| [one.name(), next.name()]).collect()
}

#[test]
fn a_token_takes_no_round_trip_of_its_own_while_a_machine_is_made() {
    let mut world = World::new();
    world.pass();
    world.answer();
    assert_eq!(beside(&world.pass()), [["PatchMachine", "EnsureBootstrapToken"]]);
    let mut world = joining();
    world.join();
    assert_eq!(beside(&world.pass()), [["PatchNode", "DeleteBootstrapToken"]]);
}

#[test]
fn nothing_goes_beside_the_removal_of_the_finalizer() {
    let mut world = creating();
    world.machine_mut().status = None;
    world.lose_operation();
    world.delete();
    for _ in 0..20 {
        if matches!(world.operation, OperationView::InFlight(_)) {
            world.answer();
        }
        let plan = world.pass();
        if plan.actions.contains(&Action::RemoveFinalizer) {
            assert_eq!(beside(&plan), [[""; 2]; 0]);
            return;
        }
        world.later(60);
    }
    panic!("it never goes");
}

//! The bootstrap token of a pool: two Secrets take turns, and no instance that boots loses its own.

use jiff::SignedDuration;
use ostler_api::{
    driver::OperationKind,
    operation::{OperationView, Request, Success},
};
use ostler_lifecycle::{
    class::FinalizerChange,
    operation::{SecretText, UserData},
    plan::TokenRequest,
    pool::{DataSecret, Decision, Slot, TokenView, plan, token_ids},
    snapshot::BootstrapToken,
    write::{TokenWrite, Verb, Write},
};
use serde_json::{Value, json};

use crate::pool::world::{World, changed, request};

/// A pool whose user data ask for a token, which none was looked up for yet.
fn world(more: Value) -> World {
    let mut spec = json!({ "template": { "spec": { "bootstrap": { "dataSecretName": "join" } } } });
    json_patch::merge(&mut spec, &more);
    let mut world = World::running(2, spec);
    world.data = DataSecret::Known(UserData::new(b"join <<BOOTSTRAP_TOKEN>>".to_vec()));
    world.tokens = TokenView::Known(empty(&world));
    world
}

fn empty(world: &World) -> Vec<Slot> {
    token_ids(&world.pool).take(2).map(|id| Slot { id, token: None }).collect()
}

fn slots(world: &mut World) -> &mut Vec<Slot> {
    if let TokenView::Known(slots) = &mut world.tokens { slots } else { panic!("not known") }
}

fn slot<'a>(world: &'a mut World, id: &str) -> &'a mut Option<BootstrapToken> {
    &mut slots(world).iter_mut().find(|slot| slot.id == id).unwrap().token
}

fn make(world: &mut World, token: &TokenRequest) {
    assert_eq!((token.owner.as_str(), &token.node), ("pool-uid", &None));
    let made = BootstrapToken {
        owner: Some(token.owner.clone()),
        secret: token.secret.clone(),
        expires: Some(token.expires),
        node: None,
    };
    *slot(world, &token.id) = Some(made);
}

/// The user data for instances that the group makes from the model of this operation.
fn user_data(plan: &Decision) -> Option<String> {
    let (Request::CreatePool { model, .. } | Request::UpdatePool { model: Some(model), .. }) =
        request(plan)?
    else {
        return None;
    };
    Some(String::from_utf8(model.user_data.clone()?.bytes().to_vec()).unwrap())
}

fn written(world: &World) -> Vec<TokenWrite> {
    let token = |write: Write| if let Verb::Token(it) = write.verb { Some(*it) } else { None };
    let batches = plan(&world.snapshot()).writes.into_iter();
    batches.flat_map(|it| it.writes).filter_map(token).collect()
}

#[test]
fn no_group_is_made_before_its_token_is_there() {
    let mut world = world(json!({}));
    (world.group, world.pool.status) = (None, None);
    let first = world.plan();
    assert!(first.dispatch.is_none() && !first.status.bootstrap_ready);
    assert!(first.news.is_empty(), "it is made now: {:?}", first.news);
    let token = first.token.unwrap();
    assert_eq!(token.expires, world.now + SignedDuration::from_mins(40));
    assert_eq!(written(&world), [TokenWrite::Ensure(token.clone())]);
    make(&mut world, &token);
    let made = world.plan();
    assert_eq!((&made.token, made.status.bootstrap_ready), (&None, true));
    let text = format!("join {}.secret-of-{}", token.id, world.now.as_second());
    assert_eq!(user_data(&made), Some(text));
    // A pool that needs none makes none.
    for data in [b"join".as_slice(), b""] {
        world.data = DataSecret::Known(UserData::new(data.to_vec()));
        world.tokens = TokenView::Known(empty(&world));
        assert!(world.plan().token.is_none());
    }
}

/// Over hours, looked at each minute: whatever the group has, an instance of it may join for as long as it may take.
#[test]
fn a_token_is_renewed_at_half_of_its_life_and_none_that_an_instance_may_have_is_taken_away() {
    for (creation, minutes) in [(None, 20), (Some("2h"), 120), (Some("3m"), 3)] {
        let timeout = creation.map(|it| json!({ "spec": { "creationTimeout": it } }));
        let mut world = world(timeout.map_or_else(|| json!({}), |it| json!({ "template": it })));
        let begun = world.now;
        let (mut given, mut renewals) = (Vec::new(), 0);
        for minute in 0..600 {
            world.now = begun + SignedDuration::from_mins(minute);
            let plan = world.pass();
            assert!(plan.delete.is_empty() && plan.create.is_empty(), "{minute}");
            if let Some(text) = user_data(&plan) {
                let boots_until = world.now + SignedDuration::from_mins(minutes - 2);
                given.push((text.trim_start_matches("join ").to_owned(), boots_until));
                world.answer(OperationKind::UpdatePool, changed());
                world.pass();
                world.operation = OperationView::Idle;
            } else if let Some((_, until)) = given.last_mut() {
                *until = world.now + SignedDuration::from_mins(minutes - 2);
            }
            if let Some(token) = &plan.token {
                make(&mut world, token);
                renewals += 1;
            }
            let now = world.now;
            for (text, until) in given.iter().filter(|(_, until)| *until > now) {
                let joins = slots(&mut world).iter().any(|slot| {
                    let token = slot.token.as_ref().filter(|it| it.expires.unwrap() > now);
                    token.is_some_and(|it| *text == format!("{}.{}", slot.id, it.secret.expose()))
                });
                assert!(joins, "{creation:?}, minute {minute}: {text} until {until}");
            }
        }
        assert_eq!(world.plan().status.up_to_date_replicas, 2, "none is replaced for it");
        let least = 600 / (minutes + 2);
        assert!((least..=600 / minutes + 1).contains(&renewals), "{creation:?}: {renewals}");
    }
}

#[test]
fn a_token_that_a_user_deleted_or_emptied_or_that_never_ends_is_made_again() {
    let spoil: [fn(&mut Option<BootstrapToken>); 3] = [
        |token| *token = None,
        |token| token.as_mut().unwrap().secret = SecretText::new(String::new()),
        |token| token.as_mut().unwrap().expires = None,
    ];
    for spoil in spoil {
        let mut world = world(json!({}));
        let token = world.plan().token.unwrap();
        make(&mut world, &token);
        assert!(world.plan().token.is_none());
        spoil(slot(&mut world, &token.id));
        assert_eq!(world.plan().token.unwrap().id, token.id);
    }
}

#[test]
fn what_cannot_be_read_is_said_and_makes_nothing() {
    let mut world = world(json!({}));
    world.tokens = TokenView::Unknown("secrets is forbidden".to_owned());
    let plan = world.plan();
    assert!(plan.token.is_none() && plan.dispatch.is_none());
    let said = plan.status.conditions.iter().find(|it| it.type_ == "BootstrapReady").unwrap();
    assert!(said.message.contains("secrets is forbidden"), "{said:?}");
    world.tokens = TokenView::NoCluster;
    assert_eq!(user_data(&world.plan()).as_deref(), Some("join <<BOOTSTRAP_TOKEN>>"));
}

#[test]
fn the_tokens_go_with_their_pool_after_its_group_and_none_is_made_for_it() {
    let mut world = World::running(0, json!({}));
    world.tokens = TokenView::Known(empty(&world));
    let [first, _] = empty(&world).try_into().unwrap();
    world.pool.metadata.deletion_timestamp = Some(world.now.into());
    *slot(&mut world, &first.id) = Some(BootstrapToken {
        owner: Some("pool-uid".into()),
        secret: SecretText::new("s".to_owned()),
        expires: Some(world.now),
        node: None,
    });
    world.pass();
    assert!(written(&world).is_empty());
    world.answer(OperationKind::DeletePool, Ok(Success::Deleted { was_absent: false }));
    assert_eq!(world.plan().finalizer, FinalizerChange::Remove);
    let delete = TokenWrite::Delete { id: first.id, owner: "pool-uid".into() };
    assert_eq!(written(&world), [delete]);
    let writes = plan(&world.snapshot()).writes;
    assert!(matches!(writes[1].writes[0].verb, Verb::Patch(_)), "the finalizer follows");
}

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::bootstrap::ConfigKind;
use ostler_lifecycle::copies::NewCopy;
use ostler_lifecycle::plan::{EventReason, Performed};
use ostler_lifecycle::write::{Answers, Batch, OfInstance, Taken, Then, Verb};
use serde_json::{Value, json};

use super::*;
use crate::bench::Bench;
use crate::fleet::Tools;
use crate::kind::PassError;

fn set() -> Object {
    let set: MachineSet = serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": { "name": "s", "namespace": "default", "uid": "s", "resourceVersion": "3" },
        "spec": {}
    }))
    .unwrap();
    Object::Set(Arc::new(set))
}

fn machine() -> Object {
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": "m", "namespace": "default", "uid": "m", "resourceVersion": "7" },
        "spec": {}
    });
    Object::Machine(Arc::new(serde_json::from_value(machine).unwrap()))
}

/// One write of each sort.
fn verbs() -> [Verb; 5] {
    [
        Verb::Create(Taken::Controlled("s".to_owned())),
        Verb::Patch(json!({ "spec": {} })),
        Verb::PatchStatus(json!({ "status": {} })),
        Verb::Edit(vec![json!({ "op": "remove", "path": "/metadata/labels" })]),
        Verb::Delete,
    ]
}

async fn applied(bench: &Bench, verb: Verb, answers: Answers) -> Result<Applied, PassError> {
    let tools = bench.tools();
    let hand = tools.hand("MachineSet", set());
    let batch = Batch::of(Part::Update, "cannot", [Write::new(machine(), verb)]);
    hand.apply(&[batch.answering(answers)], &()).await
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_another_object_ends_no_pass_and_a_missing_one_is_as_good_as_done() {
    for (code, failed) in
        [(404, false), (409, true), (403, true), (422, true), (429, true), (500, true), (504, true)]
    {
        for verb in verbs() {
            let what = format!("{code} {verb:?}");
            let done = applied(&Bench::new().refusing(code), verb, Answers::OTHERS).await.unwrap();
            let [(Part::Update, performed)] = &done.tried.0[..] else { panic!("{what}") };
            let expected = match code {
                404 => matches!(performed, Performed::Gone),
                409 => matches!(performed, Performed::Conflict),
                _ => matches!(performed, Performed::Failed(_)),
            };
            assert!(expected && done.failed == failed, "{what} {performed:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_the_object_itself_ends_the_pass() {
    for code in [404, 409, 403, 422, 429, 500, 504] {
        for verb in verbs() {
            let what = format!("{code} {verb:?}");
            let ended = applied(&Bench::new().refusing(code), verb, Answers::OWN).await;
            let expected = match code {
                404 => matches!(ended, Err(PassError::Gone)),
                409 => matches!(ended, Err(PassError::Outdated)),
                _ => matches!(ended, Err(PassError::Api { what: "cannot", .. })),
            };
            assert!(expected, "{what} {ended:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_comes_again_as_the_answer_says() {
    let (soon, later) = (Duration::from_secs(1), Duration::from_secs(9));
    let again = |wait| Passed::Settled(Outcome::Again(wait));
    for (then, next, passed) in [
        (Then::GoOn, Next::OnChange, Passed::Settled(Outcome::Done)),
        (Then::GoOn, Next::Now, Passed::Changed),
        (Then::Again(soon), Next::After(later), again(soon)),
        (Then::Again(later), Next::After(soon), again(soon)),
        (Then::Again(Duration::ZERO), Next::After(soon), Passed::Changed),
        (Then::NotBefore(soon), Next::Now, again(soon)),
        (Then::Repeat, Next::Now, Passed::Settled(Outcome::Failed)),
    ] {
        let answers = Answers { conflict: then, ..Answers::OTHERS };
        let done = applied(&Bench::new().refusing(409), Verb::Delete, answers).await.unwrap();
        assert_eq!(done.passed(next), passed, "{then:?}");
    }
}

/// Every write names the version behind its decision.
#[tokio::test(start_paused = true)]
async fn a_write_is_on_condition_of_the_version_that_was_seen() {
    for verb in verbs().into_iter().skip(1) {
        let bench = Bench::new().having(json!({ "metadata": {}, "spec": {} }));
        applied(&bench, verb.clone(), Answers::OTHERS).await.unwrap();
        let (_, sent) = bench.writes().remove(0);
        let version = match &verb {
            Verb::Edit(_) => &sent[0]["value"],
            Verb::Delete => &sent["preconditions"]["resourceVersion"],
            Verb::Confirm(_)
            | Verb::Create(_)
            | Verb::Refuse(_)
            | Verb::Patch(_)
            | Verb::PatchStatus(_)
            | Verb::MakeCopy(_)
            | Verb::DeleteCopy(_)
            | Verb::Token(_) => &sent["metadata"]["resourceVersion"],
        };
        assert_eq!(version, "7", "{verb:?}");
    }
}

/// The patch of a Machine whose name instance `x:///1` of pool `p` would get; the result of the write, and the events.
async fn beside(change: Value) -> (Option<Value>, Performed, Vec<String>) {
    let owner =
        OwnerReference { uid: "p".to_owned(), controller: Some(true), ..Default::default() };
    let Object::Machine(wanted) = machine() else { panic!() };
    let mut wanted = Machine::clone(&wanted);
    wanted.spec.provider_id = Some("x:///1".into());
    wanted.metadata.owner_references = Some(vec![owner.clone()]);
    let mut found = serde_json::to_value(&wanted).unwrap();
    json_patch::merge(&mut found, &change);
    let bench = Bench::new().having_already(found);
    let (recorder, events) = bench.recorder_and_writer();
    let tools = Tools { recorder, ..bench.tools() };
    let hand = tools.hand("MachinePool", set());
    let there = Arc::new(["x:///2".into()].into());
    let verb = Verb::Create(Taken::Instance(OfInstance { owner, there }));
    let event = |reason| Event::normal(reason, String::new());
    let write = Write::new(Object::Machine(Arc::new(wanted)), verb)
        .telling([event(EventReason::SuccessfulCreate)])
        .or_telling(event(EventReason::FailedCreate));
    let done = hand.apply(&[Batch::of(Part::Create, "cannot", [write])], &()).await.unwrap();
    drop(tools);
    let patched = bench.writes().into_iter().find(|(what, _)| what.starts_with("PATCH"));
    let (_, performed) = done.tried.0.into_iter().next().unwrap();
    (patched.map(|(_, patch)| patch), performed, bench.told(events).await)
}

#[tokio::test(start_paused = true)]
async fn what_is_done_about_a_machine_that_is_there_already_stands_in_the_write() {
    let created = || vec!["SuccessfulCreate".to_owned()];
    let failed = || vec!["FailedCreate".to_owned()];
    assert_eq!(beside(json!({})).await, (None, Performed::Done, created()));
    let (patched, performed, told) = beside(json!({ "spec": { "providerID": null } })).await;
    let patched = patched.unwrap();
    assert_eq!((performed, told), (Performed::Done, created()));
    assert_eq!(patched["spec"]["providerID"], "x:///1");
    assert_eq!(patched["metadata"]["resourceVersion"], "7", "of the version that was found");
    // Of the instance before it: nothing is done, and no event says that a Machine was created.
    let of = |id: &str| json!({ "spec": { "providerID": id } });
    assert_eq!(beside(of("x:///2")).await, (None, Performed::Done, failed()));
    assert_eq!(beside(of("x:///3")).await, (None, Performed::Done, Vec::new()));
    let theirs =
        json!([{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true }]);
    let held = json!({ "metadata": { "ownerReferences": theirs } });
    let text = "m has the instance, and is of X/x".to_owned();
    assert_eq!(beside(held).await, (None, Performed::Failed(text), failed()));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_refused_is_named_and_without_it_no_machine_is_sent() {
    let namespace = "default".to_owned();
    let (group, version) = ("bootstrap.example.com".to_owned(), "v1".to_owned());
    let kind = ConfigKind { namespace, group, version, kind: "Recipe".to_owned() };
    let copy = NewCopy {
        kind,
        plural: "recipes".to_owned(),
        name: "m".to_owned(),
        owner: "s".to_owned(),
        object: json!({
            "apiVersion": "bootstrap.example.com/v1", "kind": "Recipe", "metadata": { "name": "m" }
        }),
        of: "RecipeTemplate workers".to_owned(),
    };
    for (code, says) in
        [(403, "cannot make Recipe m, the copy of RecipeTemplate workers"), (404, "served")]
    {
        let bench = Bench::new().refusing(code);
        let tools = bench.tools();
        let hand = tools.hand("MachineSet", set());
        let create = Write::new(machine(), Verb::Create(Taken::Controlled("s".to_owned())));
        let write = Write { first: Some(Box::new(copy.clone())), ..create };
        let done = hand.apply(&[Batch::of(Part::Create, "cannot", [write])], &()).await.unwrap();
        let said = done.tried.refusal(Part::Create).unwrap();
        assert!(said.contains(says), "{code}: {said}");
        let paths: Vec<_> = bench.writes().into_iter().map(|(path, _)| path).collect();
        assert!(paths.iter().all(|path| path.ends_with("/recipes")), "{paths:?}");
    }
}

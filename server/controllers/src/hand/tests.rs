use std::sync::Arc;

use ostler_api::MachineSet;
use ostler_lifecycle::plan::Performed;
use ostler_lifecycle::write::{Answers, Batch, Taken, Then, Verb};
use serde_json::json;

use super::*;
use crate::bench::Bench;
use crate::kind::Kind as _;
use crate::kind::PassError;
use crate::set::Sets;

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
    let (writer, recorder) = (bench.writer(), bench.recorder());
    let hand = Hand {
        writer: &writer,
        stores: &bench.stores,
        recorder: &recorder,
        sessions: None,
        by: Sets::NAME,
        own: set(),
    };
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

/// Every write names what it was decided from.
#[tokio::test(start_paused = true)]
async fn a_write_is_on_condition_of_the_version_that_was_seen() {
    for verb in verbs().into_iter().skip(1) {
        let bench = Bench::new().having(json!({ "metadata": {}, "spec": {} }));
        applied(&bench, verb.clone(), Answers::OTHERS).await.unwrap();
        let (_, sent) = bench.writes().remove(0);
        let version = match &verb {
            Verb::Edit(_) => &sent[0]["value"],
            Verb::Delete => &sent["preconditions"]["resourceVersion"],
            Verb::Confirm(_) | Verb::Create(_) | Verb::Patch(_) | Verb::PatchStatus(_) => {
                &sent["metadata"]["resourceVersion"]
            }
        };
        assert_eq!(version, "7", "{verb:?}");
    }
}

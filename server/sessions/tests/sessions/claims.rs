//! Drivers whose Hello claims operations that no core sent: the claim grants nothing.

use ostler_api::Uid;
use std::time::Duration;

use ostler_api::driver::OperationKind;
use ostler_api::operation::OperationView;
use ostler_proto::v1alpha1::{
    GetMachineClassRequest, HeldOperation, HeldState, HeldVerdict, Hello, OperationPage,
    OperationProgress, Readiness, Verdict,
};
use ostler_sessions::{RecordedOperation, SessionsOptions, Term};
use tonic::Code;

use crate::core::{
    Core, FOREIGN_TOKEN, PROVIDER, SECOND_TOKEN, TOKEN, class, class_ref, create, delete, list,
    recorded,
};
use crate::driver::{Driver, Said, authorized, created, deleted, held, hello, holding, instance};

const FOREIGN: &str = "foreign.ostler.dev";

/// A driver that may serve the other provider comes and claims these.
async fn foreign(core: &Core, claims: Vec<HeldOperation>) -> (Driver, Vec<Verdict>) {
    let mut driver = Driver::open(core, FOREIGN_TOKEN).await.unwrap();
    let provider = FOREIGN.to_owned();
    let welcome = driver.greet(Hello { provider, ..holding(9, claims) }).await;
    let verdicts = welcome.verdicts.iter().map(HeldVerdict::verdict).collect();
    (driver, verdicts)
}

/// What the core says to this claim of a driver of the right provider.
async fn ruled(core: &Core, n: u8, claim: HeldOperation) -> (Driver, Verdict) {
    let (driver, welcome) = Driver::dial(core, holding(n, vec![claim])).await;
    let verdict = welcome.verdicts[0].verdict();
    (driver, verdict)
}

fn running(id: &str, uid: &str) -> HeldOperation {
    held(id, uid, HeldState::Running)
}

fn deletion(id: &str, uid: &str) -> HeldOperation {
    HeldOperation { kind: OperationKind::DeleteMachine.number(), ..running(id, uid) }
}

#[tokio::test(start_paused = true)]
async fn f08_a_driver_cannot_take_over_an_operation_on_a_machine_of_another_provider() {
    let mut core = Core::start();
    let honest = running("op-1", "uid-1");
    core.classes.record(&honest);
    // The claim has every detail right.
    let done = HeldOperation { state: HeldState::Completed.into(), ..honest.clone() };
    let (_, verdicts) = foreign(&core, vec![done]).await;
    assert_eq!(verdicts, [Verdict::Forget]);
    let (mut thief, verdicts) = foreign(&core, vec![honest.clone()]).await;
    assert_eq!(verdicts, [Verdict::Cancel]);
    thief.complete("op-1", created("attacker-vm")).await;
    assert_eq!(thief.acknowledged().await, "op-1");
    assert_eq!(core.sessions.view("uid-1"), OperationView::Idle);
    // The driver with the operation comes second, and loses nothing.
    let (mut driver, verdict) = ruled(&core, 1, honest).await;
    assert_eq!(verdict, Verdict::Keep);
    driver.complete("op-1", created("m")).await;
    let finished = core.outcome("uid-1").await;
    assert_eq!(finished.provider, PROVIDER);
    assert!(finished.outcome.is_ok());
}

#[tokio::test(start_paused = true)]
async fn f08_a_driver_gets_no_secret_for_an_operation_that_it_made_up() {
    let core = Core::start();
    core.classes.put("other", class("1", "1"));
    core.classes.put_secret("other", "1", "canary-other");
    let without_class = HeldOperation { machine_class: None, ..running("made-up", "uid-2") };
    let claims = vec![running("op-1", "uid-1"), without_class, running("third", "")];
    let (mut driver, welcome) = Driver::dial(&core, holding(1, claims)).await;
    assert!(welcome.verdicts.iter().all(|it| it.verdict() == Verdict::Cancel), "{welcome:?}");
    for operation in ["op-1", "made-up", "third", ""] {
        let refused = driver.secret(operation, "").await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{operation}");
    }
    for class in ["small", "other"] {
        let request =
            GetMachineClassRequest { r#ref: Some(class_ref(class, "")), ..Default::default() };
        let refused = driver.client.get_machine_class(authorized(request, TOKEN)).await;
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied, "{class}");
    }
    assert_eq!(core.sessions.targets(), Vec::<Uid>::new());
}

#[tokio::test(start_paused = true)]
async fn f08_a_deletion_that_the_driver_was_never_asked_for_does_not_count() {
    let mut core = Core::start();
    let asked = deletion("del-1", "uid-1");
    core.classes.record(&asked);
    let done = HeldOperation { state: HeldState::Completed.into(), ..asked };
    let (mut thief, verdicts) = foreign(&core, vec![done]).await;
    assert_eq!(verdicts, [Verdict::Forget]);
    thief.complete("del-1", deleted()).await;
    thief.handled_past_acks().await;
    assert_eq!(core.sessions.view("uid-1"), OperationView::Idle, "no driver said that it is gone");
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(delete("del-2", "uid-1")).unwrap();
    assert_eq!(driver.take().await.operation_id, "del-2");
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_taken_over_only_as_it_was_written_down() {
    let honest = running("op-1", "uid-1");
    let uid_of_another =
        HeldOperation { target: Some(crate::core::target("uid-2")), ..honest.clone() };
    let wrong = [
        HeldOperation { operation_id: "made-up".to_owned(), ..honest.clone() },
        HeldOperation { idempotency_key: "uid-1:d".to_owned(), ..honest.clone() },
        HeldOperation { kind: OperationKind::DeleteMachine.number(), ..honest.clone() },
        HeldOperation { kind: OperationKind::GetMachineStatus.number(), ..honest.clone() },
        HeldOperation { kind: 0, ..honest.clone() },
        HeldOperation { target: None, ..honest.clone() },
        uid_of_another,
    ];
    for claim in wrong {
        let core = Core::start();
        core.classes.record(&honest);
        let shown = format!("{claim:?}");
        let (_driver, verdict) = ruled(&core, 1, claim).await;
        assert_eq!(verdict, Verdict::Cancel, "{shown}");
        assert_eq!(core.sessions.targets(), Vec::<Uid>::new(), "{shown}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_what_was_written_down_in_an_earlier_term_is_taken_over() {
    let honest = running("op-1", "uid-1");
    for (term, verdict) in [
        (Term(2), Verdict::Keep),
        (Term(0), Verdict::Keep),
        (Term(3), Verdict::Cancel),
        (Term(4), Verdict::Cancel),
    ] {
        let core = Core::start();
        core.classes.write_down(RecordedOperation { term, ..recorded(&honest) });
        let (_driver, ruling) = ruled(&core, 1, honest.clone()).await;
        assert_eq!(ruling, verdict, "{term:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_adoption_window_nothing_is_taken_over() {
    let core = Core::start();
    let honest = running("op-1", "uid-1");
    core.classes.record(&honest);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert!(!core.sessions.adoption_open());
    let (mut driver, verdict) = ruled(&core, 1, honest).await;
    assert_eq!(verdict, Verdict::Cancel);
    assert_eq!(core.sessions.view("uid-1"), OperationView::Idle);
    assert_eq!(driver.secret("op-1", "").await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_over_is_nobody_elses_any_more() {
    let mut core = Core::start();
    let honest = running("op-1", "uid-1");
    core.classes.record(&honest);
    let (mut first, verdict) = ruled(&core, 1, honest.clone()).await;
    assert_eq!(verdict, Verdict::Keep);
    // Another process of the provider, and another principal.
    let (_second, verdict) = ruled(&core, 2, honest.clone()).await;
    assert_eq!(verdict, Verdict::Cancel);
    let mut third = Driver::open(&core, SECOND_TOKEN).await.unwrap();
    let welcome = third.greet(holding(3, vec![honest.clone()])).await;
    assert_eq!(welcome.verdicts[0].verdict(), Verdict::Cancel);
    third.complete("op-1", created("attacker-vm")).await;
    third.handled_past_acks().await;
    assert!(matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)));
    first.complete("op-1", created("m")).await;
    assert!(core.outcome("uid-1").await.outcome.is_ok());
    core.sessions.acknowledge(&"op-1".into());
    // The operation ended here, whatever the record still says.
    let (_fourth, verdict) = ruled(&core, 4, honest).await;
    assert_eq!(verdict, Verdict::Cancel);
}

#[tokio::test(start_paused = true)]
async fn a_provider_goes_by_all_its_names() {
    let mut options = SessionsOptions::default();
    options.aliases.insert("Fake".into(), PROVIDER.into());
    options.aliases.insert("Foreign".into(), FOREIGN.into());
    let core = Core::with(options);
    let (ours, theirs) = (running("op-1", "uid-1"), running("op-2", "uid-2"));
    let of = |held: &HeldOperation, provider: &str| RecordedOperation {
        provider: provider.into(),
        ..recorded(held)
    };
    core.classes.write_down(of(&ours, "Fake"));
    core.classes.write_down(of(&theirs, "Foreign"));
    let (_driver, welcome) = Driver::dial(&core, holding(1, vec![ours, theirs])).await;
    let verdicts: Vec<_> = welcome.verdicts.iter().map(HeldVerdict::verdict).collect();
    assert_eq!(verdicts, [Verdict::Keep, Verdict::Cancel]);
}

#[tokio::test(start_paused = true)]
async fn what_a_session_says_of_an_operation_of_another_one_changes_nothing() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.handled().await;
    let (mut thief, _) = foreign(&core, Vec::new()).await;
    let before = core.sessions.view("uid-1");
    let operation_id = "op-1".to_owned();
    let progress = OperationProgress {
        operation_id: operation_id.clone(),
        message: "mine".into(),
        checkpoint: "mine".into(),
        ..OperationProgress::default()
    };
    thief.say(Said::Progress(progress.into())).await;
    thief.say(Said::Page(OperationPage { operation_id, ..OperationPage::default() })).await;
    thief.complete("op-1", created("attacker-vm")).await;
    thief.handled_past_acks().await;
    assert_eq!(core.sessions.view("uid-1"), before);
    let calling = core.sessions.clone();
    let listed = tokio::spawn(async move { calling.call(list("list-1")).await });
    driver.take().await;
    let page = OperationPage { operation_id: "list-1".into(), ..OperationPage::default() };
    thief.say(Said::Page(page)).await;
    thief.complete("list-1", crate::driver::listed(&["attacker-vm"])).await;
    thief.handled_past_acks().await;
    driver.complete("list-1", crate::driver::listed(&["m"])).await;
    let Ok(answer) = listed.await.unwrap() else { panic!("no list") };
    assert!(format!("{answer:?}").contains("fake:///m"), "{answer:?}");
    assert!(!format!("{answer:?}").contains("attacker"), "{answer:?}");
}

/// Found by reading: the acknowledgement went to whichever session came first with that id of an
/// instance, of whatever provider.
#[tokio::test(start_paused = true)]
async fn a_result_is_acknowledged_to_the_provider_that_brought_it() {
    let mut core = Core::start();
    let mut twin = Driver::open(&core, FOREIGN_TOKEN).await.unwrap();
    twin.greet(Hello { provider: FOREIGN.to_owned(), ..hello(1) }).await;
    twin.state(Readiness::Ready, 4).await;
    core.provider_ready().await;
    let mut driver = Driver::ready(&mut core, 1).await;
    assert_eq!(instance(1), hello(1).instance_id);
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    driver.complete("op-1", created("m")).await;
    core.outcome("uid-1").await;
    core.sessions.acknowledge(&"op-1".into());
    assert_eq!(driver.acknowledged().await, "op-1");
    twin.handled().await; // it hears of nothing else
}

//! Classes and secrets: the right of access, and the revision.

use ostler_api::operation::{OperationView, Success};
use ostler_proto::v1alpha1::{
    self as proto, GetMachineClassRequest, GetMachineClassResponse, HeldOperation, HeldState,
    ObjectRevision, OperationError, OperationProgress, OperationResult, Readiness,
    UpdateMachineResponse, Verdict, operation_completed, operation_result,
};
use ostler_sessions::{Principal, Providers, SubmitError};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::core::{
    Core, FOREIGN_TOKEN, PROVIDER, SECOND_TOKEN, TOKEN, class, class_ref, create, update,
};
use crate::driver::{Driver, Heard, Said, authorized, created, held, hello, holding};

async fn class_of(
    core: &Core,
    token: &str,
    wanted: ObjectRevision,
) -> Result<GetMachineClassResponse, Status> {
    let request = GetMachineClassRequest { r#ref: Some(wanted), ..Default::default() };
    let mut client = core.client().await;
    Ok(client.get_machine_class(authorized(request, token)).await?.into_inner())
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().unwrap().reason
}

/// Why something is denied, as far as the core says.
fn denial(status: &Status) -> Option<String> {
    status.get_details_error_info().unwrap().metadata.remove("denial")
}

/// A core that has sent `op-1` to a ready driver.
async fn core_with_an_operation() -> (Core, Driver) {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    (core, driver)
}

#[tokio::test(start_paused = true)]
async fn a_class_comes_with_the_digest_of_its_spec_and_a_reference_to_its_secret() {
    let (core, _driver) = core_with_an_operation().await;
    let class = class_of(&core, TOKEN, class_ref("small", "")).await.unwrap();
    assert_eq!(class.r#ref, Some(class_ref("small", "7")));
    assert_eq!(class.secret, Some(class_ref("small", "1")));
    assert_eq!(class.provider_spec_json, r#"{"revision":"7"}"#);
    assert_eq!(class.provider_spec_sha256.len(), 64);
}

#[tokio::test(start_paused = true)]
async fn classes_that_are_not_there_foreign_or_not_needed_get_one_and_the_same_answer() {
    let (core, mut driver) = core_with_an_operation().await;
    core.classes.put("other", class("1", "1"));
    let elsewhere = ObjectRevision { namespace: "kube-system".into(), ..class_ref("small", "") };
    let cases = [
        (TOKEN, class_ref("missing", "")),
        (TOKEN, class_ref("other", "")),
        (TOKEN, class_ref("other", "1")),
        (TOKEN, elsewhere),
        (FOREIGN_TOKEN, class_ref("small", "")),
        (SECOND_TOKEN, class_ref("small", "7")),
    ];
    let mut answers = Vec::new();
    for (token, wanted) in cases {
        answers.push(class_of(&core, token, wanted).await.unwrap_err());
    }
    driver.complete("op-1", created("m")).await;
    driver.handled().await;
    answers.push(class_of(&core, TOKEN, class_ref("small", "7")).await.unwrap_err());
    for refused in answers {
        assert_eq!(
            (refused.code(), reason(&refused).as_str()),
            (Code::PermissionDenied, "CLASS_DENIED")
        );
        let message = "only the class of an operation in flight on a session of this driver";
        assert_eq!(refused.message(), message);
    }
    let refused = class_of(&core, "wrong", class_ref("small", "")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_is_gone_is_called_so_to_the_driver_that_works_on_it() {
    let (core, _driver) = core_with_an_operation().await;
    let refused = class_of(&core, TOKEN, class_ref("small", "6")).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "REVISION_GONE"));
    core.classes.known.lock().unwrap().clear();
    let refused = class_of(&core, TOKEN, class_ref("small", "")).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "REVISION_GONE"));
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_says_is_scrubbed_before_anybody_sees_it() {
    let (mut core, mut driver) = core_with_an_operation().await;
    let said = "canary-secret and abcdef.0123456789abcdef";
    let progress = OperationProgress {
        operation_id: "op-1".into(),
        stage: "Boot".into(),
        message: said.into(),
        checkpoint: "disk-1".into(),
        ..OperationProgress::default()
    };
    driver.say(Said::Progress(progress.clone().into())).await;
    let checkpoint = said.into();
    driver.say(Said::Progress(OperationProgress { checkpoint, ..progress }.into())).await;
    driver.handled().await;
    let OperationView::InFlight(flight) = core.sessions.view("uid-1") else {
        panic!("not in flight")
    };
    let progress = flight.progress.unwrap();
    assert_eq!((progress.stage.as_str(), progress.message.as_str()), ("Boot", "*** and ***"));
    let error = OperationError { message: said.into(), ..OperationError::default() };
    driver.complete("op-1", operation_completed::Outcome::Error(error)).await;
    let finished = core.outcome("uid-1").await;
    let Err(failure) = &finished.outcome else { panic!("a result") };
    assert_eq!(
        (failure.message.as_str(), finished.checkpoint.as_deref()),
        ("*** and ***", Some("disk-1")),
        "a checkpoint is kept as it is or not at all"
    );
}

/// The cut went through the secret only after it was looked for in the whole text, however long that was.
#[tokio::test(start_paused = true)]
async fn of_a_long_text_the_start_is_kept_without_a_part_of_a_secret_at_its_end() {
    let (core, mut driver) = core_with_an_operation().await;
    let progress = OperationProgress {
        operation_id: "op-1".into(),
        message: format!("{}canary-secret{}", "x".repeat((2 << 10) - 9), "y".repeat(1 << 14)),
        checkpoint: "canary-secret".repeat(400),
        ..OperationProgress::default()
    };
    driver.say(Said::Progress(progress.into())).await;
    driver.handled().await;
    let OperationView::InFlight(flight) = core.sessions.view("uid-1") else {
        panic!("not in flight")
    };
    let progress = flight.progress.unwrap();
    assert_eq!(progress.message, "x".repeat((2 << 10) - 9));
    assert_eq!(progress.checkpoint, "", "it is too long");
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_within_the_process_says_is_scrubbed_too() {
    let mut core = Core::start();
    let principal = Principal::new("old", Providers::named([PROVIDER]));
    let mut driver = core.sessions.open_local(principal, "here".into(), hello(1)).unwrap();
    let ready = proto::DriverState {
        readiness: proto::Readiness::Ready.into(),
        max_in_flight: 1,
        ..proto::DriverState::default()
    };
    driver.send(Said::State(ready));
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    while !matches!(driver.next().await.unwrap(), Some(Heard::Operation(_))) {}
    let error = OperationError { message: "key canary-secret".into(), ..<_>::default() };
    driver.send(Said::Completed(Box::new(proto::OperationCompleted {
        operation_id: "op-1".into(),
        outcome: Some(operation_completed::Outcome::Error(error)),
        ..<_>::default()
    })));
    let finished = core.outcome("uid-1").await;
    let Err(failure) = &finished.outcome else { panic!("a result") };
    assert_eq!(failure.message, "key ***");
}

#[tokio::test(start_paused = true)]
async fn the_paths_that_a_driver_applied_are_scrubbed_too() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(update("op-1", "uid-1")).unwrap();
    driver.take().await;
    let updated = UpdateMachineResponse {
        applied_paths: vec!["tags.canary-secret".into(), "size".into()],
        ..UpdateMachineResponse::default()
    };
    let response = Some(operation_result::Response::UpdateMachine(updated));
    driver
        .complete("op-1", operation_completed::Outcome::Result(OperationResult { response }))
        .await;
    let finished = core.outcome("uid-1").await;
    let applied_paths = vec!["tags.***".to_owned(), "size".to_owned()];
    assert_eq!(finished.outcome, Ok(Success::Updated { applied_paths }));
}

#[tokio::test(start_paused = true)]
async fn f17_the_revision_of_an_operation_is_served_though_the_class_was_edited_or_deleted() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    core.classes.put("small", class("8", "1"));
    driver.take().await;
    let pinned = class_of(&core, TOKEN, class_ref("small", "7")).await.unwrap();
    assert_eq!(pinned.provider_spec_json, r#"{"revision":"7"}"#);
    core.classes.known.lock().unwrap().clear();
    assert!(class_of(&core, TOKEN, class_ref("small", "7")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_for_an_operation_in_flight_on_the_own_session() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    assert_eq!(driver.secret("op-1", "1").await.unwrap(), b"canary-secret");
    assert_eq!(driver.secret("op-1", "").await.unwrap(), b"canary-secret");

    let not_mine = driver.secret("op-2", "1").await.unwrap_err();
    let own = std::mem::replace(&mut driver.session_id, "another".to_owned());
    let not_my_session = driver.secret("op-1", "1").await.unwrap_err();
    driver.session_id = own;
    core.classes.secrets.lock().unwrap().clear();
    let not_there = driver.secret("op-1", "1").await.unwrap_err();
    core.classes.put_secret("small", "1", "canary-secret");
    driver.complete("op-1", created("m")).await;
    core.outcome("uid-1").await;
    let ended = driver.secret("op-1", "1").await.unwrap_err();
    for refused in [not_mine, not_my_session, not_there, ended] {
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert_eq!(reason(&refused), "SECRET_DENIED");
        assert!(refused.message().starts_with("only the secret of the class"), "{refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_denial_says_what_is_wrong_with_the_callers_own_session_and_nothing_else() {
    let core = Core::start();
    core.classes.put("other", class("1", "1"));
    let unknown = held("op-9", "uid-9", HeldState::Running);
    let (mut driver, welcome) = Driver::dial(&core, holding(1, vec![unknown])).await;
    assert_eq!(welcome.verdicts[0].verdict(), Verdict::Cancel);
    let own = driver.session_id.clone();
    let cancelled = held("op-9", "uid-9", HeldState::Running).machine_class.unwrap().name;
    for (token, session_id, name, why) in [
        (TOKEN, "", "other", None),
        (TOKEN, own.as_str(), "other", Some("NOT_IN_FLIGHT")),
        (TOKEN, own.as_str(), "missing", Some("NOT_IN_FLIGHT")),
        (TOKEN, own.as_str(), cancelled.as_str(), Some("OPERATION_CANCELLED")),
        (TOKEN, "another", "other", Some("SESSION_OVER")),
        // A session of another principal: denied like an unknown session.
        (SECOND_TOKEN, own.as_str(), "other", Some("SESSION_OVER")),
    ] {
        let r#ref = Some(class_ref(name, ""));
        let request = GetMachineClassRequest { r#ref, session_id: session_id.to_owned() };
        let mut client = core.client().await;
        let refused = client.get_machine_class(authorized(request, token)).await.unwrap_err();
        assert_eq!((reason(&refused).as_str(), denial(&refused).as_deref()), ("CLASS_DENIED", why));
    }
    let cases = [("op-9", "OPERATION_CANCELLED"), ("op-1", "NOT_IN_FLIGHT")];
    for (operation, why) in cases {
        let refused = driver.secret(operation, "1").await.unwrap_err();
        assert_eq!(
            (reason(&refused).as_str(), denial(&refused).as_deref()),
            ("SECRET_DENIED", Some(why))
        );
    }
    "another".clone_into(&mut driver.session_id);
    let refused = driver.secret("op-9", "1").await.unwrap_err();
    assert_eq!(denial(&refused).as_deref(), Some("SESSION_OVER"));
}

#[tokio::test(start_paused = true)]
async fn another_principal_and_another_class_get_no_secret() {
    let mut core = Core::start();
    core.classes.put("large", class("1", "1"));
    core.classes.put_secret("large", "1", "canary-large");
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    let request = |name: &str| ostler_proto::v1alpha1::GetSecretRequest {
        r#ref: Some(class_ref(name, "")),
        session_id: driver.session_id.clone(),
        operation_id: "op-1".to_owned(),
    };
    let cases = [(SECOND_TOKEN, request("small")), (TOKEN, request("large"))];
    for (token, request) in cases {
        let refused = core.client().await.get_secret(authorized(request, token)).await;
        assert_eq!(refused.unwrap_err().code(), Code::PermissionDenied);
    }
}

#[tokio::test(start_paused = true)]
async fn an_adopted_operation_gets_the_secret_of_no_other_class() {
    let core = Core::start();
    core.classes.put("large", class("1", "1"));
    core.classes.put_secret("large", "1", "canary-large");
    let honest = held("op-1", "uid-1", HeldState::Running);
    core.classes.record(&honest);
    // The class is that of the record, whatever the driver says or leaves out.
    for claimed in [Some(class_ref("large", "1")), None, Some(class_ref("small", "7"))] {
        let claim = HeldOperation { machine_class: claimed, ..honest.clone() };
        let (mut driver, welcome) = Driver::dial(&core, holding(1, vec![claim])).await;
        assert_eq!(welcome.verdicts[0].verdict(), Verdict::Keep);
        assert_eq!(driver.secret("op-1", "").await.unwrap(), b"canary-secret");
        assert!(class_of(&core, TOKEN, class_ref("small", "")).await.is_ok());
        let request = ostler_proto::v1alpha1::GetSecretRequest {
            r#ref: Some(class_ref("large", "")),
            session_id: driver.session_id.clone(),
            operation_id: "op-1".to_owned(),
        };
        let refused = driver.client.get_secret(authorized(request, TOKEN)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        let refused = class_of(&core, TOKEN, class_ref("large", "")).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
}

#[tokio::test(start_paused = true)]
async fn a_class_that_is_another_providers_by_now_takes_its_secret_along() {
    let (core, mut driver) = core_with_an_operation().await;
    assert_eq!(driver.secret("op-1", "").await.unwrap(), b"canary-secret");
    let provider = "foreign.ostler.dev".to_owned();
    core.classes.put(
        "small",
        ostler_sessions::ClassContent { provider: provider.into(), ..class("8", "2") },
    );
    core.classes.put_secret("small", "2", "canary-of-another");
    let refused = driver.secret("op-1", "").await.unwrap_err();
    assert_eq!(reason(&refused), "SECRET_DENIED");
}

#[tokio::test(start_paused = true)]
async fn f16_a_rotated_secret_is_announced_before_the_next_operation() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    core.classes.put("small", class("7", "2"));
    core.classes.put_secret("small", "2", "canary-new");
    let refused = driver.secret("op-1", "1").await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::NotFound, "REVISION_GONE"));
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    match driver.hear().await {
        Heard::Invalidate(invalidation) => {
            assert_eq!(invalidation.stale, [class_ref("small", "")]);
        }
        other => panic!("{other:?}"),
    }
    driver.take().await;
    assert_eq!(driver.secret("op-2", "2").await.unwrap(), b"canary-new");
}

#[tokio::test(start_paused = true)]
async fn f16_an_operation_that_is_refused_does_not_take_the_word_of_a_rotated_secret_with_it() {
    let (core, mut driver) = core_with_an_operation().await;
    core.classes.put("small", class("7", "2"));
    let refused = core.sessions.submit(create("op-2", "uid-1")).unwrap_err();
    assert!(matches!(refused, SubmitError::TargetBusy { .. }), "{refused:?}");
    core.sessions.submit(create("op-3", "uid-3")).unwrap();
    let heard = driver.hear().await;
    assert!(matches!(heard, Heard::Invalidate(_)), "{heard:?}");
    driver.take().await;
}

#[tokio::test(start_paused = true)]
async fn f16_a_rotated_secret_is_announced_for_a_class_that_only_an_earlier_core_named() {
    let mut core = Core::start();
    let mine = held("op-1", "uid-1", HeldState::Running);
    core.classes.record(&mine);
    let (mut driver, _) = Driver::dial(&core, holding(1, vec![mine])).await;
    driver.state(Readiness::Ready, 4).await;
    core.provider_ready().await;
    class_of(&core, TOKEN, class_ref("small", "")).await.unwrap();
    core.classes.put("small", class("7", "2"));
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    let heard = driver.hear().await;
    assert!(matches!(heard, Heard::Invalidate(_)), "{heard:?}");
    driver.take().await;
}

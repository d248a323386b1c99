//! Cores that lead, do not lead yet, and do not lead any more.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::operation::{OperationView, Reason};
use ostler_proto::v1alpha1::driver_service_client::DriverServiceClient;
use ostler_proto::v1alpha1::{GetMachineClassRequest, GetSecretRequest, RoleKind};
use ostler_sessions::{Sessions, SessionsOptions, StaticTokens, SubmitError, Term, Timing};
use tokio::time::Instant;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::core::{Classes, Core, TOKEN, class_ref, create, list, status};
use crate::driver::{Driver, Heard, authorized, created, found, hello};

fn reason(status: &Status) -> (Code, String) {
    (status.code(), status.get_details_error_info().unwrap().reason)
}

#[tokio::test(start_paused = true)]
async fn a_core_that_does_not_lead_sends_drivers_on_until_it_does() {
    let sessions =
        Sessions::new(SessionsOptions::default(), Arc::new(Classes::default()), Arc::new(tokens()));
    let mut core = Core::serving(sessions, Arc::default());
    let mut client = core.client().await;
    let not_leader = (Code::Unavailable, "NOT_LEADER".to_owned());
    let refused = Driver::open(&core, TOKEN).await.err().unwrap();
    assert_eq!(reason(&refused), not_leader);
    let class =
        GetMachineClassRequest { r#ref: Some(class_ref("small", "")), ..Default::default() };
    let refused = client.get_machine_class(authorized(class, TOKEN)).await.unwrap_err();
    assert_eq!(reason(&refused), not_leader);
    let secret = GetSecretRequest { r#ref: Some(class_ref("small", "")), ..<_>::default() };
    let refused = client.get_secret(authorized(secret, TOKEN)).await.unwrap_err();
    assert_eq!(reason(&refused), not_leader);

    core.sessions.lead(Term(4));
    let (mut driver, welcome) = Driver::dial(&core, hello(1)).await;
    assert_eq!(welcome.fencing_term, 4);
    driver.state(ostler_proto::v1alpha1::Readiness::Ready, 4).await;
    core.provider_ready().await;
}

pub(crate) fn tokens() -> StaticTokens {
    let providers = ostler_sessions::Providers::named([crate::core::PROVIDER]);
    StaticTokens::new().with(TOKEN, ostler_sessions::Principal::new("fake", providers))
}

#[tokio::test(start_paused = true)]
async fn what_is_sent_carries_the_term() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    let operation = driver.take().await;
    assert_eq!(operation.fencing_term, 3);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_loss_of_leadership_and_drivers_are_told() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    driver.take().await;
    core.sessions.stop();
    driver.complete("op-1", created("m")).await;
    let Heard::Draining(draining) = driver.hear().await else { panic!("not told first") };
    let after = Duration::try_from(draining.reconnect_after.unwrap()).unwrap();
    assert!(after <= Duration::from_secs(3), "{after:?}");
    let (error, status) = driver.closed().await;
    assert_eq!((error.reason.as_str(), error.retry), ("CORE_STOPPING", true));
    assert_eq!(status.code(), Code::Unavailable);
    let refused = core.sessions.submit(create("op-3", "uid-3"));
    assert!(matches!(refused, Err(SubmitError::NoDriver { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_core_that_goes_gives_no_roles_in_a_term_that_is_none() {
    let mut core = Core::start();
    let (mut standby, _) = Driver::dial(&core, hello(1)).await;
    let mut active = Driver::ready_with(&mut core, 2, 4).await;
    assert!(matches!(active.hear().await, Heard::Role(it) if it.role() == RoleKind::Active));
    assert!(matches!(standby.hear().await, Heard::Role(it) if it.role() == RoleKind::Standby));
    core.sessions.stop();
    for mut driver in [standby, active] {
        assert!(matches!(driver.hear().await, Heard::Draining(_)));
        assert_eq!(driver.closed().await.0.reason, "CORE_STOPPING");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_after_the_end_of_the_lease_though_nobody_said_that_it_is_lost() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.lease_until(Instant::now() + Duration::from_secs(10));
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    tokio::time::advance(Duration::from_secs(10)).await;
    core.sessions.submit(create("op-2", "uid-2")).unwrap();
    driver.handled().await;
    assert!(matches!(core.sessions.view("uid-2"), OperationView::InFlight(_)), "queued");
    core.sessions.lease_until(Instant::now() + Duration::from_secs(10));
    core.sessions.submit(create("op-3", "uid-3")).unwrap();
    assert_eq!(driver.take().await.operation_id, "op-2");
}

/// The class of an operation that the driver has.
async fn gets_its_class(driver: &mut Driver) -> bool {
    let class =
        GetMachineClassRequest { r#ref: Some(class_ref("small", "7")), ..Default::default() };
    driver.client.get_machine_class(authorized(class, TOKEN)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_core_that_goes_lets_a_read_end_that_still_needs_its_class_and_sends_nothing_new() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 1).await;
    core.sessions.submit(status("read", "uid-1")).unwrap();
    core.sessions.submit(status("later", "uid-2")).unwrap();
    core.sessions.submit(create("create", "uid-3")).unwrap();
    driver.take().await;
    let before = Instant::now();
    tokio::join!(core.sessions.finish(), async {
        assert!(gets_its_class(&mut driver).await);
        driver.complete("read", found("m")).await;
        driver.handled().await;
    });
    assert!(before.elapsed() < Timing::default().finish, "{:?}", before.elapsed());
    assert!(matches!(core.sessions.view("uid-1"), OperationView::Finished(_)));
    core.sessions.stop();
    assert!(matches!(driver.hear().await, Heard::Draining(_)), "nothing came in between");
    assert_eq!(driver.closed().await.0.reason, "CORE_STOPPING");
}

#[tokio::test(start_paused = true)]
async fn a_core_that_goes_does_not_wait_for_what_the_next_one_finds_written_down() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    driver.take().await;
    let before = Instant::now();
    core.sessions.finish().await;
    assert_eq!(before.elapsed(), Duration::ZERO);
    assert!(matches!(core.sessions.view("uid-1"), OperationView::InFlight(_)));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_does_not_end_keeps_no_core_from_going() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(status("op-1", "uid-1")).unwrap();
    driver.take().await;
    let before = Instant::now();
    core.sessions.finish().await;
    assert_eq!(before.elapsed(), Timing::default().finish);
}

#[tokio::test(start_paused = true)]
async fn a_core_that_goes_waits_for_no_driver_that_is_gone_and_not_after_the_loss_of_its_lease() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(status("op-1", "uid-1")).unwrap();
    driver.take().await;
    let before = Instant::now();
    tokio::join!(core.sessions.finish(), async { driver.link.abort() });
    assert!(before.elapsed() < Timing::default().finish, "{:?}", before.elapsed());

    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(status("op-1", "uid-1")).unwrap();
    driver.take().await;
    let before = Instant::now();
    tokio::join!(core.sessions.finish(), async { core.sessions.stop() });
    assert_eq!(before.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_an_operation_hears_at_once_that_a_core_which_goes_will_not_send_it() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 1).await;
    core.sessions.submit(status("op-1", "uid-1")).unwrap();
    driver.take().await;
    let before = Instant::now();
    let (outcome, ()) = tokio::join!(core.sessions.call(list("op-2")), async {
        tokio::join!(core.sessions.finish(), driver.complete("op-1", found("m")));
    });
    assert!(before.elapsed() < Timing::default().finish, "{:?}", before.elapsed());
    let Err(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.reason, Reason::CoreNoSession);
}

#[tokio::test(start_paused = true)]
async fn a_core_that_goes_takes_no_new_driver_and_no_new_operation() {
    let mut core = Core::start();
    let _driver = Driver::ready(&mut core, 1).await;
    core.sessions.finish().await;
    let refused = Driver::open(&core, TOKEN).await.err().unwrap();
    assert_eq!(reason(&refused), (Code::Unavailable, "CORE_STOPPING".to_owned()));
    let refused = core.sessions.submit(status("op-1", "uid-1"));
    assert!(matches!(refused, Err(SubmitError::NoDriver { .. })), "{refused:?}");
    core.sessions.lead(Term(4));
    assert!(core.sessions.submit(status("op-1", "uid-1")).is_err(), "it does not come back");
}

#[tokio::test(start_paused = true)]
async fn a_core_that_stopped_takes_nobody() {
    let core = Core::start();
    core.sessions.stop();
    let refused = Driver::open(&core, TOKEN).await.err().unwrap();
    assert_eq!(reason(&refused), (Code::Unavailable, "CORE_STOPPING".to_owned()));
    let mut client: DriverServiceClient<_> = core.client().await;
    let class =
        GetMachineClassRequest { r#ref: Some(class_ref("small", "")), ..Default::default() };
    assert!(client.get_machine_class(authorized(class, TOKEN)).await.is_err());
}

//! The service of the admin listener: connected drivers, running operations, and an operation by
//! hand.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use ostler_proto::v1alpha1::driver_debug_service_client::DriverDebugServiceClient;
use ostler_proto::v1alpha1::driver_service_client::DriverServiceClient;
use ostler_proto::v1alpha1::{
    AcceptOrphansRequest, BootstrapData, CloseSessionRequest, CreateMachineRequest,
    CreatePoolRequest, DeleteMachineRequest, DeletePoolRequest, DrainSessionRequest,
    FrameDirection, GetMachineStatusRequest, GetSecretRequest, InvokeRequest, InvokeResponse,
    ListMachinesRequest, ListOperationsRequest, ListOrphansRequest, ListSessionsRequest,
    MachineErrorCode, ObjectRevision, Operation, OperationError, OperationKind, OperationState,
    Readiness, RoleKind, SessionSelector, TailFramesRequest, Target, invoke_response, operation,
    operation_completed,
};
use ostler_sessions::{
    AdminOptions, KnownTarget, OrphanDesk, OrphanFate, OrphanReport, Refused, ReportedHold,
    ReportedOrphan, SubmitError, Targets,
};
use tokio::sync::watch;
use tonic::service::Routes;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::core::{Core, PROVIDER, class_of, class_ref, create, delete};
use crate::driver::{Driver, Heard, created, deleted, hello};

type Client = DriverDebugServiceClient<Routes>;

/// A Machine, `m-1`, and a pool, `p-1`, with the Machine `p-1-0`, of class `small`.
struct Known;

impl Targets for Known {
    fn namespace(&self) -> &'static str {
        "default"
    }

    fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<KnownTarget> {
        let (uid, provider_id) = match (kind, namespace, name) {
            ("Machine", "default", "m-1") => ("uid-1", "fake:///1"),
            ("Machine", "default", "p-1-0") => ("uid-2", "fake:///2"),
            ("MachinePool", "default", "p-1") => ("uid-p", "fake:///groups/1"),
            _ => return None,
        };
        Some(KnownTarget {
            uid: uid.to_owned(),
            provider_id: provider_id.to_owned(),
            pool: if name == "p-1-0" { "p-1".to_owned() } else { String::new() },
            class: class_of(&class_ref("small", "")),
        })
    }
}

/// Three orphans, held since noon.
impl OrphanDesk for Known {
    fn list(&self, provider: String) -> BoxFuture<'_, Result<OrphanReport, Refused>> {
        let orphan = |id: &str| ReportedOrphan {
            provider: String::new(),
            provider_ids: Vec::new(),
            machine_name: String::new(),
            machine_uid: id.to_owned(),
            machine_class: String::new(),
            known_for: Duration::ZERO,
            fate: OrphanFate::Reported,
            failures: 0,
            kept: String::new(),
            parts: Vec::new(),
        };
        let hold = ReportedHold { since: "noon".to_owned(), reason: provider };
        let orphans = ["1", "2", "3"].map(orphan).to_vec();
        let answer = OrphanReport { orphans, hold: Some(hold), ..OrphanReport::default() };
        Box::pin(async { Ok(answer) })
    }

    fn accept(&self, since: String) -> BoxFuture<'_, Result<usize, Refused>> {
        let refused = Refused::NoSuchHold(format!("no mark of {since}"));
        Box::pin(async move { if since == "noon" { Ok(3) } else { Err(refused) } })
    }
}

fn routes(core: &Core) -> Routes {
    serving(core, true)
}

fn serving(core: &Core, leads: bool) -> Routes {
    let leading = watch::channel(leads).1;
    let (targets, orphans) = (Arc::new(Known), Arc::new(Known));
    core.sessions.admin_service(AdminOptions { targets, orphans, leading })
}

fn client(core: &Core) -> Client {
    DriverDebugServiceClient::new(routes(core))
}

fn named(name: &str) -> Target {
    Target { name: name.to_owned(), ..Target::default() }
}

fn asks(request: operation::Request) -> InvokeRequest {
    let operation =
        Operation { target: Some(named("m-1")), request: Some(request), ..Operation::default() };
    InvokeRequest { operation: Some(operation), ..InvokeRequest::default() }
}

fn status() -> operation::Request {
    operation::Request::GetMachineStatus(GetMachineStatusRequest::default())
}

fn deletion() -> InvokeRequest {
    let delete = operation::Request::DeleteMachine(DeleteMachineRequest::default());
    InvokeRequest { allow_mutation: true, ..asks(delete) }
}

fn creation(dry_run: bool) -> InvokeRequest {
    let user_data = b"canary-by-hand".to_vec();
    let bootstrap = Some(BootstrapData { user_data, format: "cloud-init".to_owned() });
    let create = CreateMachineRequest { bootstrap, ..CreateMachineRequest::default() };
    InvokeRequest { dry_run, ..asks(operation::Request::CreateMachine(create)) }
}

async fn invoke(core: &Core, request: InvokeRequest) -> Result<InvokeResponse, Status> {
    client(core).invoke(request).await.map(tonic::Response::into_inner)
}

fn failed(error: OperationError) -> operation_completed::Outcome {
    operation_completed::Outcome::Error(error)
}

fn reason(status: &Status) -> String {
    status.get_details_error_info().map(|info| info.reason).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn sessions_are_listed_with_who_they_are_and_what_they_do() {
    let mut core = Core::start();
    let _active = Driver::ready(&mut core, 1).await;
    let (_standby, _) = Driver::dial(&core, hello(2)).await;
    let listed = client(&core).list_sessions(ListSessionsRequest::default()).await.unwrap();
    let listed = listed.into_inner();
    assert!(listed.core.unwrap().leading);
    let [active, standby] = listed.sessions.as_slice() else { panic!("{:?}", listed.sessions) };
    assert_eq!((active.role(), active.readiness()), (RoleKind::Active, Readiness::Ready));
    assert_eq!(standby.role(), RoleKind::Standby);
    assert_eq!((active.provider.as_str(), active.principal.as_str()), (PROVIDER, "fake"));
    assert_eq!((active.driver_name.as_str(), active.credit, active.in_flight), ("by hand", 4, 0));
    assert!(active.operation_kinds().any(|kind| kind == OperationKind::CreateMachine));

    let other = ListSessionsRequest { provider: "other.ostler.dev".to_owned() };
    let none = client(&core).list_sessions(other).await.unwrap().into_inner().sessions;
    assert!(none.is_empty());
}

#[tokio::test(start_paused = true)]
async fn operations_are_listed_with_where_they_are() {
    let mut core = Core::start();
    let mut driver = Driver::ready_with(&mut core, 1, 2).await;
    core.sessions.submit(create("op-1", "uid-a")).unwrap();
    driver.take().await;
    driver.handled().await;
    core.sessions.submit(create("op-2", "uid-b")).unwrap();
    core.sessions.submit(create("op-3", "uid-c")).unwrap();
    let list = async |wanted: ListOperationsRequest| {
        client(&core).list_operations(wanted).await.unwrap().into_inner()
    };
    let all = list(ListOperationsRequest::default()).await;
    let states: Vec<_> =
        all.operations.iter().map(|it| (it.operation_id.as_str(), it.state())).collect();
    let expected = [
        ("op-1", OperationState::Accepted),
        ("op-2", OperationState::Sent),
        ("op-3", OperationState::Queued),
    ];
    assert_eq!(states, expected);
    let [first, second, _] = all.operations.as_slice() else { panic!("{all:?}") };
    assert_eq!((first.session_id.as_str(), first.delivery), (driver.session_id.as_str(), 1));
    assert_eq!(second.timeout_left.unwrap().seconds, 75, "timeout and grace");

    let one = ListOperationsRequest { target: "machine-uid-b".to_owned(), ..<_>::default() };
    assert_eq!(list(one).await.operations.len(), 1);
    let short = list(ListOperationsRequest { limit: 1, ..<_>::default() }).await;
    assert_eq!((short.operations.len(), short.left_out), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_read_by_hand_is_filled_in_from_the_machine_and_answered_by_the_driver() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let (answer, operation) = tokio::join!(invoke(&core, asks(status())), async {
        let operation = driver.take().await;
        let error = OperationError {
            code: MachineErrorCode::NotFound.into(),
            message: "no such instance".to_owned(),
            ..OperationError::default()
        };
        driver.complete(&operation.operation_id, failed(error)).await;
        operation
    });
    let target = operation.target.unwrap();
    assert_eq!((target.kind.as_str(), target.uid.as_str()), ("Machine", "uid-1"));
    assert_eq!(operation.machine_class, Some(class_ref("small", "7")));
    assert!(operation.idempotency_key.starts_with("debug:"), "{}", operation.idempotency_key);
    let Some(operation::Request::GetMachineStatus(asked)) = operation.request else { panic!() };
    assert_eq!(asked.provider_id, "fake:///1");

    let answer = answer.unwrap();
    assert_eq!(answer.session_id, driver.session_id);
    let Some(invoke_response::Outcome::Error(error)) = answer.outcome else { panic!("{answer:?}") };
    assert_eq!(error.message, "no such instance", "a verdict of the driver is an answer");
}

#[tokio::test(start_paused = true)]
async fn a_machine_of_a_pool_is_asked_about_with_its_pool() {
    let mut core = Core::start();
    let _driver = Driver::ready(&mut core, 1).await;
    let mut request = asks(status());
    request.operation.as_mut().unwrap().target = Some(named("p-1-0"));
    let refused = invoke(&core, request).await.unwrap_err();
    assert_eq!(
        (refused.code(), reason(&refused).as_str()),
        (Code::FailedPrecondition, "MACHINE_OF_POOL")
    );
    assert!(refused.message().contains("getPoolStatus of that pool (--pool p-1)"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_mutation_needs_to_be_allowed_and_a_dry_run_sends_nothing() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let refused = invoke(&core, creation(false)).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(reason(&refused), "MUTATION_NOT_ALLOWED");

    let shown = invoke(&core, creation(true)).await.unwrap();
    let sent = shown.sent.clone().unwrap();
    assert_eq!((shown.outcome.clone(), sent.target.unwrap().uid.as_str()), (None, "uid-1"));
    let Some(operation::Request::CreateMachine(create)) = sent.request else { panic!() };
    let bootstrap = create.bootstrap.unwrap();
    assert!(bootstrap.user_data.is_empty() && bootstrap.format == "cloud-init");
    driver.handled().await;
}

#[tokio::test(start_paused = true)]
async fn an_operation_on_a_pool_by_hand_is_filled_in_from_the_pool() {
    let mut core = Core::start();
    let _driver = Driver::ready(&mut core, 1).await;
    let about = |name: &str, request| {
        let operation =
            Operation { target: Some(named(name)), request: Some(request), ..Operation::default() };
        InvokeRequest { operation: Some(operation), dry_run: true, ..InvokeRequest::default() }
    };
    let delete = || operation::Request::DeletePool(DeletePoolRequest::default());
    let sent = invoke(&core, about("p-1", delete())).await.unwrap().sent.unwrap();
    let target = sent.target.unwrap();
    let told = (target.kind.as_str(), target.name.as_str(), target.uid.as_str());
    assert_eq!(told, ("MachinePool", "p-1", "uid-p"));
    assert_eq!(sent.machine_class, Some(class_ref("small", "7")));
    let Some(operation::Request::DeletePool(asked)) = sent.request else { panic!() };
    assert_eq!(asked.provider_id, "fake:///groups/1");

    let create = operation::Request::CreatePool(CreatePoolRequest::default());
    let sent = invoke(&core, about("p-1", create)).await.unwrap().sent.unwrap();
    let Some(operation::Request::CreatePool(asked)) = sent.request else { panic!() };
    assert_eq!(asked.provider_id, "", "a group that is given is adopted, not made");

    let refused = invoke(&core, about("m-1", delete())).await.unwrap_err();
    assert!(refused.message().contains("no MachinePool default/m-1"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_mutation_by_hand_and_one_of_the_core_never_run_on_one_target() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-1")).unwrap();
    let first = driver.take().await;
    let refused = invoke(&core, deletion()).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Aborted, "CORE_TARGET_BUSY"));
    assert!(refused.message().contains("op-1"), "{refused}");
    driver.complete(&first.operation_id, created("m-1")).await;
    core.outcome("uid-1").await;
    core.sessions.acknowledge(&"op-1".into());

    let (answer, ()) = tokio::join!(invoke(&core, deletion()), async {
        assert!(matches!(driver.hear().await, Heard::ResultAck(_)));
        let by_hand = driver.take().await;
        let busy = core.sessions.submit(delete("op-2", "uid-1")).unwrap_err();
        assert!(matches!(busy, SubmitError::TargetBusy { .. }), "{busy}");
        driver.complete(&by_hand.operation_id, deleted()).await;
    });
    assert!(matches!(answer.unwrap().outcome, Some(invoke_response::Outcome::Result(_))));
    assert!(matches!(driver.hear().await, Heard::ResultAck(_)));
    core.sessions.submit(delete("op-2", "uid-1")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_sent_is_refused_with_what_to_do() {
    let mut core = Core::start();
    let refused = invoke(&core, asks(status())).await.unwrap_err();
    assert_eq!((refused.code(), reason(&refused).as_str()), (Code::Unavailable, "CORE_NO_SESSION"));
    let _driver = Driver::ready(&mut core, 1).await;
    let (standby, _) = Driver::dial(&core, hello(2)).await;

    let selector = |provider: &str, session_id: &str| {
        let (provider, session_id) = (provider.to_owned(), session_id.to_owned());
        InvokeRequest { session: Some(SessionSelector { provider, session_id }), ..asks(status()) }
    };
    let with = |change: fn(&mut Operation)| {
        let mut request = asks(status());
        change(request.operation.as_mut().unwrap());
        request
    };
    let cases = [
        (InvokeRequest::default(), Code::InvalidArgument, ""),
        (with(|it| it.target = Some(named("m-2"))), Code::NotFound, ""),
        (with(|it| it.machine_class = Some(class_ref("huge", ""))), Code::NotFound, ""),
        (with(|it| it.target = None), Code::InvalidArgument, ""),
        (selector("", "no-such-session"), Code::NotFound, ""),
        (selector("", &standby.session_id), Code::FailedPrecondition, "SESSION_NOT_ACTIVE"),
        (selector("other.ostler.dev", ""), Code::FailedPrecondition, "WRONG_PROVIDER"),
        (
            with(|it| {
                it.request = Some(operation::Request::GetVolumeIds(<_>::default()));
            }),
            Code::Unimplemented,
            "CORE_KIND_UNSUPPORTED",
        ),
    ];
    for (request, code, why) in cases {
        let refused = invoke(&core, request.clone()).await.unwrap_err();
        assert_eq!((refused.code(), reason(&refused).as_str()), (code, why), "{request:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_by_hand_needs_no_more_than_the_class() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let operation = Operation {
        machine_class: Some(ObjectRevision { name: "small".to_owned(), ..<_>::default() }),
        request: Some(operation::Request::ListMachines(ListMachinesRequest::default())),
        ..Operation::default()
    };
    let request = InvokeRequest { operation: Some(operation), ..InvokeRequest::default() };
    let (answer, ()) = tokio::join!(invoke(&core, request), async {
        let asked = driver.take().await;
        assert_eq!(asked.machine_class, Some(class_ref("small", "7")));
        driver.complete(&asked.operation_id, failed(OperationError::default())).await;
    });
    assert!(answer.unwrap().outcome.is_some());
}

#[tokio::test(start_paused = true)]
async fn frames_pass_by_without_user_data() {
    let mut core = Core::start();
    let mut tail = client(&core)
        .tail_frames(TailFramesRequest { provider: PROVIDER.to_owned(), ..<_>::default() })
        .await
        .unwrap()
        .into_inner();
    let mut driver = Driver::ready(&mut core, 1).await;
    core.sessions.submit(create("op-1", "uid-a")).unwrap();
    let operation = driver.take().await;
    driver.complete(&operation.operation_id, created("m-1")).await;
    core.outcome("uid-a").await;

    let mut kinds = Vec::new();
    while !kinds.contains(&"completed".to_owned()) {
        let frame = tail.message().await.unwrap().unwrap().frame.unwrap();
        let shown = format!("{frame:?}");
        assert!(!shown.contains("canary") && !shown.contains("Y2FuYXJ5"), "{shown}");
        if frame.kind == "operation" {
            assert_eq!(frame.direction(), FrameDirection::CoreToDriver);
            assert_eq!(frame.operation, "createMachine");
            assert!(frame.text.contains("<redacted, 16 bytes>"), "{}", frame.text);
        }
        kinds.push(frame.kind);
    }
    assert_eq!(kinds, ["hello", "welcome", "state", "operation", "accepted", "completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_session_is_closed_by_hand_and_its_driver_may_come_back() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let refused = client(&core).close_session(CloseSessionRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let session = Some(SessionSelector { provider: PROVIDER.to_owned(), ..<_>::default() });
    let close = CloseSessionRequest { session, reason: "looks stuck".to_owned() };
    let closed = client(&core).close_session(close).await.unwrap().into_inner();
    assert_eq!(closed.session_id, driver.session_id);
    let Heard::ProtocolError(error) = driver.hear().await else { panic!("no reason given") };
    assert_eq!((error.reason.as_str(), error.retry), ("CLOSED_BY_OPERATOR", true));
    assert!(error.message.contains("looks stuck"), "{}", error.message);
    Driver::dial(&core, hello(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_drained_by_hand_gives_way_to_a_standby_and_shows_it() {
    let mut core = Core::start();
    let mut driver = Driver::ready(&mut core, 1).await;
    let (mut standby, _) = Driver::dial(&core, hello(2)).await;
    standby.state(Readiness::Ready, 4).await;
    standby.handled().await;
    let session = Some(SessionSelector { provider: PROVIDER.to_owned(), ..<_>::default() });
    let drain = DrainSessionRequest { session, reason: "my turn".to_owned() };
    let drained = client(&core).drain_session(drain).await.unwrap().into_inner();
    assert_eq!(drained.session_id, driver.session_id);
    assert!(matches!(driver.hear().await, Heard::Draining(_)));
    let Heard::Role(role) = standby.hear().await else { panic!("not promoted") };
    assert_eq!(role.role(), RoleKind::Active);
    let listed = client(&core).list_sessions(ListSessionsRequest::default()).await.unwrap();
    let shown: Vec<_> = listed.into_inner().sessions;
    let old = shown.iter().find(|it| it.session_id == driver.session_id).unwrap();
    assert_eq!(old.readiness(), Readiness::Draining);
}

#[tokio::test(start_paused = true)]
async fn the_admin_listener_has_no_way_to_a_secret() {
    let core = Core::start();
    let mut drivers = DriverServiceClient::new(routes(&core));
    let refused = drivers.get_secret(GetSecretRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test(start_paused = true)]
async fn orphans_are_listed_up_to_the_limit_and_the_rest_is_counted() {
    let core = Core::start();
    let wanted = ListOrphansRequest { limit: 2, ..ListOrphansRequest::default() };
    let listed = client(&core).list_orphans(wanted).await.unwrap().into_inner();
    assert_eq!((listed.orphans.len(), listed.left_out), (2, 1));
    assert!(listed.core.is_some() && listed.hold.is_some());
}

#[tokio::test(start_paused = true)]
async fn orphans_are_accepted_by_the_leader_alone_and_only_under_the_mark_that_was_seen() {
    let core = Core::start();
    let since = |since: &str| AcceptOrphansRequest { since: since.to_owned() };
    let accepted = client(&core).accept_orphans(since("noon")).await.unwrap().into_inner();
    assert_eq!(accepted.orphans, 3);
    let later = client(&core).accept_orphans(since("evening")).await.unwrap_err();
    assert_eq!(later.code(), Code::FailedPrecondition);
    let mut follower = DriverDebugServiceClient::new(serving(&core, false));
    let refused = follower.accept_orphans(since("noon")).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("does not lead"), "{}", refused.message());
}

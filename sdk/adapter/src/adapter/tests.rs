//! The adapter against a driver in this process, on a real socket.

mod core;
mod fake;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use ostler_driver_sdk::MachineMetadata;
use ostler_driver_sdk::testing::TestContext;
use proto::machine_driver_service_server::MachineDriverServiceServer;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request as Call, Status};

use self::fake::Fake;
use super::*;

const PROVIDER: &str = "fake.example.com";
/// Only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(20);
const BOOT: &str = "7f8d9440-5eea-4cbf-a2da-9816c1749049";

struct Setting {
    fake: Fake,
    socket: Socket,
    adapter: Adapter,
    /// The driver's own runtime, so that killing the driver closes the connections.
    server: Option<tokio::runtime::Runtime>,
    _directory: tempfile::TempDir,
}

impl Setting {
    fn kill(&mut self) {
        self.server.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }

    /// Another listener in the place of the one that was killed.
    fn listen_again(&self) {
        std::fs::remove_file(&self.socket.path).unwrap();
        listen(&self.socket.path, &self.fake);
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn setting(running: Vec<RunningOperation>) -> Setting {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fake = Fake::new(running);
    {
        let _inside = runtime.enter();
        listen(&path, &fake);
    }
    let socket = Socket::new(path, nix::unistd::geteuid().as_raw());
    let (client, info) = info(&socket).await.unwrap();
    Setting {
        fake,
        socket,
        adapter: Adapter::new(client, info),
        server: Some(runtime),
        _directory: directory,
    }
}

/// Serves a driver, which no call may give a deadline of gRPC: a client would return while the handler works.
fn listen(path: &Path, fake: &Fake) {
    let without_deadline = |call: Call<()>| match call.metadata().get("grpc-timeout") {
        None => Ok(call),
        Some(_) => Err(Status::internal("the call has a deadline of gRPC")),
    };
    let service = MachineDriverServiceServer::with_interceptor(fake.clone(), without_deadline);
    let server = tonic::transport::Server::builder().add_service(service);
    let listener = UnixListener::bind(path).unwrap();
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
}

fn create() -> Request {
    Request::CreateMachine(proto::CreateMachineRequest::default())
}

/// An operation of an earlier adapter.
fn running(operation_id: &str) -> RunningOperation {
    RunningOperation {
        operation_id: operation_id.to_owned(),
        idempotency_key: "key".to_owned(),
        target: Some(proto::Target { uid: "uid-a".to_owned(), ..Default::default() }),
        kind: OperationKind::CreateMachine.into(),
    }
}

fn machine(name: &str) -> Context {
    TestContext::new(name, format!("uid-{name}")).secret([("key", "canary")]).build()
}

#[tokio::test]
async fn a_call_brings_class_identity_and_checkpoint() {
    let it = setting(Vec::new()).await;
    it.fake.permits.add_permits(1);
    let told = MachineMetadata {
        labels: [("pool".to_owned(), "x".to_owned())].into(),
        zone: "z".to_owned(),
        ..Default::default()
    };
    let ctx = TestContext::new("a", "uid-a")
        .machine(told.clone())
        .provider_spec("{\"size\": 1e400}")
        .checkpoint("begun")
        .cluster_id("cluster")
        .build();
    let answer = it.adapter.perform(create(), ctx.clone()).await;
    assert!(matches!(answer, Ok(Response::CreateMachine(_))), "{answer:?}");
    let asked = it.fake.asked.lock().pop().unwrap();
    assert_eq!(asked.operation_id, ctx.operation_id());
    assert_eq!(asked.idempotency_key, ctx.idempotency_key());
    assert_eq!((asked.cluster_id.as_str(), asked.checkpoint.as_str()), ("cluster", "begun"));
    let class = asked.machine_class.unwrap();
    assert_eq!(class.provider_spec_json, "{\"size\": 1e400}");
    assert_eq!(class.r#ref.unwrap().name, "class");
    assert_eq!(asked.target.unwrap().kind, "Machine");
    assert_eq!(asked.identity_tags["ostler.dev/machine-uid"], "uid-a");
    assert_eq!(asked.machine.map(MachineMetadata::from), Some(told));
    assert!(asked.timeout.is_some_and(|time| time.seconds > 0));
}

/// Neither talks to an infrastructure.
#[tokio::test]
async fn what_reads_no_infrastructure_gets_the_class_and_no_secret() {
    let it = setting(Vec::new()).await;
    for request in [
        Request::ValidateClass(proto::ValidateClassRequest::default()),
        Request::GetVolumeIds(proto::GetVolumeIdsRequest::default()),
    ] {
        it.adapter.perform(request.clone(), machine("a")).await.unwrap();
        let asked = it.fake.asked.lock().pop().unwrap();
        assert!(asked.machine_class.is_some() && asked.secret.is_empty(), "{request:?}");
    }
    it.fake.permits.add_permits(1);
    it.adapter.perform(create(), machine("a")).await.unwrap();
    assert_eq!(it.fake.asked.lock().pop().unwrap().secret["key"], b"canary");
}

#[tokio::test]
async fn a_driver_is_ready_as_its_probe_says_and_if_it_has_none() {
    let it = setting(Vec::new()).await;
    for (said, ready) in [
        (Ok(String::new()), true),
        (Ok("the cloud is away".to_owned()), false),
        (Err(Status::unimplemented("not here")), true),
        (Err(Status::internal("defect")), false),
    ] {
        *it.fake.lack.lock() = said.clone();
        let answers = it.adapter.probe().await;
        assert!(answers || !ready);
        assert_eq!(it.adapter.readiness().is_ready(), ready, "{said:?}");
    }
}

/// The driver lives and works on: the core reads, finds nothing yet, and asks for the same again.
#[tokio::test]
async fn a_mutation_whose_connection_broke_keeps_its_target_busy_until_the_driver_lists_it_no_more()
{
    let mut it = setting(Vec::new()).await;
    let (adapter, ctx) = (it.adapter.clone(), machine("a"));
    *it.fake.running.lock() = vec![running(ctx.operation_id())];
    let called = tokio::spawn(async move { adapter.perform(create(), ctx).await });
    it.fake.began.acquire().await.unwrap().forget();
    it.kill();
    let error = called.await.unwrap().unwrap_err();
    assert_eq!((error.code(), error.certainty()), (Code::Unknown, Certainty::Unknown));
    it.listen_again();
    let (adapter, socket, ended) =
        (it.adapter.clone(), it.socket.clone(), CancellationToken::new());
    tokio::spawn(async move { adapter.watch(&socket, &ended).await });
    // At the start, by the new connection, and for the operation.
    let looks = tokio::time::timeout(PATIENCE, it.fake.looks.acquire_many(3)).await;
    looks.expect("the driver is asked").unwrap().forget();
    it.fake.permits.add_permits(1);
    let refused = it.adapter.perform(create(), machine("a")).await.unwrap_err();
    let said = (refused.reason_word(), refused.certainty());
    assert_eq!(said, ("TARGET_BUSY", Certainty::NotApplied));
    it.fake.running.lock().clear();
    let freed = async {
        while !it.adapter.shared.busy.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, freed).await.expect("it has ended");
    assert!(it.adapter.perform(create(), machine("a")).await.is_ok());
}

#[tokio::test]
async fn a_mutation_that_was_given_up_goes_on_and_keeps_its_target_busy() {
    let it = setting(Vec::new()).await;
    let adapter = it.adapter.clone();
    let given_up = tokio::spawn(async move { adapter.perform(create(), machine("a")).await });
    it.fake.began.acquire().await.unwrap().forget();
    given_up.abort();
    assert!(given_up.await.unwrap_err().is_cancelled());
    let refused = it.adapter.perform(create(), machine("a")).await.unwrap_err();
    assert_eq!(
        (refused.reason_word(), refused.certainty()),
        ("TARGET_BUSY", Certainty::NotApplied)
    );
    it.fake.permits.add_permits(2);
    let other = it.adapter.perform(create(), machine("b")).await;
    assert!(other.is_ok(), "{other:?}");
}

#[tokio::test]
async fn a_cancelled_operation_is_cancelled_in_the_driver_and_its_answer_is_waited_for() {
    let it = setting(Vec::new()).await;
    let token = CancellationToken::new();
    let ctx = TestContext::new("a", "uid-a").cancellation(token.clone()).build();
    let adapter = it.adapter.clone();
    let running = tokio::spawn(async move { adapter.perform(create(), ctx).await });
    it.fake.began.acquire().await.unwrap().forget();
    token.cancel();
    it.fake.cancelled.acquire().await.unwrap().forget();
    it.fake.permits.add_permits(1);
    assert!(running.await.unwrap().is_ok());
}

#[tokio::test]
async fn an_operation_that_is_cancelled_before_its_call_is_not_begun() {
    let it = setting(Vec::new()).await;
    let token = CancellationToken::new();
    token.cancel();
    let ctx = TestContext::new("a", "uid-a").cancellation(token).build();
    it.fake.permits.add_permits(1);
    let error = it.adapter.perform(create(), ctx).await.unwrap_err();
    assert_eq!((error.code(), error.certainty()), (Code::Canceled, Certainty::NotApplied));
    assert!(it.fake.asked.lock().is_empty());
}

#[tokio::test]
async fn a_bare_status_says_nothing_of_what_was_left_behind() {
    let it = setting(Vec::new()).await;
    let update = Request::UpdateMachine(proto::UpdateMachineRequest::default());
    let error = it.adapter.perform(update, machine("a")).await.unwrap_err();
    assert_eq!((error.code(), error.certainty()), (Code::Unknown, Certainty::Unknown));
}

/// The mutations that this finds, each of which leaks instances: a bare NOT_FOUND ("project not found") taken for
/// absence by a status, for gone by a deletion or for none by a list, and RESOURCE_EXHAUSTED, which gRPC itself says of an
/// answer that is too large, taken for a create that did nothing.
#[tokio::test]
async fn no_bare_status_is_an_absence_and_none_says_that_nothing_was_done() {
    let it = setting(Vec::new()).await;
    for code in [tonic::Code::NotFound, tonic::Code::ResourceExhausted, tonic::Code::Aborted] {
        *it.fake.bare.lock() = Some(Status::new(code, "project not found"));
        for request in [
            create(),
            Request::DeleteMachine(proto::DeleteMachineRequest::default()),
            Request::GetMachineStatus(proto::GetMachineStatusRequest::default()),
            Request::ListMachines(proto::ListMachinesRequest::default()),
        ] {
            it.fake.permits.add_permits(1);
            let error = it.adapter.perform(request.clone(), machine("a")).await.unwrap_err();
            let said = (error.code(), error.certainty());
            assert_eq!(said, (Code::Unknown, Certainty::Unknown), "{code:?}: {request:?}");
        }
    }
    assert_eq!(it.fake.asked.lock().len(), 3, "each create did its work");
    *it.fake.bare.lock() = Some(Status::unimplemented("not here"));
    let delete = Request::DeleteMachine(proto::DeleteMachineRequest::default());
    let error = it.adapter.perform(delete, machine("a")).await.unwrap_err();
    let said = (error.code(), error.certainty());
    assert_eq!(said, (Code::Unimplemented, Certainty::NotApplied));
}

#[tokio::test]
async fn a_driver_that_reads_no_single_instance_is_asked_for_its_list() {
    let it = setting(Vec::new()).await;
    let status = || Request::GetMachineStatus(proto::GetMachineStatusRequest::default());
    let found = it.adapter.perform(status(), machine("b")).await.unwrap();
    let Response::GetMachineStatus(found) = found else { panic!("{found:?}") };
    assert_eq!(found.machine.unwrap().provider_id, "fake:///b");
    let target = it.fake.asked.lock().pop().unwrap().target.unwrap();
    let named = (target.kind.as_str(), target.name.as_str(), target.uid.as_str());
    assert_eq!(named, ("MachineClass", "class", ""), "a list is about a class");
    let absent = it.adapter.perform(status(), machine("c")).await.unwrap_err();
    assert_eq!((absent.code(), absent.reason_word()), (Code::NotFound, "NOT_LISTED"));
}

#[tokio::test]
async fn an_instance_that_the_list_shows_as_that_of_another_machine_is_not_ours() {
    let it = setting(Vec::new()).await;
    let asked =
        proto::GetMachineStatusRequest { provider_id: "fake:///b".to_owned(), context: None };
    let status = || Request::GetMachineStatus(asked.clone());
    let other = it.adapter.perform(status(), machine("c")).await.unwrap_err();
    let sent = proto::OperationError::from(other);
    let named = (sent.typed_reason(), sent.provider_id.as_str());
    assert_eq!(named, (proto::MachineErrorReason::NotOurs, "fake:///b"));
    let own = it.adapter.perform(status(), machine("a")).await.unwrap();
    let Response::GetMachineStatus(own) = own else { panic!("{own:?}") };
    assert_eq!(own.machine.unwrap().provider_id, "fake:///a", "its own is looked for first");
}

#[tokio::test]
async fn a_lost_driver_makes_the_outcome_unknown_and_another_process_ends_the_session() {
    let mut it = setting(vec![running("op")]).await;
    let adapter = it.adapter.clone();
    let called = tokio::spawn(async move { adapter.perform(create(), machine("b")).await });
    it.fake.began.acquire().await.unwrap().forget();
    let ended = CancellationToken::new();
    // The next answer has another boot id than the adapter knows.
    let info = GetInfoResponse { boot_id: "before".to_owned(), ..it.adapter.shared.info.clone() };
    let successor = Adapter::new(it.adapter.client(), info);
    let holder = successor.clone();
    let held = async move { holder.until_ended("op", CancellationToken::new()).await };
    let held = tokio::spawn(tokio::time::timeout(PATIENCE, held));
    it.kill();
    let lost = it.adapter.client().lost;
    lost.cancelled().await;
    let error = called.await.unwrap().unwrap_err();
    assert_eq!((error.code(), error.certainty()), (Code::Unknown, Certainty::Unknown));
    assert!(error.message().contains("the driver died"), "{}", error.message());
    it.listen_again();
    successor.watch(&it.socket, &ended).await;
    assert!(ended.is_cancelled());
    assert!(!successor.readiness().is_ready());
    let held = held.await.unwrap().expect("it ended with the process that did it");
    assert_eq!((held.reason_word(), held.certainty()), ("RESULT_LOST", Certainty::Unknown));
}

#[tokio::test]
async fn an_operation_of_an_earlier_adapter_is_held_until_the_driver_lists_it_no_more() {
    let it = setting(vec![running("op")]).await;
    let held = it.adapter.held();
    assert_eq!((held[0].operation_id.as_str(), held[0].idempotency_key.as_str()), ("op", "key"));
    assert_eq!(it.adapter.instance_id().as_deref(), Some(BOOT));
    let gone = it.adapter.until_ended("another", CancellationToken::new()).await;
    assert_eq!((gone.reason_word(), gone.certainty()), ("RESULT_LOST", Certainty::Unknown));
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let waits = it.adapter.until_ended("op", cancelled);
    tokio::select! {
        error = waits => panic!("{error}"),
        permit = it.fake.cancelled.acquire() => permit.unwrap().forget(),
    }
}

/// The core refuses a Hello with such an id for five minutes.
#[tokio::test]
async fn what_somebody_calls_by_hand_without_an_id_is_not_held_and_keeps_its_target_busy() {
    let mut it = setting(vec![running(""), running(&"x".repeat(257)), running("op")]).await;
    let held: Vec<_> = it.adapter.held().into_iter().map(|it| it.operation_id).collect();
    assert_eq!(held, ["op"]);
    let refused = it.adapter.perform(create(), machine("a")).await.unwrap_err();
    let said = (refused.reason_word(), refused.certainty());
    assert_eq!(said, ("TARGET_BUSY", Certainty::NotApplied));
    it.fake.permits.add_permits(2);
    assert!(it.adapter.perform(create(), machine("b")).await.is_ok());
    // It has ended since.
    let info = it.adapter.shared.info.clone();
    it.kill();
    it = setting(Vec::new()).await;
    it.fake.permits.add_permits(1);
    let adapter = Adapter::new(it.adapter.client(), info);
    assert!(adapter.perform(create(), machine("a")).await.is_ok());
}

#[tokio::test]
async fn events_of_the_driver_are_passed_on_and_watched_again_when_their_stream_ends() {
    let it = setting(Vec::new()).await;
    let events = it.adapter.events().unwrap();
    let adapter = it.adapter.clone();
    let passing = tokio::spawn(async move { adapter.pass_events_on().await });
    for number in 1..=2 {
        let told = events.next().await;
        assert_eq!(told.provider_id, format!("fake:///{number}"));
    }
    passing.abort();
    let silent = GetInfoResponse { capabilities: Vec::new(), ..it.adapter.shared.info.clone() };
    assert!(Adapter::new(it.adapter.client(), silent).events().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_adapter_waits_for_one_that_is_just_ending() {
    let directory = tempfile::tempdir().unwrap();
    let socket = Socket::new(directory.path().join("s"), 0);
    let first = socket.lock().await.unwrap();
    let ending = async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        drop(first);
    };
    let (_second, ()) = tokio::join!(async { socket.lock().await.unwrap() }, ending);
    let third = socket.lock().await.unwrap_err().to_string();
    assert!(third.contains("another adapter"), "{third}");
}

#[tokio::test]
async fn a_directory_in_which_others_can_put_a_socket_is_refused() {
    let it = setting(Vec::new()).await;
    let directory = it.socket.path.parent().unwrap();
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = it.socket.check().unwrap_err().to_string();
    assert!(refused.contains("chmod go-w"), "{refused}");
    let stranger = Socket::new(it.socket.path.clone(), 12_345);
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700)).unwrap();
    let refused = stranger.connect().await.unwrap_err().to_string();
    assert!(refused.contains("--driver-uid"), "{refused}");
    // Only root can give a directory away.
    if std::os::unix::fs::chown(directory, Some(12_345), None).is_ok() {
        let refused = it.socket.check().unwrap_err().to_string();
        assert!(refused.contains("belongs to user 12345"), "{refused}");
    }
}

#[tokio::test]
async fn a_group_comes_in_parts_and_is_asked_for_by_the_tags_of_its_pool() {
    let it = setting(Vec::new()).await;
    let status = Request::GetPoolStatus(proto::GetPoolStatusRequest::default());
    let found = it.adapter.perform(status, machine("pool")).await.unwrap();
    let Response::GetPoolStatus(found) = found else { panic!("{found:?}") };
    let ids: Vec<_> = found.machines.iter().map(|it| it.instance_id.as_str()).collect();
    assert_eq!((ids.as_slice(), found.pool.unwrap().desired), (["0", "1"].as_slice(), 2));
    let asked = it.fake.asked.lock().pop().unwrap();
    assert_eq!(asked.target.unwrap().kind, "MachinePool");
    let uid = asked.identity_tags.get("ostler.dev/pool-uid").map(String::as_str);
    assert_eq!(uid, Some("uid-pool"));
    assert!(!asked.identity_tags.contains_key("ostler.dev/machine-uid"));
}

//! What only a unary driver can break: its adapter ends, and it works on.

use std::fmt::Display;
use std::path::PathBuf;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use ostler_proto::v1alpha1 as proto;
use proto::machine_driver_service_client::MachineDriverServiceClient;
use proto::machine_driver_service_server::SERVICE_NAME;
use proto::{HeldVerdict, Operation, OperationKind, ResumeOutcome, RoleKind, Verdict};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::resilience::{held, must_hold, resent};
use super::session::harmless;
use crate::answer::{same_instance, shown};
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::outcome::{NotPassed, Outcome, ensure, failed, skipped};

checks! {
    "unary/kinds-told" => kinds_told, Must, Adapter, [], "machine_driver.proto, GetInfoResponse.operation_kinds";
        does: "tells in GetInfo each operation that it serves, the three among them that all have",
        why: "what is not told is never asked for: nothing is initialized or updated, and none of it is checked here";
    "unary/adapter-killed" => adapter_killed, Must, Adapter, [Gate::Creates], "machine_driver.proto, \"In short\" 4, and GetInfo";
        does: "goes on with a create whose adapter was killed, tells the next adapter of it, and has made one instance",
        why: "an adapter is upgraded and killed like any process: work that ends with it, or is not told of, is done a second time";
}

/// Those that a driver serves and does not tell; the adapter asks for none of them, so the driver is asked itself.
async fn kinds_told(bench: &Bench) -> Outcome {
    bench.connect().await?;
    let socket = bench.harness.setup.driver_socket.clone();
    let socket = socket.ok_or_else(|| skipped("the driver has no socket of its own"))?;
    let channel = dial(socket).await.map_err(uncallable)?;
    let mut client = MachineDriverServiceClient::new(channel.clone());
    let info = client.get_info(proto::GetInfoRequest {}).await;
    let info = info.map_err(uncallable)?.into_inner();
    let told = |kind: OperationKind| info.operation_kinds.contains(&kind.into());
    for kind in
        [OperationKind::CreateMachine, OperationKind::DeleteMachine, OperationKind::ListMachines]
    {
        let expected = format!("{} in operation_kinds", kind.as_str_name());
        ensure(told(kind), expected, format_args!("{:?}", info.operation_kinds))?;
    }
    for (kind, operation) in harmless(&bench.machine(), &bench.pool()) {
        // The adapter reads the list of one that does not tell GetMachineStatus.
        if kind == OperationKind::GetMachineStatus || told(kind) {
            continue;
        }
        let expected = format!("{} in operation_kinds, as it is served", kind.as_str_name());
        ensure(!is_served(channel.clone(), kind, &operation).await?, expected, "it is not there")?;
    }
    Ok(())
}

fn uncallable(error: impl Display) -> NotPassed {
    failed("a driver that can be called", error)
}

async fn dial(socket: PathBuf) -> Result<Channel, tonic::transport::Error> {
    let connect = service_fn(move |_: http::Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://driver").connect_with_connector(connect).await
}

/// Whether a driver answers a call with anything but UNIMPLEMENTED.
async fn is_served(channel: Channel, kind: OperationKind, operation: &Operation) -> Outcome<bool> {
    let mut client = tonic::client::Grpc::new(channel);
    let ready = client.ready().await;
    ready.map_err(uncallable)?;
    // `context` has the same number in all requests.
    let context = proto::OperationContext {
        operation_id: operation.operation_id.clone(),
        idempotency_key: operation.idempotency_key.clone(),
        target: operation.target.clone(),
        cluster_id: operation.cluster_id.clone(),
        ..Default::default()
    };
    let request = proto::ListMachinesRequest { context: Some(Box::new(context)) };
    let path = PathAndQuery::from_maybe_shared(format!("/{SERVICE_NAME}/{}", call_of(kind)));
    let path = path.map_err(|error| failed("the name of a call", error))?;
    let codec = tonic_prost::ProstCodec::<_, proto::ProbeResponse>::default();
    let answer = client.unary(tonic::Request::new(request), path, codec).await;
    Ok(!answer.is_err_and(|status| status.code() == tonic::Code::Unimplemented))
}

/// `UPDATE_POOL` is `UpdatePool`.
fn call_of(kind: OperationKind) -> String {
    let words = kind.as_str_name().trim_start_matches("OPERATION_KIND_").split('_');
    let capital = |word: &str| {
        let (first, rest) = word.split_at(1);
        format!("{first}{}", rest.to_lowercase())
    };
    words.map(capital).collect()
}

async fn adapter_killed(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let model = driver.ask(bench.slow_machine().create()).await?;
    model.machine()?;
    let machine = bench.slow_machine();
    let asked = driver.start(machine.create())?;
    asked.under_way().await?;
    bench.step("killed the adapter with SIGKILL; the driver is a process of its own");
    bench.harness.forget_process();
    let session = bench.harness.arrival().await?;
    let told = must_hold(&session, &asked, OperationKind::CreateMachine).map(drop);
    let within = asked.sent.elapsed();
    let is_held = held(&session, &asked).is_some();
    let verdict = HeldVerdict {
        operation_id: asked.operation.operation_id.clone(),
        verdict: Verdict::Keep.into(),
    };
    let driver = bench
        .admit(session, RoleKind::Active, |welcome| {
            welcome.verdicts = vec![verdict];
            welcome.resume_outcome = ResumeOutcome::Adopted.into();
        })
        .await?;
    if is_held {
        bench.step("the next adapter holds the create: the driver told it");
        let answer = resent(&driver, &asked).await?;
        let error = answer.error("UNKNOWN, since nobody heard the answer")?;
        ensure(answer.passing().is_some(), "UNKNOWN, then a read", shown(&error))?;
    }
    let before = driver.has_one(&machine).await?;
    bench.step("created it again, as the core does");
    let made = driver.create(&machine).await?;
    same_instance(&before, &made)?;
    driver.has_one(&machine).await?;
    // One that is not held may have ended meanwhile, if it had the time. A create takes longer the first time, for images and
    // caches, and beside other checks.
    let again = driver.ask(bench.slow_machine().create()).await?;
    again.machine()?;
    if within < model.took.min(again.took) / 2 {
        told?;
    }
    if let Ok(probe) = bench.probe() {
        let count = probe.instances_of(&machine).await?.len();
        ensure(count == 1, "one instance of the machine in the cloud", count)?;
    }
    Ok(())
}

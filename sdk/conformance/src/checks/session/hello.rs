//! Who dials in, and how.

use std::collections::BTreeSet;
use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::register_request::Frame;
use proto::{Hello, MachineErrorCode, Operation, OperationKind};

use crate::answer::{Answer, code_name, shown};
use crate::bench::Bench;
use crate::check::checks;
use crate::driver::Driver;
use crate::machine::{Machine, list, on_class};
use crate::outcome::{Outcome, ensure, failed};
use crate::pool::Pool;

checks! {
    "session/hello-first" => first, Must, Session, [], "session.proto, RegisterRequest";
        does: "sends Hello as the first frame of every stream, and only once",
        why: "a core ends a stream that begins otherwise, and the driver serves nothing";
    "session/no-deadline" => no_deadline, Must, Session, [], "driver.proto, Register";
        does: "opens its stream without a deadline",
        why: "the stream breaks when the deadline passes, again and again, with all that runs on it";
    "session/hello-valid" => valid, Must, Session, [], "session.proto, Hello";
        does: "introduces itself with a valid provider, instance id, credit and the three operations that all have",
        why: "a core refuses a Hello that is wrong, for minutes at a time";
    "session/hello-stable" => stable, Must, Process, [], "session.proto, Hello";
        does: "introduces itself the same way at every start, with a new instance id for every process and the same one for all its streams",
        why: "the core knows by the instance id whether a process came back or another one took its place: what it held is resumed, or lost";
    "session/kinds-honest" => kinds_honest, Must, Session, [], "session.proto, Hello.operation_kinds";
        does: "has the operations that its Hello lists, and answers the others with UNIMPLEMENTED",
        why: "the core plans by that list: it waits for an initialization that never comes, or skips one that is needed";
}

async fn first(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    for _ in 0..5 {
        driver.list().await?;
    }
    let hellos = driver.session.log.since(0);
    let hellos = hellos.iter().filter(|it| matches!(it.frame, Some(Frame::Hello(_)))).count();
    ensure(hellos == 1, "one Hello", format_args!("{hellos}"))
}

/// Seen in the headers of every stream of the run.
async fn no_deadline(bench: &Bench) -> Outcome {
    bench.connect().await.map(drop)
}

async fn valid(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let hello = &driver.session.hello;
    ensure(
        is_dns_subdomain(&hello.provider),
        "provider: a DNS subdomain of at most 63 characters",
        format_args!("{:?}", hello.provider),
    )?;
    ensure(
        uuid::Uuid::parse_str(&hello.instance_id).is_ok(),
        "instance_id: a UUID",
        format_args!("{:?}", hello.instance_id),
    )?;
    ensure(hello.max_in_flight >= 1, "max_in_flight of at least 1", hello.max_in_flight)?;
    let frame = hello.max_frame_bytes;
    ensure(
        frame == 0 || frame >= 64 * 1024,
        "max_frame_bytes 0 or at least 64 KiB, which every operation may take",
        frame,
    )?;
    let needed =
        [OperationKind::CreateMachine, OperationKind::DeleteMachine, OperationKind::ListMachines];
    for kind in needed {
        let listed = hello.operation_kinds.contains(&kind.into());
        ensure(listed, format_args!("{} among operation_kinds", kind.as_str_name()), "it is not")?;
    }
    let distinct: BTreeSet<i32> = hello.operation_kinds.iter().copied().collect();
    ensure(
        distinct.len() == hello.operation_kinds.len() && !distinct.contains(&0),
        "operation_kinds without repetition and without UNSPECIFIED",
        format_args!("{:?}", hello.operation_kinds),
    )
}

fn is_dns_subdomain(name: &str) -> bool {
    let is_edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(is_edge)
            && label.ends_with(is_edge)
            && label.chars().all(|c| is_edge(c) || c == '-')
    };
    name.len() <= 63 && name.split('.').all(is_label)
}

async fn stable(bench: &Bench) -> Outcome {
    let first = bench.connect().await?.session.hello.clone();
    ensure(first.resume.is_none(), "no resume in the first Hello of a process", "one")?;
    bench.step("cut the link");
    bench.harness.proxy.cut();
    let second = bench.reconnected().await?.session.hello.clone();
    same(&first, &second)?;
    let resume = second.resume.as_ref();
    ensure(resume.is_some(), "resume in the Hello of a process that had a session before", "none")?;
    ensure(
        first.instance_id == second.instance_id,
        "the same instance_id in every stream of a process",
        format_args!("{} and {}", first.instance_id, second.instance_id),
    )?;
    bench.step("killed the process and started another");
    bench.harness.forget_process();
    let third = bench.reconnected().await?.session.hello.clone();
    same(&first, &third)?;
    ensure(
        first.instance_id != third.instance_id,
        "another instance_id in another process",
        format_args!("{} again", third.instance_id),
    )?;
    let resume = third.resume.as_ref().map(|resume| resume.operations.len());
    ensure(
        resume.is_none(),
        "no resume in the first Hello of a process",
        format_args!("{resume:?}"),
    )
}

fn same(one: &Hello, two: &Hello) -> Outcome {
    let facts = |hello: &Hello| {
        let kinds: BTreeSet<i32> = hello.operation_kinds.iter().copied().collect();
        let capabilities: BTreeSet<i32> = hello.capabilities.iter().copied().collect();
        (hello.provider.clone(), hello.driver_version.clone(), kinds, capabilities)
    };
    let (one, two) = (facts(one), facts(two));
    ensure(
        one == two,
        format_args!("the same provider, version, operation_kinds and capabilities: {one:?}"),
        format_args!("{two:?}"),
    )
}

/// A harmless operation of every kind.
pub(in crate::checks) fn harmless(
    machine: &Machine,
    pool: &Pool,
) -> Vec<(OperationKind, Operation)> {
    const NOWHERE: &str = "conformance:///no-such-instance";
    let (class, cluster) = (&machine.class, &machine.cluster_id);
    let volumes = Request::GetVolumeIds(proto::GetVolumeIdsRequest::default());
    let validate = Request::ValidateClass(proto::ValidateClassRequest {
        provider_spec_json: "{}".to_owned(),
        ..Default::default()
    });
    vec![
        (OperationKind::DeleteMachine, machine.delete("")),
        (OperationKind::GetMachineStatus, machine.status(NOWHERE)),
        (OperationKind::ListMachines, list(class, cluster)),
        (OperationKind::InitializeMachine, machine.initialize(NOWHERE)),
        (OperationKind::UpdateMachine, machine.update(NOWHERE, "")),
        (OperationKind::GetVolumeIds, on_class(class, cluster, volumes)),
        (OperationKind::ValidateClass, on_class(class, cluster, validate)),
        (OperationKind::UpdatePool, pool.update(NOWHERE, None, None)),
        (OperationKind::DeletePool, pool.delete("")),
        (OperationKind::GetPoolStatus, pool.status("")),
        (OperationKind::ListPools, pool.list()),
        (
            OperationKind::DeletePoolMachines,
            pool.delete_machines(NOWHERE, &[NOWHERE.to_owned()], (1, 1)),
        ),
        (OperationKind::UpdatePoolMachine, pool.update_machine(NOWHERE, NOWHERE, "one", true)),
    ]
}

async fn kinds_honest(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    for (kind, operation) in harmless(&bench.machine(), &bench.pool()) {
        let listed = driver.session.hello.operation_kinds.contains(&kind.into());
        let answer = driver.start(operation)?.settled().await?;
        if listed {
            implemented(kind, &answer)?;
        } else {
            answer.refusal(&[MachineErrorCode::Unimplemented])?;
        }
    }
    still_serves(&driver).await
}

fn implemented(kind: OperationKind, answer: &Answer) -> Outcome {
    let Ok(error) = answer.error("an error") else { return Ok(()) };
    let expected = format!("no UNIMPLEMENTED for {}, which Hello lists", kind.as_str_name());
    ensure(error.code() != MachineErrorCode::Unimplemented, expected, shown(&error))
}

/// The session goes on as before.
pub(super) async fn still_serves(driver: &Driver<'_>) -> Outcome {
    let machine = driver.bench.machine();
    let answer = driver.ask(machine.status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound])?;
    let patience = Duration::from_millis(10);
    match tokio::time::timeout(patience, driver.session.log.until_ended()).await {
        Err(_) => Ok(()),
        Ok(how) => Err(failed(
            format_args!("a session that goes on ({})", code_name(MachineErrorCode::NotFound)),
            format_args!("it ended: {how}"),
        )),
    }
}

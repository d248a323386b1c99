//! A driver that works on many operations, and what it may not say too much of.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::RoleKind;
use proto::register_request::Frame;

use super::frames::echoed;
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::core::library::ClassContent;
use crate::core::limits;
use crate::driver::Asked;
use crate::machine::title;
use crate::outcome::{Outcome, ensure};

/// Concurrent operations; a driver with more credit need not show it.
const BUSY: u32 = 8;
const MANY: u32 = 64;
/// From here on "before the work" and "after the work" can be told apart.
const SLOW: Duration = Duration::from_secs(1);

checks! {
    "session/heartbeat-under-load" => heartbeat_under_load, Must, Session, [Gate::Creates], "session.proto, Heartbeat";
        does: "answers heartbeats within the interval while operations run, and names those",
        why: "a driver whose loop waits for its infrastructure looks dead, and its operations are given up";
    "session/accept-fast" => accept_fast, Must, Session, [Gate::Creates], "session.proto, OperationAccepted";
        does: "names every operation soon, in a heartbeat or in OperationAccepted, if it does not answer it before",
        why: "a mutation that is not accepted holds up its machine; after three times 10 s the session ends, and its outcome is unknown";
    "session/credit-respected" => credit, Should, Link, [], "session.proto, Hello.max_in_flight and Welcome.max_in_flight";
        does: "works with a credit of one and with as much as it offers itself",
        why: "the core sends as much as both agreed; what the driver then refuses is lost time";
    "session/limits" => limits, Must, Session, [], "driver.proto, \"Limits\"";
        does: "keeps its frames, messages, checkpoints and ids within the limits",
        why: "a frame that is too large kills the whole stream, and a text that is too long fills the status of a machine";
}

async fn heartbeat_under_load(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let count = driver.session.hello.max_in_flight.clamp(1, BUSY);
    let asked: Vec<Asked<'_>> =
        (0..count).map(|_| driver.start(bench.slow_machine().create())).collect::<Outcome<_>>()?;
    for _ in 0..2 {
        let running_before: Vec<&Asked<'_>> =
            asked.iter().filter(|it| !it.is_completed()).collect();
        let echo = echoed(&driver).await?;
        // What was completed while the echo was under way may be in it or not.
        for one in running_before.into_iter().filter(|it| !it.is_completed()) {
            let id = &one.operation.operation_id;
            let expected =
                format!("{} among `running`, which is not completed", title(&one.operation));
            ensure(echo.running.contains(id), expected, format_args!("{:?}", echo.running))?;
        }
    }
    for one in &asked {
        one.settled().await?.machine()?;
    }
    let echo = echoed(&driver).await?;
    let done = |id: &String| asked.iter().any(|one| one.operation.operation_id == *id);
    let stale: Vec<&String> = echo.running.iter().filter(|id| done(id)).collect();
    ensure(stale.is_empty(), "no completed operation among `running`", format_args!("{stale:?}"))
}

async fn accept_fast(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let count = driver.session.hello.max_in_flight.clamp(1, BUSY);
    let asked: Vec<Asked<'_>> =
        (0..count).map(|_| driver.start(bench.slow_machine().create())).collect::<Outcome<_>>()?;
    for one in &asked {
        let accepted = one.accepted().await?;
        let answer = one.answer().await?;
        let took = answer.took;
        driver.settle(&one.operation, answer).await?.machine()?;
        if took >= SLOW {
            ensure(
                accepted <= took / 2,
                format_args!("a frame that names {} while it works on it", title(&one.operation)),
                format_args!("after {accepted:?} of {took:?}"),
            )?;
        }
    }
    Ok(())
}

async fn credit(bench: &Bench) -> Outcome {
    let driver = bench.welcomed(RoleKind::Active, |welcome| welcome.max_in_flight = 1).await?;
    bench.step("welcomed with max_in_flight 1");
    for _ in 0..3 {
        driver.list().await?;
    }
    let offered = driver.session.hello.max_in_flight;
    bench.step("cut the link, and welcomed without a limit");
    bench.harness.proxy.cut();
    let driver = bench.reconnected().await?;
    let from_state = driver.session.log.since(0).iter().find_map(|entry| match &entry.frame {
        Some(Frame::State(state)) => Some(state.max_in_flight),
        _ => None,
    });
    let count = from_state.unwrap_or(offered).min(offered).clamp(1, MANY);
    bench.step(format_args!("sent {count} operations together"));
    let asked: Vec<Asked<'_>> = (0..count)
        .map(|_| driver.start(crate::machine::list(&bench.class(), bench.cluster_id())))
        .collect::<Outcome<_>>()?;
    let mut refused = 0_u32;
    for one in asked {
        let answer = one.answer().await?;
        refused += u32::from(answer.passing().is_some());
        driver.settle(&one.operation, answer).await?.machines()?;
    }
    // A cloud in trouble fails some; a driver without the credit that it says fails most.
    let few = refused <= count / 4;
    ensure(few, format_args!("results of {count} operations"), format_args!("{refused} refused"))
}

async fn limits(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let from = driver.session.log.len();
    // An error that repeats what it does not understand becomes long, and so does a list of all that is wrong.
    let long = serde_json::Value::String("x".repeat(100 * 1024));
    let unknown = (0..3000).map(|number| (format!("unknown-field-{number}"), 0.into())).collect();
    let specs = [("long", long), ("many-fields", serde_json::Value::Object(unknown))];
    for (name, spec) in specs.into_iter().filter(|_| !bench.options().no_create) {
        let content =
            ClassContent { provider_spec_json: spec.to_string(), ..ClassContent::default() };
        let secret = bench.options().secret.as_ref().map(|secret| secret.data.clone());
        let machine = bench.machine_of(&bench.publish(name, &content, secret));
        bench.step(format_args!("sent a create with the provider spec {name}"));
        let answer = driver.ask(machine.create()).await?;
        if name == "long" {
            answer.error("an error for a provider spec that is a text")?;
        }
    }
    let machine = bench.machine();
    let wrong_id = "x".repeat(200);
    driver.ask(machine.status(&wrong_id)).await?.error("NOT_FOUND")?;
    driver.ask(machine.delete(&wrong_id)).await?.result()?;
    driver.list().await?;
    for entry in driver.session.log.since(from) {
        let broken = limits::broken(entry.frame.as_ref(), entry.bytes);
        ensure(broken.is_empty(), "frames within the limits", broken.join(", "))?;
    }
    Ok(())
}

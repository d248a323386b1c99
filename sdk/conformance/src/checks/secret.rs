//! Classes and secrets: who asks for them, when, and where they must not show.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_proto::v1alpha1 as proto;
use proto::operation_completed::Outcome as Completed;
use proto::register_request::Frame as Received;
use proto::register_response::Frame;
use proto::{MachineErrorCode, ObjectRevision, OperationKind};

use crate::bench::{Bench, user_data_mark, user_data_of};
use crate::check::{Gate, checks};
use crate::core::library::{CallKind, SecretData};
use crate::driver::Driver;
use crate::machine::list;
use crate::outcome::{Outcome, ensure, failed, not_offered, skipped};
use crate::pool::Pool;

const GET_SECRET: &str = "driver.proto, GetSecret";
const GET_CLASS: &str = "driver.proto, GetMachineClass";
/// Shorter values stand in outputs by chance.
const TELLING: usize = 8;

checks! {
    "secret/scope" => scope, Must, Link, [], GET_SECRET;
        does: "asks for a secret only with an operation that is in flight on its session, and only for that of its class",
        why: "everything else is refused: a driver that fetches ahead or shares across classes stands still";
    "secret/not-in-output" => not_in_output, Must, Process, [Gate::Creates], "driver.proto, \"Secrets\"";
        does: "shows neither credentials nor user data in its output, its results, its errors, its progress and its checkpoints",
        why: "logs are read by many, kept for long, and copied into tickets";
    "secret/not-in-tags" => not_in_tags, Must, Session, [Gate::Creates, Gate::Probe], "driver.proto, \"Secrets\"";
        does: "puts neither credentials nor user data into tags",
        why: "a user who may read the account reads them, and bills and inventories copy them";
    "secret/refresh" => refresh, Should, Link, [Gate::Creates, Gate::Secret, Gate::BadSecret], "session.proto, CacheInvalidation";
        does: "uses the new credentials after CacheInvalidation, without a restart",
        why: "credentials are replaced while drivers run; the old ones stop to work soon after";
    "secret/class-cache" => class_cache, Should, Link, [], GET_CLASS;
        does: "fetches a revision of a class at most twice for fifty operations",
        why: "the content of a revision never changes, and the core serves thousands of operations";
    "secret/stale-revision" => stale_revision, Must, Link, [Gate::Creates], GET_CLASS;
        does: "completes with ABORTED, STALE_REVISION, NOT_APPLIED when the revision of the class is gone",
        why: "the core then sends the operation again with the current class; after another error it waits";
}

/// Who asked for a secret so far.
fn secret_calls(bench: &Bench) -> Vec<(String, ObjectRevision)> {
    let core = bench.harness.core();
    let library = core.library();
    let calls = library.calls().iter().filter_map(|call| match &call.kind {
        CallKind::Secret { operation_id } => Some((operation_id.clone(), call.wanted.clone())),
        CallKind::Class => None,
    });
    calls.collect()
}

async fn scope(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let plain = bench.publish("plain", &bench.options().class.content, None);
    bench.step("the class names no secret");
    // Without credentials the driver may answer anything.
    driver.ask(list(&plain, bench.cluster_id())).await?;
    let calls = secret_calls(bench);
    let expected = "no GetSecret for a class that names no secret";
    ensure(calls.is_empty(), expected, format_args!("{calls:?}"))?;
    if bench.options().secret.is_none() {
        return Ok(());
    }
    bench.step("the class names a secret");
    let mut sent = Vec::new();
    for _ in 0..3 {
        let asked = driver.start(list(&bench.class(), bench.cluster_id()))?;
        asked.answer().await?;
        sent.push(asked.operation.operation_id.clone());
    }
    let name = bench.class().name;
    for (operation_id, wanted) in secret_calls(bench) {
        ensure(
            sent.contains(&operation_id) && wanted.name == name,
            format_args!("GetSecret for {name} with one of the operations that were sent"),
            format_args!("{wanted:?} with {operation_id:?}"),
        )?;
    }
    Ok(())
}

/// Bytes as languages print them: `[107, 101]`, `[107 101]`, `<Buffer 6b 65>`; not all, since a long text is cut.
fn printed(what: &str, value: &[u8]) -> Vec<(String, String)> {
    let some = value.get(..TELLING).unwrap_or(value);
    let joined = |form: fn(&u8) -> String, between: &str| {
        (format!("{what}, byte by byte"), some.iter().map(form).collect::<Vec<_>>().join(between))
    };
    let decimal: fn(&u8) -> String = ToString::to_string;
    vec![
        joined(decimal, ", "),
        joined(decimal, ","),
        joined(decimal, " "),
        joined(|it| format!("{it:02x}"), " "),
    ]
}

/// What must not be seen anywhere.
pub(super) fn canaries(secrets: &[&SecretData], uid: &str) -> Vec<(String, String)> {
    let mark = user_data_mark(uid);
    let mut canaries = printed("user data", mark.as_bytes());
    // Of `user_data_of`: the mark begins within a group of base64, and ends within another.
    let encoded = STANDARD.encode(user_data_of(uid));
    canaries.push(("user data, as base64".to_owned(), encoded.chars().skip(24).take(48).collect()));
    canaries.push(("user data".to_owned(), mark));
    for (key, value) in secrets.iter().flat_map(|data| data.iter()) {
        if value.len() < TELLING {
            continue;
        }
        canaries.push((format!("{key}, as base64"), STANDARD.encode(value)));
        canaries.extend(printed(key, value));
        if let Ok(text) = String::from_utf8(value.clone()) {
            // Of a text of many lines one line is enough.
            let line = text.lines().max_by_key(|line| line.len()).unwrap_or_default();
            if line.len() >= TELLING {
                canaries.push((key.clone(), line.to_owned()));
            }
        }
    }
    canaries
}

async fn not_in_output(bench: &Bench) -> Outcome {
    let options = bench.options();
    let mut good = options.secret.as_ref().map(|secret| secret.data.clone()).unwrap_or_default();
    let canary = format!("ostler-canary-{}", uuid::Uuid::new_v4().simple());
    good.insert("ostler-canary".to_owned(), canary.into_bytes());
    let class = bench.publish("canary", &options.class.content, Some(good.clone()));
    let driver = bench.connect().await?;
    let mut machine = bench.machine_of(&class);
    machine.user_data = Some(user_data_of(&machine.uid));
    let made = driver.create(&machine).await?;
    driver.ask(machine.status(&made.provider_id)).await?.machine()?;
    let mut secrets = vec![&good];
    if let Some(bad) = &options.bad_secret {
        bench.step("the same with credentials that are refused");
        let denied = bench.publish("denied", &options.class.content, Some(bad.data.clone()));
        driver.ask(bench.machine_of(&denied).create()).await?.error("an error")?;
        secrets.push(&bad.data);
    }
    driver.ask(machine.delete(&made.provider_id)).await?.result()?;
    if driver.offers(OperationKind::CreatePool) {
        let user_data = user_data_of(&machine.uid);
        driver.ask(Pool { user_data, ..bench.pool() }.create(1)).await?.pool()?;
    }
    bench.step("ended the driver, and read what it printed");
    bench.harness.process()?.terminate();
    bench.harness.process()?.exit(bench.scaled(std::time::Duration::from_secs(20))).await;
    // The adapter and the SDK say so.
    if let Some(line) = bench.harness.output.find("was not saved") {
        return Err(failed("a checkpoint without secrets, of 4 KiB at most", line));
    }
    for (what, canary) in canaries(&secrets, &machine.uid) {
        if let Some(line) = bench.harness.output.find(&canary) {
            let line = line.replace(&canary, "<the secret>");
            return Err(failed(
                "output without credentials and user data",
                format_args!("{what} in: {line}"),
            ));
        }
        said(&driver, &what, &canary)?;
    }
    Ok(())
}

async fn not_in_tags(bench: &Bench) -> Outcome {
    /// Tags are cut, and what stands first is left.
    const KEPT: usize = 24;
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let user_data = user_data_of(&machine.uid);
    let encoded = STANDARD.encode(&user_data).chars().take(KEPT).collect();
    let made = driver.create(&machine.with_user_data(user_data)).await?;
    let mut tags = vec![probe.instance(&made.provider_id).await?.tags];
    let parts = probe.resources_of(&machine.uid).await.unwrap_or_default();
    tags.extend(parts.into_iter().filter_map(|part| part.tags));
    let secrets: Vec<_> = bench.options().secret.iter().map(|it| &it.data).collect();
    let mut canaries = canaries(&secrets, &machine.uid);
    canaries.push(("user data, as base64".to_owned(), encoded));
    for (key, value) in tags.iter().flatten() {
        let found = canaries.iter().find(|(_, canary)| value.contains(canary));
        let expected = "tags without credentials and user data";
        let came = found.map(|(what, _)| format!("{what} in tag {key}"));
        ensure(came.is_none(), expected, came.unwrap_or_default())?;
    }
    Ok(())
}

/// Nothing that the driver told the core holds the canary.
fn said(driver: &Driver<'_>, what: &str, canary: &str) -> Outcome {
    for entry in driver.session.log.since(0) {
        let (place, text) = match &entry.frame {
            Some(Received::Progress(progress)) => ("progress", format!("{progress:?}")),
            Some(Received::Completed(done)) => match &done.outcome {
                Some(Completed::Error(_)) => ("an error", format!("{done:?} {}", done.checkpoint)),
                _ => ("a result or a checkpoint", format!("{done:?} {}", done.checkpoint)),
            },
            _ => continue,
        };
        let expected = format!("{place} without credentials and user data");
        ensure(!text.contains(canary), expected, format_args!("{what} in it"))?;
    }
    Ok(())
}

/// Tells the driver that class and secret changed.
fn invalidate(driver: &Driver<'_>, class: &ObjectRevision) -> Outcome {
    let stale = vec![ObjectRevision { revision: String::new(), ..class.clone() }];
    driver.bench.step("sent CacheInvalidation");
    driver.session.send(Frame::Invalidate(proto::CacheInvalidation { stale })).map(drop)
}

async fn refresh(bench: &Bench) -> Outcome {
    let (good, bad) = match (&bench.options().secret, &bench.options().bad_secret) {
        (Some(good), Some(bad)) => (good.data.clone(), bad.data.clone()),
        _ => return Err(skipped("--secret and --bad-secret are not given")),
    };
    let class = bench.publish("rotated", &bench.options().class.content, Some(good.clone()));
    let driver = bench.connect().await?;
    driver.create(&bench.machine_of(&class)).await?;
    if secret_calls(bench).is_empty() {
        return Err(not_offered("the driver never asks for a secret"));
    }
    bench.step("replaced the secret by one that is refused");
    bench.replace_secret("rotated", Some(bad));
    invalidate(&driver, &class)?;
    let answer = driver.ask(bench.machine_of(&class).create()).await?;
    answer.error_of(&[MachineErrorCode::Unauthenticated, MachineErrorCode::PermissionDenied])?;
    bench.step("replaced it by a good one");
    bench.replace_secret("rotated", Some(good));
    invalidate(&driver, &class)?;
    driver.create(&bench.machine_of(&class)).await.map(drop)
}

async fn class_cache(bench: &Bench) -> Outcome {
    const OPERATIONS: usize = 50;
    const FETCHES: usize = 2;
    let driver = bench.connect().await?;
    let class = bench.class();
    for _ in 0..OPERATIONS {
        driver.ask(list(&class, bench.cluster_id())).await?.machines()?;
    }
    let core = bench.harness.core();
    let library = core.library();
    let fetches = library.calls().iter();
    let fetches = fetches.filter(|it| it.kind == CallKind::Class && it.wanted.name == class.name);
    let fetches = fetches.count();
    ensure(
        fetches <= FETCHES,
        format_args!("{FETCHES} GetMachineClass at most in {OPERATIONS} operations"),
        fetches,
    )
}

async fn stale_revision(bench: &Bench) -> Outcome {
    let content = &bench.options().class.content;
    let secret = bench.options().secret.as_ref().map(|secret| secret.data.clone());
    let gone = bench.publish("gone", content, secret);
    bench.harness.core().library().withdraw(&gone.name, &gone.revision);
    let driver = bench.connect().await?;
    let machine = bench.machine();
    bench.step("the core does not keep the revision of the class any more");
    let answer = driver.ask(machine.of_class(&gone).create()).await?;
    let error = answer.refusal(&[MachineErrorCode::Aborted])?;
    ensure(
        error.reason == "STALE_REVISION",
        "reason STALE_REVISION",
        format_args!("{:?}", error.reason),
    )?;
    driver.has_none(&machine).await
}

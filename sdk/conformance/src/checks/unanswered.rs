//! What a driver says when the infrastructure answers nothing, or refuses the credentials: never that there is none.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::{MachineErrorCode, MachineErrorReason, ObjectRevision, Operation, OperationError};

use super::initialize::raw;
use super::interrupted::truthful;
use super::update::{applied, good_spec, stage};
use crate::answer::{Answer, same_instance, shown};
use crate::bench::Bench;
use crate::driver::Driver;
use crate::machine::{self, in_time, on_class};
use crate::outcome::{Outcome, ensure, failed};

pub(super) const MANUAL: &str = "driver.proto, \"Certainty\"; operation.proto, MachineErrorCode";
/// For a driver that tries for as long as it may.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why the infrastructure cannot be asked.
#[derive(Clone, Copy)]
enum Trouble {
    Away,
    Denied,
}

impl Trouble {
    /// Takes the cloud away. The runner brings it back, whatever becomes of the check.
    async fn away(bench: &Bench) -> Outcome<Self> {
        bench.break_cloud("on").await?;
        Ok(Self::Away)
    }

    /// Takes the cloud away or uses credentials that are refused.
    async fn begin(bench: &Bench, denied: bool) -> Outcome<Self> {
        if !denied {
            return Self::away(bench).await;
        }
        bench.step("uses credentials that the infrastructure refuses");
        Ok(Self::Denied)
    }

    /// The same class, as it is asked for meanwhile.
    fn class(self, bench: &Bench, class: &ObjectRevision) -> ObjectRevision {
        match self {
            Self::Away => class.clone(),
            Self::Denied => bench.denied(class),
        }
    }

    async fn over(self, bench: &Bench) -> Outcome {
        match self {
            Self::Away => bench.break_cloud("off").await,
            Self::Denied => Ok(()),
        }
    }
}

/// Sends an operation once, with little time.
pub(super) async fn ask(driver: &Driver<'_>, operation: Operation) -> Outcome<Answer> {
    driver.ask_once(in_time(operation, driver.bench.scaled(PATIENCE))).await
}

/// An error after which the core asks again: it does not take the machine for absent, wrong or failed.
fn goes_on(answer: &Answer) -> Outcome<OperationError> {
    const EXPECTED: &str = "an error after which the core asks again, e.g. UNAVAILABLE";
    let error = answer.error(EXPECTED)?;
    let final_code = matches!(
        error.code(),
        MachineErrorCode::NotFound
            | MachineErrorCode::InvalidArgument
            | MachineErrorCode::AlreadyExists
            | MachineErrorCode::OutOfRange
            | MachineErrorCode::DataLoss
            | MachineErrorCode::Unimplemented
    );
    let final_word = matches!(
        error.acts_by(),
        MachineErrorReason::NotOurs | MachineErrorReason::NotHotUpdatable
    );
    ensure(!final_code && !final_word, EXPECTED, shown(&error))?;
    Ok(error)
}

pub(super) async fn create_away(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let trouble = Trouble::away(bench).await?;
    let answer = ask(&driver, machine.create()).await?;
    goes_on(&answer)?;
    trouble.over(bench).await?;
    truthful(&driver, &machine, &answer).await?;
    driver.create(&machine).await?;
    driver.has_one(&machine).await.map(drop)
}

pub(super) async fn initialize_away(bench: &Bench) -> Outcome {
    initialize(bench, false).await
}

pub(super) async fn initialize_denied(bench: &Bench) -> Outcome {
    initialize(bench, true).await
}

async fn initialize(bench: &Bench, denied: bool) -> Outcome {
    let driver = bench.connect().await?;
    let (machine, made) = raw(bench, &driver).await?;
    let trouble = Trouble::begin(bench, denied).await?;
    let asked = machine.of_class(&trouble.class(bench, &machine.class));
    goes_on(&ask(&driver, asked.initialize(&made.provider_id)).await?)?;
    trouble.over(bench).await?;
    let done = driver.ask(machine.initialize(&made.provider_id)).await?.machine()?;
    same_instance(&made, &done)
}

pub(super) async fn update_away(bench: &Bench) -> Outcome {
    update(bench, false).await
}

pub(super) async fn update_denied(bench: &Bench) -> Outcome {
    update(bench, true).await
}

async fn update(bench: &Bench, denied: bool) -> Outcome {
    let driver = bench.connect().await?;
    let (_, made, updated) = stage(bench, &driver).await?;
    let trouble = Trouble::begin(bench, denied).await?;
    let asked = updated.of_class(&trouble.class(bench, &updated.class));
    goes_on(&ask(&driver, asked.update(&made.provider_id, good_spec(bench))).await?)?;
    trouble.over(bench).await?;
    let done = applied(&driver, updated.update(&made.provider_id, good_spec(bench))).await?;
    done.something("applied_paths: those that differ in --hot-class")
}

pub(super) async fn delete_away(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let trouble = Trouble::away(bench).await?;
    for id in ["", &made.provider_id] {
        goes_on(&ask(&driver, machine.delete(id)).await?)?;
    }
    trouble.over(bench).await?;
    same_instance(&made, &driver.has_one(&machine).await?)?;
    driver.delete(&machine).await?;
    driver.has_none(&machine).await
}

pub(super) async fn status_away(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (machine, absent) = (bench.machine(), bench.machine());
    let made = driver.create(&machine).await?;
    let trouble = Trouble::away(bench).await?;
    for id in ["", &made.provider_id] {
        let answer = ask(&driver, machine.status(id)).await?;
        // One that remembers it says nothing wrong.
        if answer.machine().is_err() {
            goes_on(&answer)?;
        }
    }
    bench.step("the machine has no instance, which the driver cannot know now");
    goes_on(&ask(&driver, absent.status("")).await?)?;
    trouble.over(bench).await?;
    same_instance(&made, &driver.status(&machine).await?)?;
    let answer = driver.ask(absent.status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

pub(super) async fn list_away(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    driver.create(&machine).await?;
    let trouble = Trouble::away(bench).await?;
    let answer = ask(&driver, machine::list(&bench.class(), bench.cluster_id())).await?;
    if let Ok(records) = answer.machines() {
        let whole = records.iter().any(|it| it.machine_uid == machine.uid);
        let expected = "an error, or else the whole list";
        ensure(whole, expected, "a result without the machine that is there")?;
    } else {
        goes_on(&answer)?;
    }
    trouble.over(bench).await?;
    driver.has_one(&machine).await.map(drop)
}

pub(super) async fn volumes_away(bench: &Bench) -> Outcome {
    volumes(bench, false).await
}

pub(super) async fn volumes_denied(bench: &Bench) -> Outcome {
    volumes(bench, true).await
}

async fn volumes(bench: &Bench, denied: bool) -> Outcome {
    let driver = bench.connect().await?;
    let csi = serde_json::json!({"driver": driver.session.hello.provider, "volumeHandle": "v"});
    let request = proto::GetVolumeIdsRequest {
        pv_specs_json: vec![serde_json::json!({ "csi": csi }).to_string()],
        ..Default::default()
    };
    same_or_error(&driver, Request::GetVolumeIds(request), denied).await
}

pub(super) async fn validate_away(bench: &Bench) -> Outcome {
    validate(bench, false).await
}

pub(super) async fn validate_denied(bench: &Bench) -> Outcome {
    validate(bench, true).await
}

async fn validate(bench: &Bench, denied: bool) -> Outcome {
    let driver = bench.connect().await?;
    let request = proto::ValidateClassRequest {
        provider_spec_json: good_spec(bench).to_owned(),
        old_provider_spec_json: good_spec(bench).to_owned(),
        ..Default::default()
    };
    same_or_error(&driver, Request::ValidateClass(request), denied).await
}

/// What needs no cloud is answered as before; what needs it, with an error.
async fn same_or_error(driver: &Driver<'_>, request: Request, denied: bool) -> Outcome {
    let bench = driver.bench;
    let of = |class: &ObjectRevision| on_class(class, bench.cluster_id(), request.clone());
    let before = driver.ask(of(&bench.class())).await?.result()?;
    let trouble = Trouble::begin(bench, denied).await?;
    let answer = ask(driver, of(&trouble.class(bench, &bench.class()))).await?;
    match answer.result() {
        Ok(same) if same == before => {}
        Ok(other) => {
            let expected = format!("{before:?} as before, or an error");
            return Err(failed(expected, format_args!("{other:?}")));
        }
        Err(_) => goes_on(&answer).map(drop)?,
    }
    trouble.over(bench).await
}

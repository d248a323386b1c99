//! What a driver tells without being asked.

use std::time::Duration;

use ostler_proto::v1alpha1 as proto;
use proto::register_request::Frame;
use proto::{DriverCapability, DriverEvent, InstanceEvent};

use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::driver::Driver;
use crate::machine::Machine;
use crate::outcome::{Outcome, ensure};

const MANUAL: &str = "event.proto, DriverEvent";
/// The contract names no time: one that comes later than this saves none.
const SOON: Duration = Duration::from_secs(30);

checks! {
    "events/gone" => gone, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::Events), Gate::Probe], MANUAL;
        does: "tells soon of an instance that another client of the infrastructure deleted, by its provider id or by its identity",
        why: "the core looks at once only if it is told; a machine without a Node never learns it otherwise";
    "events/named" => named, Capability, Session, [Gate::Creates, Gate::Capability(DriverCapability::Events), Gate::Probe], MANUAL;
        does: "says what happened and to which instance in each event, and calls no other instance gone",
        why: "the core reads the machine that is named: one that is not is not looked at, and each one too many costs a read";
}

/// Deletes the instance as another client would, and waits until the driver tells.
async fn removed(driver: &Driver<'_>, machine: &Machine, provider_id: &str) -> Outcome {
    let from = driver.session.log.len();
    driver.bench.step("--probe-cmd remove-instance");
    driver.bench.probe()?.remove_instance(provider_id).await?;
    let expected = format!("an event INSTANCE_EVENT_GONE that names {provider_id} or its identity");
    let tells = |frame: &Frame| {
        let Frame::Event(event) = frame else { return None };
        let gone = event.kind() == InstanceEvent::Gone;
        (gone && names(event, machine, provider_id)).then_some(())
    };
    driver.expect(from, SOON, &expected, tells).await
}

/// Whether the core would look at this machine.
fn names(event: &DriverEvent, machine: &Machine, provider_id: &str) -> bool {
    let identity = event.cluster_id == machine.cluster_id && event.machine_uid == machine.uid;
    identity || event.provider_id == provider_id
}

async fn gone(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    removed(&driver, &machine, &made.provider_id).await
}

async fn named(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (lost, kept) = (bench.machine(), bench.machine());
    let lost_id = driver.create(&lost).await?.provider_id;
    let kept_id = driver.create(&kept).await?.provider_id;
    let from = driver.session.log.len();
    removed(&driver, &lost, &lost_id).await?;
    // Drivers tell in order: with the loss of an instance that is made now, all events about the first loss are here.
    let next = bench.machine();
    let next_id = driver.create(&next).await?.provider_id;
    removed(&driver, &next, &next_id).await?;
    for entry in driver.session.log.since(from) {
        let Some(Frame::Event(event)) = &entry.frame else { continue };
        let anonymous = event.provider_id.is_empty()
            && (event.machine_uid.is_empty() || event.cluster_id.is_empty());
        let known = InstanceEvent::try_from(event.kind).is_ok_and(|it| it as i32 != 0);
        let expected = "events with a kind, and a provider_id or cluster_id and machine_uid";
        ensure(known && !anonymous, expected, format_args!("{event:?}"))?;
        let false_alarm = event.kind() == InstanceEvent::Gone && names(event, &kept, &kept_id);
        let expected = format!("no GONE for {kept_id}, which is there");
        ensure(!false_alarm, expected, format_args!("{event:?}"))?;
    }
    Ok(())
}

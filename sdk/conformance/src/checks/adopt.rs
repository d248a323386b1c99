//! Instances older than their machine, and the tags for adoption.

use ostler_proto::v1alpha1::{MachineErrorCode, MachineShape};

use crate::answer::same_instance;
use crate::bench::Bench;
use crate::outcome::{Outcome, ensure, not_offered};

/// A tag that no driver makes by itself.
const EXTRA: (&str, &str) = ("conformance-purpose", "of-the-request");
/// An infrastructure may refuse the name; the instance must not be another instance.
const NOT_ASCII: (&str, &str) = ("conformance-purpose", "für Pferde");

pub(super) async fn request_tags(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    for (key, value) in [EXTRA, NOT_ASCII] {
        let answer = driver.ask(bench.machine().create_tagged("", &[(key, value)])).await?;
        let refused =
            !value.is_ascii() && answer.error_of(&[MachineErrorCode::InvalidArgument]).is_ok();
        if refused {
            continue;
        }
        let seen = probe.instance(&answer.machine()?.provider_id).await?;
        ensure(
            seen.tags.get(key).map(String::as_str) == Some(value),
            format_args!("tag {key} with value {value}"),
            format_args!("{:?}", seen.tags),
        )?;
    }
    Ok(())
}

pub(super) async fn zone(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let zones = probe.zones().await?;
    if zones.len() < 2 {
        return Err(not_offered("--probe-cmd zones names less than two"));
    }
    let driver = bench.connect().await?;
    for zone in zones.iter().take(2) {
        let mut content = bench.options().class.content.clone();
        content.shape =
            Some(MachineShape { zone: zone.clone(), ..content.shape.unwrap_or_default() });
        let secret = bench.options().secret.as_ref().map(|it| it.data.clone());
        let class = bench.publish("zone", &content, secret);
        let of_class = bench.machine_of(&class).create();
        for (whose, create) in [("Machine", bench.machine().create_in(zone)), ("class", of_class)] {
            let made = driver.ask(create).await?.machine()?;
            let came = probe.instance(&made.provider_id).await?.zone;
            let expected = format!("{} in zone {zone} of its {whose}", made.provider_id);
            ensure(came == *zone, expected, format_args!("zone {came:?}"))?;
        }
    }
    Ok(())
}

pub(super) async fn by_name(bench: &Bench) -> Outcome {
    let class = bench.other_class("mcm", bench.options().mcm_class.as_ref())?;
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let before = bench.machine_of(&class);
    let made = driver.create(&before).await?;
    probe.remove_identity(&made.provider_id).await?;
    bench.step("took the identity off the instance, as machine-controller-manager makes them");
    let after = before.restored().adopting_by_name();
    let found = driver.ask(after.status("")).await?.machine()?;
    same_instance(&made, &found)?;
    ensure(
        found.machine_uid.is_empty(),
        "a status without machine_uid, for there is none on the instance",
        format_args!("{:?}", found.machine_uid),
    )?;
    let adopted = driver.create(&after).await?;
    same_instance(&made, &adopted)?;
    let found = driver.status(&after).await?;
    same_instance(&made, &found)?;
    ensure(
        found.machine_uid == after.uid,
        format_args!("machine_uid {} on the instance", after.uid),
        format_args!("{:?}", found.machine_uid),
    )?;
    driver.has_one(&after).await.map(drop)
}

pub(super) async fn listed_untagged(bench: &Bench) -> Outcome {
    let class = bench.other_class("mcm", bench.options().mcm_class.as_ref())?;
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let machine = bench.machine_of(&class);
    let made = driver.create(&machine).await?;
    probe.remove_identity(&made.provider_id).await?;
    bench.step("took the identity off the instance, as machine-controller-manager makes them");
    let listed = driver.ask(machine.list()).await?.machines()?;
    let found = listed.iter().find(|record| record.provider_id == made.provider_id);
    // Nothing else finds it, so it would be left behind.
    driver.ask(machine.adopting_by_name().delete("")).await?.result()?;
    let came = found.map_or_else(
        || format!("{} records without it", listed.len()),
        |it| format!("machine_name {:?}, machine_uid {:?}", it.machine_name, it.machine_uid),
    );
    ensure(
        found.is_some_and(|it| it.machine_name == machine.name && it.machine_uid.is_empty()),
        format_args!("{} with machine_name {} and no machine_uid", made.provider_id, machine.name),
        came,
    )
}

pub(super) async fn only_unclaimed(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let one = bench.machine();
    let made = driver.create(&one).await?;
    let theirs = format!("{}-other", one.cluster_id);
    for (what, namesake) in [
        ("another UID", one.restored()),
        ("another UID, and adoption by name", one.restored().adopting_by_name()),
        ("another cluster", one.restored().of_cluster(&theirs)),
    ] {
        bench.step(format_args!("a machine of the same name: {what}"));
        let new = driver.create(&namesake).await?;
        ensure(
            new.provider_id != made.provider_id,
            format_args!("an instance of its own for a machine of the same name with {what}"),
            format_args!("{}, which is that of another machine", new.provider_id),
        )?;
    }
    bench.step("a cluster that came from the same backup has the same UID");
    let namesake = one.of_cluster(&theirs);
    driver.ask(namesake.status("")).await?.error_of(&[MachineErrorCode::NotFound])?;
    bench.step("a machine of another name that is given its provider id");
    let answer = driver.ask(bench.machine().create_known(&made.provider_id)).await?;
    answer.not_ours(&made.provider_id)?;
    driver.has_one(&one).await.map(drop)
}

pub(super) async fn tells_tags(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let before = bench.machine();
    let made = driver.create(&before).await?;
    let found = driver.ask(before.restored().status(&made.provider_id)).await?.machine()?;
    same_instance(&made, &found)?;
    ensure(
        found.machine_uid == before.uid,
        format_args!("machine_uid {}, which is on the instance", before.uid),
        format_args!("{:?}", found.machine_uid),
    )
}

//! UpdateMachine, as the parts of an instance see it.

use std::collections::BTreeMap;

use super::{applied, good_spec, hot_spec, stage};
use crate::bench::Bench;
use crate::driver::Driver;
use crate::machine::Machine;
use crate::outcome::{Outcome, ensure, not_offered};
use crate::probe::{Probe, Resource};

const STRANGER: (&str, &str) = ("conformance-stranger", "hello");

/// The parts that have tags of their own; an instance without any is not what this is about.
async fn tagged(probe: &Probe, machine: &Machine) -> Outcome<Vec<Resource>> {
    let mut parts = probe.resources_of(&machine.uid).await?;
    parts.retain(|part| part.tags.is_some());
    if parts.iter().all(|part| part.kind == "instance") {
        return Err(not_offered("--probe-cmd shows no part that has tags of its own"));
    }
    Ok(parts)
}

/// Kinds and tags, without those that name the machine.
async fn tags(
    probe: &Probe,
    machine: &Machine,
) -> Outcome<Vec<(String, BTreeMap<String, String>)>> {
    let own = |value: &String| value.contains(&machine.uid) || value.contains(&machine.name);
    let parts = tagged(probe, machine).await?.into_iter();
    let tags = parts.map(|part| {
        let all = part.tags.unwrap_or_default().into_iter();
        (part.kind, all.filter(|(_, value)| !own(value)).collect())
    });
    let mut tags: Vec<_> = tags.collect();
    tags.sort();
    Ok(tags)
}

/// Every part has the tags of one that is made of the class.
async fn look_like_new(driver: &Driver<'_>, probe: &Probe, machine: &Machine) -> Outcome {
    let fresh = driver.bench.machine_of(&machine.class);
    driver.create(&fresh).await?;
    let (got, wanted) = (tags(probe, machine).await?, tags(probe, &fresh).await?);
    ensure(
        got == wanted,
        format_args!("parts with the tags of those that are made of the class: {wanted:?}"),
        format_args!("{got:?}"),
    )
}

pub(super) async fn alike(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let (machine, made, updated) = stage(bench, &driver).await?;
    applied(&driver, updated.update(&made.provider_id, good_spec(bench))).await?;
    look_like_new(&driver, &probe, &updated).await?;
    bench.step("and back to --class");
    applied(&driver, machine.update(&made.provider_id, &hot_spec(bench))).await?;
    look_like_new(&driver, &probe, &machine).await
}

pub(super) async fn foreign_tags_kept(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let (machine, made, updated) = stage(bench, &driver).await?;
    let (key, value) = STRANGER;
    bench.step(format_args!("a stranger put the tag {key}={value} on every part"));
    for part in tagged(&probe, &machine).await? {
        probe.add_foreign_tag(&part.id, &format!("{key}={value}")).await?;
    }
    let there = async || -> Outcome {
        for Resource { id, tags, .. } in tagged(&probe, &machine).await? {
            let tags = tags.unwrap_or_default();
            let kept = tags.get(key).map(String::as_str) == Some(value);
            ensure(
                kept,
                format_args!("the tag of the stranger on {id}"),
                format_args!("{tags:?}"),
            )?;
        }
        Ok(())
    };
    there().await?;
    applied(&driver, updated.update(&made.provider_id, good_spec(bench))).await?;
    there().await?;
    applied(&driver, machine.update(&made.provider_id, &hot_spec(bench))).await?;
    there().await
}

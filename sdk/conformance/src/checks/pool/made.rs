//! What a group makes: with which tags, where, and how many of them are told.

use std::collections::{BTreeMap, BTreeSet};

use ostler_proto::v1alpha1::MachineErrorCode;

use super::stage::{middle, settled, stage, without};
use crate::bench::Bench;
use crate::check::PAGE;
use crate::checks::pages::{all, in_pages};
use crate::outcome::{Outcome, ensure, failed, not_offered};
use crate::pool::id_of;

const STRANGER: &str = "conformance-stranger";

pub(super) async fn tags(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 1).await?;
    driver.ask(pool.update(&group.pool.provider_id, Some((1, 2)), None)).await?.pool()?;
    for machine in settled(&driver, &pool, 2).await?.machines {
        let id = id_of(&machine);
        let has = probe.instance(&id).await?.tags;
        let missing: BTreeMap<_, _> =
            pool.tags().into_iter().filter(|(key, value)| has.get(key) != Some(value)).collect();
        ensure(missing.is_empty(), format_args!("{missing:?} on {id}"), format_args!("{has:?}"))?;
        let uid = machine.machine.map(|it| it.machine_uid).unwrap_or_default();
        ensure(uid.is_empty(), format_args!("no machine_uid of {id}"), uid)?;
    }
    Ok(())
}

pub(super) async fn zones(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let told: BTreeSet<_> = group.machines.iter().map(|it| it.zone.clone()).collect();
    // A zone without instances of the group, if the probe knows such a zone.
    let all = match bench.probe() {
        Ok(probe) => probe.zones().await?,
        Err(_) => Vec::new(),
    };
    let other = all.into_iter().find(|zone| !told.contains(zone));
    let Some(last) = told.into_iter().rfind(|zone| !zone.is_empty()) else {
        return Err(not_offered("the driver tells the zone of no instance"));
    };
    let zone = other.unwrap_or(last);
    let (id, first) = (&group.pool.provider_id, group.live());
    let pool = pool.in_zones(vec![zone.clone()]);
    let changed = driver.ask(pool.update(id, Some((2, 4)), Some("two"))).await?;
    if changed.error_of(&[MachineErrorCode::InvalidArgument]).is_ok() {
        return Err(not_offered("a group does not get other zones"));
    }
    changed.pool()?;
    for machine in settled(&driver, &pool, 4).await?.machines {
        let id = id_of(&machine);
        let fits = first.contains(&id) || machine.zone == zone;
        ensure(fits, format_args!("{id} in {zone}"), &machine.zone)?;
    }
    Ok(())
}

pub(super) async fn status_pages(bench: &Bench) -> Outcome {
    let wanted = bench.options().many;
    let driver = bench.connect().await?;
    let pool = bench.pool();
    let size = i32::try_from(wanted).unwrap_or(i32::MAX);
    driver.ask(pool.create(size)).await?.pool()?;
    settled(&driver, &pool, size).await?;
    let answer = driver.ask(pool.status("")).await?;
    in_pages(&answer, wanted, |page| page.pool_machines.len())?;
    let group = answer.group()?;
    let ids: BTreeSet<_> = group.machines.iter().map(id_of).collect();
    ensure(
        ids.len() == wanted && group.machines.len() == wanted,
        format_args!("each of {wanted} instances once"),
        format_args!("{} records of {} instances", group.machines.len(), ids.len()),
    )
}

pub(super) async fn list_pages(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let pools: Vec<_> = (0..=PAGE).map(|_| bench.pool()).collect();
    for answer in all(&driver, pools.iter().map(|pool| pool.create(0))).await? {
        answer.pool()?;
    }
    let answer = driver.ask(bench.pool().list()).await?;
    in_pages(&answer, pools.len(), |page| page.pools.len())?;
    let listed = answer.pools()?;
    let uids: BTreeSet<_> = listed.iter().map(|it| &it.pool_uid).collect();
    ensure(
        listed.len() == pools.len() && pools.iter().all(|pool| uids.contains(&pool.uid)),
        format_args!("each of {} groups once", pools.len()),
        format_args!("{} records of {} groups", listed.len(), uids.len()),
    )
}

pub(super) async fn update_tags(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let (id, ids) = (&group.pool.provider_id, group.live());
    let (one, other) = (middle(&ids)?, ids.first().cloned().unwrap_or_default());
    let tags = async |id: &str| Outcome::Ok(probe.instance(id).await?.tags);
    let (of_one, of_other) = (tags(&one).await?, tags(&other).await?);
    // What tells one instance of a model from another.
    let own: Vec<_> =
        of_one.iter().filter(|(key, value)| of_other.get(*key) != Some(value)).collect();
    bench.step(format_args!("a stranger put the tag {STRANGER}=hello on {one}"));
    probe.add_foreign_tag(&one, &format!("{STRANGER}=hello")).await?;
    let hot = pool.of_class(&bench.other_class("hot", bench.options().hot_class.as_ref())?);
    driver.ask(hot.update(id, Some((2, 3)), Some("two"))).await?.pool()?;
    driver.ask(hot.update_machine(id, &one, "two", true)).await?.result()?;
    let made = without(&settled(&driver, &pool, 3).await?.live(), &one);
    let made = made.into_iter().find(|it| *it != other);
    let made = made.ok_or_else(|| failed("a third instance", "none"))?;
    // Where a driver notes the model is its own affair: GetPoolStatus tells it.
    let is_shared = |key: &String, value: &String| {
        !own.iter().any(|(own, _)| *own == key) && !["one", "two"].contains(&value.as_str())
    };
    let shared = |tags: BTreeMap<String, String>| -> BTreeMap<String, String> {
        tags.into_iter().filter(|(key, value)| is_shared(key, value)).collect()
    };
    let mut wanted = shared(tags(&made).await?);
    wanted.insert(STRANGER.to_owned(), "hello".to_owned());
    let got = shared(tags(&one).await?);
    ensure(
        got == wanted,
        format_args!(
            "the tags of {made}, which was made of --hot-class, and the stranger's: {wanted:?}"
        ),
        format_args!("{got:?}"),
    )
}

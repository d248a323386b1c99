//! Groups.

mod faults;
mod identity;
mod made;
pub(super) mod stage;

use std::collections::{BTreeMap, BTreeSet};

use ostler_proto::v1alpha1 as proto;
use proto::{
    DeletionOutcome, DriverCapability, MachineErrorCode, MachineErrorReason, OperationKind,
};

use self::stage::{
    counted, deleted, has, middle, named_not_ours, settled, size_is, stage, succeeded, without,
};
use super::not_ours::is_unlisted;
use super::unanswered::{self, AWAY, DENIED};
use crate::answer::Answer;
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::machine::again;
use crate::outcome::{Outcome, ensure, not_offered};
use crate::pool::{Pool, id_of};

const MANUAL: &str = "driver.proto, \"Groups\"; operation.proto, GetPoolStatusRequest";
const CREATE: &str = "operation.proto, CreatePoolRequest";
const UPDATE: &str = "operation.proto, UpdatePoolRequest";
const NAMED: &str = "operation.proto, DeletePoolMachinesRequest";
const POOLS: Gate = Gate::Kind(OperationKind::CreatePool);
const DELETES: Gate = Gate::Kind(OperationKind::DeletePoolMachines);
const PREVIOUS: Gate = Gate::Capability(DriverCapability::PreviousClusterIds);
const UPDATES: Gate = Gate::Kind(OperationKind::UpdatePoolMachine);

checks! {
    "pool/create" => create, Capability, Session, [POOLS, Gate::Creates], CREATE;
        does: "makes one group with as many instances as asked for, and finds it again whatever size is asked for then",
        why: "a second group is a second bill, and a group that changes its size at a repetition loses instances";
    "pool/status" => status, Capability, Session, [POOLS, Gate::Creates], MANUAL;
        does: "tells name, UID, size and model of a group, and an id of its own for each instance",
        why: "the core makes a Machine for each instance, and names it by that";
    "pool/status-absent" => status_absent, Capability, Session, [POOLS], MANUAL;
        does: "says NOT_FOUND where there is no group",
        why: "the core makes a group only where it knows that there is none";
    "pool/cloud-away" => faults::when_unanswered::<AWAY>, Capability, Cloud, [POOLS, Gate::Creates, Gate::Probe], unanswered::MANUAL;
        does: "answers each operation on a group with an error while the infrastructure does not answer, after which the core asks again; nothing has changed then",
        why: "a group that looks absent is made a second time, and one that looks deleted runs on with all its instances";
    "pool/bad-secret" => faults::when_unanswered::<DENIED>, Capability, Session, [POOLS, Gate::Creates, Gate::BadSecret], unanswered::MANUAL;
        does: "answers each operation on a group with an error when the credentials are refused, after which the core asks again; nothing has changed then",
        why: "a group that looks absent is made a second time, and one that looks deleted runs on with all its instances";
    "pool/of-no-machine" => of_no_machine, Capability, Session, [POOLS, Gate::Creates], MANUAL;
        does: "leaves instances of groups out of ListMachines, and deletes none of them as that of a machine",
        why: "the core takes what it lists and has no Machine for an orphan, and deletes it";
    "pool/other-cluster" => other_cluster, Capability, Session, [POOLS, Gate::Creates], "driver.proto, \"Not ours\"";
        does: "neither lists nor touches the group of another cluster, and says NOT_OURS to its id",
        why: "two clusters share an account";
    "pool/not-ours" => faults::not_ours, Capability, Session, [POOLS, Gate::Creates], "driver.proto, \"Not ours\"";
        does: "changes neither size nor instances of the group of another cluster or pool, and says NOT_OURS; so it does to an instance of another group",
        why: "an id that was mixed up, or two clusters with one account, must not cost a machine";
    "pool/bad-class" => identity::bad_class, Capability, Session, [POOLS, Gate::Creates, Gate::BadClass], CREATE;
        does: "refuses the group of a class that is wrong with INVALID_ARGUMENT and the paths, and makes none",
        why: "the core shows what is wrong, and waits until the class changes";
    "pool/max-name" => identity::max_name, Capability, Session, [POOLS, Gate::Creates], CREATE;
        does: "makes a group of each of two pools whose long names differ in their last letter, or says INVALID_ARGUMENT",
        why: "a name that is cut is found for another pool, and is not the name of the pool in the list of orphans";
    "pool/killed-early" => identity::killed_early, Capability, Process, [POOLS, Gate::Creates], CREATE;
        does: "has one group with as many instances as asked for when it was killed while it made it, and is asked again",
        why: "processes die; a second group is a second bill";
    "pool/parallel" => identity::parallel, Capability, Session, [POOLS, Gate::Creates], CREATE;
        does: "makes one group of two requests for it that arrive together",
        why: "a core that lost its connection asks again while the first request still runs";
    "pool/gone" => identity::gone, Capability, Session, [POOLS, Gate::Creates], MANUAL;
        does: "says NOT_FOUND to each operation on a group that is gone, and makes it for none but CreatePool",
        why: "the core makes what was lost, with the size and the model of the pool; a driver that does so by itself makes others";
    "pool/previous" => identity::previous, Capability, Session, [POOLS, PREVIOUS, Gate::Creates], super::previous::MANUAL;
        does: "finds and lists the group that carries a previous id of its cluster, and CreatePool puts the tags of today on it",
        why: "a group that is not found is made a second time, with all its instances";
    "pool/previous-by-name" => identity::previous_by_name, Capability, Session, [POOLS, PREVIOUS, Gate::Creates], super::previous::MANUAL;
        does: "says NOT_OURS of a group of a previous cluster id whose pool has this name and another UID, and touches it for nobody",
        why: "only the operator knows whether it is the same pool";
    "pool/previous-delete" => identity::previous_delete, Capability, Session, [POOLS, PREVIOUS, Gate::Creates], super::previous::MANUAL;
        does: "deletes the group that carries a previous id of its cluster",
        why: "a group that is not found when its pool is deleted costs money for ever";
    "pool/tags" => made::tags, Capability, Session, [POOLS, Gate::Creates, Gate::Probe], CREATE;
        does: "puts all tags of the request on each instance, also on those that the group makes later, and none of a machine",
        why: "an instance whose group was removed is found by them, and no instance of others is taken for it";
    "pool/zones" => made::zones, Capability, Session, [POOLS, Gate::Creates], "operation.proto, PoolModel";
        does: "makes new instances only in the zones of the model, where it tells zones",
        why: "a pool that is to leave a zone that fails would get its new machines there";
    "pool/pages" => made::status_pages, Capability, Session, [POOLS, Gate::Creates, Gate::Many], MANUAL;
        does: "sends the instances of a large group in pages, each once",
        why: "one frame for all of them ends the session, and an instance that is left out loses its Machine";
    "pool/list-pages" => made::list_pages, Capability, Session, [POOLS, Gate::Creates, Gate::Many], "operation.proto, ListPoolsRequest";
        does: "sends a long list of groups in pages, each once",
        why: "one frame for all of them ends the session, and the core looks for orphans in it";
    "pool/lost-instance" => faults::lost_instance, Capability, Session, [POOLS, Gate::Creates, Gate::Probe], MANUAL;
        does: "tells the others as before when one instance was ended behind its back, and of this one that it is gone, or what is wrong with it",
        why: "one broken instance would hold up all machines of its pool";
    "pool/size" => size, Capability, Session, [POOLS, Gate::Creates], UPDATE;
        does: "sets a size only in place of the one that was expected, and once however often it is asked",
        why: "a core that sees an old size would undo what another one did";
    "pool/lower-takes-none" => lower_takes_none, Capability, Session, [POOLS, Gate::Creates], UPDATE;
        does: "refuses a lower size while there are more instances",
        why: "the infrastructure chooses which instance goes, and its Node is not drained";
    "pool/model" => model, Capability, Session, [POOLS, Gate::Creates], UPDATE;
        does: "makes new instances from another model and leaves those that are there as they are",
        why: "the core replaces outdated instances one by one, and knows them by their model";
    "pool/user-data" => user_data, Capability, Session, [POOLS, Gate::Creates, Gate::Probe], "operation.proto, PoolModel";
        does: "makes new instances with the user data of the last UpdatePool, also if the model has no other name",
        why: "bootstrap tokens end: an instance that is made later with an old one never joins";
    "pool/delete-named" => delete_named, Capability, Session, [POOLS, DELETES, Gate::Creates], NAMED;
        does: "deletes the named instance and no other, and lowers the size by it",
        why: "the Node of that instance was drained, and of no other";
    "pool/delete-twice" => delete_twice, Capability, Session, [POOLS, DELETES, Gate::Creates], NAMED;
        does: "lowers the size once, however often the same deletion comes, also when the size is as before by then",
        why: "the core repeats a deletion whose answer it did not hear, and a group that falls by two loses an instance that nobody drained";
    "pool/delete-replaced" => delete_replaced, Capability, Session, [POOLS, DELETES, Gate::Creates], NAMED;
        does: "keeps the size and has another instance made where the sizes are equal",
        why: "a broken instance is replaced, not given up";
    "pool/delete-stale" => delete_stale, Capability, Session, [POOLS, DELETES, Gate::Creates], NAMED;
        does: "says ABORTED and deletes nothing where the group has another size",
        why: "two cores that do not know of each other would lower it twice";
    "pool/delete-strange" => delete_strange, Capability, Session, [POOLS, DELETES, Gate::Creates], NAMED;
        does: "deletes no instance that is not of the group, and says which",
        why: "an id that was mixed up must not cost a machine";
    "pool/delete-partial" => faults::delete_partial, Capability, Session, [POOLS, DELETES, Gate::Creates], NAMED;
        does: "deletes what it can where one of the named instances cannot be deleted, lowers the size by those alone, and says why of that one",
        why: "one instance that cannot be deleted would hold up the deletion of all others";
    "pool/update-undrained" => update_undrained, Capability, Session, [POOLS, UPDATES, Gate::Creates, Gate::AltClass], "operation.proto, UpdatePoolMachineRequest";
        does: "refuses with NOT_HOT_UPDATABLE what a running instance would feel, until its Node is drained",
        why: "an instance that is restarted or made anew with pods on it ends them without a drain";
    "pool/update-instance" => update_instance, Capability, Session, [POOLS, UPDATES, Gate::Creates, Gate::HotClass], "operation.proto, UpdatePoolMachineRequest";
        does: "brings one instance to the model of its group in place, and only to that one",
        why: "the core takes the model that is told for the one that the instance has";
    "pool/update-tags" => made::update_tags, Capability, Session, [POOLS, UPDATES, Gate::Creates, Gate::HotClass, Gate::Probe], "operation.proto, UpdatePoolMachineRequest";
        does: "gives an instance that is updated in place the tags of one that is made of the new model, and leaves it those of others",
        why: "the core believes the model that is told; the tags of others are how they find what is theirs";
    "pool/delete" => delete, Capability, Session, [POOLS, Gate::Creates], "operation.proto, DeletePoolRequest";
        does: "deletes a group with its instances, says whether there was one, and leaves nothing",
        why: "the core forgets the pool then, and what is left costs money for ever";
}

async fn create(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let ids = group.live();
    let create = pool.create(2);
    for operation in [again(&create), create, pool.create(3)] {
        let found = driver.ask(operation).await?.pool()?;
        let (id, came) = (&group.pool.provider_id, &found.provider_id);
        ensure(came == id, format_args!("the group {id} again"), came)?;
        size_is(&found, 2)?;
    }
    let listed = driver.ask(pool.list()).await?.pools()?;
    ensure(listed.len() == 1, "one group in the list", listed.len())?;
    has(&driver, &pool, &ids).await?;
    succeeded(&driver, &pool).await?;
    bench.step("a group whose instances take their time");
    let slow = Pool { class: bench.slow_class(), ..bench.pool() };
    driver.ask(slow.create(1)).await?.pool()?;
    let group = counted(&driver, &slow).await?;
    let (current, told) = (group.pool.current, group.machines.len());
    ensure(
        told > 0,
        "all instances of a group, whatever their state",
        format_args!("{told} of {current}"),
    )
}

async fn status(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let told = (group.pool.pool_name.as_str(), group.pool.pool_uid.as_str());
    ensure(
        told == (&pool.name, &pool.uid),
        format_args!("{} and {}", pool.name, pool.uid),
        format_args!("{told:?}"),
    )?;
    ensure(group.pool.model_hash == "one", "the model `one`", &group.pool.model_hash)?;
    let ids: BTreeSet<_> = group.machines.iter().map(|it| it.instance_id.clone()).collect();
    ensure(
        ids.len() == group.machines.len() && ids.iter().all(|id| !id.is_empty() && id.len() <= 63),
        "an instance_id of 1 to 63 characters for each instance, and no two the same",
        format_args!("{ids:?}"),
    )?;
    let hashes: BTreeSet<_> = group.machines.iter().map(|it| it.model_hash.as_str()).collect();
    ensure(
        hashes == BTreeSet::from(["one"]),
        "the model `one` of each instance",
        format_args!("{hashes:?}"),
    )?;
    let by_id = driver.ask(pool.status(&group.pool.provider_id)).await?.group()?;
    ensure(by_id.live() == group.live(), "the same by its id", format_args!("{:?}", by_id.live()))
}

async fn status_absent(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let answer = driver.ask(bench.pool().status("")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

async fn of_no_machine(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 1).await?;
    let ids = group.live();
    let listed = driver.list().await?;
    let found = listed.iter().find(|it| ids.contains(&it.provider_id));
    ensure(found.is_none(), "no instance of a group in ListMachines", format_args!("{found:?}"))?;
    let machine = bench.machine();
    for id in &ids {
        let answer = driver.ask(machine.status(id)).await?;
        if !is_unlisted(&driver, &answer) {
            answer.not_ours(id)?;
        }
        driver.ask(machine.delete(id)).await?.deletion(DeletionOutcome::NotOurs)?;
    }
    has(&driver, &pool, &ids).await
}

async fn other_cluster(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 1).await?;
    let id = &group.pool.provider_id;
    let other = pool.of_cluster(&format!("{}-other", pool.cluster_id));
    let listed = driver.ask(other.list()).await?.pools()?;
    ensure(listed.is_empty(), "no group in the list of another cluster", listed.len())?;
    driver.ask(other.status("")).await?.error_of(&[MachineErrorCode::NotFound])?;
    driver.ask(other.status(id)).await?.not_ours(id)?;
    let ended = driver.ask(other.delete(id)).await?.pool_deletion()?;
    ensure(
        ended == (DeletionOutcome::NotOurs, id.clone()),
        format_args!("NOT_OURS and {id}"),
        format_args!("{ended:?}"),
    )?;
    has(&driver, &pool, &group.live()).await
}

async fn size(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 1).await?;
    let id = &group.pool.provider_id;
    let raise = pool.update(id, Some((1, 2)), None);
    for operation in [raise.clone(), again(&raise)] {
        size_is(&driver.ask(operation).await?.pool()?, 2)?;
    }
    let before = settled(&driver, &pool, 2).await?.live();
    bench.step("a size in place of one that the group has not");
    let stale = driver.ask_once(pool.update(id, Some((1, 3)), None)).await?;
    stale.refusal(&[MachineErrorCode::Aborted])?;
    has(&driver, &pool, &before).await
}

async fn lower_takes_none(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let lower = pool.update(&group.pool.provider_id, Some((2, 1)), None);
    driver.ask_once(lower).await?.refusal(&[MachineErrorCode::Aborted])?;
    has(&driver, &pool, &group.live()).await
}

async fn model(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 1).await?;
    let id = &group.pool.provider_id;
    let changed = driver.ask(pool.update(id, None, Some("two"))).await?.pool()?;
    ensure(changed.model_hash == "two", "the model `two` of the group", &changed.model_hash)?;
    driver.ask(pool.update(id, Some((1, 2)), None)).await?.pool()?;
    let after = settled(&driver, &pool, 2).await?;
    for machine in &after.machines {
        let old = group.live().contains(&id_of(machine));
        let wanted = if old { "one" } else { "two" };
        let came = &machine.model_hash;
        ensure(came == wanted, format_args!("the model `{wanted}` of {}", id_of(machine)), came)?;
    }
    Ok(())
}

async fn user_data(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 1).await?;
    let (id, mut size) = (&group.pool.provider_id, 1);
    let mut wanted: BTreeMap<_, _> =
        group.live().into_iter().map(|id| (id, pool.user_data.clone())).collect();
    let large = b"0123456789abcdef".repeat(1024);
    let samples = [
        "#cloud-config\n# renewed\n".into(),
        large,
        "#cloud-config\n# Gr\u{fc}\u{df}e \u{1f40e}\r\n".into(),
    ];
    for user_data in samples {
        bench.step(format_args!("{} bytes of user data", user_data.len()));
        let renewed = Pool { user_data, ..pool.clone() };
        driver.ask(renewed.update(id, None, Some("one"))).await?.pool()?;
        driver.ask(pool.update(id, Some((size, size + 1)), None)).await?.pool()?;
        size += 1;
        for machine in settled(&driver, &pool, size).await?.machines {
            let id = id_of(&machine);
            let wanted = wanted.entry(id.clone()).or_insert_with(|| renewed.user_data.clone());
            let got = probe.instance(&id).await?.user_data()?;
            ensure(
                got == *wanted,
                format_args!(
                    "the {} bytes of user data of {id} that it was made with",
                    wanted.len()
                ),
                format_args!("{} bytes, others", got.len()),
            )?;
            let came = &machine.model_hash;
            ensure(came == "one", format_args!("the model `one` of {id}"), came)?;
        }
    }
    Ok(())
}

async fn delete_named(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 3).await?;
    let (id, ids) = (&group.pool.provider_id, group.live());
    let gone = middle(&ids)?;
    let delete = pool.delete_machines(id, std::slice::from_ref(&gone), (3, 2));
    let answer = driver.ask(delete).await?;
    let failed = answer.not_deleted()?;
    ensure(failed.is_empty(), "nothing in not_deleted", format_args!("{failed:?}"))?;
    size_is(&answer.pool()?, 2)?;
    has(&driver, &pool, &without(&ids, &gone)).await
}

async fn delete_twice(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 3).await?;
    let (id, ids) = (&group.pool.provider_id, group.live());
    let gone = middle(&ids)?;
    let delete = pool.delete_machines(id, std::slice::from_ref(&gone), (3, 2));
    for _ in 0..3 {
        size_is(&driver.ask(again(&delete)).await?.pool()?, 2)?;
    }
    has(&driver, &pool, &without(&ids, &gone)).await?;
    bench.step("the size is as before again, and the same deletion comes once more");
    driver.ask(pool.update(id, Some((2, 3)), None)).await?.pool()?;
    let before = settled(&driver, &pool, 3).await?.live();
    size_is(&driver.ask(again(&delete)).await?.pool()?, 3)?;
    has(&driver, &pool, &before).await
}

async fn delete_replaced(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let (id, ids) = (&group.pool.provider_id, group.live());
    let gone = middle(&ids)?;
    let delete = pool.delete_machines(id, std::slice::from_ref(&gone), (2, 2));
    size_is(&driver.ask(delete).await?.pool()?, 2)?;
    let after = settled(&driver, &pool, 2).await?.live();
    ensure(
        !after.contains(&gone) && without(&ids, &gone).iter().all(|id| after.contains(id)),
        format_args!("{gone} replaced, and the others as before"),
        format_args!("{after:?}"),
    )
}

async fn delete_stale(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let (id, ids) = (&group.pool.provider_id, group.live());
    let gone = middle(&ids)?;
    let delete = pool.delete_machines(id, std::slice::from_ref(&gone), (4, 3));
    driver.ask_once(delete).await?.refusal(&[MachineErrorCode::Aborted])?;
    has(&driver, &pool, &ids).await
}

async fn delete_strange(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 1).await?;
    let (other, others) = stage(bench, &driver, 1).await?;
    let strange = others.live();
    let delete = pool.delete_machines(&group.pool.provider_id, &strange, (1, 1));
    named_not_ours(&driver.ask(delete).await?, &strange)?;
    has(&driver, &other, &strange).await?;
    has(&driver, &pool, &group.live()).await
}

async fn update_instance(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let (id, ids) = (&group.pool.provider_id, group.live());
    let one = middle(&ids)?;
    let hot = bench.other_class("hot", bench.options().hot_class.as_ref())?;
    let pool = pool.of_class(&hot);
    driver.ask(pool.update(id, None, Some("two"))).await?.pool()?;
    bench.step("a model that the group has not");
    let wrong = driver.ask_once(pool.update_machine(id, &one, "three", true)).await?;
    wrong.refusal(&[MachineErrorCode::Aborted])?;
    let update = pool.update_machine(id, &one, "two", true);
    for operation in [update.clone(), again(&update)] {
        driver.ask(operation).await?.result()?;
    }
    let after = settled(&driver, &pool, 2).await?;
    for machine in &after.machines {
        let wanted = if id_of(machine) == one { "two" } else { "one" };
        let came = &machine.model_hash;
        ensure(came == wanted, format_args!("the model `{wanted}` of {}", id_of(machine)), came)?;
    }
    after.machine(&one).map(drop)?;
    has(&driver, &pool, &ids).await
}

async fn update_undrained(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    let (id, ids) = (&group.pool.provider_id, group.live());
    let one = middle(&ids)?;
    let alt = bench.other_class("alt", bench.options().alt_class.as_ref())?;
    let pool = pool.of_class(&alt);
    let changed = driver.ask(pool.update(id, None, Some("two"))).await?;
    if changed.error_of(&[MachineErrorCode::InvalidArgument]).is_ok() {
        return Err(not_offered("a group does not get --alt-class"));
    }
    changed.pool()?;
    for drained in [false, true] {
        let answer = driver.ask(pool.update_machine(id, &one, "two", drained)).await?;
        // A driver that never makes an instance anew refuses it of a drained one, too.
        let made_anew = drained && answer.result().is_ok();
        if !made_anew {
            refuses_rebuild(&answer)?;
        }
        let wanted = if made_anew { "two" } else { "one" };
        let after = settled(&driver, &pool, 2).await?;
        let came = &after.machine(&one)?.model_hash;
        ensure(came == wanted, format_args!("the model `{wanted}` of {one}"), came)?;
    }
    has(&driver, &pool, &ids).await
}

/// NOT_HOT_UPDATABLE, and nothing was changed.
fn refuses_rebuild(answer: &Answer) -> Outcome {
    let error = answer.refusal(&[MachineErrorCode::FailedPrecondition])?;
    let named = error.acts_by() == MachineErrorReason::NotHotUpdatable;
    ensure(named, "reason NOT_HOT_UPDATABLE", &error.reason)
}

async fn delete(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (pool, group) = stage(bench, &driver, 2).await?;
    deleted(&driver.ask(pool.delete("")).await?)?;
    let (ended, _) = driver.ask(pool.delete("")).await?.pool_deletion()?;
    ensure(ended == DeletionOutcome::WasAbsent, "WAS_ABSENT", ended.as_str_name())?;
    driver.ask(pool.status("")).await?.error_of(&[MachineErrorCode::NotFound])?;
    let listed = driver.ask(pool.list()).await?.pools()?;
    ensure(listed.is_empty(), "no group in the list", listed.len())?;
    let Ok(probe) = bench.probe() else { return Ok(()) };
    let left: Vec<_> = probe.instances().await?.into_iter().map(|it| it.provider_id).collect();
    let left: Vec<_> = group.live().into_iter().filter(|id| left.contains(id)).collect();
    ensure(left.is_empty(), "none of its instances in the cloud", format_args!("{left:?}"))
}

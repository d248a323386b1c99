//! UpdateMachine.

use std::collections::{BTreeMap, BTreeSet};

use ostler_proto::v1alpha1 as proto;
use proto::operation_result::Response;
use proto::{
    MachineErrorCode, MachineErrorReason, MachineRecord, ObjectRevision, Operation, OperationKind,
};
use serde_json::Value;

use super::unanswered::{self, AWAY, DENIED, Trouble, ask, goes_on};
use crate::answer::same_instance;
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::core::library::ClassContent;
use crate::driver::Driver;
use crate::machine::{Machine, again};
use crate::outcome::{Outcome, ensure, failed, skipped};

mod parts;

const MANUAL: &str = "operation.proto, UpdateMachineRequest";
const KIND: Gate = Gate::Kind(OperationKind::UpdateMachine);

checks! {
    "update/hot" => hot, Capability, Session, [KIND, Gate::Creates, Gate::HotClass], MANUAL;
        does: "brings a running instance to the new spec, and says which paths it applied",
        why: "the core records the spec as applied, and never looks again";
    "update/not-ours" => super::not_ours::update, Capability, Session, [KIND, Gate::Creates], "driver.proto, \"Not ours\"; operation.proto, UpdateMachineRequest";
        does: "says NOT_OURS, and which instance, where the provider id names one of another machine",
        why: "taken for absent, the operator looks for an instance that is there";
    "update/cloud-away" => when_unanswered::<AWAY>, Capability, Cloud, [KIND, Gate::Creates, Gate::HotClass, Gate::Probe], unanswered::MANUAL;
        does: "answers with an error when the infrastructure does not answer, after which the core asks again",
        why: "the core records a spec as applied that no instance has, or waits for another class";
    "update/bad-secret" => when_unanswered::<DENIED>, Capability, Session, [KIND, Gate::Creates, Gate::HotClass, Gate::BadSecret], unanswered::MANUAL;
        does: "answers with an error when the credentials are refused, after which the core asks again",
        why: "the core records a spec as applied that no instance has, or waits for another class";
    "update/idempotent" => idempotent, Capability, Session, [KIND, Gate::Creates, Gate::HotClass], MANUAL;
        does: "updates again and again to the same spec with a result each time",
        why: "the core repeats an update whose answer it did not hear";
    "update/partial-heals" => partial_heals, Capability, Session, [KIND, Gate::Creates, Gate::HotClass], MANUAL;
        does: "compares the spec with what the instance has, not with the last applied one alone",
        why: "an update that failed half way and was then taken back leaves an instance that neither spec describes, and nothing to compare";
    "update/foreign-tags-kept" => foreign_tags_kept, Capability, Session, [KIND, Gate::Creates, Gate::HotClass, Gate::Probe], MANUAL;
        does: "keeps tags that others put on the instance",
        why: "billing, backup and other controllers live by tags of their own";
    "update/parts" => parts::alike, Capability, Session, [KIND, Gate::Creates, Gate::HotClass, Gate::Probe], MANUAL;
        does: "brings network cards and disks to the new spec as well, each with tags of its own",
        why: "a bill, a quota or a firewall goes by the tags of the part, not by those of the machine";
    "update/foreign-tags-of-parts" => parts::foreign_tags_kept, Capability, Session, [KIND, Gate::Creates, Gate::HotClass, Gate::Probe], MANUAL;
        does: "keeps tags that others put on network cards and disks",
        why: "backups find disks by tags that the class knows nothing of";
    "update/in-place" => in_place, Capability, Session, [KIND, Gate::Creates, Gate::AltClass], "operation.proto, UpdateMachineRequest.last_applied_spec_json";
        does: "does not refuse a change of what is fixed that is in the last applied spec already: the Node was updated in place",
        why: "after an update in place no change would ever reach the machine again";
    "update/refused-whole" => refused_whole, Capability, Session, [KIND, Gate::Creates, Gate::AltClass], MANUAL;
        does: "refuses a change that cannot reach a running instance with NOT_HOT_UPDATABLE and its paths, and applies no part of it",
        why: "half a change is a state that was not asked for, and the core would count the machine as unchanged";
}

/// A machine of `--class` and the class to update it to.
pub(super) async fn stage(
    bench: &Bench,
    driver: &Driver<'_>,
) -> Outcome<(Machine, MachineRecord, Machine)> {
    let hot = bench.other_class("hot", bench.options().hot_class.as_ref())?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let updated = machine.of_class(&hot);
    Ok((machine, made, updated))
}

/// What an update changed.
pub(super) struct Applied {
    paths: Vec<String>,
    /// An earlier try may have changed the rest.
    repeated: bool,
}

impl Applied {
    /// It must have changed something.
    pub(super) fn something(&self, expected: &str) -> Outcome {
        ensure(self.repeated || !self.paths.is_empty(), expected, "none")
    }
}

pub(super) async fn applied(driver: &Driver<'_>, update: Operation) -> Outcome<Applied> {
    let answer = driver.ask(update).await?;
    let Response::UpdateMachine(response) = answer.result()? else {
        return Err(failed("UpdateMachineResponse", "another result"));
    };
    Ok(Applied { paths: response.applied_paths, repeated: answer.repeated })
}

pub(super) fn good_spec(bench: &Bench) -> &str {
    &bench.options().class.content.provider_spec_json
}

fn hot_spec(bench: &Bench) -> String {
    let hot = bench.options().hot_class.as_ref();
    hot.map(|class| class.content.provider_spec_json.clone()).unwrap_or_default()
}

async fn hot(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (machine, made, updated) = stage(bench, &driver).await?;
    bench.step("asks for the instance with --hot-class, which it can be brought to");
    same_instance(&made, &driver.create(&updated).await?)?;
    let done = applied(&driver, updated.update(&made.provider_id, good_spec(bench))).await?;
    done.something("applied_paths: those that differ in --hot-class")?;
    let differ = differing(good_spec(bench), &hot_spec(bench));
    let strange: Vec<_> = done.paths.iter().filter(|it| !differ.contains(first_of(it))).collect();
    let expected = format!("applied_paths of what differs in --hot-class: {differ:?}");
    ensure(strange.is_empty(), expected, format_args!("{strange:?}"))?;
    same_instance(&made, &driver.status(&machine).await?)?;
    looks_like_new(&driver, &updated, &made).await?;
    bench.step("an update of an instance that is not there");
    let gone = bench.machine().of_class(&updated.class);
    let answer = driver.ask(gone.update("conformance:///no-such-instance", "")).await?;
    answer.error_of(&[MachineErrorCode::NotFound]).map(drop)
}

/// An updated instance has the tags of one that is made of the new class.
async fn looks_like_new(driver: &Driver<'_>, updated: &Machine, made: &MachineRecord) -> Outcome {
    let bench = driver.bench;
    let Ok(probe) = bench.probe() else { return Ok(()) };
    let fresh = bench.machine_of(&updated.class);
    let model = driver.create(&fresh).await?;
    let tags = async |machine: &Machine,
                      record: &MachineRecord|
           -> Outcome<BTreeMap<String, String>> {
        let seen = probe.instance(&record.provider_id).await?;
        let own = |value: &String| value.contains(&machine.uid) || value.contains(&machine.name);
        Ok(seen.tags.into_iter().filter(|(_, value)| !own(value)).collect())
    };
    let (got, wanted) = (tags(updated, made).await?, tags(&fresh, &model).await?);
    ensure(
        got == wanted,
        format_args!("the tags of an instance that is made of --hot-class: {wanted:?}"),
        format_args!("{got:?}"),
    )
}

async fn idempotent(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (machine, made, updated) = stage(bench, &driver).await?;
    let update = updated.update(&made.provider_id, good_spec(bench));
    for _ in 0..bench.options().idempotent_count.max(2) {
        applied(&driver, again(&update)).await?;
    }
    bench.step("with the spec as the last applied one, and with none");
    applied(&driver, updated.update(&made.provider_id, &hot_spec(bench))).await?;
    applied(&driver, updated.update(&made.provider_id, "")).await?;
    same_instance(&made, &driver.has_one(&machine).await?)?;
    looks_like_new(&driver, &updated, &made).await
}

async fn partial_heals(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (machine, made, updated) = stage(bench, &driver).await?;
    let id = &made.provider_id;
    bench.step("last_applied_spec is that of --hot-class already, the instance is not there yet");
    let done = applied(&driver, updated.update(id, &hot_spec(bench))).await?;
    done.something("applied_paths: what the instance lacked")?;
    looks_like_new(&driver, &updated, &made).await?;
    bench.step(
        "and back: last_applied_spec is that of --class, which the instance has not any more",
    );
    let done = applied(&driver, machine.update(id, good_spec(bench))).await?;
    done.something("applied_paths: what the instance lacked")?;
    looks_like_new(&driver, &machine, &made).await
}

async fn foreign_tags_kept(bench: &Bench) -> Outcome {
    let probe = bench.probe()?;
    let driver = bench.connect().await?;
    let (machine, made, updated) = stage(bench, &driver).await?;
    bench.step("a stranger put the tag conformance-stranger=hello on the instance");
    probe.add_foreign_tag(&made.provider_id, "conformance-stranger=hello").await?;
    let there = async || -> Outcome {
        let seen = probe.instance(&made.provider_id).await?;
        let tag = seen.tags.get("conformance-stranger").map(String::as_str);
        ensure(tag == Some("hello"), "the tag of the stranger", format_args!("{:?}", seen.tags))
    };
    there().await?;
    applied(&driver, updated.update(&made.provider_id, good_spec(bench))).await?;
    there().await?;
    applied(&driver, machine.update(&made.provider_id, &hot_spec(bench))).await?;
    there().await
}

/// The class of `--alt-class`, with what `--hot-class` changes on top: a part of it could be applied.
fn mixed(bench: &Bench) -> Outcome<ObjectRevision> {
    let options = bench.options();
    let alt = options.alt_class.as_ref().ok_or_else(|| skipped("--alt-class is not given"))?;
    let Some(hot) = &options.hot_class else {
        return Ok(bench.published("alt", alt));
    };
    let read = |class: &ClassContent| {
        serde_json::from_str::<BTreeMap<String, Value>>(&class.provider_spec_json)
            .unwrap_or_default()
    };
    let (old, mut mixed) = (read(&options.class.content), read(&alt.content));
    for (key, value) in read(&hot.content) {
        if old.get(&key) != Some(&value) {
            mixed.insert(key, value);
        }
    }
    let provider_spec_json = serde_json::json!(mixed).to_string();
    let content = ClassContent { provider_spec_json, ..alt.content.clone() };
    let secret = options.secret.as_ref().map(|secret| secret.data.clone());
    Ok(bench.publish("mixed", &content, secret))
}

async fn in_place(bench: &Bench) -> Outcome {
    let alt = bench.other_class("alt", bench.options().alt_class.as_ref())?;
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    let last = bench.options().alt_class.as_ref().map(|it| it.content.provider_spec_json.as_str());
    bench.step("updates to --alt-class, which is the last applied spec, too");
    let update = machine.of_class(&alt).update(&made.provider_id, last.unwrap_or_default());
    applied(&driver, update).await?;
    same_instance(&made, &driver.has_one(&machine).await?)
}

/// The fields of a spec that another one has not, or not so.
fn differing(one: &str, two: &str) -> BTreeSet<String> {
    let read = |text| serde_json::from_str::<BTreeMap<String, Value>>(text).unwrap_or_default();
    let (one, two) = (read(one), read(two));
    let keys = one.keys().chain(two.keys());
    keys.filter(|key| one.get(*key) != two.get(*key)).cloned().collect()
}

/// The field in which a path begins.
fn first_of(path: &str) -> &str {
    path.split(['.', '[', '/']).find(|it| !it.is_empty()).unwrap_or_default()
}

async fn refused_whole(bench: &Bench) -> Outcome {
    let mixed = mixed(bench)?;
    let driver = bench.connect().await?;
    let machine = bench.machine();
    let made = driver.create(&machine).await?;
    bench.step("updates to --alt-class with the changes of --hot-class");
    let update = machine.of_class(&mixed).update(&made.provider_id, good_spec(bench));
    let error = driver.ask(update).await?.refusal(&[MachineErrorCode::FailedPrecondition])?;
    let named = error.violations.iter().any(|violation| !violation.path.is_empty());
    ensure(
        error.acts_by() == MachineErrorReason::NotHotUpdatable && named,
        "reason NOT_HOT_UPDATABLE, with the paths as violations",
        crate::answer::shown(&error),
    )?;
    looks_like_new(&driver, &machine, &made).await?;
    bench.step("asks for the first class again, which must need nothing");
    let paths = applied(&driver, machine.update(&made.provider_id, good_spec(bench))).await?.paths;
    ensure(
        paths.is_empty(),
        "no applied_paths: nothing of the refused change is there",
        format_args!("{paths:?}"),
    )?;
    same_instance(&made, &driver.has_one(&machine).await?)
}

async fn when_unanswered<const DENIED: bool>(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let (_, made, updated) = stage(bench, &driver).await?;
    let trouble = Trouble::begin(bench, DENIED).await?;
    let asked = updated.of_class(&trouble.class(bench, &updated.class));
    goes_on(&ask(&driver, asked.update(&made.provider_id, good_spec(bench))).await?)?;
    trouble.over(bench).await?;
    let done = applied(&driver, updated.update(&made.provider_id, good_spec(bench))).await?;
    done.something("applied_paths: those that differ in --hot-class")
}

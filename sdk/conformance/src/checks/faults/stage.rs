//! One operation of which a request meets a fault, and what must hold then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ostler_proto::v1alpha1::{MachineErrorCode, MachineRecord, Operation, OutcomeCertainty};
use parking_lot::Mutex;

use super::cases::{Verb, judged};
use crate::answer::{Answer, same_instance, shown};
use crate::bench::Bench;
use crate::checks::interrupted::untagged;
use crate::checks::secret::canaries;
use crate::cloud::{Case, Cloud, Fault, Seen};
use crate::driver::Driver;
use crate::machine::{Machine, in_time};
use crate::outcome::{Failure, NotPassed, Outcome, ensure, failed};

/// For an operation beside what it took without a fault.
const TIME: Duration = Duration::from_secs(5);
/// The same if an answer never comes: it has to end by then.
const SHORT: Duration = Duration::from_secs(1);
/// For the way: an adapter ends an operation 10 s after its time, and the driver works on.
const LATE: Duration = Duration::from_secs(5);
/// In a list, to have pages if the cloud's are small.
const LISTED: usize = 3;

/// A verb, and what it was like without faults.
pub(super) struct Stage<'a> {
    bench: &'a Bench,
    driver: Driver<'a>,
    cloud: Arc<Cloud>,
    verb: Verb,
    took: Duration,
    /// Tags that the update of the clean run put on its instance.
    updated: Mutex<BTreeMap<String, String>>,
}

/// Machines of a case, and their instances.
type Made = Vec<(Machine, MachineRecord)>;

impl<'a> Stage<'a> {
    pub(super) async fn play_all(bench: &'a Bench, verbs: &[Verb]) -> Outcome {
        let only = bench.options().faults.only.as_ref();
        for verb in verbs.iter().filter(|it| only.is_none_or(|only| only.operation == it.name())) {
            let mut stage = Self {
                bench,
                driver: bench.connect().await?,
                cloud: bench.cloud()?,
                verb: *verb,
                took: Duration::ZERO,
                updated: Mutex::default(),
            };
            stage.play_verb().await?;
        }
        Ok(())
    }

    async fn play_verb(&mut self) -> Outcome {
        let faults = &self.bench.options().faults;
        let name = self.verb.name();
        // Operations that only read leave the instances as they are.
        let made = if self.verb.reads() { self.make(LISTED).await? } else { Vec::new() };
        let clean = self.play(&made, None).await?.requests;
        self.bench.step(format_args!("{name} makes {} requests to the cloud", clean.len()));
        ensure(
            !clean.is_empty(),
            "requests of the driver where --cloud-env says, or through its HTTP proxy",
            format_args!("none during {name}: does the driver read that variable?"),
        )?;
        for (request, fault) in self.verb.cases(clean.len(), faults) {
            let case = Case { operation: name.to_owned(), request, fault };
            // A word that --cloud-fault-cmd does not know is skipped.
            match self.play(&made, Some((request, fault))).await {
                Ok(_) | Err(NotPassed::Skipped(_) | NotPassed::NotOffered(_)) => {}
                Err(NotPassed::Failed(Failure { expected, came })) => {
                    let line = clean.get(request - 1).map_or("", String::as_str);
                    return Err(failed(
                        expected,
                        format_args!(
                            "{came}\nafter {fault} at request {request} of {name} ({line}); --only '{case}' repeats it, seed {}",
                            faults.seed
                        ),
                    ));
                }
            }
        }
        for (machine, _) in &made {
            self.driver.delete(machine).await?;
        }
        Ok(())
    }

    async fn make(&self, count: usize) -> Outcome<Made> {
        let mut made = Vec::new();
        for _ in 0..count {
            let machine = self.bench.machine();
            let record = self.driver.create(&machine).await?;
            made.push((machine, record));
        }
        Ok(made)
    }

    /// The machine of an operation: a new machine if the operation changes the machine.
    async fn subject(&mut self, listed: &Made) -> Outcome<(Machine, MachineRecord)> {
        let only_reads = self.verb.reads() || self.verb.creates();
        let own = if only_reads { Vec::new() } else { self.make(1).await? };
        let found = own.first().or_else(|| listed.first()).cloned();
        Ok(found.unwrap_or_else(|| (self.bench.machine(), MachineRecord::default())))
    }

    /// The operation with a fault at one of its requests, or without any; what it asked the cloud.
    async fn play(&mut self, listed: &Made, plan: Option<(usize, Fault)>) -> Outcome<Seen> {
        let (machine, record) = self.subject(listed).await?;
        let id = record.provider_id.as_str();
        let before = self.tags(id).await?;
        let untagged = self.untagged().await;
        let operation = self.operation(&machine, id)?;
        let hangs = matches!(plan, Some((_, Fault::Hang)));
        let time = self.took * 2 + self.bench.scaled(if hangs { SHORT } else { TIME });
        let sent = if plan.is_some() { in_time(operation, time) } else { operation };
        self.bench.step(match plan {
            Some((at, fault)) => format!("the cloud will answer request {at} with: {fault}"),
            None => "the cloud answers".to_owned(),
        });
        // The request before it was lost, and searches show what was there when it began.
        let staged = plan.map(|(at, it)| (at, if it == Fault::Stale { Fault::Lost } else { it }));
        self.cloud.begin(staged).await?;
        let lags = matches!(plan, Some((_, Fault::Stale)));
        if lags {
            self.cloud.stale(self.bench.options().faults.list_lag.unwrap_or_default());
        }
        let answer = self.driver.ask_once(sent.clone()).await;
        let again = if lags { Some(self.driver.ask(machine.create()).await) } else { None };
        let seen = self.cloud.end().await?;
        let answer = answer?;
        let Some((_, fault)) = plan else {
            answer.result()?;
            self.took = answer.took;
            let after = self.tags(id).await?;
            *self.updated.lock() =
                after.into_iter().filter(|(key, value)| before.get(key) != Some(value)).collect();
            self.end(&machine, self.verb.reads()).await?;
            return Ok(seen);
        };
        again.transpose()?;
        let late = format!("an answer within {:?}, which is its time and {LATE:?}", time + LATE);
        ensure(!hangs || answer.took <= time + LATE, late, format_args!("{:?}", answer.took))?;
        self.hides_secrets(&machine, &answer)?;
        let new: Vec<_> = self.untagged().await.difference(&untagged).cloned().collect();
        let expected = "no instance, disk or other part without the identity of its machine";
        ensure(new.is_empty(), expected, new.join(", "))?;
        if !is_of_the_instance(fault, &seen, id) {
            self.judge(fault, &answer, (&machine, &record), listed).await?;
        }
        self.end(&machine, self.verb.reads()).await?;
        Ok(seen)
    }

    fn operation(&self, machine: &Machine, id: &str) -> Outcome<Operation> {
        let options = self.bench.options();
        Ok(match self.verb {
            Verb::Create | Verb::CreateDeleted => machine.create(),
            Verb::Status => machine.status(""),
            Verb::StatusById => machine.status(id),
            Verb::List => machine.list(),
            Verb::Initialize => machine.initialize(id),
            Verb::Update => {
                let hot = self.bench.other_class("hot", options.hot_class.as_ref())?;
                machine.of_class(&hot).update(id, &options.class.content.provider_spec_json)
            }
            Verb::Delete => machine.delete(""),
            Verb::DeleteById => machine.delete(id),
        })
    }

    async fn untagged(&self) -> BTreeSet<String> {
        if self.verb.creates() { untagged(&self.driver).await } else { BTreeSet::new() }
    }

    async fn tags(&self, id: &str) -> Outcome<BTreeMap<String, String>> {
        match self.bench.probe() {
            Ok(probe) if self.verb == Verb::Update => Ok(probe.instance(id).await?.tags),
            _ => Ok(BTreeMap::new()),
        }
    }

    /// How many instances of the machine there are.
    async fn count(&self, machine: &Machine) -> Outcome<usize> {
        match self.bench.probe() {
            Ok(probe) => Ok(probe.instances_of(machine).await?.len()),
            Err(_) => Ok(self.driver.listed(machine).await?.len()),
        }
    }

    async fn judge(
        &self,
        fault: Fault,
        answer: &Answer,
        (machine, record): (&Machine, &MachineRecord),
        listed: &Made,
    ) -> Outcome {
        let error =
            if answer.result().is_err() { Some(judged(self.verb, fault, answer)?) } else { None };
        let untouched = error.as_ref().is_some_and(|error| {
            !self.verb.reads() && error.certainty() == OutcomeCertainty::NotApplied
        });
        match (self.verb, &error) {
            (Verb::Create, _) => {
                let count = self.count(machine).await?;
                if let Some(error) = error.as_ref().filter(|_| untouched) {
                    let expected = format!("nothing left after {}", shown(error));
                    ensure(count == 0, &expected, format_args!("{count} instances"))?;
                    self.nothing_left(machine, &expected).await?;
                }
                self.driver.create(machine).await?;
                self.driver.has_one(machine).await?;
                let count = self.count(machine).await?;
                ensure(count == 1, "one instance in the cloud after it was asked again", count)
            }
            (Verb::Status | Verb::StatusById, None) => same_instance(record, &answer.machine()?),
            (Verb::List, None) => {
                let told = answer.machines()?;
                let missing = listed
                    .iter()
                    .filter(|(it, _)| !told.iter().any(|one| one.machine_uid == it.uid))
                    .count();
                let came = format!("a result without {missing} of {} instances", listed.len());
                ensure(missing == 0, "all instances, or an error", came)
            }
            (Verb::Initialize, None) => {
                let status =
                    self.driver.ask(machine.status(&record.provider_id)).await?.machine()?;
                let done = status.initialized != Some(false);
                ensure(done, "an instance that is initialized, as it said", "one that is not")
            }
            (Verb::Initialize, Some(_)) => {
                self.driver.ask(machine.initialize(&record.provider_id)).await?.machine().map(drop)
            }
            (Verb::Update, _) => {
                if error.is_some() {
                    let update = self.operation(machine, &record.provider_id)?;
                    self.driver.ask(update).await?.result()?;
                }
                let has = self.tags(&record.provider_id).await?;
                let wanted = self.updated.lock().clone();
                let lacks: Vec<_> =
                    wanted.iter().filter(|(key, value)| has.get(*key) != Some(*value)).collect();
                ensure(
                    lacks.is_empty(),
                    format_args!("{lacks:?}, as it said"),
                    format_args!("{has:?}"),
                )
            }
            (Verb::Delete | Verb::DeleteById, _) => self.deleted(machine, error.as_ref()).await,
            (Verb::Status | Verb::StatusById | Verb::List, Some(_)) | (Verb::CreateDeleted, _) => {
                Ok(())
            }
        }
    }

    async fn deleted(
        &self,
        machine: &Machine,
        error: Option<&ostler_proto::v1alpha1::OperationError>,
    ) -> Outcome {
        let count = self.count(machine).await?;
        let Some(error) = error else {
            ensure(count == 0, "no instance once the deletion has a result", count)?;
            return self.nothing_left(machine, "nothing left once the deletion has a result").await;
        };
        let said = shown(error);
        let gone = error.code() == MachineErrorCode::NotFound;
        ensure(!gone || count == 0, "no NOT_FOUND while the instance is there", &said)?;
        let untouched = error.certainty() == OutcomeCertainty::NotApplied;
        let expected = "PARTIAL or UNKNOWN once the instance is gone";
        ensure(gone || !untouched || count > 0, expected, &said)
    }

    /// No part of the machine is in the cloud, if the probe shows those.
    async fn nothing_left(&self, machine: &Machine, expected: &str) -> Outcome {
        let Ok(probe) = self.bench.probe() else { return Ok(()) };
        let Ok(left) = probe.resources_of(&machine.uid).await else { return Ok(()) };
        let names: Vec<String> = left.iter().map(|it| format!("{} {}", it.kind, it.id)).collect();
        ensure(names.is_empty(), expected, names.join(", "))
    }

    /// It can be deleted, whatever happened before.
    async fn end(&self, machine: &Machine, is_kept: bool) -> Outcome {
        if is_kept {
            return Ok(());
        }
        self.driver.delete(machine).await?;
        self.driver.has_none(machine).await?;
        self.nothing_left(machine, "nothing left once it was deleted").await
    }

    fn hides_secrets(&self, machine: &Machine, answer: &Answer) -> Outcome {
        let secrets: Vec<_> = self.bench.options().secret.iter().map(|it| &it.data).collect();
        let said = format!("{:?} {}", answer.completed.outcome, answer.completed.checkpoint);
        for (what, canary) in canaries(&secrets, &machine.uid) {
            let expected = "an answer without credentials and user data";
            ensure(!said.contains(&canary), expected, format_args!("{what} in it"))?;
        }
        Ok(())
    }
}

/// 404 to a request that names the instance says what a cloud says that has none.
fn is_of_the_instance(fault: Fault, seen: &Seen, id: &str) -> bool {
    let last = id.rsplit('/').next().unwrap_or_default();
    fault == Fault::Refused(404)
        && !last.is_empty()
        && seen.hit.as_ref().is_none_or(|line| line.contains(last))
}

//! One operation of which a request meets a fault, and what must hold then.

use std::collections::{BTreeMap, BTreeSet};

use ostler_proto::v1alpha1::{MachineErrorCode, MachineRecord, Operation, OutcomeCertainty};

use super::cases::{Cases, Verb, judged, wants};
use super::way::{Plan, Way, is_of};
use crate::answer::{Answer, same_instance, shown};
use crate::bench::Bench;
use crate::checks::interrupted::untagged;
use crate::cloud::{Fault, Seen};
use crate::machine::Machine;
use crate::outcome::{Outcome, ensure};

/// In a list, to have pages if the cloud's are small.
const LISTED: usize = 3;

/// A verb, and what it was like without faults.
pub(super) struct Stage<'a> {
    way: Way<'a>,
    verb: Verb,
    /// Tags that the update of the clean run put on its instance.
    updated: BTreeMap<String, String>,
    /// So many things the cloud has of an instance that is to be deleted.
    whole: usize,
}

/// Machines of a case, and their instances.
type Made = Vec<(Machine, MachineRecord)>;

impl<'a> Stage<'a> {
    pub(super) async fn play_all(bench: &'a Bench, verbs: &[Verb]) -> Outcome {
        let faults = &bench.options().faults;
        for verb in verbs.iter().filter(|it| wants(faults, it.name())) {
            let way = Way::open(bench).await?;
            let mut stage = Self { way, verb: *verb, updated: BTreeMap::new(), whole: 0 };
            stage.play_verb().await?;
        }
        Ok(())
    }

    async fn play_verb(&mut self) -> Outcome {
        // Operations that only read leave the instances as they are.
        let made = if self.verb.reads() { self.make(LISTED).await? } else { Vec::new() };
        let clean = self.play(&made, None).await?.requests;
        let (name, faults) = (self.verb.name(), &self.way.bench.options().faults);
        let lags = self.verb == Verb::Create;
        let cases = Cases::of(name, self.verb.ways(), lags, clean, faults)?;
        for case in &cases.all {
            cases.told(*case, self.play(&made, Some(*case)).await)?;
        }
        for (machine, _) in &made {
            self.way.driver.delete(machine).await?;
        }
        Ok(())
    }

    async fn make(&self, count: usize) -> Outcome<Made> {
        let mut made = Vec::new();
        for _ in 0..count {
            let machine = self.way.bench.machine();
            let record = self.way.driver.create(&machine).await?;
            made.push((machine, record));
        }
        Ok(made)
    }

    /// The machine of an operation: a new machine if the operation changes the machine.
    async fn subject(&mut self, listed: &Made) -> Outcome<(Machine, MachineRecord)> {
        let only_reads = self.verb.reads() || self.verb.creates();
        let own = if only_reads { Vec::new() } else { self.make(1).await? };
        let found = own.first().or_else(|| listed.first()).cloned();
        Ok(found.unwrap_or_else(|| (self.way.bench.machine(), MachineRecord::default())))
    }

    /// The operation with a fault at one of its requests, or without any; what it asked the cloud.
    async fn play(&mut self, listed: &Made, plan: Plan) -> Outcome<Seen> {
        let (machine, record) = self.subject(listed).await?;
        let id = record.provider_id.as_str();
        let before = self.tags(id).await?;
        let untagged = self.untagged().await;
        self.whole = self.parts(&machine).await;
        let operation = self.operation(&machine, id)?;
        let (answer, seen) = self.way.send(operation, &machine.uid, plan).await?;
        let Some((_, fault)) = plan else {
            let after = self.tags(id).await?;
            self.updated =
                after.into_iter().filter(|(key, value)| before.get(key) != Some(value)).collect();
            self.end(&machine, self.verb.reads()).await?;
            return Ok(seen);
        };
        let new: Vec<_> = self.untagged().await.difference(&untagged).cloned().collect();
        let expected = "no instance, disk or other part without the identity of its machine";
        ensure(new.is_empty(), expected, new.join(", "))?;
        if !is_of(fault, &seen, &[id]) {
            self.judge(fault, &answer, (&machine, &record), listed).await?;
        }
        self.end(&machine, self.verb.reads()).await?;
        Ok(seen)
    }

    fn operation(&self, machine: &Machine, id: &str) -> Outcome<Operation> {
        let options = self.way.bench.options();
        Ok(match self.verb {
            Verb::Create | Verb::CreateDeleted => machine.create(),
            Verb::Status => machine.status(""),
            Verb::StatusById => machine.status(id),
            Verb::List => machine.list(),
            Verb::Initialize => machine.initialize(id),
            Verb::Update => {
                let hot = self.way.bench.other_class("hot", options.hot_class.as_ref())?;
                machine.of_class(&hot).update(id, &options.class.content.provider_spec_json)
            }
            Verb::Delete => machine.delete(""),
            Verb::DeleteById => machine.delete(id),
        })
    }

    async fn untagged(&self) -> BTreeSet<String> {
        if self.verb.creates() { untagged(&self.way.driver).await } else { BTreeSet::new() }
    }

    async fn tags(&self, id: &str) -> Outcome<BTreeMap<String, String>> {
        match self.way.bench.probe() {
            Ok(probe) if self.verb == Verb::Update => Ok(probe.instance(id).await?.tags),
            _ => Ok(BTreeMap::new()),
        }
    }

    /// How many things there are of the machine, with its instance; 0 if the probe does not show that.
    async fn parts(&self, machine: &Machine) -> usize {
        let deletes = matches!(self.verb, Verb::Delete | Verb::DeleteById);
        match self.way.bench.probe().ok().filter(|_| deletes) {
            Some(probe) => probe.resources_of(&machine.uid).await.map_or(0, |it| it.len()),
            None => 0,
        }
    }

    /// How many instances of the machine there are.
    async fn count(&self, machine: &Machine) -> Outcome<usize> {
        match self.way.bench.probe() {
            Ok(probe) => Ok(probe.instances_of(machine).await?.len()),
            Err(_) => Ok(self.way.driver.listed(machine).await?.len()),
        }
    }

    async fn judge(
        &self,
        fault: Fault,
        answer: &Answer,
        (machine, record): (&Machine, &MachineRecord),
        listed: &Made,
    ) -> Outcome {
        let error = if answer.result().is_err() {
            Some(judged(self.verb.reads(), fault, answer)?)
        } else {
            None
        };
        if let (Verb::Initialize | Verb::Update, Some(error)) = (self.verb, &error) {
            let absent = error.code() == MachineErrorCode::NotFound;
            ensure(!absent, "an error other than NOT_FOUND: the instance is there", shown(error))?;
        }
        let untouched = error.as_ref().is_some_and(|error| {
            !self.verb.reads() && error.certainty() == OutcomeCertainty::NotApplied
        });
        match (self.verb, &error) {
            (Verb::Create, _) => {
                let count = self.count(machine).await?;
                if let Some(error) = error.as_ref().filter(|_| untouched) {
                    let expected = format!("nothing left after {}", shown(error));
                    ensure(count == 0, &expected, format_args!("{count} instances"))?;
                    self.way.nothing_left(&machine.uid, &expected).await?;
                }
                self.way.driver.create(machine).await?;
                self.way.driver.has_one(machine).await?;
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
                    self.way.driver.ask(machine.status(&record.provider_id)).await?.machine()?;
                let done = status.initialized != Some(false);
                ensure(done, "an instance that is initialized, as it said", "one that is not")
            }
            (Verb::Initialize, Some(_)) => self
                .way
                .driver
                .ask(machine.initialize(&record.provider_id))
                .await?
                .machine()
                .map(drop),
            (Verb::Update, _) => self.updated(machine, record, error.is_some()).await,
            (Verb::Delete | Verb::DeleteById, _) => self.deleted(machine, error.as_ref()).await,
            (Verb::Status | Verb::StatusById | Verb::List, Some(_)) | (Verb::CreateDeleted, _) => {
                Ok(())
            }
        }
    }

    /// The instance has the tags of the clean run, once the update was asked for again after an error.
    async fn updated(&self, machine: &Machine, record: &MachineRecord, again: bool) -> Outcome {
        if again {
            let update = self.operation(machine, &record.provider_id)?;
            self.way.driver.ask(update).await?.result()?;
        }
        let has = self.tags(&record.provider_id).await?;
        let lacks: Vec<_> =
            self.updated.iter().filter(|(key, value)| has.get(*key) != Some(*value)).collect();
        ensure(lacks.is_empty(), format_args!("{lacks:?}, as it said"), format_args!("{has:?}"))
    }

    async fn deleted(
        &self,
        machine: &Machine,
        error: Option<&ostler_proto::v1alpha1::OperationError>,
    ) -> Outcome {
        let count = self.count(machine).await?;
        let Some(error) = error else {
            ensure(count == 0, "no instance once the deletion has a result", count)?;
            return self
                .way
                .nothing_left(&machine.uid, "nothing left once the deletion has a result")
                .await;
        };
        let said = shown(error);
        let gone = error.code() == MachineErrorCode::NotFound;
        ensure(!gone || count == 0, "no NOT_FOUND while the instance is there", &said)?;
        let untouched = error.certainty() == OutcomeCertainty::NotApplied;
        let whole = count > 0 && self.parts(machine).await == self.whole;
        let expected = "PARTIAL or UNKNOWN once the instance or a part of it is gone";
        ensure(gone || !untouched || whole, expected, &said)
    }

    /// It can be deleted, whatever happened before.
    async fn end(&self, machine: &Machine, is_kept: bool) -> Outcome {
        if is_kept {
            return Ok(());
        }
        self.way.driver.delete(machine).await?;
        self.way.driver.has_none(machine).await?;
        self.way.nothing_left(&machine.uid, "nothing left once it was deleted").await
    }
}

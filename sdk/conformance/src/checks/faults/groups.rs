//! One operation on a group of which a request meets a fault.

use ostler_proto::v1alpha1 as proto;
use proto::{DeletionOutcome, MachineErrorCode, Operation, OperationError, OutcomeCertainty};

use super::cases::{Cases, judged, wants};
use super::way::{Plan, Way, is_of};
use crate::answer::{Answer, shown};
use crate::bench::Bench;
use crate::checks::pool::stage::{has, middle, settled, size_is, stage, without};
use crate::cloud::{ALL, Fault, Seen};
use crate::outcome::{Outcome, ensure};
use crate::pool::{Group, POOL_UID, Pool};

/// Instances of a group: one in the middle, which no policy of the infrastructure would choose.
const SIZE: i32 = 3;

/// An operation, and how it names its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    /// The pool is deleted after it, and not created again.
    CreateDeleted,
    Status,
    StatusById,
    List,
    Update,
    Delete,
    DeleteById,
    DeleteMachines,
    UpdateMachine,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "pool-create",
            Self::CreateDeleted => "pool-create-deleted",
            Self::Status => "pool-status",
            Self::StatusById => "pool-status-by-id",
            Self::List => "pool-list",
            Self::Update => "pool-update",
            Self::Delete => "pool-delete",
            Self::DeleteById => "pool-delete-by-id",
            Self::DeleteMachines => "pool-delete-machines",
            Self::UpdateMachine => "pool-update-machine",
        }
    }

    fn creates(self) -> bool {
        matches!(self, Self::Create | Self::CreateDeleted)
    }

    fn reads(self) -> bool {
        matches!(self, Self::Status | Self::StatusById | Self::List)
    }
}

/// A group of a case: the pool, the id of the group, and its instances.
#[derive(Debug, Clone)]
struct Made {
    pool: Pool,
    id: String,
    ids: Vec<String>,
}

impl Made {
    fn of((pool, group): (Pool, Group)) -> Self {
        Self { pool, ids: group.live(), id: group.pool.provider_id }
    }
}

/// A verb, and what it was like without faults.
pub(super) struct Groups<'a> {
    way: Way<'a>,
    verb: Verb,
    /// The group of an operation that only reads.
    kept: Option<Made>,
}

impl<'a> Groups<'a> {
    pub(super) async fn play_all(bench: &'a Bench, verbs: &[Verb]) -> Outcome {
        let faults = &bench.options().faults;
        for verb in verbs.iter().filter(|it| wants(faults, it.name())) {
            let mut groups = Self { way: Way::open(bench).await?, verb: *verb, kept: None };
            if verb.reads() {
                groups.kept = Some(groups.made().await?);
            }
            let clean = groups.play(None).await?.requests;
            let cases = Cases::of(verb.name(), &ALL, false, clean, faults)?;
            for case in &cases.all {
                cases.told(*case, groups.play(Some(*case)).await)?;
            }
        }
        Ok(())
    }

    async fn made(&self) -> Outcome<Made> {
        let made = stage(self.way.bench, &self.way.driver, SIZE).await?;
        if self.verb == Verb::UpdateMachine {
            let update = made.0.update(&made.1.pool.provider_id, None, Some("two"));
            self.way.driver.ask(update).await?.pool()?;
        }
        Ok(Made::of(made))
    }

    /// The group of an operation: a new group if the operation changes the group.
    async fn subject(&self) -> Outcome<Made> {
        match &self.kept {
            Some(kept) => Ok(kept.clone()),
            None if self.verb.creates() => {
                Ok(Made { pool: self.way.bench.pool(), id: String::new(), ids: Vec::new() })
            }
            None => self.made().await,
        }
    }

    /// The operation with a fault at one of its requests, or without any; what it asked the cloud.
    async fn play(&mut self, plan: Plan) -> Outcome<Seen> {
        let made = self.subject().await?;
        let operation = self.operation(&made)?;
        let (answer, seen) = self.way.send(operation, &made.pool.uid, plan).await?;
        let named: Vec<_> =
            std::iter::once(&made.id).chain(&made.ids).map(String::as_str).collect();
        if let Some((_, fault)) = plan.filter(|(_, fault)| !is_of(*fault, &seen, &named)) {
            self.judge(fault, &answer, &made).await?;
        }
        if self.kept.is_none() {
            self.end(&made.pool).await?;
        }
        Ok(seen)
    }

    fn operation(&self, Made { pool, id, ids }: &Made) -> Outcome<Operation> {
        Ok(match self.verb {
            Verb::Create | Verb::CreateDeleted => pool.create(SIZE),
            Verb::Status => pool.status(""),
            Verb::StatusById => pool.status(id),
            Verb::List => pool.list(),
            Verb::Update => pool.update(id, Some((SIZE, SIZE + 1)), Some("two")),
            Verb::Delete => pool.delete(""),
            Verb::DeleteById => pool.delete(id),
            Verb::DeleteMachines => pool.delete_machines(id, &[middle(ids)?], (SIZE, SIZE - 1)),
            Verb::UpdateMachine => pool.update_machine(id, &middle(ids)?, "two", true),
        })
    }

    async fn judge(&self, fault: Fault, answer: &Answer, made: &Made) -> Outcome {
        let reads = self.verb.reads();
        let error =
            if answer.result().is_err() { Some(judged(reads, fault, answer)?) } else { None };
        let untouched = error
            .as_ref()
            .filter(|error| !reads && error.certainty() == OutcomeCertainty::NotApplied);
        if let Some(error) = untouched {
            self.is_untouched(made, error).await?;
        }
        match self.verb {
            Verb::Create => self.created(made).await,
            Verb::Status | Verb::StatusById if error.is_none() => answer.group()?.is_of(&made.ids),
            Verb::List if error.is_none() => {
                let listed = answer.pools()?.iter().any(|it| it.pool_uid == made.pool.uid);
                ensure(listed, "all groups, or an error", "a list without the group")
            }
            Verb::Delete | Verb::DeleteById
                if error.as_ref().is_none_or(|it| it.code() == MachineErrorCode::NotFound) =>
            {
                self.is_gone(&made.pool, "nothing left once the deletion has a result").await
            }
            Verb::Update => self.updated(made, error.is_some()).await,
            Verb::DeleteMachines => self.deleted_one(made, answer).await,
            Verb::UpdateMachine => self.updated_one(made, error.is_some()).await,
            Verb::CreateDeleted
            | Verb::Status
            | Verb::StatusById
            | Verb::List
            | Verb::Delete
            | Verb::DeleteById => Ok(()),
        }
    }

    /// What was NOT_APPLIED left the group as it was.
    async fn is_untouched(&self, made: &Made, error: &OperationError) -> Outcome {
        let driver = &self.way.driver;
        if self.verb.creates() {
            return self.is_gone(&made.pool, &format!("nothing left after {}", shown(error))).await;
        }
        has(driver, &made.pool, &made.ids).await?;
        let group = driver.ask(made.pool.status(&made.id)).await?.group()?;
        let instances = group.machines.iter().map(|it| it.model_hash.as_str());
        let all = if self.verb == Verb::UpdateMachine {
            instances.collect::<Vec<_>>()
        } else {
            instances.chain([group.pool.model_hash.as_str()]).collect()
        };
        let expected = format!("the model `one` as before, after {}", shown(error));
        ensure(all.iter().all(|it| *it == "one"), expected, format_args!("{all:?}"))
    }

    async fn created(&self, made: &Made) -> Outcome {
        let (driver, pool) = (&self.way.driver, &made.pool);
        size_is(&driver.ask(pool.create(SIZE)).await?.pool()?, SIZE)?;
        let listed = driver.ask(pool.list()).await?.pools()?;
        let count = listed.iter().filter(|it| it.pool_uid == pool.uid).count();
        ensure(count == 1, "one group of the pool after it was asked again", count)?;
        settled(driver, pool, SIZE).await.map(drop)
    }

    async fn updated(&self, made: &Made, again: bool) -> Outcome {
        let (driver, pool) = (&self.way.driver, &made.pool);
        if again {
            driver.ask(self.operation(made)?).await?.pool()?;
        }
        let group = settled(driver, pool, SIZE + 1).await?;
        let told = (group.pool.desired, group.pool.model_hash.as_str());
        let expected = format!("a size of {} and the model `two`, as it said", SIZE + 1);
        ensure(told == (SIZE + 1, "two"), expected, format_args!("{told:?}"))?;
        let live = group.live();
        let kept = made.ids.iter().all(|id| live.contains(id));
        ensure(kept, format_args!("{:?} as before", made.ids), format_args!("{live:?}"))
    }

    async fn deleted_one(&self, made: &Made, answer: &Answer) -> Outcome {
        let (driver, gone) = (&self.way.driver, middle(&made.ids)?);
        let done = answer.not_deleted().is_ok_and(|left| left.is_empty());
        if !done {
            let answer = driver.ask(self.operation(made)?).await?;
            let left = answer.not_deleted()?;
            ensure(left.is_empty(), "nothing in not_deleted", format_args!("{left:?}"))?;
        }
        has(driver, &made.pool, &without(&made.ids, &gone)).await
    }

    async fn updated_one(&self, made: &Made, again: bool) -> Outcome {
        let (driver, one) = (&self.way.driver, middle(&made.ids)?);
        if again {
            driver.ask(self.operation(made)?).await?.result()?;
        }
        let group = driver.ask(made.pool.status(&made.id)).await?.group()?;
        group.is_of(&made.ids)?;
        let came = &group.machine(&one)?.model_hash;
        ensure(came == "two", format_args!("the model `two` of {one}, as it said"), came)
    }

    /// There is no group, and no instance or other part of one.
    async fn is_gone(&self, pool: &Pool, expected: &str) -> Outcome {
        let answer = self.way.driver.ask(pool.status("")).await?;
        answer.error_of(&[MachineErrorCode::NotFound])?;
        self.way.nothing_left(&pool.uid, expected).await?;
        let Ok(probe) = self.way.bench.probe() else { return Ok(()) };
        let all = probe.instances().await?;
        let left = all.iter().filter(|it| it.tags.get(POOL_UID) == Some(&pool.uid)).count();
        ensure(left == 0, expected, format_args!("{left} instances of the group"))
    }

    /// It can be deleted, whatever happened before.
    async fn end(&self, pool: &Pool) -> Outcome {
        let (ended, _) = self.way.driver.ask(pool.delete("")).await?.pool_deletion()?;
        let gone = matches!(ended, DeletionOutcome::Deleted | DeletionOutcome::WasAbsent);
        ensure(gone, "DELETED or WAS_ABSENT", ended.as_str_name())?;
        self.is_gone(pool, "nothing left once it was deleted").await
    }
}

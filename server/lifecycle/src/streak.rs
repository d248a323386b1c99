//! Consecutive failures of Machines of a set or pool before they ran for a while. The cause breaks the next Machine,
//! too: the pauses before Failed Machines are replaced grow, until a newer Machine has run for a while. Meanwhile a
//! Failed Machine stays, so that people and autoscalers see it, and its instance can be looked into. A Machine deleted
//! by hand, or one that had run for a while, is replaced at once.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ostler_api::{
    Machine,
    driver::OperationKind,
    machine::{MachineOperationType, MachinePhase, MachineState, Retry, WaitReason},
};

use crate::{
    plan::EventReason,
    retry::{is_over, pause_after},
    time::after,
};

/// A Machine that ran for so long was no failure of its creation.
const STEADY: Duration = Duration::from_mins(10);

/// Reason of conditions and events while Machines fail one after the other.
pub const REPLACEMENTS_FAIL: &str = EventReason::ReplacementsFail.name();

/// The consequence for the Failed Machines of a set or a pool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Streak {
    /// The retry for the status; `None`: nothing failed lately.
    pub retry: Option<Retry>,
    /// The set does not say so yet: nothing is replaced before.
    is_new: bool,
    /// Every Machine runs: nothing is wrong now, though the count goes on.
    all_run: bool,
    now: Option<Timestamp>,
}

impl Streak {
    /// Counts on from what the status says. `failed`: whether a Machine is to be replaced.
    pub fn of<'a>(
        old: Option<&Retry>,
        machines: impl Iterator<Item = &'a Machine> + Clone,
        failed: impl Fn(&Machine) -> bool,
        now: Timestamp,
    ) -> Self {
        let runs = |machine: &Machine| {
            matches!(machine.phase(), MachinePhase::Running | MachinePhase::Available)
        };
        let all_run = machines.clone().all(runs);
        let living = machines.filter(|machine| !machine.is_deleting());
        let begun = old.and_then(|it| it.since.as_ref()).map(|since| since.0);
        let is_steady = |machine: &Machine| {
            let since = begun.is_some_and(|begun| created(machine) >= Some(begun));
            runs(machine) && since && joined(machine).is_some_and(|at| after(at, STEADY) <= now)
        };
        let old = old.filter(|_| !living.clone().any(is_steady));
        // A round is over when its Machines are replaced: Machines made since, and failed, are of the next round.
        let made_since = |machine: &&Machine| {
            let last = old.and_then(|it| it.not_before.as_ref()).map(|last| whole(last.0));
            let failed = failed_at(machine).map(whole);
            last.is_none_or(|last| {
                created(machine) >= Some(last) && failed.is_none_or(|failed| failed > last)
            })
        };
        let young = living.filter(|machine| failed(machine) && !ran(machine));
        let Some(last) = young.filter(made_since).max_by_key(|machine| failed_at(machine)) else {
            return Self { retry: old.cloned(), is_new: false, all_run, now: Some(now) };
        };
        Self { retry: Some(next(old, last, now)), is_new: true, all_run, now: Some(now) }
    }

    /// Whether the replacement of the Machine waits.
    pub fn holds(&self, machine: &Machine) -> bool {
        (self.is_new || self.until().is_some()) && !ran(machine)
    }

    /// Until when; `None`: nothing waits.
    pub fn until(&self) -> Option<Timestamp> {
        let (until, now) = (self.retry.as_ref()?.not_before.as_ref()?.0, self.now?);
        (!is_over(until, now, Duration::ZERO)).then_some(until)
    }

    /// Whether the status has to be written before anything follows.
    pub const fn is_new(&self) -> bool {
        self.is_new
    }

    /// For people: more than one failed, and not all run since.
    pub fn message(&self) -> Option<String> {
        let retry = self.retry.as_ref().filter(|it| it.failures > 1 && !self.all_run)?;
        let last = retry.message.as_deref().unwrap_or_default();
        let failures = retry.failures;
        let until = self.until().map_or_else(String::new, |until| {
            let whole = whole(until);
            format!("; failed ones are replaced at {whole}, or when they are deleted")
        });
        Some(format!(
            "{failures} machines in a row failed before they had run for 10m, the last one was {last}{until}"
        ))
    }
}

fn next(old: Option<&Retry>, last: &Machine, now: Timestamp) -> Retry {
    let failures = old.map_or(0, |it| it.failures).saturating_add(1);
    let status = last.status.as_ref();
    let operation = status.and_then(|it| it.last_operation.as_ref());
    let reason = status.and_then(|it| it.failure_reason.as_ref()).map(ToString::to_string);
    let text = status.and_then(|it| it.failure_message.clone());
    let text = text.or_else(|| operation?.description.clone()).unwrap_or_default();
    let reason = reason.map(|reason| format!("{reason}: ")).unwrap_or_default();
    Retry {
        kind: OperationKind::CreateMachine.into(),
        code: operation.and_then(|it| it.error_code.clone()).unwrap_or_default(),
        reason: WaitReason::Failed,
        message: Some(format!("{}: {reason}{text}", last.name())),
        failures,
        since: Some(old.and_then(|it| it.since.clone()).unwrap_or_else(|| Time(whole(now)))),
        not_before: Some(after(now, pause_after(failures)).into()),
        class_revision: None,
        secret_revision: None,
        driver_process: None,
        provider_id: None,
    }
}

/// API servers write times in whole seconds.
fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

fn created(machine: &Machine) -> Option<Timestamp> {
    machine.metadata.creation_timestamp.as_ref().map(|time| time.0)
}

fn joined(machine: &Machine) -> Option<Timestamp> {
    machine.status.as_ref()?.joined_at.as_ref().map(|time| time.0)
}

fn failed_at(machine: &Machine) -> Option<Timestamp> {
    if machine.phase() != MachinePhase::Failed {
        return None;
    }
    let current = machine.status.as_ref()?.current_status.as_ref()?;
    current.last_update_time.as_ref().map(|time| time.0)
}

/// Whether the Machine ran for a while before failing. A Machine of another controller counts as having run.
fn ran(machine: &Machine) -> bool {
    let Some(status) = &machine.status else { return true };
    let Some(joined) = joined(machine) else {
        let last = status.last_operation.as_ref();
        return !last.is_some_and(|last| {
            last.type_ == Some(MachineOperationType::Create)
                && last.state == Some(MachineState::Failed)
        });
    };
    // Time with an unhealthy Node does not count.
    let unready = status.conditions.iter().find(|it| it.type_ == "Ready" && it.status != "True");
    let unready = unready.and_then(|it| it.last_transition_time.as_ref()).map(|time| time.0);
    let end = [unready, failed_at(machine)].into_iter().flatten().min();
    end.is_none_or(|end| after(joined, STEADY) <= end)
}

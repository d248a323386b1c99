//! The consequences of failures, as data: verb × code × reason × certainty.
//!
//! The author's manual in the proto comments and `docs/retry-policy.md` are drawn from this table.

use std::time::Duration;

use ostler_api::{
    driver::{
        Certainty, ErrorCode,
        ErrorCode::{
            Aborted, AlreadyExists, Canceled, DataLoss, DeadlineExceeded, FailedPrecondition,
            InvalidArgument, NotFound, OutOfRange, PermissionDenied, ResourceExhausted,
            Unauthenticated, Unavailable, Unimplemented, Uninitialized, Unknown,
        },
        OperationKind,
        OperationKind::{
            CreateMachine, CreatePool, DeleteMachine, DeletePool, DeletePoolMachines,
            GetMachineStatus, GetPoolStatus, GetVolumeIds, InitializeMachine, ListMachines,
            ListPools, UpdateMachine, UpdatePool, UpdatePoolMachine, ValidateClass,
        },
    },
    machine::{FailureReason, HotUpdateState, WaitReason},
    operation::Reason,
};

use super::backoff;

/// The consequence of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryAction {
    /// Try again after `first`, then twice as long each time, at most `max`; at once when class or
    /// secret change.
    Backoff {
        /// The first wait.
        first: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// Try again when class or secret change.
    OnClassChange,
    /// As a backoff, but long: only another secret helps.
    OnSecretChange {
        /// The first wait.
        first: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// Try again when the driver said, or after the time set for exhausted resources.
    WhenThereIsRoom,
    /// The Machine is lost.
    GiveUp(FailureReason),
    /// As good as success for this verb.
    Accept,
    /// The running instance stays as it is until class or driver are others.
    Refuse(HotUpdateState),
    /// Find the instance or the group by its identity, or make it, after `first` to `max`.
    LookAgain {
        /// The first wait.
        first: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// Make it again: at once the first time, then after `first`, twice as long each time, at most `max`.
    MakeAgain {
        /// The wait before the second time.
        first: Duration,
        /// The longest wait.
        max: Duration,
    },
    /// A read that says there is no instance.
    Absent,
    /// A read found an instance, not initialized.
    NotInitialized,
    /// The driver cannot say; go on without.
    GoOn,
}

impl RetryAction {
    /// How long the wait is after so many failures in a row, this failure included, if the driver names no time.
    /// `room`: the time for exhausted resources. `None`: no time ends the wait, or nothing is tried again.
    pub(crate) fn wait(&self, failures: i32, room: Duration) -> Option<Duration> {
        match self {
            Self::Backoff { first, max }
            | Self::OnSecretChange { first, max }
            | Self::LookAgain { first, max } => Some(backoff(*first, *max, failures)),
            Self::MakeAgain { .. } if failures <= 1 => Some(Duration::ZERO),
            Self::MakeAgain { first, max } => {
                Some(backoff(*first, *max, failures.saturating_sub(1)))
            }
            Self::WhenThereIsRoom => Some(room),
            Self::OnClassChange
            | Self::GiveUp(_)
            | Self::Accept
            | Self::Refuse(_)
            | Self::Absent
            | Self::NotInitialized
            | Self::GoOn => None,
        }
    }
}

/// The step between a failure and the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing: the same request is safe.
    Nothing,
    /// The same request finishes the begun work, and brings the checkpoint.
    Checkpoint,
    /// GetMachineStatus, for a group GetPoolStatus: nobody can tell the effects.
    Read,
}

/// The consequence of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The action.
    pub then: RetryAction,
    /// The step before the action.
    pub first: Precondition,
    /// The name of the wait.
    pub reason: WaitReason,
}

/// A row. Empty lists fit everything.
struct Row {
    kinds: &'static [OperationKind],
    codes: &'static [ErrorCode],
    reasons: &'static [Reason],
    then: RetryAction,
    wait: WaitReason,
}

const fn row(
    kinds: &'static [OperationKind],
    codes: &'static [ErrorCode],
    then: RetryAction,
    wait: WaitReason,
) -> Row {
    Row { kinds, codes, reasons: &[], then, wait }
}

const fn seconds(first: u64, max: u64) -> RetryAction {
    RetryAction::Backoff { first: Duration::from_secs(first), max: Duration::from_secs(max) }
}

const SOON: RetryAction = seconds(5, 180);
const LATER: RetryAction = seconds(60, 600);

/// Useless results are made again: instances and groups that are gone, Machines that failed before they had run for a
/// while.
const MAKE_AGAIN: RetryAction =
    RetryAction::MakeAgain { first: Duration::from_mins(1), max: Duration::from_mins(15) };

/// A Machine that lost so many instances before its Node had joined has failed.
pub(crate) const MOST_LOSSES: i32 = 5;

/// How long the next attempt waits after so many useless ones in a row.
pub(crate) fn pause_after(failures: i32) -> Duration {
    MAKE_AGAIN.wait(failures, Duration::ZERO).unwrap_or_default()
}

/// The first row that fits decides.
const TABLE: &[Row] = &[
    // The infrastructure refused nothing: go on as soon as a driver is there again.
    Row {
        kinds: &[],
        codes: &[Unavailable],
        reasons: &[Reason::CoreNoSession, Reason::CoreSessionLost],
        then: seconds(1, 60),
        wait: WaitReason::DriverRetry,
    },
    Row {
        kinds: &[CreateMachine, CreatePool],
        codes: &[NotFound],
        reasons: &[Reason::CoreLost],
        then: MAKE_AGAIN,
        wait: WaitReason::InstanceMissing,
    },
    Row {
        kinds: &[],
        codes: &[FailedPrecondition],
        reasons: &[Reason::NotOurs],
        then: LATER,
        wait: WaitReason::InstanceNotOurs,
    },
    Row {
        kinds: &[],
        codes: &[FailedPrecondition],
        reasons: &[Reason::CoreClusterIdChanged],
        then: LATER,
        wait: WaitReason::ClusterIdChanged,
    },
    Row {
        kinds: &[UpdateMachine, UpdatePoolMachine],
        codes: &[FailedPrecondition],
        reasons: &[Reason::NotHotUpdatable],
        then: RetryAction::Refuse(HotUpdateState::Refused),
        wait: WaitReason::HotUpdateRefused,
    },
    row(
        &[UpdateMachine, UpdatePoolMachine],
        &[Unimplemented],
        RetryAction::Refuse(HotUpdateState::Unsupported),
        WaitReason::HotUpdateRefused,
    ),
    row(&[DeleteMachine, DeletePool], &[NotFound], RetryAction::Accept, WaitReason::DriverRetry),
    row(&[InitializeMachine], &[Unimplemented], RetryAction::Accept, WaitReason::DriverRetry),
    row(
        &[InitializeMachine],
        &[NotFound],
        RetryAction::LookAgain { first: Duration::from_secs(5), max: Duration::from_mins(3) },
        WaitReason::InstanceNotInitialized,
    ),
    row(
        &[UpdatePool, DeletePoolMachines, UpdatePoolMachine],
        &[NotFound],
        RetryAction::LookAgain { first: Duration::from_secs(5), max: Duration::from_mins(3) },
        WaitReason::DriverRetry,
    ),
    row(
        &[GetMachineStatus, GetPoolStatus],
        &[NotFound],
        RetryAction::Absent,
        WaitReason::DriverRetry,
    ),
    row(
        &[GetMachineStatus],
        &[Uninitialized],
        RetryAction::NotInitialized,
        WaitReason::DriverRetry,
    ),
    row(&[GetMachineStatus], &[Unimplemented], RetryAction::GoOn, WaitReason::DriverRetry),
    row(
        &[GetVolumeIds, ValidateClass],
        &[Unimplemented],
        RetryAction::GoOn,
        WaitReason::DriverRetry,
    ),
    row(
        &[CreateMachine],
        &[AlreadyExists],
        RetryAction::GiveUp(FailureReason::InstanceConflict),
        WaitReason::Failed,
    ),
    row(
        &[CreateMachine, InitializeMachine],
        &[DataLoss],
        RetryAction::GiveUp(FailureReason::DataLoss),
        WaitReason::Failed,
    ),
    row(
        &[CreateMachine, UpdateMachine, CreatePool, UpdatePool, UpdatePoolMachine],
        &[InvalidArgument],
        RetryAction::OnClassChange,
        WaitReason::InvalidSpec,
    ),
    row(&[CreateMachine], &[OutOfRange], RetryAction::OnClassChange, WaitReason::InvalidSpec),
    // Too many calls, not too few machines: no quota of machines helps.
    Row {
        kinds: &[],
        codes: &[ResourceExhausted],
        reasons: &[Reason::Throttled],
        then: RetryAction::WhenThereIsRoom,
        wait: WaitReason::DriverRetry,
    },
    // Nor does quota help what makes nothing.
    row(
        &[
            DeleteMachine,
            DeletePool,
            DeletePoolMachines,
            GetMachineStatus,
            GetPoolStatus,
            GetVolumeIds,
            ListMachines,
            ListPools,
            ValidateClass,
        ],
        &[ResourceExhausted],
        RetryAction::WhenThereIsRoom,
        WaitReason::DriverRetry,
    ),
    row(&[], &[ResourceExhausted], RetryAction::WhenThereIsRoom, WaitReason::CapacityExhausted),
    row(&[InitializeMachine], &[], SOON, WaitReason::InstanceNotInitialized),
    row(&[], &[Unknown, Canceled, DeadlineExceeded, Uninitialized], SOON, WaitReason::DriverRetry),
    row(&[], &[Unavailable], seconds(5, 120), WaitReason::DriverRetry),
    row(&[], &[Aborted], seconds(5, 15), WaitReason::DriverRetry),
    row(
        &[],
        &[PermissionDenied, Unauthenticated],
        RetryAction::OnSecretChange { first: Duration::from_mins(3), max: Duration::from_mins(30) },
        WaitReason::CredentialsRefused,
    ),
    row(&[], &[FailedPrecondition], seconds(30, 600), WaitReason::ActionNeeded),
    row(
        &[GetMachineStatus, GetPoolStatus, CreatePool],
        &[OutOfRange],
        LATER,
        WaitReason::SeveralInstances,
    ),
    row(&[UpdateMachine], &[NotFound], LATER, WaitReason::InstanceMissing),
    row(&[], &[Unimplemented], LATER, WaitReason::DriverLacksVerb),
    row(&[], &[InvalidArgument], LATER, WaitReason::InvalidSpec),
    row(&[], &[], LATER, WaitReason::DriverRetry),
];

/// The rule for a failed verb. `reason` is the driver's typed word; most decide nothing.
pub fn rule(kind: OperationKind, code: ErrorCode, reason: &str, certainty: Certainty) -> Rule {
    let fits = |row: &&Row| {
        (row.kinds.is_empty() || row.kinds.contains(&kind))
            && (row.codes.is_empty() || row.codes.contains(&code))
            && (row.reasons.is_empty() || row.reasons.iter().any(|word| *reason == *word))
    };
    let row = TABLE.iter().find(fits);
    let then = row.map_or(LATER, |row| row.then.clone());
    let wait = row.map_or(WaitReason::DriverRetry, |row| row.wait.clone());
    let first = first(kind, certainty, &then);
    Rule { then, first, reason: wait }
}

/// Certainty counts for what changes things, unless what follows looks at the instance anyway.
fn first(kind: OperationKind, certainty: Certainty, then: &RetryAction) -> Precondition {
    if !kind.is_mutation()
        || matches!(
            then,
            RetryAction::Accept | RetryAction::Refuse(_) | RetryAction::LookAgain { .. }
        )
    {
        return Precondition::Nothing;
    }
    match certainty {
        Certainty::NotApplied => Precondition::Nothing,
        Certainty::Partial => Precondition::Checkpoint,
        Certainty::Unknown => Precondition::Read,
    }
}

/// The reasons that decide something, for the manual.
#[cfg(test)]
pub(super) fn reasons() -> impl Iterator<Item = (&'static str, &'static [ErrorCode])> {
    TABLE.iter().flat_map(|row| row.reasons.iter().map(|reason| (reason.word(), row.codes)))
}

//! The life of a Machine: [`plan`] and one file for each state.
//!
//! A pass first settles the driver's answers, then walks from state to state until a state rests: after a request, for
//! a wait, or because there is nothing to do.
//!
//! Each condition and each part of the status that several states need has one owner, whose
//! functions the others call:
//!
//! | part of the status | set in |
//! |---|---|
//! | condition `InstanceCreated`, `addresses`, `instanceProviderID`, `creationUnconfirmedSince` | `instance.rs` |
//! | condition `InstanceInitialized` | `initializing.rs` |
//! | condition `InstanceAdopted` | `adoption.rs` |
//! | `instanceUID`, `instanceClusterID` | `cluster_id.rs` |
//! | condition `InstanceDeleted` | `releasing.rs` |
//! | condition `Drained`, `drain` | `draining/` |
//! | conditions `HotUpdated` and `HotUpdateRefused`, `hotUpdate` | `updating.rs` |
//! | condition `NodeTemplateRefused` | `node_template.rs` |
//! | condition `NodeAmbiguous` | `own_node.rs` |
//! | condition `PreserveValueInvalid` | `preserving.rs` |
//! | conditions of the Node | `conditions.rs` |
//! | `retry` | `retry.rs` |
//! | `lastOperation` | `last_operation.rs` |
//! | `operation`, `step`, `stepSince`, `history` | `pass.rs` |
//! | `currentStatus` | `pass.rs` |
//! | `waitingFor`, `failureReason`, `failureMessage` | `apply.rs` |
//! | `waitingFor`, once the evictions were answered | `draining/` |
//! | `stoppedSince` | `instance.rs` |
//! | `adoptedSpecDigest` | `updating.rs` |
//! | `creationStartedAt`, `creationSpecDigest` | `creating.rs` |
//! | `bootstrapTokenID` | `token.rs` |
//! | `deletionCause` | `finding.rs` |
//! | `losses`, `joinedAt` | `lost.rs` |
//! | `instanceCheckedAt` | `instance_check.rs` |
//! | `instanceNotice` | `hint.rs` |
//! | `lastKnownState` | `answer.rs` |
//! | `phase`, `nodeRef`, `nodeName`, `version` | `preboot.rs` |
//! | `bootstrapReady`, `bootstrapPhase`, `infrastructureReady`, `infrastructurePhase` | `preboot.rs` |
//! | `observedGeneration` | `assemble.rs` |

pub(crate) mod abandoning;
pub(crate) mod absence;
mod adoption;
mod answer;
mod apply;
mod assemble;
mod bootstrapping;
mod checked;
mod closed;
mod cluster_id;
mod conditions;
mod creating;
mod deadline;
mod deleting;
mod diagram;
mod dispatch;
pub(crate) mod draining;
mod effects;
mod evacuating;
mod failed;
mod finding;
mod finishing;
mod health;
pub(crate) mod hint;
mod hooks;
mod in_place;
mod initializing;
pub(crate) mod instance;
mod instance_check;
pub mod invariants;
mod joining;
mod last_operation;
mod lookup;
mod lost;
mod node_notes;
mod node_template;
mod operation_state;
pub(crate) mod own_instance;
mod own_node;
pub(crate) mod pass;
mod paused;
mod phase;
mod pool_update;
pub(crate) mod pooled;
mod preboot;
pub(crate) mod preconditions;
mod preserving;
mod reading;
mod releasing;
mod retry;
mod running;
mod settled;
mod takeover;
mod token;
mod transition;
mod unhealthy;
mod updating;
mod volumes;

pub use abandoning::named as abandoned;
pub use absence::is_proof as absence_is_proof;
pub use diagram::mermaid;
pub use draining::is_last_look;
pub use own_instance::{has_own_instance, holder};
pub use phase::{MachineLife, lifecycle_phase};
pub use pooled::asks_for_group;

use std::ops::ControlFlow;

use ostler_api::machine::{Machine, MachinePhase, MachineStep};

use crate::{
    machine::{pass::Pass, transition::Transition},
    plan::{Next, Plan},
    snapshot::Snapshot,
};

/// Where a Machine is. Each state has a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// There is no instance, or none is known.
    Creating,
    /// The instance exists and is to be initialized.
    Initializing,
    /// The Node has to come.
    Joining,
    /// The Node is, or was, there.
    Running,
    /// The Node is updated in place: its pods leave, then another controller updates it.
    InPlace,
    /// Given up.
    Failed,
    /// Deletion: find the instance and the Node.
    Finding,
    /// Deletion: cordon and drain.
    Draining,
    /// Deletion: volumes.
    Detaching,
    /// Deletion: the instance.
    Deleting,
    /// Deletion: Node, token, finalizer.
    Finishing,
}

impl State {
    /// Where a Machine stands when a pass begins.
    fn of(machine: &Machine) -> Self {
        use MachinePhase as Is;
        let step = machine.status.as_ref().and_then(|status| status.step.clone());
        if machine.is_deleting() {
            return Self::of_deletion(step.as_ref());
        }
        match machine.phase() {
            Is::Failed => Self::Failed,
            Is::Running | Is::Unknown | Is::Available | Is::InPlaceUpdateSuccessful => {
                Self::Running
            }
            Is::InPlaceUpdating | Is::InPlaceUpdateFailed => Self::InPlace,
            Is::New | Is::Pending | Is::Terminating | Is::CrashLoopBackOff | Is::Other(_) => {
                Self::of_creation(machine, step.as_ref())
            }
        }
    }

    fn of_creation(machine: &Machine, step: Option<&MachineStep>) -> Self {
        match step {
            Some(MachineStep::InitializeInstance) => Self::Initializing,
            Some(MachineStep::JoinNode) => Self::Joining,
            None if machine.phase() == MachinePhase::Pending && machine.provider_id().is_some() => {
                Self::Joining
            }
            None if Self::is_to_initialize(machine) => Self::Initializing,
            None | Some(_) => Self::Creating,
        }
    }

    /// Another controller made the instance and did not get it initialized, or a core died that had it initialized.
    fn is_to_initialize(machine: &Machine) -> bool {
        let failed = || machine.status.as_ref().is_some_and(initializing::is_shown_as_failed);
        machine.provider_id().is_some() && (initializing::is_recorded(machine) || failed())
    }

    fn of_deletion(step: Option<&MachineStep>) -> Self {
        match step {
            Some(MachineStep::PreDrainHook | MachineStep::CordonNode | MachineStep::DrainNode) => {
                Self::Draining
            }
            Some(MachineStep::DetachVolumes) => Self::Detaching,
            Some(MachineStep::PreTerminateHook | MachineStep::DeleteInstance) => Self::Deleting,
            None | Some(_) => Self::Finding,
        }
    }
}

/// Decides what to do next for a Machine.
pub fn plan(snapshot: &Snapshot) -> Plan {
    let mut pass = Pass::new(snapshot);
    token::recall(&mut pass);
    creating::restore_start(&mut pass);
    instance::note_id(&mut pass);
    let next = walk(&mut pass).break_value().unwrap_or(Next::OnChange);
    let plan = pass.finish(next);
    debug_assert_eq!(invariants::check(snapshot, &plan), Ok(()), "in {plan:#?}");
    plan
}

/// Most states that a pass can walk through: each at most twice.
const MAX_TRANSITIONS: usize = 20;

fn walk(pass: &mut Pass<'_>) -> ControlFlow<Next, State> {
    let mut state = State::of(pass.machine);
    if pass.machine.is_deleting() {
        if !pass.machine.has_finalizer() {
            return pass.apply(Transition::Rest(Next::Done));
        }
        finding::begin(pass);
        state = State::of_deletion(pass.status.step.as_ref());
        if pooled::is_gone(pass.snap) {
            releasing::release(pass, pass::Release::Deleted);
            state = State::Deleting;
        } else if let Some(release) = releasing::recorded(&pass.status).filter(|_| pass.is_free()) {
            releasing::release(pass, release);
            state = State::Deleting;
        } else if let Err(wait) = pooled::hold(pass) {
            pass.apply(wait)?;
        }
    } else {
        releasing::forget(pass);
    }
    let answered = answer::settle(pass, state);
    state = follow(pass, state, answered)?;
    if let Err(wait) = instance::look_node_up(pass, state) {
        pass.apply(wait)?;
    }
    own_node::tell_several(pass);
    if let Err(wait) = paused::hold(pass, state) {
        pass.apply(wait)?;
    }
    if let Err(wanted) = hint::follow(pass, state) {
        state = follow(pass, state, wanted)?;
    }
    if let Err(wanted) = checked::follow(pass, state) {
        state = follow(pass, state, wanted)?;
    }
    pass.effects.holds = !pass.machine.is_deleting();
    for _ in 0..MAX_TRANSITIONS {
        let (Ok(wanted) | Err(wanted)) = match state {
            State::Creating => creating::plan(pass),
            State::Initializing => initializing::plan(pass),
            State::Joining => joining::plan(pass),
            State::Running => running::plan(pass),
            State::InPlace if pool_update::is_due(pass) => pool_update::plan(pass),
            State::InPlace => in_place::plan(pass),
            State::Failed => failed::plan(pass),
            State::Finding => finding::plan(pass),
            State::Draining => draining::plan(pass),
            State::Detaching => volumes::plan(pass),
            State::Deleting => deleting::plan(pass),
            State::Finishing => finishing::plan(pass),
        };
        state = follow(pass, state, wanted)?;
    }
    debug_assert!(false, "states go round in a circle: {state:?}");
    ControlFlow::Continue(state)
}

fn follow(pass: &mut Pass<'_>, from: State, wanted: Transition) -> ControlFlow<Next, State> {
    let to = pass.apply(wanted)?;
    debug_assert!(diagram::leads_to(from, to), "{from:?} to {to:?} is not in the table");
    ControlFlow::Continue(to)
}

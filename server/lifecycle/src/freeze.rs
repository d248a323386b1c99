//! The overshoot freeze: a set that has far more Machines than its spec asks for creates no more, until they are gone.
//! Whatever made them, a mistake of a controller or of a webhook, stops costing money.
//!
//! A frozen set still deletes. The set is frozen for at least one period, so that a watcher sees the freeze; but a set
//! with fewer Machines than its spec asks for goes on: the set was scaled down and up again, and must not wait for the
//! period. A user ends a freeze with annotation `safety.machine.sapcloud.io/unfreeze`.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::serde::Serialize;
use ostler_api::machine::Machine;
use ostler_api::machine_deployment::{
    MachineDeployment, MachineDeploymentCondition, MachineDeploymentConditionType,
};
use ostler_api::machine_set::{MachineSet, MachineSetCondition, MachineSetConditionType};
use ostler_api::names::{annotation, label};

use serde_json::{Value, json};

use crate::plan::{Event, EventAction, EventReason};
use crate::write::{Batch, Next, Object, Plan, Verb, Write};
use crate::{
    deployment::fenceposts,
    numbered,
    time::{after, until},
};

/// Reason of the condition of a set.
pub const OVERSHOOTING: &str = "OverShootingReplicaCount";
/// Reason of the condition of a deployment.
pub const STATE_SYNC: &str = "MachineDeploymentStateSync";

/// The overshoot allowed for a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Margins {
    /// A set freezes this far above the allowed number.
    pub up: i32,
    /// A set goes on this far below the threshold of the freeze.
    pub down: i32,
}

impl Default for Margins {
    fn default() -> Self {
        Self { up: 2, down: 1 }
    }
}

/// From how many Machines on a set is frozen, and down to how many it stays so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Frozen with so many or more.
    pub high: i32,
    /// Not frozen with so many or fewer.
    pub low: i32,
}

impl Limits {
    /// Of a set of that deployment, or of none.
    pub fn of(set: &MachineSet, owner: Option<&MachineDeployment>, margins: Margins) -> Self {
        let (allowed, most) = match owner {
            Some(owner) => {
                let allowed = owner.spec.replicas().saturating_add(fenceposts::surge(&owner.spec));
                (allowed, allowed)
            }
            None => (set.spec.replicas(), set.spec.replicas().saturating_mul(2)),
        };
        let high = most.saturating_add(margins.up.max(0));
        // A set with its allowed number is never frozen, and no freeze needs fewer to end: otherwise margins of 0 would
        // freeze an empty set for good.
        Self {
            high: high.max(allowed.saturating_add(1)),
            low: high.saturating_sub(margins.down.max(0)).max(allowed),
        }
    }
}

/// Whether a Machine counts for a set: in any phase, with every label of the template, and controlled by this very set
/// and not by a former set of the same name.
pub fn counts(machine: &Machine, set: &MachineSet) -> bool {
    let owners = machine.metadata.owner_references.iter().flatten();
    let ours = owners.into_iter().any(|it| it.controller == Some(true) && it.uid == set.uid());
    let template = set.spec.template.metadata.as_ref().and_then(|it| it.labels.as_ref());
    let mut wanted = template.into_iter().flatten();
    ours && wanted.all(|(key, value)| machine.label(key) == Some(value))
}

/// The facts about a set for a freeze.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// The set.
    pub set: &'a MachineSet,
    /// The deployment that controls the set.
    pub owner: Option<&'a MachineDeployment>,
    /// The set's Machines, see [`counts`].
    pub machines: i32,
    /// The time.
    pub now: Timestamp,
    /// The allowed overshoot.
    pub margins: Margins,
    /// How long a freeze lasts at least, and how long a set stays out of a freeze that a user ended.
    pub period: Duration,
    /// When a user took it out of a freeze, as far as this core remembers.
    pub lifted: Option<Timestamp>,
}

/// The decision about an object, in this order; and when to look again without an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision<C> {
    /// Whether the object is to carry the label.
    pub label: Option<bool>,
    /// The wanted conditions.
    pub conditions: Option<Vec<C>>,
    /// The event about the change.
    pub event: Option<Change>,
    /// Whether to remove the annotation of the user.
    pub remove_annotation: bool,
    /// Whether a user wants no freeze; then there is none for a period.
    pub by_user: bool,
    /// When to look again.
    pub again: Option<Timestamp>,
}

impl<C> Default for Decision<C> {
    fn default() -> Self {
        Self {
            label: None,
            conditions: None,
            event: None,
            remove_annotation: false,
            by_user: false,
            again: None,
        }
    }
}

/// The change of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The set is frozen.
    Frozen {
        /// So many Machines.
        machines: i32,
        /// With so many or more it is.
        high: i32,
    },
    /// The set goes on.
    Unfrozen {
        /// So many Machines.
        machines: i32,
        /// Whether a user wanted it.
        by_user: bool,
    },
}

impl From<Change> for Event {
    fn from(change: Change) -> Self {
        let (reason, action) = match change {
            Change::Frozen { .. } => (EventReason::FrozeMachineSet, EventAction::Freeze),
            Change::Unfrozen { .. } => (EventReason::UnfrozeMachineSet, EventAction::Unfreeze),
        };
        Self::normal(reason, change.message()).doing(action)
    }
}

impl Change {
    /// For people.
    pub fn message(self) -> String {
        match self {
            Self::Frozen { machines, high } => format!(
                "it has {}, and is frozen with {high} or more: it creates none until they are gone, or \
                 until annotation {} ends that",
                numbered(machines, "machine"),
                annotation::UNFREEZE
            ),
            Self::Unfrozen { machines, by_user: false } => {
                format!("it has {} and creates machines again", numbered(machines, "machine"))
            }
            Self::Unfrozen { machines, by_user: true } => format!(
                "it has {} and creates machines again, since annotation {} says so",
                numbered(machines, "machine"),
                annotation::UNFREEZE
            ),
        }
    }
}

/// The decision about a set.
pub fn decide(snap: &Snapshot<'_>) -> Decision<MachineSetCondition> {
    let Snapshot { set, owner, machines, now, period, .. } = *snap;
    let labelled = set.label(label::FREEZE) == Some("True");
    let conditions = set.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
    let condition = conditions.iter().find(|it| it.type_ == MachineSetConditionType::Frozen);
    let frozen = labelled || condition.is_some();
    let asked = set.annotation(annotation::UNFREEZE).is_some();
    let by_user = asked || owner.is_some_and(|it| it.annotation(annotation::UNFREEZE).is_some());

    let limits = Limits::of(set, owner, snap.margins);
    let rests_until = snap.lifted.map(|at| after(at, period)).filter(|until| *until > now);
    let since = condition.and_then(|it| it.last_transition_time.as_ref()).map_or(now, |at| at.0);
    let holds_until = after(since, period);
    // A number about to be filled in says nothing about surplus.
    let absent = owner.map_or(set.spec.replicas, |it| it.spec.replicas).is_none();
    let (freeze, again) = match (frozen, by_user) {
        (_, true) => (false, None),
        (frozen, false) if absent => (frozen, None),
        (false, _) if machines >= limits.high => (rests_until.is_none(), rests_until),
        (true, _) if machines <= limits.low => {
            (holds_until > now && machines >= set.spec.replicas(), Some(holds_until))
        }
        (frozen, _) => (frozen, None),
    };
    let mut plan = Decision {
        remove_annotation: asked,
        by_user,
        again: again.filter(|at| *at > now),
        ..Decision::default()
    };
    if set.is_deleting() && !frozen {
        return plan;
    }
    plan.label = (labelled != freeze).then_some(freeze);
    if condition.is_some() != freeze {
        let change = if freeze {
            Change::Frozen { machines, high: limits.high }
        } else {
            Change::Unfrozen { machines, by_user }
        };
        let others = conditions.iter().filter(|it| it.type_ != MachineSetConditionType::Frozen);
        let new = freeze.then(|| MachineSetCondition {
            type_: MachineSetConditionType::Frozen,
            status: "True".to_owned(),
            last_transition_time: Some(Time(now)),
            reason: Some(OVERSHOOTING.to_owned()),
            message: Some(change.message()),
        });
        plan.conditions = Some(others.cloned().chain(new).collect());
        plan.event = Some(change);
    }
    if freeze && condition.is_none() {
        plan.again = Some(after(now, period));
    }
    plan
}

/// Decides about a deployment, which shows whether any of its sets is frozen. A user's annotation stays on it until
/// all of them go on.
pub fn decide_deployment(
    deployment: &MachineDeployment,
    any_frozen: bool,
    now: Timestamp,
) -> Decision<MachineDeploymentCondition> {
    let labelled = deployment.label(label::FREEZE) == Some("True");
    let status = deployment.status.as_ref();
    let conditions = status.map(|it| it.conditions.as_slice()).unwrap_or_default();
    let frozen =
        |it: &&MachineDeploymentCondition| it.type_ == MachineDeploymentConditionType::Frozen;
    let mut plan = Decision {
        label: (labelled != any_frozen).then_some(any_frozen),
        remove_annotation: !any_frozen && deployment.annotation(annotation::UNFREEZE).is_some(),
        ..Decision::default()
    };
    if conditions.iter().any(|it| frozen(&it)) != any_frozen {
        let mut others: Vec<_> = conditions.iter().filter(|it| !frozen(it)).cloned().collect();
        // It could not get on meanwhile: that time does not count for the progress deadline.
        let progressing = |it: &&mut MachineDeploymentCondition| {
            it.type_ == MachineDeploymentConditionType::Progressing
        };
        if let Some(condition) = others.iter_mut().find(progressing).filter(|_| !any_frozen) {
            condition.last_update_time = Some(Time(now));
        }
        let new = any_frozen.then(|| MachineDeploymentCondition {
            type_: MachineDeploymentConditionType::Frozen,
            status: "True".to_owned(),
            last_update_time: Some(Time(now)),
            last_transition_time: Some(Time(now)),
            reason: Some(STATE_SYNC.to_owned()),
            message: Some("a machine set of it is frozen: it has far too many machines".to_owned()),
        });
        plan.conditions = Some(others.into_iter().chain(new).collect());
    }
    plan
}

/// The observations of a pass.
#[derive(Debug, Clone)]
pub enum FreezeFacts {
    /// A set.
    Set {
        /// The set.
        set: Arc<MachineSet>,
        /// The deployment that controls the set.
        owner: Option<Arc<MachineDeployment>>,
        /// The set's Machines, see [`counts`].
        machines: i32,
        /// See [`Snapshot::lifted`].
        lifted: Option<Timestamp>,
        /// The time.
        now: Timestamp,
        /// The allowed overshoot.
        margins: Margins,
        /// See [`Snapshot::period`].
        period: Duration,
    },
    /// A deployment, and whether one of its sets is frozen.
    Deployment {
        /// The deployment.
        deployment: Arc<MachineDeployment>,
        /// Whether a set of the deployment is frozen.
        any_frozen: bool,
        /// The time.
        now: Timestamp,
    },
}

impl FreezeFacts {
    /// The object.
    pub fn object(&self) -> Object {
        match self {
            Self::Set { set, .. } => Object::Set(Arc::clone(set)),
            Self::Deployment { deployment, .. } => Object::Deployment(Arc::clone(deployment)),
        }
    }

    /// The decision about a set.
    fn of_set(&self) -> Option<Decision<MachineSetCondition>> {
        let Self::Set { set, owner, machines, lifted, now, margins, period } = self else {
            return None;
        };
        let (owner, machines, lifted) = (owner.as_deref(), *machines, *lifted);
        let (now, margins, period) = (*now, *margins, *period);
        Some(decide(&Snapshot { set, owner, machines, now, margins, period, lifted }))
    }

    /// Whether a set is to be frozen that is not yet. No Machine of the set is deleted before the freeze: the set would
    /// soon have too few Machines for a freeze, and no event would explain the deletions.
    pub fn is_due(&self) -> bool {
        self.of_set().is_some_and(|decision| decision.label == Some(true))
    }

    /// Whether a user wants no freeze of a set now.
    pub fn is_lifted(&self) -> bool {
        self.of_set().is_some_and(|decision| decision.by_user)
    }
}

/// Decides on writes.
pub fn plan(observed: &FreezeFacts) -> Plan<()> {
    match observed {
        FreezeFacts::Set { now, period, .. } => {
            let decision = observed.of_set().unwrap_or_default();
            let again = decision.again.map_or(*period, |at| until(at, *now).min(*period));
            Plan::only(writes(observed, decision, "machineSetCondition"), Next::After(again))
        }
        FreezeFacts::Deployment { deployment, any_frozen, now } => {
            let decision = decide_deployment(deployment, *any_frozen, *now);
            Plan::only(writes(observed, decision, "conditions"), Next::OnChange)
        }
    }
}

/// The label first, because it holds the creation; a user's annotation goes last, so that after a crash the user's wish
/// is repeated.
fn writes<C: Serialize>(observed: &FreezeFacts, decision: Decision<C>, field: &str) -> Vec<Batch> {
    let Decision { label, conditions, event, remove_annotation, .. } = decision;
    let label = label.map(|frozen: bool| {
        let value = if frozen { json!("True") } else { Value::Null };
        Verb::Patch(json!({ "metadata": { "labels": { label::FREEZE: value } } }))
    });
    let status = conditions.map(|all| Verb::PatchStatus(json!({ "status": { field: all } })));
    let gone = json!({ "metadata": { "annotations": { annotation::UNFREEZE: null } } });
    let verbs = [label, status, remove_annotation.then_some(Verb::Patch(gone))];
    let mut event = event.map(Event::from);
    let write = |verb: Verb| {
        let shows = matches!(verb, Verb::PatchStatus(_));
        let told = if shows { event.take() } else { None };
        let write = Write::new(observed.object(), verb).telling(told);
        Batch::own("cannot write that a set is frozen", write)
    };
    verbs.into_iter().flatten().map(write).collect()
}

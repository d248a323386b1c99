//! MachineReserves: Machines made ready in advance. A set takes them ([`crate::set`]) before it makes any, and the
//! reserve makes others behind it.
//!
//! The Machines belong to no set and match no selector: counts of the target's Machines do not include them.

mod count;
mod size;
mod status;
mod template;
mod valid;
mod writes;

pub use crate::owner::is_in_reserve;
pub use count::{Cause, decide};
pub use size::{Size, size};
pub use writes::{ReserveReport, plan};

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use ostler_api::{
    Machine, MachineDeployment, MachineReserve, MachineSet, machine_set::MachineTemplateSpec,
    names::label,
};

use crate::{
    deployment::status::is_paused, owner::is_controlled_by, set::Blind, streak::Streak,
    template_identity::identity,
};

/// Whether a Machine left the reserve: a set took it, even if the set has released it since.
pub fn is_given(machine: &Machine, reserve: &MachineReserve) -> bool {
    let of = machine.label(label::RESERVE) == Some(reserve.name());
    !of && !is_controlled_by(&machine.metadata, reserve.uid())
}

/// The object that a reserve is for.
#[derive(Debug, Clone)]
pub enum ReserveTarget {
    /// Not known, with the reason for people.
    Unknown(String),
    /// There is none.
    Gone,
    /// A deployment and its sets.
    Deployment(Arc<MachineDeployment>, Vec<Arc<MachineSet>>),
    /// A set.
    Set(Arc<MachineSet>),
}

/// Facts of a target, for the reserve.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Its metadata.
    pub meta: &'a ObjectMeta,
    /// The wanted Machines; `None`: not set yet.
    pub replicas: Option<i32>,
    /// The selector of the target's Machines.
    pub selector: Option<&'a LabelSelector>,
    /// The template of the next Machines.
    pub template: &'a MachineTemplateSpec,
}

impl Facts<'_> {
    /// Whether the target makes no Machines, since it has far too many.
    fn is_frozen(&self) -> bool {
        self.meta
            .labels
            .as_ref()
            .and_then(|all| all.get(label::FREEZE))
            .is_some_and(|it| it == "True")
    }
}

impl ReserveTarget {
    /// The known facts; `None`: unknown, gone, or in deletion.
    pub fn facts(&self) -> Option<Facts<'_>> {
        let facts = match self {
            Self::Unknown(_) | Self::Gone => return None,
            Self::Deployment(it, sets) => Facts {
                meta: &it.metadata,
                replicas: it.spec.replicas,
                selector: it.spec.selector.as_ref(),
                template: in_use(it, sets),
            },
            Self::Set(it) => Facts {
                meta: &it.metadata,
                replicas: it.spec.replicas,
                selector: it.spec.selector.as_ref(),
                template: &it.spec.template,
            },
        };
        facts.meta.deletion_timestamp.is_none().then_some(facts)
    }

    /// Whether the Machines of its reserve go.
    fn is_gone(&self) -> bool {
        !matches!(self, Self::Unknown(_)) && self.facts().is_none()
    }
}

/// The template in use by a deployment: while paused, the template of the newest set, unless a set has the deployment's
/// own.
fn in_use<'a>(
    deployment: &'a MachineDeployment,
    sets: &'a [Arc<MachineSet>],
) -> &'a MachineTemplateSpec {
    let own = &deployment.spec.template;
    let has_own = || sets.iter().any(|it| identity(&it.spec.template) == identity(own));
    let age = |it: &&Arc<MachineSet>| it.metadata.creation_timestamp.as_ref().map(|at| at.0);
    let newest = sets.iter().max_by_key(age);
    match newest.filter(|_| is_paused(deployment) && !has_own()) {
        Some(set) => &set.spec.template,
        None => own,
    }
}

/// The input of a decision about a reserve.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The reserve.
    pub reserve: Arc<MachineReserve>,
    /// Its target.
    pub target: ReserveTarget,
    /// Whether there is the class of the target's template.
    pub has_class: bool,
    /// Machines of the reserve.
    pub machines: Vec<Arc<Machine>>,
    /// How many Machines named in the status left the reserve for a set, still existing or not.
    pub given: usize,
    /// How many Machines its target has.
    pub has: usize,
    /// Names of Machines whose creation got no answer.
    pub unanswered: Vec<String>,
    /// Why more Machines may exist than were seen; `None`: all were seen.
    pub blind: Option<Blind>,
    /// Random: names of new Machines follow from it.
    pub seed: u64,
    /// When to look again although nothing changed.
    pub again: Duration,
    /// The time.
    pub now: Timestamp,
}

/// The decision about a reserve.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decision {
    /// Why no Machines are made: reason and text.
    pub broken: Option<(&'static str, String)>,
    /// How many Machines are to be ready; `None`: that is not known.
    pub size: Option<Size>,
    /// Machines to patch with changes of the target's template, without replacement.
    pub update: Vec<(Arc<Machine>, serde_json::Value)>,
    /// Surplus that stays for now, since the target is about to take it.
    pub held: usize,
    /// Machines to delete.
    pub delete: Vec<(Arc<Machine>, Cause)>,
    /// Names whose creation is repeated.
    pub repeat: Vec<String>,
    /// How many Machines are made under new names.
    pub create: usize,
    /// Machines of the target's current template that live.
    pub current: usize,
    /// Machines that a set may take.
    pub ready: usize,
    /// Whether the target is frozen: nothing is refilled, and nothing rolls.
    pub frozen: bool,
    /// Consecutive failures of Machines, and when Failed Machines are replaced.
    pub streak: Streak,
}

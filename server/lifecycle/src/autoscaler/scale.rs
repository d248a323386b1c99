//! The result of an autoscaler's wish: one write to the group, or a refusal with its reason. Written twice, a wish has
//! no other effect than written once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::Timestamp;
use ostler_api::machine::MachinePhase;
use ostler_api::names::annotation::{LAST_SCALING, REPLICAS_CHANGED_BY_SCALER, TRIGGER_DELETION};
use serde_json::{Map, Value, json};

use super::chosen::{entries, is_chosen};
use super::group::{Group, GroupId, Placeholder};
use super::instance::{GroupMember, lacking};
use crate::numbered;

/// The write that a wish becomes.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaleChange {
    /// A merge patch of the group, conditional on the version that was seen.
    pub patch: Value,
    /// A message for people.
    pub note: String,
}

/// Why nothing is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScaleRefusal {
    /// There is no such group.
    NoGroup(String),
    /// The wish makes no sense, whatever the group.
    Senseless(String),
    /// The group cannot be as it would have to be.
    Impossible(String),
}

impl fmt::Display for ScaleRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGroup(id) => {
                write!(
                    f,
                    "there is no group {id}: no MachineDeployment or MachinePool of that name has limits"
                )
            }
            Self::Senseless(why) | Self::Impossible(why) => f.write_str(why),
        }
    }
}

/// A Node to delete, as named by the autoscaler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The name, for people.
    pub name: String,
    /// The subject of the name.
    pub what: NamedNode,
}

/// The meaning of a Node here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamedNode {
    /// The Node of this Machine, by UID.
    Machine(String),
    /// A Machine that the pool lacks.
    Missing(i32),
    /// A deleted Machine of this namespace, given by name: an autoscaler repeats requests that are done.
    Gone,
    /// A name that does not belong to the group.
    Unknown,
}

impl NamedNode {
    /// A Machine that the pool lacks, if the id says so and means `group`.
    pub fn missing(id: &str, group: &GroupId) -> Option<Self> {
        match Placeholder::read(id)? {
            Placeholder::Missing(namespace, name, at)
                if namespace == group.namespace && name == group.name =>
            {
                Some(Self::Missing(at))
            }
            Placeholder::Missing(..) | Placeholder::Machine(..) => None,
        }
    }

    /// A deleted Machine of the namespace of `group`, if the id names a Machine.
    pub fn gone(id: &str, group: &GroupId) -> Option<Self> {
        let Placeholder::Machine(namespace, _) = Placeholder::read(id)? else { return None };
        (namespace == group.namespace).then_some(Self::Gone)
    }
}

/// More Machines.
///
/// # Errors
/// The group would exceed its maximum.
pub fn increase(group: &Group, by: i32, now: Timestamp) -> Result<ScaleChange, ScaleRefusal> {
    let (from, limits) = (group.replicas(), known(group)?);
    if by <= 0 {
        return Err(ScaleRefusal::Senseless(format!(
            "a group grows by 1 or more, and not by {by}"
        )));
    }
    let to = from.saturating_add(by);
    if to > limits.max {
        return Err(ScaleRefusal::Impossible(format!(
            "{} would have {to} Machines, and its maximum is {}",
            group.id(),
            limits.max
        )));
    }
    Ok(change(group, to, now, Map::new(), format!("scaled from {from} to {to}")))
}

/// Deletes these Machines and lowers the replicas. `None`: each goes already.
///
/// # Errors
/// A Machine is not of this group, or too few would be left: then no Machine is deleted.
pub fn delete(
    group: &Group,
    members: &[GroupMember],
    nodes: &[Named],
    now: Timestamp,
) -> Result<Option<ScaleChange>, ScaleRefusal> {
    let limits = known(group)?;
    let list = group.annotation(TRIGGER_DELETION).unwrap_or_default();
    let by_uid: BTreeMap<_, _> =
        members.iter().map(|one| (one.machine.uid(), one.machine.as_ref())).collect();
    let lacks = match group {
        Group::Pool(pool) => lacking(pool, members),
        Group::Deployment(_) => 0,
    };
    let (mut chosen, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for node in nodes {
        match &node.what {
            NamedNode::Missing(at) if *at < lacks => drop(missing.insert(*at)),
            // The instance came meanwhile, or is not wanted any more.
            NamedNode::Missing(_) | NamedNode::Gone => {}
            NamedNode::Machine(uid) => {
                let machine = by_uid.get(uid.as_str()).ok_or_else(|| stranger(group, node))?;
                let goes = machine.is_deleting()
                    || machine.phase() == MachinePhase::Failed
                    || is_chosen(machine, list);
                if !goes {
                    chosen.insert(machine.name());
                }
            }
            NamedNode::Unknown => return Err(stranger(group, node)),
        }
    }
    let fewer = i32::try_from(chosen.len() + missing.len()).unwrap_or(i32::MAX);
    if fewer == 0 {
        return Ok(None);
    }
    let (from, to) = (group.replicas(), group.replicas().saturating_sub(fewer));
    if to < limits.min.min(from) {
        return Err(ScaleRefusal::Impossible(format!(
            "{} would have {to} Machines, and its minimum is {}",
            group.id(),
            limits.min
        )));
    }
    let note = format!("scaled from {from} to {to}, without {}", names(&chosen, missing.len()));
    let marks = marks(list, members, &chosen, now);
    Ok(Some(change(group, to, now, marks, note)))
}

/// Fewer Machines, but none with a Node: requested Machines that did not come are not wanted any more.
///
/// # Errors
/// So many are not without a Node.
pub fn decrease(
    group: &Group,
    members: &[GroupMember],
    by: i32,
    now: Timestamp,
) -> Result<ScaleChange, ScaleRefusal> {
    known(group)?;
    if by >= 0 {
        let why = format!("a target is lowered by a number below 0, and not by {by}");
        return Err(ScaleRefusal::Senseless(why));
    }
    let (from, to) = (group.replicas(), group.replicas().saturating_add(by));
    let list = group.annotation(TRIGGER_DELETION).unwrap_or_default();
    let stays = |one: &&GroupMember| !one.machine.is_deleting() && !is_chosen(&one.machine, list);
    let living: Vec<_> = members.iter().filter(stays).collect();
    let mut free: Vec<_> = living.iter().filter(|one| !one.has_node()).collect();
    // Machines without an instance are deleted first.
    free.sort_by_key(|one| (one.machine.instance_id().is_some(), one.machine.name()));
    let surplus = i32::try_from(living.len()).unwrap_or(i32::MAX).saturating_sub(to).max(0);
    let surplus = usize::try_from(surplus).unwrap_or_default();
    if to < 0 || surplus > free.len() {
        return Err(ScaleRefusal::Impossible(format!(
            "{} has {}, {} of them without a Node: its target of {from} cannot be lowered to {to}",
            group.id(),
            numbered(living.len(), "Machine"),
            free.len()
        )));
    }
    let chosen: BTreeSet<_> = free.iter().take(surplus).map(|one| one.machine.name()).collect();
    let marks = marks(list, members, &chosen, now);
    Ok(change(
        group,
        to,
        now,
        marks,
        format!("scaled from {from} to {to}, by what has no Node yet"),
    ))
}

fn known(group: &Group) -> Result<super::limits::Limits, ScaleRefusal> {
    group.limits().ok_or_else(|| ScaleRefusal::NoGroup(group.id().to_string()))
}

fn stranger(group: &Group, node: &Named) -> ScaleRefusal {
    ScaleRefusal::Impossible(format!(
        "{} is no Node of {}: none of those that were named is deleted",
        node.name,
        group.id()
    ))
}

/// Most names in a message.
const TOLD: usize = 3;

fn names(chosen: &BTreeSet<&str>, missing: usize) -> String {
    let told: Vec<_> = chosen.iter().take(TOLD).copied().collect();
    let more = chosen.len() + missing - told.len();
    match (told.join(", "), more) {
        (told, 0) => told,
        (told, more) if told.is_empty() => format!("{more} that are not there yet"),
        (told, more) => format!("{told} and {more} more"),
    }
}

/// The annotations by which a deployment or pool deletes these Machines, as Gardener's autoscaler writes them.
fn marks(
    list: &str,
    members: &[GroupMember],
    chosen: &BTreeSet<&str>,
    now: Timestamp,
) -> Map<String, Value> {
    if chosen.is_empty() {
        return Map::new();
    }
    let now = format!("{now:.0}");
    let is_there = |name: &str| members.iter().any(|one| one.machine.name() == name);
    let before = entries(list).filter(|(name, _)| is_there(name) && !chosen.contains(name));
    let before = before.map(|(name, time)| format!("{name}~{time}"));
    let list: Vec<_> = before.chain(chosen.iter().map(|name| format!("{name}~{now}"))).collect();
    let marks = [(TRIGGER_DELETION, list.join(",")), (REPLICAS_CHANGED_BY_SCALER, now)];
    marks.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect()
}

fn change(
    group: &Group,
    replicas: i32,
    now: Timestamp,
    mut annotations: Map<String, Value>,
    note: String,
) -> ScaleChange {
    annotations.insert(LAST_SCALING.to_owned(), format!("{now:.0} {note}").into());
    let patch = json!({
        "metadata": {
            "resourceVersion": group.meta().resource_version,
            "annotations": annotations,
        },
        "spec": { "replicas": replicas },
    });
    ScaleChange { patch, note }
}

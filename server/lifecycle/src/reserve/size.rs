//! How many Machines are kept ready.

use ostler_api::{
    MachineReserve,
    names::annotation::{AUTOSCALER_MAX, AUTOSCALER_MAX_OF_GROUP},
};

use super::Facts;
use crate::deployment::fenceposts::resolve;

/// The size of a reserve, and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// So many are to be ready.
    pub wanted: usize,
    /// So many were asked for.
    pub asked: usize,
    /// So many Machines the target wants.
    pub replicas: i32,
    /// The reserve's maximum, by the annotation of its autoscaler.
    pub most: Option<i32>,
}

/// `None`: the reserve gives no number that could be read, or its target does not say how many it wants.
pub fn size(reserve: &MachineReserve, target: &Facts<'_>) -> Option<Size> {
    let replicas = target.replicas?;
    let asked = resolve(reserve.spec.replicas.as_ref()?, replicas, true)?;
    let most = most(target);
    // The reserve and the target together are no more than the target may have: Machines in reserve cost money, too.
    let room = most.map(|most| most.saturating_sub(replicas).max(0));
    let count = |number: i32| usize::try_from(number).unwrap_or(0);
    let wanted = room.map_or(asked, |room| asked.min(room));
    Some(Size { wanted: count(wanted), asked: count(asked), replicas, most })
}

/// The most that an autoscaler may ask for. A text that is no number says nothing.
fn most(target: &Facts<'_>) -> Option<i32> {
    let annotations = target.meta.annotations.as_ref()?;
    let keys = [AUTOSCALER_MAX_OF_GROUP, AUTOSCALER_MAX];
    keys.iter().find_map(|key| annotations.get(*key)?.trim().parse().ok())
}

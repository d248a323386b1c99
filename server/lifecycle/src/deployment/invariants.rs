//! Limits for every step of a rollout: asserted at the decision, in debug builds.

use super::counts::{Fleet, SetSizes};

/// INV-11: no step wants more Machines than replicas and surge, or than before.
pub(super) fn inv_11_no_more_than_replicas_and_surge(fleet: &Fleet, after: &SetSizes) -> bool {
    after.total() <= fleet.as_it_is().total().max(fleet.ceiling())
}

/// INV-12: no step takes availability below the minimum, unless a user wants fewer (`asked`) while some are preserved or
/// updated in place: those do not go first.
pub(super) fn inv_12_enough_stay_available(
    fleet: &Fleet,
    before: &SetSizes,
    after: &SetSizes,
    asked: bool,
) -> bool {
    let floor = fleet.available_with(before).min(fleet.min_available());
    let excused = asked && fleet.all().any(|set| set.kept + set.updating > 0);
    excused || fleet.available_with(after) >= floor
}

//! The user, or an autoscaler, changed `spec.replicas`: who gets more Machines, and who fewer.

use super::counts::{Counts, Fleet, SetSizes, narrow};
use super::invariants::inv_12_enough_stay_available;

/// Whether `spec.replicas` changed since the sets were scaled last. Without a set for the current template, a rollout
/// comes first.
pub fn is_due(fleet: &Fleet) -> bool {
    fleet.new.is_some() && is_off(fleet)
}

/// Whether an active set was scaled last for another number of replicas, or there are to be some and no set is active.
pub(super) fn is_off(fleet: &Fleet) -> bool {
    let idle = !fleet.all().any(Counts::is_active);
    let mut active = fleet.all().filter(|set| set.is_active());
    idle && fleet.replicas > 0
        || active.any(|set| set.desired_mark.is_some_and(|mark| mark != fleet.replicas))
}

/// Where growth goes while several sets are active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// RollingUpdate: into the new set, and the surge counts.
    Rolling,
    /// Recreate: into the new set.
    New,
    /// In place: into the largest set, whose Machines are still to be updated.
    Largest,
}

/// Scales the sets to `fleet.replicas`.
pub fn scale(fleet: &Fleet, growth: Growth) -> SetSizes {
    let mut targets = fleet.as_it_is();
    let active: Vec<Place> = places(fleet).filter(|place| place.of(fleet).is_active()).collect();
    match active.as_slice() {
        [] => *targets.at(Place::newest(fleet)) = fleet.replicas,
        [only] => *targets.at(*only) = fleet.replicas,
        _ if is_saturated(fleet) => targets.old.fill(0),
        _ => {
            release_chosen(fleet, &active, &mut targets);
            let surge = if growth == Growth::Rolling { fleet.surge } else { 0 };
            let most = i64::from(fleet.replicas) + i64::from(surge);
            let room = narrow(most - targets.total());
            match growth {
                _ if room == 0 => {}
                Growth::Rolling | Growth::New if room > 0 => grow(fleet, &mut targets, room),
                Growth::Largest if room > 0 => {
                    let largest = active.iter().max_by_key(|place| place.of(fleet).wanted);
                    *targets.at(largest.copied().unwrap_or(Place::New)) += room;
                }
                Growth::Rolling => {
                    share(fleet, &active, &mut targets);
                    keep_available(fleet, &mut targets);
                }
                // A surge stays: the update would only make it again.
                Growth::New | Growth::Largest => {
                    shrink(fleet, &mut targets, (-room - fleet.surge).max(0));
                    keep_available(fleet, &mut targets);
                }
            }
        }
    }
    debug_assert!(
        inv_12_enough_stay_available(fleet, &fleet.as_it_is(), &targets, true),
        "{fleet:?} {targets:?}"
    );
    targets
}

/// Sets with chosen Machines lose these Machines without replacement. A set with surplus Machines was lowered for them
/// before.
fn release_chosen(fleet: &Fleet, active: &[Place], targets: &mut SetSizes) {
    for place in active {
        let (set, wanted) = (place.of(fleet), targets.at(*place));
        let surplus = (set.living - set.wanted).max(0);
        *wanted -= (set.marked - surplus).clamp(0, *wanted);
    }
}

/// Where the numbers of a set are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Old(usize),
    New,
}

impl Place {
    fn of(self, fleet: &Fleet) -> Counts {
        match self {
            Self::Old(index) => fleet.old.get(index).copied().unwrap_or_default(),
            Self::New => fleet.newest(),
        }
    }

    /// The new set, or the youngest while there is no new one.
    fn newest(fleet: &Fleet) -> Self {
        match (fleet.new, fleet.old.len()) {
            (None, count @ 1..) => Self::Old(count - 1),
            _ => Self::New,
        }
    }
}

impl SetSizes {
    fn at(&mut self, place: Place) -> &mut i32 {
        match place {
            Place::Old(index) => match self.old.get_mut(index) {
                Some(wanted) => wanted,
                None => &mut self.new,
            },
            Place::New => &mut self.new,
        }
    }
}

fn places(fleet: &Fleet) -> impl Iterator<Item = Place> {
    (0..fleet.old.len()).map(Place::Old).chain(fleet.new.map(|_| Place::New))
}

fn is_saturated(fleet: &Fleet) -> bool {
    let new = fleet.newest();
    fleet.new.is_some()
        && new.wanted == fleet.replicas
        && new.desired_mark == Some(fleet.replicas)
        && new.available == fleet.replicas
}

fn grow(fleet: &Fleet, targets: &mut SetSizes, room: i32) {
    let wanted = targets.at(Place::newest(fleet));
    // Above the replicas the rollout would only take it back.
    *wanted = (*wanted + room).min(fleet.replicas.max(*wanted));
}

/// Every active set shrinks in proportion, the largest first and the older of two; the rest from rounding goes to the
/// first able set.
fn share(fleet: &Fleet, active: &[Place], targets: &mut SetSizes) {
    let total: i64 = active.iter().map(|place| i64::from(place.of(fleet).wanted)).sum();
    let goal = fleet.ceiling();
    let mut left = targets.total() - goal;
    let mut order = active.to_vec();
    order.sort_by_key(|place| std::cmp::Reverse(place.of(fleet).wanted));
    for place in &order {
        let set = place.of(fleet);
        let basis = set.max_mark.filter(|mark| *mark > 0).map_or(total, i64::from);
        let wanted = targets.at(*place);
        let cut = (*wanted - proportion(set.wanted, goal, basis)).clamp(0, narrow(left));
        *wanted -= cut;
        left -= i64::from(cut);
    }
    for place in order {
        let wanted = targets.at(place);
        let cut = narrow(left).min(*wanted);
        *wanted -= cut;
        left -= i64::from(cut);
    }
}

/// `wanted × goal ∕ basis`, rounded.
fn proportion(wanted: i32, goal: i64, basis: i64) -> i32 {
    let (wanted, goal, basis) = (i128::from(wanted), i128::from(goal), i128::from(basis));
    i32::try_from((2 * wanted * goal + basis) / (2 * basis)).unwrap_or(i32::MAX)
}

/// Moves shares from Machines that are not available to Machines that are, as long as fewer would be available than
/// the deployment promises.
fn keep_available(fleet: &Fleet, targets: &mut SetSizes) {
    let promised = fleet.min_available().min(fleet.available_with(&fleet.as_it_is()));
    for gains in places(fleet).collect::<Vec<_>>().into_iter().rev() {
        for gives in places(fleet).filter(|gives| *gives != gains) {
            let deficit = promised - fleet.available_with(targets);
            let (one, other) = (gains.of(fleet), gives.of(fleet));
            let lost = one.available.min(one.wanted) - one.available_of(*targets.at(gains));
            let given = *targets.at(gives);
            let idle = given - other.available_of(given) - other.kept - other.updating;
            // In `gains`, Machines that outlast available ones fill the replicas first.
            let last = (one.kept + one.updating - *targets.at(gains)).max(0);
            let missed = deficit.min(lost);
            let moved = if missed > 0 { (missed + last).min(idle).max(0) } else { 0 };
            *targets.at(gains) += moved;
            *targets.at(gives) -= moved;
        }
    }
}

/// Takes `cut` Machines: unavailable ones of the oldest set first, then available ones, the new set last.
fn shrink(fleet: &Fleet, targets: &mut SetSizes, cut: i32) {
    let before = targets.total();
    fleet.shrink_old(targets, cut, cut);
    let left = narrow(i64::from(cut) - (before - targets.total()));
    targets.new = (targets.new - left).max(0);
}

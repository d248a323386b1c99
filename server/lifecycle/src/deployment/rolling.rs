//! RollingUpdate: the new set grows into the surge, and the old sets shrink by the available Machines above the
//! minimum.

use super::counts::{Fleet, SetSizes, narrow};
use super::invariants::{inv_11_no_more_than_replicas_and_surge, inv_12_enough_stay_available};

/// One step of a rollout. Repeated, it ends with all Machines in the new set.
pub fn roll(fleet: &Fleet) -> SetSizes {
    let mut targets = fleet.as_it_is();
    targets.new = grow(fleet);
    let new = fleet.newest();
    let available_new = new.available_of(new.wanted.min(targets.new));
    let old = targets.total() - i64::from(targets.new);
    let most = narrow(old + i64::from(available_new) - i64::from(fleet.min_available()));
    let budget = fleet.available_with(&targets) - fleet.min_available();
    fleet.shrink_old(&mut targets, most, budget);
    let asked = new.wanted > fleet.replicas;
    debug_assert!(inv_11_no_more_than_replicas_and_surge(fleet, &targets), "{fleet:?} {targets:?}");
    debug_assert!(
        inv_12_enough_stay_available(fleet, &fleet.as_it_is(), &targets, asked),
        "{fleet:?} {targets:?}"
    );
    targets
}

/// Machines that are being deleted still take up room: a slow drain holds the surge back, and so does a set whose
/// status lags.
fn grow(fleet: &Fleet) -> i32 {
    let wanted = fleet.newest().wanted;
    if wanted > fleet.replicas {
        return fleet.replicas;
    }
    let room = narrow(fleet.ceiling() - fleet.present());
    wanted + room.clamp(0, fleet.replicas - wanted)
}

/// Recreate: the new set gets its Machines only when no other Machine is left. `others_exist`: Machines of old sets, by
/// the sets' status.
pub fn recreate(fleet: &Fleet, others_exist: bool) -> SetSizes {
    let waits = others_exist || fleet.old.iter().any(|set| set.present() > 0);
    let new = fleet.newest().wanted;
    SetSizes {
        new: if waits { new.min(fleet.replicas) } else { fleet.replicas },
        old: vec![0; fleet.old.len()],
    }
}

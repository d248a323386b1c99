//! How many instances a rolling update may have beyond `replicas`, and how many may be missing.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::{MachinePool, machine_pool::PoolStrategyType};

use crate::{set::Policy, share::share};

/// The limits of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// Beyond `replicas`.
    pub surge: usize,
    /// Missing of `replicas`.
    pub unavailable: usize,
    /// Whether instances of an old model are replaced without a user.
    pub rolls: bool,
    /// Which of equal Machines goes first.
    pub policy: Policy,
}

/// The limits that a pool has. A surge is rounded up and is 1 if it is absent; what may be unavailable is rounded down
/// and is 0 if it is absent. `None`: a number cannot be read.
pub fn of(pool: &MachinePool) -> Option<Budget> {
    let strategy = &pool.spec.strategy;
    let rolling = strategy.rolling_update.as_ref();
    let replicas = usize::try_from(pool.replicas()).unwrap_or(0);
    let policy = Policy::named(rolling.and_then(|it| Some(it.delete_policy.as_ref()?.as_str())));
    let rolls = strategy.type_ != Some(PoolStrategyType::OnDelete) && !pool.is_paused();
    if updates_in_place(pool) {
        // Only Machines whose update failed are replaced.
        return Some(Budget { surge: 0, unavailable: in_place(pool)?, rolls, policy });
    }
    let number = |value: Option<&IntOrString>, up, absent| match value {
        Some(value) => share(value, replicas, up),
        None => Some(absent),
    };
    let max_unavailable = rolling.and_then(|it| it.max_unavailable.as_ref());
    let surge = number(rolling.and_then(|it| it.max_surge.as_ref()), true, 1)?;
    let unavailable = number(max_unavailable, false, 0)?;
    let unavailable = if surge == 0 { or_one(unavailable, max_unavailable) } else { unavailable };
    Some(Budget { surge, unavailable: unavailable.min(replicas), rolls, policy })
}

/// Whether instances of an old model are updated in place.
pub(super) fn updates_in_place(pool: &MachinePool) -> bool {
    pool.spec.strategy.type_ == Some(PoolStrategyType::InPlaceUpdate)
}

/// How many may be missing for updates in place, whatever the strategy is: a user may ask for one. `None`: the number
/// cannot be read.
pub(super) fn in_place(pool: &MachinePool) -> Option<usize> {
    let replicas = usize::try_from(pool.replicas()).unwrap_or(0);
    let limits = pool.spec.strategy.in_place_update.as_ref();
    let number = limits.and_then(|it| it.max_unavailable.as_ref());
    number.map_or(Some(1), |value| Some(or_one(share(value, replicas, false)?, Some(value))))
}

/// A percentage that is rounded down to 0 is 1 where nothing could go on otherwise, as for a deployment: an autoscaler
/// must not stop a rollout. A configured 0 stays 0.
fn or_one(number: usize, said: Option<&IntOrString>) -> usize {
    let says_some = said.is_some_and(|it| share(it, 100, false) != Some(0));
    number.max(usize::from(says_some))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn budget(replicas: i32, rolling: &Value) -> Option<(usize, usize)> {
        let pool: MachinePool = serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool", "metadata": { "name": "p" },
            "spec": { "replicas": replicas, "template": {}, "strategy": { "rollingUpdate": rolling } }
        }))
        .unwrap();
        of(&pool).map(|it| (it.surge, it.unavailable))
    }

    #[test]
    fn a_surge_is_rounded_up_and_what_may_be_missing_is_rounded_down() {
        for (replicas, rolling, expected) in [
            (3, json!({}), Some((1, 0))),
            (3, json!({ "maxSurge": "50%", "maxUnavailable": "50%" }), Some((2, 1))),
            (3, json!({ "maxSurge": "1%", "maxUnavailable": "33%" }), Some((1, 0))),
            (3, json!({ "maxUnavailable": "45%" }), Some((1, 1))),
            (3, json!({ "maxUnavailable": "30%" }), Some((1, 0))),
            (0, json!({ "maxSurge": "50%" }), Some((0, 0))),
            (2, json!({ "maxSurge": 0, "maxUnavailable": 5 }), Some((0, 2))),
            (3, json!({ "maxSurge": 0, "maxUnavailable": "30%" }), Some((0, 1))),
            (0, json!({ "maxSurge": 0, "maxUnavailable": "30%" }), Some((0, 0))),
            (3, json!({ "maxSurge": 0, "maxUnavailable": "0%" }), Some((0, 0))),
            (3, json!({ "maxSurge": 0 }), Some((0, 0))),
            (2, json!({ "maxSurge": "two" }), None),
            (2, json!({ "maxSurge": -1 }), None),
        ] {
            assert_eq!(budget(replicas, &rolling), expected, "{replicas} {rolling}");
        }
    }
}

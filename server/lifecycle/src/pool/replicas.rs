//! The number of instances of a pool without `spec.replicas`, or of a pool scaled by another system.

use ostler_api::{
    MachinePool,
    names::annotation::{AUTOSCALER_MAX, AUTOSCALER_MIN, REPLICAS_MANAGED_BY},
};

use super::group::Reading;
use crate::plan::{Event, EventReason};

/// The new `spec.replicas`; `None`: unchanged. An absent number becomes the size of the group, within both annotations
/// of the autoscaler; without a group, their minimum, or 1. A pool that another system scales has as many as its group
/// wants.
pub(super) fn wanted(pool: &MachinePool, reading: Option<&Reading>) -> Option<i32> {
    if pool.is_deleting() {
        return None;
    }
    if pool.is_externally_scaled() {
        let desired = i32::try_from(reading?.desired).ok()?;
        return (pool.spec.replicas != Some(desired)).then_some(desired);
    }
    if pool.spec.replicas.is_some() {
        return None;
    }
    let bound = |key| pool.annotation(key).and_then(|text| text.parse::<i32>().ok());
    let bounds = bound(AUTOSCALER_MIN).zip(bound(AUTOSCALER_MAX));
    let bounds = bounds.map(|(min, max)| (min.min(max).max(0), max.max(0)));
    Some(match (size(pool, reading), bounds) {
        (Some(size), Some((min, max))) => size.clamp(min, max),
        (Some(size), None) => size,
        (None, Some((min, _))) => min,
        (None, None) => 1,
    })
}

/// The event for a number that a user wrote although another system scales the group: the size did not change.
pub(super) fn reset(pool: &MachinePool, wanted: i32) -> Option<Event> {
    let written = pool.spec.replicas.filter(|_| size(pool, None) == Some(wanted))?;
    let message = format!(
        "replicas is {wanted} again, not {written}: annotation {REPLICAS_MANAGED_BY} says that another system scales the group"
    );
    Some(Event::warning(EventReason::ReplicasReset, message))
}

/// The size of its group, as far as it was ever read: a number that goes missing is no wish to scale in.
fn size(pool: &MachinePool, reading: Option<&Reading>) -> Option<i32> {
    if let Some(reading) = reading {
        return i32::try_from(reading.desired).ok();
    }
    Some(pool.status.as_ref()?.observed.as_ref()?.desired)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use ostler_api::operation::PoolRecord;
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_that_are_missing_are_the_autoscalers_minimum_or_one() {
        for (replicas, min, max, expected) in [
            (None, None, None, Some(1)),
            (None, Some("3"), Some("9"), Some(3)),
            (None, Some("3"), None, Some(1)),
            (None, Some("x"), Some("9"), Some(1)),
            (Some(0), Some("3"), Some("9"), None),
        ] {
            let pool = pool(replicas, min, max);
            assert_eq!(wanted(&pool, None), expected, "{replicas:?} {min:?} {max:?}");
        }
    }

    #[test]
    fn replicas_that_go_missing_are_the_size_that_the_group_has_within_the_annotations() {
        for (size, min, max, expected) in [
            (7, None, None, 7),
            (0, None, None, 0),
            (7, Some("3"), Some("9"), 7),
            (7, Some("8"), Some("9"), 8),
            (7, Some("3"), Some("5"), 5),
            (7, Some("9"), Some("5"), 5),
        ] {
            let mut pool = pool(None, min, max);
            let observed = json!({ "observed": { "desired": size, "current": 0 } });
            let read = Reading::new(
                PoolRecord { desired: size, ..PoolRecord::default() },
                Vec::new(),
                Timestamp::UNIX_EPOCH,
            );
            assert_eq!(wanted(&pool, Some(&read)), Some(expected), "{size} {min:?} {max:?}");
            pool.status = Some(serde_json::from_value(observed).unwrap());
            assert_eq!(wanted(&pool, None), Some(expected), "{size} {min:?} {max:?}, not read yet");
        }
    }

    fn pool(replicas: Option<i32>, min: Option<&str>, max: Option<&str>) -> MachinePool {
        let mut annotations = serde_json::Map::new();
        for (key, value) in [(AUTOSCALER_MIN, min), (AUTOSCALER_MAX, max)] {
            annotations.extend(value.map(|value| (key.to_owned(), json!(value))));
        }
        serde_json::from_value(json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
            "metadata": { "name": "p", "annotations": annotations },
            "spec": { "replicas": replicas, "template": {} }
        }))
        .unwrap()
    }
}

//! How many instances a pool wants that does not say it, or that another system scales.

use ostler_api::{
    MachinePool,
    names::annotation::{AUTOSCALER_MAX, AUTOSCALER_MIN},
};

use super::group::Reading;

/// What `spec.replicas` is to be; `None`: what it is. With both annotations of the autoscaler, a number that is missing is
/// the minimum; without, 1. A pool that another system scales has as many as its group wants.
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
    Some(bounds.map_or(1, |(min, max)| min.min(max).max(0)))
}

#[cfg(test)]
mod tests {
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
            let mut annotations = serde_json::Map::new();
            for (key, value) in [(AUTOSCALER_MIN, min), (AUTOSCALER_MAX, max)] {
                annotations.extend(value.map(|value: &str| (key.to_owned(), json!(value))));
            }
            let pool: MachinePool = serde_json::from_value(json!({
                "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
                "metadata": { "name": "p", "annotations": annotations },
                "spec": { "replicas": replicas, "template": {} }
            }))
            .unwrap();
            assert_eq!(wanted(&pool, None), expected, "{replicas:?} {min:?} {max:?}");
        }
    }
}

//! The rules of a pool that its definition cannot say: every API server enforces the others. A fault of the strategy stops
//! updates alone.

use ostler_api::{
    MachinePool,
    machine_pool::{PoolDeletePolicy, PoolUpdateFailurePolicy},
};

use super::budget;
use crate::copies;

/// The rules that the spec of a pool breaks, for people.
pub fn broken(pool: &MachinePool) -> Vec<String> {
    let spec = &pool.spec;
    let mut broken = Vec::new();
    broken.extend(copies::refused(&pool.metadata, &spec.template.spec));
    let rolling = spec.strategy.rolling_update.as_ref();
    if let Some(PoolDeletePolicy::Other(word)) = rolling.and_then(|it| it.delete_policy.as_ref()) {
        broken.push(format!(
            "spec.strategy.rollingUpdate.deletePolicy is {word:?}, and none of Oldest, Newest and Random"
        ));
    }
    let in_place = spec.strategy.in_place_update.as_ref();
    if let Some(PoolUpdateFailurePolicy::Other(word)) =
        in_place.and_then(|it| it.on_update_failure.as_ref())
    {
        broken.push(format!(
            "spec.strategy.inPlaceUpdate.onUpdateFailure is {word:?}, and neither Hold nor Replace"
        ));
    }
    match budget::in_place(pool) {
        None => broken.push(
            "spec.strategy.inPlaceUpdate.maxUnavailable has to be a number or a percentage".to_owned(),
        ),
        Some(0) if pool.replicas() > 0 => broken.push(
            "spec.strategy.inPlaceUpdate.maxUnavailable comes to 0, so nothing could ever be updated in place"
                .to_owned(),
        ),
        Some(_) => {}
    }
    if budget::updates_in_place(pool) {
        return broken;
    }
    match budget::of(pool) {
        None => broken.push(
            "spec.strategy.rollingUpdate: maxSurge and maxUnavailable have to be numbers or percentages".to_owned(),
        ),
        Some(budget) if budget.surge == 0 && budget.unavailable == 0 && pool.replicas() > 0 => {
            broken.push(
                "spec.strategy.rollingUpdate: maxSurge and maxUnavailable both come to 0, so nothing could ever be \
                 replaced"
                    .to_owned(),
            );
        }
        Some(_) => {}
    }
    broken
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn told(spec: &Value) -> String {
        let pool = json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool", "metadata": { "name": "p" },
            "spec": spec
        });
        broken(&serde_json::from_value(pool).unwrap()).join("; ")
    }

    fn template() -> Value {
        json!({ "spec": { "class": { "kind": "MachineClass", "name": "c" } } })
    }

    #[test]
    fn a_pool_is_refused_for_what_could_never_work_percentages_of_nothing_among_it() {
        let rolling = |rolling: Value| json!({ "replicas": 3, "template": template(), "strategy": { "rollingUpdate": rolling } });
        let in_place = |limits: Value| {
            json!({
                "replicas": 2, "template": template(),
                "strategy": { "type": "InPlaceUpdate", "inPlaceUpdate": limits }
            })
        };
        assert_eq!(told(&json!({ "template": template() })), "");
        assert_eq!(told(&in_place(json!({}))), "");
        // Rounded down to 0, both are 1.
        assert_eq!(told(&in_place(json!({ "maxUnavailable": "33%" }))), "");
        assert_eq!(told(&rolling(json!({ "maxSurge": "0%", "maxUnavailable": "33%" }))), "");
        for (spec, part) in [
            (rolling(json!({ "maxSurge": 0 })), "both come to 0"),
            (rolling(json!({ "maxSurge": "0%", "maxUnavailable": "0%" })), "both come to 0"),
            (rolling(json!({ "deletePolicy": "Any" })), "none of Oldest"),
            (rolling(json!({ "maxSurge": "x" })), "numbers or percentages"),
            (in_place(json!({ "maxUnavailable": "0%" })), "comes to 0"),
            (in_place(json!({ "maxUnavailable": "x" })), "a number or a percentage"),
            (in_place(json!({ "onUpdateFailure": "Panic" })), "neither Hold nor Replace"),
        ] {
            assert!(told(&spec).contains(part), "{spec}: {}", told(&spec));
        }
    }
}

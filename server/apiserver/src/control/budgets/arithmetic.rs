//! How many pods may be disrupted.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::Owner;
use crate::kinds::access::entries;

/// How long an evicted pod that is still there counts as disrupted.
const EXPECTED_GONE: SignedDuration = SignedDuration::from_mins(2);

/// The parts of a pod that matter to budgets.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Pod {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    labels: Map<String, Value>,
    deletion_timestamp: Option<String>,
    #[serde(default)]
    owner_references: Vec<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl Pod {
    pub(super) fn labels(&self) -> &Map<String, Value> {
        &self.metadata.labels
    }

    /// The controller among the owners.
    pub(super) fn controller(&self) -> Option<&Owner> {
        self.metadata.owner_references.iter().find(|owner| owner.controller == Some(true))
    }

    fn deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn ready(&self) -> bool {
        let mut conditions = self.status.conditions.iter();
        conditions.any(|condition| condition.kind == "Ready" && condition.status == "True")
    }
}

/// The numbers of a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reckoning {
    pub(super) current_healthy: i64,
    pub(super) desired_healthy: i64,
    pub(super) expected_pods: i64,
    pub(super) disruptions_allowed: i64,
    /// Pods whose eviction was granted and that are not seen to go yet, with the time of the grant.
    pub(super) disrupted: BTreeMap<String, String>,
    /// When a disrupted pod will count again.
    pub(super) until: Option<Timestamp>,
}

/// Reckons a budget. `expected` says how many replicas the pods' workloads want together.
pub(super) fn reckon(
    spec: &Value,
    old: &Value,
    pods: &[(&str, &Pod)],
    expected: impl Fn(&[(&str, &Pod)]) -> Result<i64, String>,
    now: Timestamp,
) -> Result<Reckoning, String> {
    let (disrupted, until) = still_disrupted(old, pods, now);
    let healthy = pods
        .iter()
        .filter(|(name, pod)| pod.ready() && !pod.deleting() && !disrupted.contains_key(*name));
    let current_healthy = count(healthy.count());
    let (expected_pods, desired_healthy) =
        match (spec.get("maxUnavailable"), spec.get("minAvailable")) {
            (Some(unavailable), _) if !unavailable.is_null() => {
                let expected = expected(pods)?;
                (expected, (expected - scaled(unavailable, expected)?).max(0))
            }
            (_, Some(Value::String(available))) => {
                let expected = expected(pods)?;
                (expected, scaled(&Value::from(available.as_str()), expected)?)
            }
            (_, Some(available)) if available.is_i64() => {
                (count(pods.len()), available.as_i64().unwrap_or(0))
            }
            _ => (0, 0),
        };
    // A budget over no pods allows nothing: its first pods may come before this is reckoned again.
    let spare = if expected_pods > 0 { current_healthy - desired_healthy } else { 0 };
    Ok(Reckoning {
        current_healthy,
        desired_healthy,
        expected_pods,
        disruptions_allowed: spare.max(0),
        disrupted,
        until,
    })
}

/// Of the granted evictions those whose pod is there, does not go yet, and was not granted too
/// long ago; and when the first of them will be too old.
fn still_disrupted(
    old: &Value,
    pods: &[(&str, &Pod)],
    now: Timestamp,
) -> (BTreeMap<String, String>, Option<Timestamp>) {
    let (mut disrupted, mut until) = (BTreeMap::new(), None);
    for (name, granted) in entries(old, "/disruptedPods") {
        let Some(granted) = granted.as_str() else { continue };
        let Ok(at) = granted.parse::<Timestamp>() else { continue };
        let Ok(end) = at.checked_add(EXPECTED_GONE) else { continue };
        let here = pods.iter().any(|(found, pod)| found == name && !pod.deleting());
        if here && now < end {
            disrupted.insert(name.clone(), granted.to_owned());
            until = Some(until.map_or(end, |first: Timestamp| first.min(end)));
        }
    }
    (disrupted, until)
}

/// A number, or a percentage of `total` rounded up.
fn scaled(value: &Value, total: i64) -> Result<i64, String> {
    if let Some(number) = value.as_i64() {
        return Ok(number);
    }
    let percent = value.as_str().and_then(|text| text.strip_suffix('%'));
    let percent = percent.and_then(|text| text.parse::<i64>().ok());
    let percent = percent.ok_or_else(|| format!("invalid value for IntOrString: {value}"))?;
    Ok((percent * total + 99).div_euclid(100))
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(ready: bool, deleting: bool) -> Pod {
        let mut pod = json!({"metadata": {},
            "status": {"conditions": [{"type": "Ready", "status": if ready {"True"} else {"False"}}]}});
        if deleting {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        serde_json::from_value(pod).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn numbers(spec: &Value, pods: &[Pod], workload: i64) -> [i64; 4] {
        let named: Vec<(String, &Pod)> =
            pods.iter().enumerate().map(|(index, pod)| (index.to_string(), pod)).collect();
        let named: Vec<(&str, &Pod)> =
            named.iter().map(|(name, pod)| (name.as_str(), *pod)).collect();
        let reckoned = reckon(spec, &json!({}), &named, |_| Ok(workload), at(0)).unwrap();
        [
            reckoned.current_healthy,
            reckoned.desired_healthy,
            reckoned.expected_pods,
            reckoned.disruptions_allowed,
        ]
    }

    #[test]
    fn each_form_of_budget_is_reckoned_from_its_own_expectation() {
        let three = [pod(true, false), pod(true, false), pod(true, false)];
        let mixed = [pod(true, false), pod(false, false), pod(true, true)];
        for (spec, pods, workload, expected) in [
            (json!({"minAvailable": 1}), &[][..], 0, [0, 1, 0, 0]),
            (json!({"minAvailable": 0}), &[][..], 0, [0, 0, 0, 0]),
            (json!({"minAvailable": 2}), &three[..], 0, [3, 2, 3, 1]),
            (json!({"minAvailable": 1}), &mixed[..], 0, [1, 1, 3, 0]),
            (json!({"minAvailable": "50%"}), &three[..], 3, [3, 2, 3, 1]),
            (json!({"minAvailable": "50%"}), &three[..], 0, [3, 0, 0, 0]),
            (json!({"maxUnavailable": 1}), &three[..], 3, [3, 2, 3, 1]),
            (json!({"maxUnavailable": 1}), &three[..], 0, [3, 0, 0, 0]),
            (json!({"maxUnavailable": "34%"}), &three[..], 3, [3, 1, 3, 2]),
            (json!({}), &three[..], 3, [3, 0, 0, 0]),
        ] {
            assert_eq!(numbers(&spec, pods, workload), expected, "{spec}");
        }
    }

    #[test]
    fn a_granted_eviction_counts_until_the_pod_goes_or_two_minutes_are_over() {
        let one = pod(true, false);
        let pods = [("a", &one)];
        let old = json!({"disruptedPods": {"a": "1970-01-01T00:00:00Z"}});
        let spec = json!({"minAvailable": 0});
        let early = reckon(&spec, &old, &pods, |_| Ok(0), at(60)).unwrap();
        assert_eq!((early.current_healthy, early.until), (0, Some(at(120))));
        let late = reckon(&spec, &old, &pods, |_| Ok(0), at(120)).unwrap();
        assert_eq!((late.current_healthy, late.until), (1, None));
        assert!(late.disrupted.is_empty());
    }
}

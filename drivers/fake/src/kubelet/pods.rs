//! The work of a kubelet for the pods on its node.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::driver::internal_ip;
use crate::spec::{KubeletSpec, PodBehaviour};

/// No grace is longer: a clock cannot count any that a pod may have.
const LONGEST_GRACE: Duration = Duration::from_hours(24 * 365);

/// The relevant fields of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodView {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) node: String,
    containers: Vec<(String, String)>,
    waits: bool,
    /// Being deleted, with this grace.
    grace: Option<Duration>,
}

impl PodView {
    /// `None`: it is bound to no node.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let metadata = &pod.metadata;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let seconds = metadata.deletion_grace_period_seconds.unwrap_or_default();
        let grace =
            Duration::from_secs(u64::try_from(seconds).unwrap_or_default()).min(LONGEST_GRACE);
        Some(Self {
            namespace: metadata.namespace.clone()?,
            name: metadata.name.clone()?,
            uid: metadata.uid.clone()?,
            node: spec.node_name.clone().filter(|node| !node.is_empty())?,
            containers: spec
                .containers
                .iter()
                .map(|c| (c.name.clone(), c.image.clone().unwrap_or_default()))
                .collect(),
            waits: phase.is_none_or(|phase| phase == "Pending"),
            grace: metadata.deletion_timestamp.as_ref().map(|_| grace),
        })
    }

    /// The status patch of a running pod. The patch names the UID, so that the API refuses it for a successor of the
    /// same name.
    pub(super) fn running(&self, now: jiff::Timestamp, host_ip: &str) -> Value {
        let now = Time(now);
        let ip = internal_ip(&self.uid);
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let containers: Vec<_> = self
            .containers
            .iter()
            .map(|(name, image)| {
                json!({
                    "name": name, "image": image, "imageID": image, "ready": true, "started": true,
                    "restartCount": 0, "state": {"running": {"startedAt": now}},
                    "containerID": format!("fake://{}/{name}", self.uid),
                })
            })
            .collect();
        let kinds = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
        json!({
            "metadata": {"uid": self.uid},
            "status": {
                "phase": "Running", "startTime": now, "hostIP": host_ip,
                "podIP": ip, "podIPs": [{"ip": ip}],
                "conditions": kinds.map(condition), "containerStatuses": containers,
            },
        })
    }
}

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Report that the pod runs.
    Start(PodView),
    /// The pod has ended: delete it for good.
    End(PodView),
}

/// A kubelet's memory of its pods.
#[derive(Debug, Default)]
pub(super) struct PodWork {
    known: HashMap<String, Known>,
}

#[derive(Debug, Default)]
struct Known {
    started: bool,
    ended: bool,
    told_to_end: Option<Instant>,
}

impl PodWork {
    /// The actions at `now`, and the time of the next look.
    pub(super) fn plan(
        &mut self,
        pods: Vec<PodView>,
        spec: &KubeletSpec,
        now: Instant,
    ) -> (Vec<Action>, Option<Instant>) {
        self.known.retain(|uid, _| pods.iter().any(|pod| pod.uid == *uid));
        let (mut actions, mut again) = (Vec::new(), None);
        for pod in pods {
            let known = self.known.entry(pod.uid.clone()).or_default();
            match pod.grace {
                None if pod.waits && !known.started => actions.push(Action::Start(pod)),
                Some(grace) if spec.pods == PodBehaviour::Normal && !known.ended => {
                    let told = *known.told_to_end.get_or_insert(now);
                    let time = spec.pod_shutdown.map_or(grace, |shutdown| shutdown.0.min(grace));
                    let end = told + time;
                    if end <= now {
                        actions.push(Action::End(pod));
                    } else {
                        again = again.map_or(Some(end), |at: Instant| Some(at.min(end)));
                    }
                }
                None | Some(_) => {}
            }
        }
        (actions, again)
    }

    /// Notes that an action was carried out.
    pub(super) fn done(&mut self, action: &Action) {
        match action {
            Action::Start(pod) => self.known.entry(pod.uid.clone()).or_default().started = true,
            Action::End(pod) => self.known.entry(pod.uid.clone()).or_default().ended = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(phase: Option<&str>, grace: Option<i64>) -> PodView {
        let deleted = grace.map(|_| "2026-01-01T00:00:00Z");
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u",
                "deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": phase},
        }))
        .unwrap();
        PodView::of(&pod).unwrap()
    }

    fn kinds(actions: &[Action]) -> Vec<&'static str> {
        let kind = |action: &Action| match action {
            Action::Start(_) => "start",
            Action::End(_) => "end",
        };
        actions.iter().map(kind).collect()
    }

    #[test]
    fn a_pending_pod_is_started_once_and_others_are_left_alone() {
        let mut work = PodWork::default();
        let now = Instant::now();
        let spec = KubeletSpec::default();
        let (actions, again) = work.plan(vec![pod(Some("Pending"), None)], &spec, now);
        assert_eq!((kinds(&actions), again), (vec!["start"], None));
        work.done(&actions[0]);
        assert_eq!(work.plan(vec![pod(Some("Pending"), None)], &spec, now).0, []);
        for phase in ["Running", "Succeeded", "Failed"] {
            let (actions, _) = PodWork::default().plan(vec![pod(Some(phase), None)], &spec, now);
            assert_eq!(actions, [], "{phase}");
        }
    }

    #[test]
    fn a_deleted_pod_ends_when_its_grace_or_its_shutdown_is_over_and_only_once() {
        let second = Duration::from_secs(1);
        for (shutdown, grace, end) in [(None, 30, 30), (Some("5s"), 30, 5), (Some("60s"), 30, 30)] {
            let mut work = PodWork::default();
            let spec = KubeletSpec {
                pod_shutdown: shutdown.map(|text| text.parse().unwrap()),
                ..KubeletSpec::default()
            };
            let now = Instant::now();
            let plan = |work: &mut PodWork, at| {
                let (actions, again) =
                    work.plan(vec![pod(Some("Running"), Some(grace))], &spec, at);
                (kinds(&actions), again)
            };
            let due = now + end * second;
            assert_eq!(plan(&mut work, now), (vec![], Some(due)), "{shutdown:?}");
            assert_eq!(plan(&mut work, due - second), (vec![], Some(due)), "{shutdown:?}");
            assert_eq!(plan(&mut work, due), (vec!["end"], None), "{shutdown:?}");
            work.done(&Action::End(pod(None, Some(grace))));
            assert_eq!(plan(&mut work, due), (vec![], None), "{shutdown:?}");
        }
    }

    #[test]
    fn a_grace_that_no_clock_can_count_is_only_a_long_one() {
        let (mut work, now) = (PodWork::default(), Instant::now());
        let pods = vec![pod(Some("Running"), Some(i64::MAX))];
        let (actions, again) = work.plan(pods, &KubeletSpec::default(), now);
        assert_eq!(actions, []);
        assert!(again.unwrap() > now + Duration::from_hours(24));
    }

    #[test]
    fn a_grace_that_is_cut_short_counts_from_when_the_pod_was_told() {
        let mut work = PodWork::default();
        let (spec, now) = (KubeletSpec::default(), Instant::now());
        work.plan(vec![pod(Some("Running"), Some(3600))], &spec, now);
        let later = now + Duration::from_secs(2);
        let (actions, _) = work.plan(vec![pod(Some("Running"), Some(1))], &spec, later);
        assert_eq!(kinds(&actions), ["end"]);
    }

    #[test]
    fn stuck_pods_never_end() {
        let spec = KubeletSpec { pods: PodBehaviour::Stuck, ..KubeletSpec::default() };
        let pods = vec![pod(Some("Running"), Some(0))];
        assert_eq!(PodWork::default().plan(pods, &spec, Instant::now()), (vec![], None));
    }

    #[test]
    fn a_pod_that_is_bound_to_no_node_is_nobodys() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "p", "uid": "u"},
            "spec": {"containers": []},
        }))
        .unwrap();
        assert_eq!(PodView::of(&pod), None);
    }
}

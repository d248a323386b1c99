//! Nodes whose kubelet is silent, as kube-controller-manager treats them: their conditions become Unknown, taints keep
//! pods away, and pods whose toleration ended are deleted. So are the pods of Nodes that are gone.
//!
//! The write of its Lease proves that a kubelet lives. The time of the proof is the time at which this process saw the
//! write, so a start or a wrong clock of a kubelet makes no Node silent. Nor does a pause of this process, during which it
//! could not see Leases: all times begin anew after a pause. A Node without a Lease has no kubelet and is left alone.

use std::collections::HashMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Controller, Outcome, Plane, Queue, is_deleting, settled};
use crate::{
    kinds::{
        access::{items, number, object_in, preset, set, text},
        conditions::stamp,
    },
    store::{Key, Prefix},
};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NO_EXECUTE: &str = "NoExecute";
/// Conditions that a kubelet reports.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];
/// A tainted Node is looked at so often, for pods that came meanwhile.
const TAINTED: Duration = Duration::from_secs(10);
/// How long a Node is missed before its pods are deleted, as long as by kube-controller-manager: one that was
/// deleted by mistake may register again.
const MISSED: Duration = Duration::from_secs(40);

/// How often it is looked whether this process was paused, and from which time between two looks on it was.
const LOOKS: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_secs(10);

/// Tells a pause of this process (a stopped process, a paused VM, a computer that does not keep up) from the silence of others.
#[derive(Debug)]
struct Pulse {
    looked: Instant,
    /// Whether it is looked at again and again.
    beats: bool,
    /// When the last pause ended.
    resumed: Option<Instant>,
}

impl Pulse {
    fn look(&mut self) {
        let now = Instant::now();
        let gap = now.saturating_duration_since(self.looked);
        if gap >= PAUSE {
            tracing::warn!(
                seconds = gap.as_secs(),
                "this process was paused: kubelets have their time anew"
            );
            self.resumed = Some(now);
        }
        self.looked = now;
    }

    /// For how long this process could hear something since then.
    fn heard_nothing_for(&self, since: Instant) -> Duration {
        self.resumed.map_or(since, |resumed| resumed.max(since)).elapsed()
    }
}

/// What is looked at to see whether this process was paused: no Node has this key.
fn pulse_key() -> Key {
    Key::new("", "nodes", "", "")
}

/// The fields of a pod that name the Node.
#[derive(Debug, Default, Deserialize)]
struct Bound {
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
}

/// Marks, taints, and evicts.
#[derive(Debug)]
pub(super) struct Nodes {
    plane: Plane,
    /// How long a kubelet may be silent.
    grace: Duration,
    /// When each kubelet was heard last, by the name of its Node. Bounded by the Leases there are.
    heard: HashMap<String, Instant>,
    /// Since when each Node is missed that pods are bound to. Bounded by the pods there are.
    missed: HashMap<String, Instant>,
    pulse: Pulse,
}

impl Nodes {
    pub(super) fn new(plane: Plane, grace: Duration) -> Self {
        let pulse = Pulse { looked: Instant::now(), beats: false, resumed: None };
        Self { plane, grace, heard: HashMap::new(), missed: HashMap::new(), pulse }
    }

    async fn write(&self, key: &Key, part: &str, node: &Value) -> Outcome {
        match self.plane.path(key) {
            Some(path) => {
                settled(self.plane.loopback.replace(&format!("{path}{part}"), node).await.code)
            }
            None => Outcome::Done,
        }
    }

    /// The pods that are bound to a Node.
    fn pods_of(&self, node: &str) -> Vec<(Key, Value)> {
        let (store, pods) = (&self.plane.context.store, Prefix::resource("", "pods"));
        let page = store.list_by(&pods, ("spec.nodeName", node), None, None);
        let found = page.into_iter().flat_map(|page| page.records);
        let pods = found.filter_map(|record| Some((record.key.clone(), record.readable()?)));
        pods.filter(|(_, pod)| text(pod, "/spec/nodeName") == node).collect()
    }

    async fn delete(&self, key: &Key, pod: &Value, mut options: Value) -> Outcome {
        let Some(path) = self.plane.path(key) else { return Outcome::Done };
        set(&mut options, "preconditions", json!({"uid": text(pod, "/metadata/uid")}));
        settled(self.plane.loopback.delete(&path, &options).await.code)
    }

    /// Deletes the pods of a Node that do not tolerate its taints any more.
    async fn evict(&self, node: &Value, now: Timestamp) {
        for (key, pod) in self.pods_of(text(node, "/metadata/name")) {
            if !is_deleting(&pod) && leaves(&pod, node).is_some_and(|at| at <= now) {
                // What is refused is tried again when the Node is looked at next.
                self.delete(&key, &pod, json!({})).await;
            }
        }
    }

    /// Deletes the pods of a Node that is gone: no kubelet will end them.
    async fn bury(&mut self, node: &str) -> Outcome {
        let pods = self.pods_of(node);
        if pods.is_empty() {
            self.missed.remove(node);
            return Outcome::Done;
        }
        let since = *self.missed.entry(node.to_owned()).or_insert_with(Instant::now);
        let left = MISSED.saturating_sub(self.pulse.heard_nothing_for(since));
        if !left.is_zero() {
            return Outcome::After(left);
        }
        let mut outcome = Outcome::Done;
        for (key, pod) in pods {
            if self.delete(&key, &pod, json!({"gracePeriodSeconds": 0})).await != Outcome::Done {
                outcome = Outcome::Retry;
            }
        }
        if outcome == Outcome::Done {
            self.missed.remove(node);
        }
        outcome
    }
}

/// Whether the Node's conditions changed: what its kubelet reported, or should have, is Unknown.
fn silence(node: &mut Value, now: &str) -> bool {
    let Some(status) = object_in(node, "status") else { return false };
    preset(status, "conditions", json!([]));
    let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
    let Some(conditions) = conditions else { return false };
    let mut changed = false;
    for kind in CONDITIONS {
        if !conditions.iter().any(|it| text(it, "/type") == kind) {
            conditions.push(json!({"type": kind, "status": "Unknown", "lastTransitionTime": now,
                "reason": "NodeStatusNeverUpdated",
                "message": "Kubelet never posted node status."}));
            changed = true;
        }
    }
    for condition in conditions {
        let of_kubelet = CONDITIONS.contains(&text(condition, "/type"));
        if of_kubelet && text(condition, "/status") != "Unknown" {
            set(condition, "status", "Unknown");
            set(condition, "reason", "NodeStatusUnknown");
            set(condition, "message", "Kubelet stopped posting node status.");
            set(condition, "lastTransitionTime", now);
            changed = true;
        }
    }
    changed
}

/// The key of the wanted taints: also for a Node that no kubelet has reported as ready.
fn wanted(node: &Value) -> Option<&'static str> {
    let ready = items(node, "/status/conditions").iter().find(|it| text(it, "/type") == "Ready");
    match ready.map(|ready| text(ready, "/status")) {
        Some("True") => None,
        Some("Unknown") => Some(UNREACHABLE),
        Some(_) | None => Some(NOT_READY),
    }
}

/// Whether the Node's taints changed.
fn taint(node: &mut Value, wanted: Option<&str>, now: &str) -> bool {
    let ours = |taint: &Value| matches!(text(taint, "/key"), NOT_READY | UNREACHABLE);
    let before = items(node, "/spec/taints").to_vec();
    let mut after = before.clone();
    after.retain(|taint| !ours(taint) || Some(text(taint, "/key")) == wanted);
    for effect in ["NoSchedule", NO_EXECUTE] {
        let Some(key) = wanted else { break };
        if !after.iter().any(|it| text(it, "/key") == key && text(it, "/effect") == effect) {
            after.push(json!({"key": key, "effect": effect, "timeAdded": now}));
        }
    }
    if after == before {
        return false;
    }
    if let Some(spec) = object_in(node, "spec") {
        set(spec, "taints", after);
    }
    true
}

/// When a pod has to leave a Node for our taints; `None`: it may stay.
fn leaves(pod: &Value, node: &Value) -> Option<Timestamp> {
    let ours = |it: &&Value| {
        matches!(text(it, "/key"), NOT_READY | UNREACHABLE) && text(it, "/effect") == NO_EXECUTE
    };
    items(node, "/spec/taints").iter().filter(ours).filter_map(|taint| outlasts(pod, taint)).min()
}

/// When no toleration of a pod covers a taint any more; `None`: never.
fn outlasts(pod: &Value, taint: &Value) -> Option<Timestamp> {
    let added = text(taint, "/timeAdded").parse::<Timestamp>().unwrap_or(Timestamp::MIN);
    let covers = |one: &&Value| {
        let key = text(one, "/key");
        let exists = text(one, "/operator") == "Exists";
        let same = key == text(taint, "/key") && (exists || text(one, "/value").is_empty());
        (same || key.is_empty() && exists) && matches!(text(one, "/effect"), "" | NO_EXECUTE)
    };
    let mut covering = items(pod, "/spec/tolerations").iter().filter(covers).peekable();
    if covering.peek().is_none() {
        return Some(added);
    }
    // The shortest counts, as in Kubernetes; one without an end is longer than any other.
    let seconds = covering.filter_map(|one| number(one, "/tolerationSeconds")).min()?;
    added.checked_add(SignedDuration::from_secs(seconds.max(0))).ok()
}

impl Controller for Nodes {
    type Key = Key;

    fn plane(&self) -> &Plane {
        &self.plane
    }

    fn note(&mut self, key: &Key, value: Option<&[u8]>, queue: &mut Queue<Key>) {
        if !std::mem::replace(&mut self.pulse.beats, true) {
            queue.push(pulse_key());
        }
        let name = key.name();
        match (key.group(), key.resource()) {
            ("coordination.k8s.io", "leases") if key.namespace() == "kube-node-lease" => {
                if value.is_none() {
                    self.heard.remove(name);
                } else if self.heard.insert(name.to_owned(), Instant::now()).is_none() {
                    queue.push(Key::new("", "nodes", "", name));
                }
            }
            ("", "nodes") => {
                if value.is_some() {
                    self.missed.remove(name);
                }
                queue.push(key.clone());
            }
            ("", "pods") => {
                let pod: Bound =
                    value.and_then(|it| serde_json::from_slice(it).ok()).unwrap_or_default();
                let node = Key::new("", "nodes", "", &pod.spec.node_name);
                if !pod.spec.node_name.is_empty() && self.plane.context.store.get(&node).is_none() {
                    queue.push(node);
                }
            }
            _ => {}
        }
    }

    async fn act(&mut self, key: Key) -> Outcome {
        self.pulse.look();
        if key == pulse_key() {
            return Outcome::After(LOOKS);
        }
        let Some(record) = self.plane.context.store.get(&key) else {
            return self.bury(key.name()).await;
        };
        let Some(mut node) = record.readable() else { return Outcome::Done };
        let Some(heard) = self.heard.get(key.name()) else { return Outcome::Done };
        let left = self.grace.saturating_sub(self.pulse.heard_nothing_for(*heard));
        let now = (self.plane.context.clock)();
        if left.is_zero() && silence(&mut node, &stamp(now)) {
            tracing::warn!(node = key.name(), "its kubelet is silent");
            return self.write(&key, "/status", &node).await;
        }
        let wanted = wanted(&node);
        if taint(&mut node, wanted, &stamp(now)) {
            return self.write(&key, "", &node).await;
        }
        if wanted.is_none() {
            return Outcome::After(left.max(Duration::from_secs(1)));
        }
        // The kubelet could not report while this process was paused.
        if self.pulse.resumed.is_none_or(|resumed| resumed.elapsed() >= self.grace) {
            self.evict(&node, now).await;
        }
        Outcome::After(TAINTED)
    }
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;
    use crate::store::{Store, StoreOptions};

    fn node(status: &str, taints: &Value) -> Value {
        json!({"metadata": {"name": "n"}, "spec": {"taints": taints}, "status": {"conditions": [
            {"type": "Ready", "status": status}, {"type": "Mine", "status": "True"}]}})
    }

    #[test]
    fn a_node_whose_kubelet_never_said_that_it_is_ready_is_not() {
        let mut unheard = json!({"metadata": {"name": "n"}});
        assert_eq!(wanted(&unheard), Some(NOT_READY));
        assert!(silence(&mut unheard, NOON));
        let ready = &items(&unheard, "/status/conditions")[0];
        let told = ["/type", "/status", "/reason"].map(|field| text(ready, field));
        assert_eq!(told, ["Ready", "Unknown", "NodeStatusNeverUpdated"]);
        assert!(!silence(&mut unheard, "2026-01-01T13:00:00Z"), "once");
    }

    /// A controller of one Node with a Lease.
    async fn of_one_node() -> (Nodes, Queue<Key>) {
        use crate::{clock::Clock, context::Context, rest::Served, store};
        let store = Store::open(StoreOptions::memory()).await.unwrap();
        let clock: Clock = std::sync::Arc::new(|| "2026-01-01T13:00:00Z".parse().unwrap());
        let context = Context { store: store.clone(), clock };
        let nobody =
            tower::service_fn(async |_| Ok::<_, std::convert::Infallible>(Response::default()));
        let (served, loopback) = (Served::new(store.clone()), super::super::Loopback::new(nobody));
        let mut nodes = Nodes::new(Plane { context, served, loopback }, Duration::from_secs(40));
        let mut queue = Queue::new();
        let lease = Key::new("coordination.k8s.io", "leases", "kube-node-lease", "n");
        let ready = node("True", &json!([]));
        for (key, object) in [(Key::new("", "nodes", "", "n"), ready), (lease, json!({}))] {
            let text: bytes::Bytes = object.to_string().into();
            let put = store::Change::Put(text.clone());
            store.write(key.clone(), store::Expect::Absent, put).await.unwrap();
            nodes.note(&key, Some(&text), &mut queue);
        }
        (nodes, queue)
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_of_this_process_is_no_silence_of_a_kubelet() {
        let (mut nodes, mut queue) = of_one_node().await;
        let key = Key::new("", "nodes", "", "n");
        let mut first = std::collections::HashSet::new();
        first.extend([queue.next().await, queue.next().await]);
        assert_eq!(
            first,
            [key.clone(), pulse_key()].into(),
            "the pulse is looked at from the first Lease on"
        );
        assert_eq!(nodes.act(pulse_key()).await, Outcome::After(LOOKS));
        tokio::time::advance(Duration::from_mins(10)).await;
        let whole = Outcome::After(Duration::from_secs(40));
        assert_eq!(
            nodes.act(key.clone()).await,
            whole,
            "a pause of ten minutes, and nothing is said"
        );
        for _ in 0..8 {
            assert_ne!(nodes.act(key.clone()).await, Outcome::Done);
            tokio::time::advance(LOOKS).await;
        }
        assert_eq!(
            nodes.act(key).await,
            Outcome::Done,
            "40 s awake: it is written that it is silent"
        );
    }

    const NOON: &str = "2026-01-01T12:00:00Z";

    #[test]
    fn what_a_silent_kubelet_said_is_unknown_and_what_others_said_stays() {
        let mut silent = node("True", &json!([]));
        assert!(silence(&mut silent, NOON));
        assert_eq!(text(&silent, "/status/conditions/0/status"), "Unknown");
        assert_eq!(text(&silent, "/status/conditions/0/reason"), "NodeStatusUnknown");
        assert_eq!(text(&silent, "/status/conditions/1/status"), "True");
        assert!(!silence(&mut silent, "2026-01-01T13:00:00Z"), "once");
    }

    #[test]
    fn a_node_has_the_taints_of_its_condition_and_keeps_those_of_others() {
        let other = json!({"key": "dedicated", "effect": "NoSchedule"});
        for (status, key) in [("Unknown", UNREACHABLE), ("False", NOT_READY)] {
            let mut tainted = node(status, &json!([other]));
            let wanted = wanted(&tainted);
            assert_eq!(wanted, Some(key));
            assert!(taint(&mut tainted, wanted, NOON));
            assert!(!taint(&mut tainted, wanted, "2026-01-01T13:00:00Z"), "once");
            assert_eq!(items(&tainted, "/spec/taints").len(), 3);
            assert!(taint(&mut tainted, None, NOON));
            assert_eq!(items(&tainted, "/spec/taints"), std::slice::from_ref(&other));
        }
    }

    #[test]
    fn a_pod_leaves_when_its_shortest_toleration_ends() {
        let tainted = node(
            "Unknown",
            &json!([{"key": UNREACHABLE, "effect": NO_EXECUTE, "timeAdded": NOON}]),
        );
        let five = json!({"key": UNREACHABLE, "operator": "Exists", "effect": NO_EXECUTE,
            "tolerationSeconds": 300});
        let always = json!({"operator": "Exists"});
        for (tolerations, expected) in [
            (json!([]), Some(NOON)),
            (json!([{"key": NOT_READY, "operator": "Exists"}]), Some(NOON)),
            (json!([five]), Some("2026-01-01T12:05:00Z")),
            (json!([five, always]), Some("2026-01-01T12:05:00Z")),
            (json!([always]), None),
        ] {
            let pod = json!({"spec": {"tolerations": tolerations}});
            let expected = expected.and_then(|at| at.parse().ok());
            assert_eq!(leaves(&pod, &tainted), expected, "{pod}");
        }
    }
}

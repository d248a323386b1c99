//! What is asked of cores about health checks, judged by what the API server has.
//!
//! * CHECK-1: a core marks a Machine only for what was so within the time that its caches may be late, for as long as the
//!   check says, and in a check that selected it.
//! * CHECK-2: and not if more of the Machines of the check than it allows, or fewer, were unhealthy all this time.
//! * CHECK-3: a Machine that fails for a check has its mark.
//!
//! The budget of a deployment is asked for by CHECK-4, in `groups::rules`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use ostler_api::MachineHealthCheck;
use ostler_api::machine::{FailureReason, Machine, MachinePhase};
use ostler_api::machine_health_check::{UnhealthyCondition, UnhealthyMark, UnhealthyReason};
use ostler_api::names::annotation;
use ostler_api::timeout::Timeout;
use ostler_lifecycle::health_check::selects;
use tokio::time::Instant;

use super::super::groups::rules::Lately;

/// Recent versions of checks, the Machines, and the statements of their Nodes.
#[derive(Debug, Default)]
pub struct Rules {
    lag: Duration,
    tolerance: Duration,
    /// By name: its versions, each with its beginning; `None`: deleted.
    checks: BTreeMap<String, Vec<(Instant, Option<MachineHealthCheck>)>>,
    nodes: BTreeMap<String, Said>,
    /// By UID.
    targets: BTreeMap<String, Target>,
}

/// A Node, by its name.
#[derive(Debug, Default)]
struct Said {
    id: Option<String>,
    there: Lately,
    ready: Vec<Episode>,
}

/// A period in which the condition Ready of a Node had one status, by the Node's own times.
#[derive(Debug)]
struct Episode {
    id: Option<String>,
    status: String,
    since: Timestamp,
    until: Option<(Timestamp, Instant)>,
}

#[derive(Debug)]
struct Target {
    machine: Machine,
    well: Lately,
    /// When it was made.
    came: Instant,
    gone: Option<Instant>,
}

fn since(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

fn same(one: &UnhealthyMark, other: &UnhealthyMark) -> bool {
    (&one.check, &one.reason, &one.condition) == (&other.check, &other.reason, &other.condition)
}

fn is_exempt(machine: &Machine) -> bool {
    machine.is_paused() || machine.annotation(annotation::SKIP_REMEDIATION).is_some()
}

impl Rules {
    /// Without any knowledge.
    pub fn new(lag: Duration, tolerance: Duration) -> Self {
        Self { lag, tolerance, ..Self::default() }
    }

    /// A check was written, or is gone.
    pub fn check(&mut self, name: &str, check: Option<MachineHealthCheck>) {
        self.checks.entry(name.to_owned()).or_default().push((Instant::now(), check));
    }

    /// A Node was written.
    pub fn node(&mut self, name: &str, node: &Node, now: Timestamp) {
        let said = self.nodes.entry(name.to_owned()).or_default();
        said.id = node.spec.as_ref().and_then(|spec| spec.provider_id.clone());
        said.there.is(true);
        let mut all = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        if let Some(ready) = all.find(|it| it.type_ == "Ready") {
            let from = ready.last_transition_time.as_ref().map_or(now, |at| at.0);
            let last = said.ready.last_mut();
            let id = said.id.clone();
            let same = |it: &Episode| (&it.id, &it.status, it.since) == (&id, &ready.status, from);
            if !last.as_ref().is_some_and(|it| same(it)) {
                if let Some(last) = last {
                    last.until.get_or_insert_with(|| (now, Instant::now()));
                }
                let status = ready.status.clone();
                said.ready.push(Episode { id, status, since: from, until: None });
            }
        }
        self.look(name);
    }

    /// A Node is gone.
    pub fn node_gone(&mut self, name: &str, now: Timestamp) {
        if let Some(said) = self.nodes.get_mut(name) {
            said.there.is(false);
            if let Some(last) = said.ready.last_mut() {
                last.until.get_or_insert_with(|| (now, Instant::now()));
            }
        }
        self.look(name);
    }

    /// A Machine is gone for good.
    pub fn machine_gone(&mut self, uid: &str) {
        if let Some(target) = self.targets.get_mut(uid) {
            target.gone.get_or_insert_with(Instant::now);
            target.well.is(false);
        }
    }

    /// Whether the Machines of this name are well.
    fn look(&mut self, name: &str) {
        let nodes = &self.nodes;
        for target in self.targets.values_mut().filter(|it| it.machine.name() == name) {
            let machine = &target.machine;
            let node = nodes.get(name).filter(|it| is_of(it.id.as_deref(), machine));
            let ready = node.and_then(|it| it.ready.last()).is_some_and(|it| it.status == "True");
            let ends = machine.is_deleting() || machine.phase() == MachinePhase::Failed;
            // An updated machine is missing, and comes back by itself.
            let updated = machine.phase() == MachinePhase::InPlaceUpdating;
            // A machine that a user wants replaced counts as unhealthy, whatever its Node says.
            let wanted = machine.annotation(annotation::REMEDIATE_MACHINE).is_some();
            target.well.is(ready && !ends && !updated && !wanted && target.gone.is_none());
        }
    }

    /// A Machine was written. Returns the violation, if a core wrote the Machine.
    pub fn machine(
        &mut self,
        before: Option<&Machine>,
        machine: &Machine,
        ours: bool,
        now: Timestamp,
    ) -> Option<String> {
        let (well, came) = (Lately::default(), Instant::now());
        let target = Target { machine: machine.clone(), well, came, gone: None };
        let known = self.targets.entry(machine.uid().to_owned()).or_insert(target);
        known.machine = machine.clone();
        self.look(machine.name());
        let before = before.filter(|_| ours)?;
        let (old, new) = (before.unhealthy_mark(), machine.unhealthy_mark());
        if let Some(mark) = new.filter(|mark| old.as_ref().is_none_or(|old| !same(old, mark))) {
            return self.marked(machine, &mark, now);
        }
        let reason = machine.status.as_ref().and_then(|status| status.failure_reason.as_ref());
        let fails = before.phase() != MachinePhase::Failed
            && machine.phase() == MachinePhase::Failed
            && reason == Some(&FailureReason::HealthCheck);
        let name = machine.name();
        (fails && old.is_none())
            .then(|| format!("CHECK-3: {name} fails for a check, without a mark"))
    }

    /// By any form that the check had lately.
    fn marked(&self, machine: &Machine, mark: &UnhealthyMark, now: Timestamp) -> Option<String> {
        let (name, reason) = (machine.name(), &mark.reason);
        let history = self.checks.get(&mark.check).map(Vec::as_slice).unwrap_or_default();
        let ends = history.iter().skip(1).map(|(at, _)| Some(*at)).chain([None]);
        let recent = |end: Option<Instant>| end.is_none_or(|end| end.elapsed() <= self.lag);
        let lately = history.iter().zip(ends).filter(|(_, end)| recent(*end));
        let mut wrong =
            Some(format!("CHECK-1: {name} is marked, and check {} is not there", mark.check));
        for check in lately.filter_map(|((_, it), _)| it.as_ref()) {
            wrong = if !selects(check, machine) {
                Some(format!("CHECK-1: {name} is marked, and {} does not select it", mark.check))
            } else if self.has_grounds(check, machine, mark, now) {
                self.too_many(check).map(|why| format!("CHECK-2: {name} is marked, {why}"))
            } else {
                Some(format!("CHECK-1: {name} is marked for {reason:?}, which was not so"))
            };
            if wrong.is_none() {
                break;
            }
        }
        wrong
    }

    fn has_grounds(
        &self,
        check: &MachineHealthCheck,
        machine: &Machine,
        mark: &UnhealthyMark,
        now: Timestamp,
    ) -> bool {
        let node = self.nodes.get(machine.name()).filter(|it| is_of(it.id.as_deref(), machine));
        let came = |it: &Said| it.there.since().is_some_and(|at| at.elapsed() <= self.lag);
        let absent = node.is_none_or(|it| !it.there.was(Duration::ZERO) || came(it));
        match &mark.reason {
            UnhealthyReason::HasRemediateAnnotation => {
                machine.annotation(annotation::REMEDIATE_MACHINE).is_some()
            }
            UnhealthyReason::NodeDeleted => absent,
            UnhealthyReason::NodeStartupTimeout => {
                let limit = check.spec.node_startup_timeout.as_ref().and_then(Timeout::duration);
                let born = machine.metadata.creation_timestamp.as_ref().map_or(now, |at| at.0);
                absent && limit.is_some_and(|limit| since(born, now) + self.tolerance >= limit)
            }
            UnhealthyReason::UnhealthyNode => {
                let Some(is) = &mark.condition else { return false };
                let rule =
                    |it: &&UnhealthyCondition| (&it.type_, &it.status) == (&is.type_, &is.status);
                let rule = check.spec.unhealthy_conditions.iter().find(rule);
                let Some(limit) = rule.and_then(|it| it.timeout.duration()) else { return false };
                let long = |it: &Episode| {
                    let end = it.until.map_or(now, |(at, _)| at);
                    is_of(it.id.as_deref(), machine)
                        && it.status == is.status
                        && it.until.is_none_or(|(_, at)| at.elapsed() <= self.lag)
                        && since(it.since, end) + self.tolerance >= limit
                };
                self.nodes.get(machine.name()).is_some_and(|it| it.ready.iter().any(long))
            }
            UnhealthyReason::Other(_) => false,
        }
    }

    /// What was so all the time that a cache may be late counts.
    fn too_many(&self, check: &MachineHealthCheck) -> Option<String> {
        let recent = |it: &&Target| it.gone.is_none_or(|at| at.elapsed() <= self.lag);
        let meant = |it: &&Target| selects(check, &it.machine) && !is_exempt(&it.machine);
        let all: Vec<_> = self.targets.values().filter(recent).filter(meant).collect();
        // A core may not have seen a new machine yet.
        let sick = |it: &&&Target| {
            it.gone.is_none() && it.came.elapsed() > self.lag && !it.well.was(self.lag)
        };
        let sick = all.iter().filter(sick).count();
        let long_well =
            |it: &Target| it.well.now && it.well.since().is_some_and(|at| at.elapsed() > self.lag);
        let maybe = all.iter().filter(|it| !long_well(it)).count();
        let (least, most) = bounds(check, all.len());
        (sick > most || maybe < least).then(|| {
            format!(
                "and of {} machines {sick} to {maybe} are unhealthy; {least} to {most} may be",
                all.len()
            )
        })
    }
}

/// The Node of another instance says nothing of a Machine. Before it has an instance none does: of a creation that got no
/// answer, no core knows the Node.
fn is_of(node: Option<&str>, machine: &Machine) -> bool {
    let Some(id) = machine.provider_id() else { return false };
    node.is_none_or(|own| own == id.as_str())
}

/// As the users of the simulation write it.
fn bounds(check: &MachineHealthCheck, all: usize) -> (usize, usize) {
    let spec = &check.spec;
    if let Some(range) = &spec.unhealthy_range {
        let range = range.trim_matches(['[', ']']).split_once('-').unwrap_or_default();
        let number = |text: &str| text.parse().unwrap_or_default();
        return (number(range.0), number(range.1));
    }
    let most = match &spec.max_unhealthy {
        None => all,
        Some(IntOrString::Int(number)) => usize::try_from(*number).unwrap_or_default(),
        Some(IntOrString::String(percent)) => {
            percent.trim_end_matches('%').parse::<usize>().unwrap_or_default() * all / 100
        }
    };
    (0, most)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const BEGIN: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn machine(name: &str, mark: Option<&Value>) -> Machine {
        let mut machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "uid": name, "labels": { "app": "f" }, "creationTimestamp": BEGIN.to_string(),
            },
            "spec": { "class": { "kind": "MachineClass", "name": "c" }, "providerID": "i-1" },
            "status": { "currentStatus": { "phase": "Running" } },
        });
        if let Some(mark) = mark {
            machine["metadata"]["annotations"] =
                json!({ "ostler.dev/unhealthy": mark.to_string() });
        }
        serde_json::from_value(machine).unwrap()
    }

    fn says(status: &str, since: Timestamp) -> Node {
        let condition =
            json!({ "type": "Ready", "status": status, "lastTransitionTime": since.to_string() });
        serde_json::from_value(json!({ "status": { "conditions": [condition] } })).unwrap()
    }

    /// Three machines, of which one may be unhealthy, for a minute.
    fn three() -> Rules {
        let mut rules = Rules::new(Duration::from_mins(1), Duration::ZERO);
        let check = json!({
            "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineHealthCheck",
            "metadata": { "name": "h" },
            "spec": {
                "selector": { "matchLabels": { "app": "f" } }, "maxUnhealthy": 1,
                "unhealthyConditions": [{ "type": "Ready", "status": "False", "timeout": "60s" }],
            },
        });
        rules.check("h", Some(serde_json::from_value(check).unwrap()));
        for name in ["a", "b", "c"] {
            rules.node(name, &says("True", BEGIN), BEGIN);
            rules.machine(None, &machine(name, None), false, BEGIN);
        }
        rules
    }

    fn mark(rules: &mut Rules, name: &str, now: Timestamp) -> Option<String> {
        let mark = json!({
            "check": "h", "reason": "UnhealthyNode", "condition": { "type": "Ready", "status": "False" },
            "since": now.to_string(), "message": "",
        });
        let marked = machine(name, Some(&mark));
        rules.machine(Some(&machine(name, None)), &marked, true, now)
    }

    async fn later(seconds: u64) -> Timestamp {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        BEGIN + Duration::from_secs(seconds)
    }

    fn broken(found: Option<String>) -> String {
        found.map_or_else(String::new, |text| text.split(':').next().unwrap_or_default().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_mark_has_its_grounds_for_as_long_as_the_check_says() {
        let mut rules = three();
        assert_eq!(broken(mark(&mut rules, "a", BEGIN)), "CHECK-1");
        rules.node("a", &says("False", BEGIN), BEGIN);
        assert_eq!(broken(mark(&mut rules, "a", BEGIN + Duration::from_secs(30))), "CHECK-1");
        let now = later(61).await;
        assert_eq!(mark(&mut rules, "a", now), None);
        rules.check("h", None);
        tokio::time::advance(Duration::from_secs(61)).await;
        assert_eq!(broken(mark(&mut rules, "a", now)), "CHECK-1", "the check is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn no_machine_is_marked_while_too_many_are_unhealthy() {
        let mut rules = three();
        for name in ["a", "b"] {
            rules.node(name, &says("False", BEGIN), BEGIN);
        }
        let now = later(70).await;
        assert_eq!(broken(mark(&mut rules, "a", now)), "CHECK-2");
        rules.node("b", &says("True", now), now);
        assert_eq!(mark(&mut rules, "a", now), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_fails_for_a_check_only_with_a_mark() {
        let mut rules = three();
        let mut failed = machine("a", None);
        let status =
            json!({ "currentStatus": { "phase": "Failed" }, "failureReason": "HealthCheck" });
        failed.status = Some(serde_json::from_value(status).unwrap());
        let found = rules.machine(Some(&machine("a", None)), &failed, true, BEGIN);
        assert_eq!(broken(found), "CHECK-3");
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_was_made_just_now_is_not_unhealthy_for_long() {
        let mut rules = three();
        rules.node("a", &says("False", BEGIN), BEGIN);
        let now = later(70).await;
        rules.machine(None, &machine("d", None), false, now);
        assert_eq!(mark(&mut rules, "a", now), None);
        let now = later(61).await + Duration::from_secs(70);
        assert_eq!(broken(mark(&mut rules, "a", now)), "CHECK-2");
    }

    #[tokio::test(start_paused = true)]
    async fn the_node_of_a_creation_without_an_answer_makes_no_machine_well() {
        let mut rules = three();
        let mut unanswered = machine("a", None);
        unanswered.spec.provider_id = None;
        rules.machine(None, &unanswered, false, BEGIN);
        rules.node("b", &says("False", BEGIN), BEGIN);
        let now = later(70).await;
        assert_eq!(broken(mark(&mut rules, "b", now)), "CHECK-2");
    }
}

//! Decisions about MachineHealthChecks, as tables.
#![expect(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "tests"
)]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use ostler_api::machine_health_check::{MachineHealthCheckStatus, UnhealthyMark, UnhealthyReason};
use ostler_api::names::annotation;
use ostler_api::{Machine, MachineHealthCheck, ProviderIdComparison::Exact};
use ostler_lifecycle::health_check::{
    CheckTarget, Decision, HealthVerdict, Snapshot, decide as plan, holds, selects, verdict,
};
use ostler_lifecycle::outage::{ApiView, Reachability};
use ostler_lifecycle::snapshot::{NodeView, TargetView};
use serde_json::{Value, json};

/// Seconds after the birth of every machine.
fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).unwrap()
}

fn check(spec: Value) -> MachineHealthCheck {
    let mut whole = json!({
        "selector": { "matchLabels": { "app": "web" } },
        "unhealthyConditions": [
            { "type": "Ready", "status": "Unknown", "timeout": "5m" },
            { "type": "Ready", "status": "False", "timeout": "300s" },
            { "type": "KernelDeadlock", "status": "True", "timeout": "1m" }
        ]
    });
    for (field, value) in spec.as_object().unwrap() {
        whole[field] = value.clone();
    }
    serde_json::from_value(json!({
        "apiVersion": "ostler.dev/v1alpha1", "kind": "MachineHealthCheck",
        "metadata": { "name": "c", "namespace": "default", "generation": 1 }, "spec": whole
    }))
    .unwrap()
}

fn machine(name: &str, phase: &str) -> Machine {
    serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "labels": { "app": "web", "node": name },
            "creationTimestamp": at(0),
            "ownerReferences": [{
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "name": "s",
                "uid": "s", "controller": true
            }]
        },
        "spec": { "providerID": format!("fake:///{name}") },
        "status": { "currentStatus": { "phase": phase } }
    }))
    .unwrap()
}

fn annotated(mut machine: Machine, key: &str, value: &str) -> Machine {
    let all = machine.metadata.annotations.get_or_insert_default();
    all.insert(key.to_owned(), value.to_owned());
    machine
}

fn marked(machine: Machine, mark: &UnhealthyMark) -> Machine {
    annotated(machine, annotation::UNHEALTHY, &serde_json::to_string(mark).unwrap())
}

/// A condition of the Node since then.
fn node(type_: &str, status: &str, since: i64) -> NodeView {
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": "n", "creationTimestamp": at(10) },
        "status": { "conditions": [
            { "type": type_, "status": status, "lastTransitionTime": at(since) }
        ] }
    }))
    .unwrap();
    NodeView::Known(Arc::new(node))
}

/// A Node with this `Ready` since second 1000, and another one of the instance.
fn with_another(ready: &str, another: NodeView) -> NodeView {
    let (NodeView::Known(main), NodeView::Known(other)) = (node("Ready", ready, 1000), another)
    else {
        unreachable!()
    };
    NodeView::Several(main, vec![other])
}

fn target(machine: Machine, node: NodeView) -> CheckTarget {
    let (cluster, api) = (TargetView::Watched, ApiView::default());
    CheckTarget { machine: Arc::new(machine), node, ids: Exact, cluster, api }
}

fn healthy(name: &str) -> CheckTarget {
    target(machine(name, "Running"), node("Ready", "True", 60))
}

/// Silent since second 1000: its time ends at 1300.
fn silent(name: &str) -> CheckTarget {
    target(machine(name, "Unknown"), node("Ready", "Unknown", 1000))
}

fn snap(check: MachineHealthCheck, targets: Vec<CheckTarget>, now: i64) -> Snapshot {
    let (name, left) = ("c".to_owned(), Vec::new());
    Snapshot { now: at(now), name, check: Some(Arc::new(check)), targets, left }
}

fn names(plan: &Decision) -> (Vec<&str>, Vec<&str>) {
    let marks = plan.mark.iter().map(|(machine, _)| machine.name());
    (marks.collect(), plan.unmark.iter().map(|machine| machine.name()).collect())
}

fn status(plan: &Decision) -> &MachineHealthCheckStatus {
    plan.status.as_ref().unwrap()
}

/// Status and reason of a condition.
fn condition<'a>(plan: &'a Decision, type_: &str) -> (&'a str, &'a str) {
    let found = status(plan).conditions.iter().find(|it| it.type_ == type_).unwrap();
    (&found.status, &found.reason)
}

fn told(plan: &Decision) -> Vec<&'static str> {
    plan.news.iter().map(|event| event.reason.name()).collect()
}

/// The mark that the check puts on a machine.
fn mark(check: &MachineHealthCheck, target: &CheckTarget, now: i64) -> UnhealthyMark {
    match verdict(check, target, at(now)) {
        HealthVerdict::Unhealthy(mark) => mark,
        other => panic!("{other:?}"),
    }
}

/// `Ok`: healthy, or the reason of unhealthy. `Err`: when to look again.
fn judged(target: &CheckTarget, now: i64) -> Result<Option<UnhealthyReason>, Option<i64>> {
    let since = |at: Option<Timestamp>| at.map(|at| at.as_second() - 1_800_000_000);
    match verdict(&check(json!({})), target, at(now)) {
        HealthVerdict::Healthy => Ok(None),
        HealthVerdict::Unhealthy(mark) => Ok(Some(mark.reason)),
        HealthVerdict::Pending { until } | HealthVerdict::Unknown { until } => Err(since(until)),
        HealthVerdict::Failed => panic!("failed"),
    }
}

#[test]
fn a_machine_is_unhealthy_when_a_condition_of_its_node_has_lasted_for_its_timeout() {
    use UnhealthyReason::UnhealthyNode;
    let of = |node| target(machine("m", "Running"), node);
    for (node, now, expected) in [
        (node("Ready", "True", 60), 90_000, Ok(None)),
        (node("Ready", "Unknown", 1000), 1299, Err(Some(1300))),
        (node("Ready", "Unknown", 1000), 1300, Ok(Some(UnhealthyNode))),
        (node("Ready", "False", 1000), 1300, Ok(Some(UnhealthyNode))),
        (node("KernelDeadlock", "True", 1000), 1060, Ok(Some(UnhealthyNode))),
        (node("KernelDeadlock", "Unknown", 1000), 90_000, Ok(None)),
        // A condition that the Node lacks does not count.
        (node("DiskPressure", "True", 1000), 90_000, Ok(None)),
        (NodeView::Unknown, 90_000, Err(None)),
        (NodeView::Ambiguous(Vec::new()), 90_000, Err(None)),
        (with_another("Unknown", node("Ready", "True", 60)), 90_000, Ok(None)),
        (with_another("Unknown", node("Ready", "Unknown", 1100)), 1399, Err(Some(1400))),
        (with_another("Unknown", node("Ready", "Unknown", 1100)), 1400, Ok(Some(UnhealthyNode))),
    ] {
        assert_eq!(judged(&of(node.clone()), now), expected, "{node:?} at {now}");
    }
}

#[test]
fn a_check_that_was_made_just_now_counts_from_the_last_transition_of_the_node() {
    let mut new = check(json!({}));
    new.metadata.creation_timestamp = Some(at(89_999).into());
    assert!(matches!(verdict(&new, &silent("m"), at(90_000)), HealthVerdict::Unhealthy(_)));
}

#[test]
fn a_node_that_is_gone_makes_its_machine_unhealthy_without_a_timeout_and_one_that_never_came_has_time()
 {
    use UnhealthyReason::{NodeDeleted, NodeStartupTimeout};
    let without = |phase: &str| target(machine("m", phase), NodeView::Absent);
    assert_eq!(judged(&without("Running"), 100), Ok(Some(NodeDeleted)));
    assert_eq!(judged(&without("Unknown"), 100), Ok(Some(NodeDeleted)));
    assert_eq!(judged(&without("Pending"), 100), Err(Some(600)), "10 minutes from its birth");
    assert_eq!(judged(&without("Pending"), 600), Ok(Some(NodeStartupTimeout)));
    let mut made = without("Pending");
    let condition = json!({
        "type": "InstanceCreated", "status": "True", "reason": "Created", "lastTransitionTime": at(300)
    });
    let status = Arc::make_mut(&mut made.machine).status.as_mut().unwrap();
    status.conditions = vec![serde_json::from_value(condition).unwrap()];
    assert_eq!(judged(&made, 600), Err(Some(900)), "from its instance, which came later");
    let unlimited = check(json!({ "nodeStartupTimeout": "0" }));
    let never = verdict(&unlimited, &without("Pending"), at(90_000));
    assert_eq!(never, HealthVerdict::Pending { until: None });
    // The Node of an older instance is none of its own.
    let mut foreign = silent("m");
    let NodeView::Known(node) = &mut foreign.node else { panic!() };
    Arc::make_mut(node).spec.get_or_insert_default().provider_id = Some("fake:///other".into());
    assert_eq!(judged(&foreign, 100), Ok(Some(NodeDeleted)));
}

#[test]
fn while_an_api_server_is_away_nothing_is_known_and_that_time_is_added() {
    let mut api = Reachability::new(Duration::from_secs(30), Some(at(0)), at(0));
    api.answered(at(1050));
    api.silent(at(1060));
    let mut lost = silent("m");
    lost.api = api.view(at(1400));
    assert_eq!(judged(&lost, 1400), Err(None));
    let mut gone = target(machine("m", "Running"), NodeView::Absent);
    gone.api = lost.api.clone();
    assert_eq!(judged(&gone, 1400), Err(None), "also a node that is gone");
    api.answered(at(1450));
    lost.api = api.view(at(1455));
    assert_eq!(judged(&lost, 1455), Err(Some(1460)), "nodes are given time to report");
    lost.api = api.view(at(1500));
    assert_eq!(judged(&lost, 1500), Err(Some(1710)), "410 s were lost");
    // Nothing is written and nothing is taken away meanwhile, and no number changes.
    let mark = mark(&check(json!({})), &silent("m"), 1300);
    let mut target = target(marked(machine("m", "Unknown"), &mark), node("Ready", "Unknown", 1000));
    target.api.down_since = Some(at(1300));
    let mut fine = healthy("fine");
    fine.api.down_since = Some(at(1300));
    let plan = plan(&snap(check(json!({})), vec![fine, target], 1400));
    assert_eq!(names(&plan), (vec![], vec![]));
    assert_eq!((status(&plan).expected_machines, status(&plan).current_healthy), (2, 1));
}

#[test]
fn a_user_asks_for_a_replacement_by_annotation() {
    let asked = annotated(machine("m", "Running"), annotation::REMEDIATE_MACHINE, "");
    let mut target = target(asked, node("Ready", "True", 60));
    let said = UnhealthyReason::HasRemediateAnnotation;
    assert_eq!(judged(&target, 100), Ok(Some(said.clone())));
    let mark = mark(&check(json!({})), &target, 100);
    assert!(holds(&mark, &target.machine, &target.node, target.ids));
    Arc::make_mut(&mut target.machine).metadata.annotations = None;
    assert!(!holds(&mark, &target.machine, &target.node, target.ids), "he took it back");
    for (phase, expected) in
        [("InPlaceUpdating", Err(None)), ("InPlaceUpdateFailed", Ok(Some(said)))]
    {
        let asked = annotated(machine("m", phase), annotation::REMEDIATE_MACHINE, "");
        target.machine = Arc::new(asked);
        assert_eq!(judged(&target, 100), expected, "{phase}");
    }
}

#[test]
fn a_mark_counts_while_what_it_says_is_so() {
    let check = check(json!({}));
    let sick = mark(&check, &silent("m"), 1300);
    let lost = mark(&check, &target(machine("m", "Running"), NodeView::Absent), 100);
    let other = node("Ready", "False", 1400);
    for (mark, view, expected) in [
        (&sick, node("Ready", "Unknown", 1000), true),
        (&sick, node("Ready", "True", 1400), false),
        (&sick, other.clone(), false),
        (&sick, NodeView::Absent, false),
        (&sick, NodeView::Unknown, false),
        (&lost, NodeView::Absent, true),
        (&lost, NodeView::Unknown, false),
        (&lost, other, false),
    ] {
        assert_eq!(holds(mark, &machine("m", "Running"), &view, Exact), expected, "{mark:?}");
    }
}

#[test]
fn an_unhealthy_machine_is_marked_once_and_a_healthy_one_loses_its_mark() {
    let plan_of =
        |target: CheckTarget, now| plan(&snap(check(json!({})), vec![healthy("a"), target], now));
    let early = plan_of(silent("m"), 1200);
    assert_eq!(names(&early), (vec![], vec![]));
    assert_eq!(early.again, Some(at(1300)));
    let due = plan_of(silent("m"), 1300);
    assert_eq!(names(&due), (vec!["m"], vec![]));
    let mark = due.mark.into_iter().next().unwrap().1;
    assert_eq!(mark.message, "Ready of its node has been Unknown for 5m");
    let with = |phase: &str, node| target(marked(machine("m", phase), &mark), node);
    let still = plan_of(with("Unknown", node("Ready", "Unknown", 1000)), 1400);
    assert_eq!(names(&still), (vec![], vec![]), "it has its mark");
    let failed = plan_of(with("Failed", node("Ready", "Unknown", 1000)), 1400);
    assert_eq!(names(&failed), (vec![], vec![]), "its owner replaces it");
    for phase in ["Unknown", "Failed"] {
        let well = plan_of(with(phase, node("Ready", "True", 1350)), 1400);
        assert_eq!(names(&well), (vec![], vec!["m"]), "{phase}");
    }
    let unseen = plan_of(with("Failed", NodeView::Unknown), 1400);
    assert_eq!(names(&unseen), (vec![], vec![]), "its node is not known");
    // The finding has changed.
    let worse = plan_of(with("Unknown", node("KernelDeadlock", "True", 1000)), 1400);
    assert_eq!(names(&worse), (vec!["m"], vec![]));
}

#[test]
fn one_pass_marks_every_unhealthy_machine_whatever_the_others_are_like() {
    let mut alone = machine("a", "Unknown");
    alone.metadata.owner_references = None;
    let mut deleted = machine("b", "Unknown");
    deleted.metadata.deletion_timestamp = Some(at(1).into());
    let marked = {
        let mark = mark(&check(json!({})), &silent("c"), 1300);
        marked(machine("c", "Unknown"), &mark)
    };
    let of = |machine| target(machine, node("Ready", "Unknown", 1000));
    let mut all = vec![of(alone), of(deleted), of(marked), silent("d"), healthy("e"), silent("f")];
    let expected = ["d", "f"];
    for _ in 0..all.len() {
        let plan = plan(&snap(check(json!({})), all.clone(), 1300));
        let mut found = names(&plan).0;
        found.sort_unstable();
        assert_eq!(found, expected);
        all.rotate_left(1);
    }
}

#[test]
fn a_machine_that_goes_or_that_another_check_marked_is_left_alone() {
    let of = |machine| target(machine, node("Ready", "Unknown", 1000));
    let mut leaving = machine("m", "Unknown");
    leaving.metadata.deletion_timestamp = Some(at(1100).into());
    let chosen = annotated(machine("m", "Unknown"), annotation::PRIORITY, "1");
    let chosen = annotated(chosen, annotation::MARKED_FOR_DELETION, "2026-01-01T00:00:00Z");
    let mut foreign = mark(&check(json!({})), &silent("m"), 1300);
    foreign.check = "other".to_owned();
    let others = marked(machine("m", "Unknown"), &foreign);
    for machine in [leaving, chosen, others, machine("m", "Failed")] {
        let plan = plan(&snap(check(json!({})), vec![of(machine.clone())], 1300));
        assert_eq!(names(&plan), (vec![], vec![]), "{machine:?}");
        assert_eq!(status(&plan).current_healthy, 0);
        assert_eq!(status(&plan).expected_machines, 1);
    }
}

#[test]
fn paused_skipped_and_preserved_machines_are_no_targets() {
    let of = |machine| target(machine, node("Ready", "Unknown", 1000));
    let mut preserved = machine("m", "Running");
    let current = preserved.status.as_mut().unwrap().current_status.as_mut().unwrap();
    current.preserve_expiry_time = Some(at(9000).into());
    let by = |key| annotated(machine("m", "Unknown"), key, "");
    let exempt = [annotation::SKIP_REMEDIATION, annotation::PAUSED, annotation::CLUSTER_API_PAUSED];
    for machine in exempt.map(by).into_iter().chain([preserved]) {
        let plan = plan(&snap(check(json!({})), vec![of(machine.clone())], 1300));
        assert_eq!(names(&plan), (vec![], vec![]), "{machine:?}");
        assert_eq!(status(&plan).expected_machines, 0);
        assert_eq!(status(&plan).targets, Vec::<String>::new());
    }
    // A mark is taken away, unless the machine failed for it: it would be well again, and fail again.
    let mark = mark(&check(json!({})), &silent("m"), 1300);
    for (phase, unmarked) in [("Unknown", vec!["m"]), ("Failed", vec![])] {
        let skipped = annotated(machine("m", phase), annotation::SKIP_REMEDIATION, "");
        let plan = plan(&snap(check(json!({})), vec![of(marked(skipped, &mark))], 1300));
        assert_eq!(names(&plan), (vec![], unmarked), "{phase}");
    }
}

#[test]
fn a_machine_without_a_controller_is_not_marked_and_a_condition_and_an_event_say_so() {
    let mut alone = silent("m");
    Arc::make_mut(&mut alone.machine).metadata.owner_references = None;
    let first = plan(&snap(check(json!({})), vec![alone.clone()], 1300));
    assert_eq!(names(&first), (vec![], vec![]));
    assert_eq!(condition(&first, "Replaceable"), ("False", "NoController"));
    assert_eq!(told(&first), ["NoController"]);
    let mut again = check(json!({}));
    again.status.clone_from(&first.status);
    let second = plan(&snap(again, vec![alone], 1400));
    assert_eq!(told(&second), Vec::<&str>::new(), "once");
    assert_eq!(first.status.as_ref(), Some(status(&second)));
}

#[test]
fn with_too_many_unhealthy_ones_none_is_marked_and_marks_are_taken_back() {
    for (limit, open, left) in [
        (json!({}), true, 1),
        (json!({ "maxUnhealthy": "100%" }), true, 1),
        (json!({ "maxUnhealthy": "79%" }), true, 0),
        (json!({ "maxUnhealthy": "59%" }), false, 0),
        (json!({ "maxUnhealthy": 3 }), true, 0),
        (json!({ "maxUnhealthy": 2 }), false, 0),
        (json!({ "maxUnhealthy": 0 }), false, 0),
        (json!({ "unhealthyRange": "[3-5]", "maxUnhealthy": 0 }), true, 2),
        (json!({ "unhealthyRange": "[1-2]" }), false, 0),
        (json!({ "unhealthyRange": "[4-5]" }), false, 0),
    ] {
        let mut targets = vec![healthy("a"), silent("b"), silent("c")];
        // A new Machine is not healthy either.
        targets.push(target(machine("d", "Pending"), NodeView::Absent));
        targets[3].machine = Arc::new({
            let mut late = machine("d", "Pending");
            late.metadata.creation_timestamp = Some(at(1200).into());
            late
        });
        let plan = plan(&snap(check(limit.clone()), targets, 1300));
        let marked = if open { vec!["b", "c"] } else { vec![] };
        assert_eq!(names(&plan), (marked, vec![]), "{limit}");
        assert_eq!(status(&plan).remediations_allowed, left, "{limit}");
        let few = limit["unhealthyRange"] == "[4-5]";
        let closed = if few { "TooFewUnhealthy" } else { "TooManyUnhealthy" };
        let expected = if open { "RemediationAllowed" } else { closed };
        assert_eq!(condition(&plan, "RemediationAllowed").1, expected, "{limit}");
        let events = if open { vec![] } else { vec!["RemediationRestricted"] };
        assert_eq!(told(&plan), events, "{limit}");
    }
    let strict = check(json!({ "maxUnhealthy": 1 }));
    let mark = mark(&strict, &silent("b"), 1300);
    let waits = target(marked(machine("b", "Unknown"), &mark), node("Ready", "Unknown", 1000));
    let plan = plan(&snap(strict, vec![waits, silent("c")], 1300));
    assert_eq!(names(&plan), (vec![], vec!["b"]));
}

#[test]
fn machines_that_start_are_too_many_unhealthy_ones_and_no_reason_for_an_event() {
    let starting = |name| target(machine(name, "Pending"), NodeView::Absent);
    let strict = check(json!({ "maxUnhealthy": "50%" }));
    let first = plan(&snap(strict.clone(), vec![starting("a"), starting("b")], 60));
    assert_eq!(condition(&first, "RemediationAllowed"), ("False", "NoneIsDue"));
    assert_eq!((told(&first), first.again), (vec![], Some(at(600))));
    let mut later = strict;
    later.status.clone_from(&first.status);
    let second = plan(&snap(later, vec![starting("a"), starting("b")], 600));
    assert_eq!(condition(&second, "RemediationAllowed"), ("False", "TooManyUnhealthy"));
    assert_eq!(told(&second), ["RemediationRestricted"]);
}

#[test]
fn a_check_that_is_refused_or_paused_marks_none_and_says_the_field_the_value_and_what_to_do() {
    for (spec, parts) in [
        (json!({ "selector": {} }), ["spec.selector is empty", "give matchLabels"]),
        (json!({ "maxUnhealthy": "many" }), ["spec.maxUnhealthy is \"many\"", "such as 40%"]),
        (json!({ "unhealthyRange": "[5-3]" }), ["spec.unhealthyRange is \"[5-3]\"", "[3-5]"]),
        (json!({ "nodeStartupTimeout": "5s" }), ["nodeStartupTimeout is 5s", "30s or more"]),
        (json!({ "nodeStartupTimeout": "soon" }), ["nodeStartupTimeout", "e.g. 10m"]),
        (
            json!({
                "maxUnhealthy": 1,
                "remediation": { "triggerIf": { "unhealthyLessThanOrEqualTo": 1 } }
            }),
            ["spec.maxUnhealthy and spec.remediation.triggerIf.", "say the same: keep one"],
        ),
        (
            json!({ "remediation": { "triggerIf": { "unhealthyInRange": "[5-3]" } } }),
            ["spec.remediation.triggerIf.unhealthyInRange is \"[5-3]\"", "[3-5]"],
        ),
        (
            json!({ "checks": { "nodeStartupTimeoutSeconds": 5 } }),
            ["spec.checks.nodeStartupTimeoutSeconds is 5s", "30s or more"],
        ),
        (
            json!({ "unhealthyConditions": [{ "type": "Ready", "status": "True", "timeout": "5" }] }),
            ["unhealthyConditions[0].timeout is no duration", "5m"],
        ),
    ] {
        let plan = plan(&snap(check(spec.clone()), vec![silent("m")], 1300));
        assert_eq!(names(&plan), (vec![], vec![]), "{spec}");
        assert_eq!(condition(&plan, "Valid"), ("False", "ValidationFailed"));
        assert_eq!(told(&plan), ["ValidationFailed"]);
        let message = &status(&plan).conditions[2].message;
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }
    let paused = |mut check: MachineHealthCheck| {
        let key = annotation::CLUSTER_API_PAUSED.to_owned();
        check.metadata.annotations = Some([(key, String::new())].into());
        check
    };
    let plan = plan(&snap(paused(check(json!({}))), vec![silent("m")], 1300));
    assert_eq!(names(&plan), (vec![], vec![]));
    assert_eq!(condition(&plan, "RemediationAllowed"), ("False", "Paused"));
}

#[test]
fn a_check_in_the_form_of_v1beta2_decides_as_one_in_that_of_v1beta1() {
    let v1beta1 = check(json!({
        "nodeStartupTimeout": "2m", "maxUnhealthy": "50%",
        "unhealthyConditions": [
            { "type": "Ready", "status": "Unknown", "timeout": "5m" },
            { "type": "KernelDeadlock", "status": "True", "timeout": "1m" }
        ]
    }));
    let v1beta2 = check(json!({
        "unhealthyConditions": [],
        "checks": {
            "nodeStartupTimeoutSeconds": 120,
            "unhealthyNodeConditions": [
                { "type": "Ready", "status": "Unknown", "timeoutSeconds": 300 },
                { "type": "KernelDeadlock", "status": "True", "timeoutSeconds": 60 }
            ]
        },
        "remediation": { "triggerIf": { "unhealthyLessThanOrEqualTo": "50%" } }
    }));
    let joining = target(machine("joining", "Pending"), NodeView::Absent);
    let locked = target(machine("locked", "Running"), node("KernelDeadlock", "True", 1000));
    for targets in [
        vec![silent("m"), healthy("n")],
        vec![locked, healthy("n")],
        vec![joining, healthy("n")],
        vec![silent("m"), silent("n"), healthy("o")],
    ] {
        for now in [60, 119, 120, 1059, 1060, 1299, 1300] {
            let [one, other] = [&v1beta1, &v1beta2].map(|check| {
                let plan = plan(&snap(check.clone(), targets.clone(), now));
                (plan.mark, plan.unmark, plan.again, plan.status)
            });
            assert_eq!(one, other, "second {now}");
        }
    }
    let range = json!({ "remediation": { "triggerIf": { "unhealthyInRange": "[2-3]" } } });
    let alone = plan(&snap(check(range), vec![silent("m")], 1300));
    assert_eq!((names(&alone), told(&alone)), ((vec![], vec![]), vec!["RemediationRestricted"]));
    // Conditions of both forms count.
    let both = check(json!({ "checks": { "unhealthyNodeConditions": [
        { "type": "DiskBroken", "status": "True", "timeoutSeconds": 10 }
    ] } }));
    let broken = target(machine("m", "Running"), node("DiskBroken", "True", 1000));
    assert_eq!(names(&plan(&snap(both.clone(), vec![broken], 1010))).0, ["m"]);
    assert_eq!(names(&plan(&snap(both, vec![silent("m")], 1300))).0, ["m"]);
}

#[test]
fn a_check_that_is_gone_leaves_no_mark_behind() {
    let mark = mark(&check(json!({})), &silent("m"), 1300);
    let left = |phase: &str| Arc::new(marked(machine("m", phase), &mark));
    let mut gone = snap(check(json!({})), Vec::new(), 1300);
    gone.check = None;
    gone.left = vec![left("Unknown")];
    let plan_of = plan(&gone);
    assert_eq!(names(&plan_of), (vec![], vec!["m"]));
    assert_eq!(plan_of.status, None);
    // The check does not select the machine any more.
    let mut other = snap(check(json!({})), vec![healthy("a")], 1300);
    other.left = vec![left("Failed")];
    assert_eq!(names(&plan(&other)), (vec![], vec!["m"]));
}

#[test]
fn a_check_selects_by_labels_and_where_it_names_a_cluster_by_that() {
    let named = json!({ "clusterName": "k" });
    for (spec, cluster, expected) in [
        (json!({}), None, true),
        (json!({}), Some("k"), true),
        (named.clone(), Some("k"), true),
        (named.clone(), Some("other"), false),
        (named, None, false),
        (json!({ "selector": { "matchLabels": { "app": "db" } } }), Some("k"), false),
        (json!({ "selector": {} }), Some("k"), false),
    ] {
        let mut machine = machine("m", "Running");
        let labels = machine.metadata.labels.get_or_insert_default();
        let key = "cluster.x-k8s.io/cluster-name".to_owned();
        labels.extend(cluster.map(|name| (key, name.to_owned())));
        assert_eq!(selects(&check(spec.clone()), &machine), expected, "{spec} {cluster:?}");
    }
}

#[test]
fn nothing_begins_while_those_of_which_nothing_is_known_would_be_too_many() {
    let few = || check(json!({ "maxUnhealthy": 1 }));
    let asked = |name| annotated(machine(name, "Running"), annotation::REMEDIATE_MACHINE, "");
    let asked = |name| target(asked(name), node("Ready", "True", 60));
    let unknown = |name| target(machine(name, "Running"), NodeView::Unknown);
    let begun = plan(&snap(few(), vec![asked("a"), unknown("b"), healthy("c")], 2000));
    assert_eq!(names(&begun), (vec![], vec![]));
    let begun = plan(&snap(few(), vec![asked("a"), healthy("b"), healthy("c")], 2000));
    assert_eq!(names(&begun), (vec!["a"], vec![]));
    let mark = mark(&few(), &asked("a"), 2000);
    let marked =
        marked(annotated(machine("a", "Running"), annotation::REMEDIATE_MACHINE, ""), &mark);
    let marked = target(marked, node("Ready", "True", 60));
    let kept = plan(&snap(few(), vec![marked, unknown("b"), healthy("c")], 2000));
    assert_eq!(names(&kept), (vec![], vec![]), "an outage takes no mark back");
}

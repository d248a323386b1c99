//! Requests of autoscalers: effects and answers.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::names::annotation::{
    AUTOSCALER_MAX, AUTOSCALER_MIN, LAST_SCALING, REPLICAS_CHANGED_BY_SCALER, TRIGGER_DELETION,
};
use ostler_lifecycle::autoscaler::chosen::is_chosen;
use ostler_lifecycle::autoscaler::group::Group;
use ostler_lifecycle::autoscaler::instance::{
    GroupInstance, GroupInstanceState, GroupMember, instances,
};
use ostler_lifecycle::autoscaler::options::Options;
use ostler_lifecycle::autoscaler::scale::{
    Named, NamedNode, ScaleRefusal, decrease, delete, increase,
};
use serde_json::{Value, json};

const NOW: &str = "2026-01-02T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn group(kind: &str, replicas: i32, extra: &Value) -> Group {
    let mut annotations = json!({ AUTOSCALER_MIN: "1", AUTOSCALER_MAX: "5" });
    annotations.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    let metadata = json!({
        "name": "g", "namespace": "n", "uid": "u", "resourceVersion": "7", "annotations": annotations
    });
    let spec = json!({ "replicas": replicas, "template": {} });
    let mut object = json!({ "kind": kind, "metadata": metadata, "spec": spec });
    if kind == "MachinePool" {
        object["apiVersion"] = json!("ostler.dev/v1alpha1");
        return Group::Pool(Arc::new(serde_json::from_value(object).unwrap()));
    }
    object["apiVersion"] = json!("machine.sapcloud.io/v1alpha1");
    Group::Deployment(Arc::new(serde_json::from_value(object).unwrap()))
}

fn deployment(replicas: i32) -> Group {
    group("MachineDeployment", replicas, &json!({}))
}

fn member(name: &str, more: &Value, node: bool) -> GroupMember {
    let mut machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z"
        },
        "spec": {}
    });
    json_patch::merge(&mut machine, more);
    let node_id = node.then(|| format!("fake:///{name}"));
    GroupMember { machine: Arc::new(serde_json::from_value(machine).unwrap()), node_id }
}

fn running(name: &str) -> GroupMember {
    member(name, &json!({ "status": { "currentStatus": { "phase": "Running" } } }), true)
}

fn new(name: &str) -> GroupMember {
    member(name, &json!({}), false)
}

fn named(uids: &[&str]) -> Vec<Named> {
    let one = |uid: &&str| {
        let what = match *uid {
            "?" => NamedNode::Unknown,
            missing if missing.starts_with('#') => {
                NamedNode::Missing(missing[1..].parse().unwrap())
            }
            uid => NamedNode::Machine(uid.to_owned()),
        };
        Named { name: (*uid).to_owned(), what }
    };
    uids.iter().map(one).collect()
}

#[test]
fn a_group_grows_in_one_conditional_write_that_says_what_it_does() {
    let change = increase(&deployment(2), 2, now()).unwrap();
    let said = format!("{NOW} scaled from 2 to 4");
    let expected = json!({
        "metadata": { "resourceVersion": "7", "annotations": { LAST_SCALING: said } },
        "spec": { "replicas": 4 }
    });
    assert_eq!(change.patch, expected);
}

#[test]
fn more_than_the_maximum_is_refused_with_both_numbers() {
    for by in [4, i32::MAX] {
        let refused = increase(&deployment(2), by, now()).unwrap_err();
        let text = refused.to_string();
        let wanted = 2_i32.saturating_add(by).to_string();
        assert!(text.contains(&wanted) && text.contains("maximum is 5"), "{text}");
    }
    for by in [0, -1, i32::MIN] {
        let refused = increase(&deployment(2), by, now());
        assert!(matches!(refused, Err(ScaleRefusal::Senseless(_))), "{by}");
    }
}

#[test]
fn the_chosen_go_and_the_target_falls_by_as_many_in_one_write() {
    let members = [running("a"), running("b"), running("c")];
    let change = delete(&deployment(3), &members, &named(&["c", "a", "a"]), now());
    let patch = change.unwrap().unwrap().patch;
    assert_eq!(patch["spec"]["replicas"], 1);
    let annotations = &patch["metadata"]["annotations"];
    assert_eq!(annotations[TRIGGER_DELETION], format!("a~{NOW},c~{NOW}"));
    assert_eq!(annotations[REPLICAS_CHANGED_BY_SCALER], NOW);
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
}

#[test]
fn one_that_goes_already_lowers_nothing_and_stays_on_the_list_until_it_is_gone() {
    let listed = json!({ TRIGGER_DELETION: format!("a~{NOW},gone~{NOW},junk") });
    let group = group("MachineDeployment", 3, &listed);
    let deleting = json!({ "metadata": { "deletionTimestamp": NOW, "finalizers": ["x"] } });
    let failed = json!({ "status": { "currentStatus": { "phase": "Failed" } } });
    let members = [
        running("a"),
        running("b"),
        member("deleting", &deleting, true),
        member("failed", &failed, true),
        running("c"),
    ];
    let goes = named(&["a", "deleting", "failed"]);
    assert_eq!(delete(&group, &members, &goes, now()), Ok(None));
    let change = delete(&group, &members, &named(&["a", "b"]), now()).unwrap().unwrap();
    assert_eq!(change.patch["spec"]["replicas"], 2);
    let list = &change.patch["metadata"]["annotations"][TRIGGER_DELETION];
    assert_eq!(*list, json!(format!("a~{NOW},b~{NOW}")));
}

#[test]
fn a_later_machine_of_a_chosen_name_is_another_one() {
    let later = json!({ "metadata": { "creationTimestamp": "2026-01-03T00:00:00Z" } });
    let list = format!("a~{NOW}");
    assert!(is_chosen(&running("a").machine, &list));
    assert!(!is_chosen(&member("a", &later, false).machine, &list));
    for other in ["b~2026-01-02T00:00:00Z", "a", "a~never", ""] {
        assert!(!is_chosen(&running("a").machine, other), "{other}");
    }
}

#[test]
fn a_stranger_among_the_named_or_too_few_left_refuses_all_of_them() {
    let members = [running("a"), running("b")];
    for nodes in [&["a", "?"][..], &["a", "of-another-group"]] {
        let refused = delete(&deployment(2), &members, &named(nodes), now()).unwrap_err();
        assert!(refused.to_string().contains(nodes[1]), "{refused}");
    }
    let refused = delete(&deployment(2), &members, &named(&["a", "b"]), now()).unwrap_err();
    assert!(refused.to_string().contains("0 Machines, and its minimum is 1"), "{refused}");
    // Below the minimum already: it may go further down by nothing, but not be kept from where it is.
    assert_eq!(delete(&deployment(2), &members, &[], now()), Ok(None));
}

#[test]
fn those_that_a_pool_lacks_are_taken_off_its_size_once() {
    let pool = group("MachinePool", 3, &json!({}));
    let members = [running("a")];
    let change = delete(&pool, &members, &named(&["#0", "#1", "#0"]), now()).unwrap().unwrap();
    assert_eq!(change.patch["spec"]["replicas"], 1);
    let smaller = group("MachinePool", 1, &json!({}));
    assert_eq!(delete(&smaller, &members, &named(&["#0", "#1"]), now()), Ok(None));
}

#[test]
fn a_target_falls_by_those_without_a_node_the_cheapest_first() {
    let made = json!({ "spec": { "providerID": "fake:///m" } });
    let members = [running("a"), member("made", &made, false), new("new")];
    // One of four Machines is not even an object yet.
    let change = decrease(&deployment(4), &members, -2, now()).unwrap();
    assert_eq!(change.patch["spec"]["replicas"], 2);
    let list = &change.patch["metadata"]["annotations"][TRIGGER_DELETION];
    assert_eq!(*list, json!(format!("new~{NOW}")));
    let change = decrease(&deployment(4), &members, -1, now()).unwrap();
    assert_eq!(change.patch["metadata"]["annotations"].get(TRIGGER_DELETION), None);
    for by in [-4, -5, i32::MIN] {
        let refused = decrease(&deployment(4), &members, by, now());
        assert!(matches!(refused, Err(ScaleRefusal::Impossible(_))), "{by}");
    }
    for by in [0, 1] {
        let refused = decrease(&deployment(4), &members, by, now());
        assert!(matches!(refused, Err(ScaleRefusal::Senseless(_))), "{by}");
    }
}

fn shown(group: &Group, member: GroupMember) -> GroupInstance {
    instances(group, &[member]).remove(0)
}

#[test]
fn an_instance_is_known_by_what_its_node_says_then_its_driver_then_its_name() {
    let made = json!({ "spec": { "providerID": "fake:///m" } });
    let group = deployment(1);
    assert_eq!(shown(&group, running("a")).id, "fake:///a");
    assert_eq!(shown(&group, member("m", &made, false)).id, "fake:///m");
    assert_eq!(shown(&group, new("m")).id, "ostler://n/m");
}

#[test]
fn a_failed_creation_is_told_and_what_says_nothing_of_the_instance_is_not() {
    let group = deployment(1);
    let failed = |code: &str, phase: &str| {
        json!({ "status": {
            "currentStatus": { "phase": phase },
            "lastOperation": {
                "type": "Create", "state": "Failed", "errorCode": code, "description": "why"
            }
        } })
    };
    for (code, out) in [("ResourceExhausted", true), ("Internal", false), ("Uninitialized", false)]
    {
        let one = shown(&group, member("m", &failed(code, "CrashLoopBackOff"), false));
        let fault = one.fault.unwrap();
        assert_eq!(
            (one.state, fault.out_of_resources),
            (GroupInstanceState::Creating, out),
            "{code}"
        );
        assert_eq!((fault.code.as_str(), fault.message.as_str()), (code, "why"));
    }
    for code in ["Unavailable", "Aborted", "Canceled"] {
        let one = shown(&group, member("m", &failed(code, "CrashLoopBackOff"), false));
        assert_eq!((one.state, one.fault), (GroupInstanceState::Creating, None), "{code}");
    }
    // The set replaces the Machine.
    let one = shown(&group, member("m", &failed("ResourceExhausted", "Failed"), false));
    assert_eq!((one.state, one.fault), (GroupInstanceState::Deleting, None));
    let one = shown(&group, member("m", &failed("Internal", "Running"), true));
    assert_eq!((one.state, one.fault), (GroupInstanceState::Running, None));
}

#[test]
fn a_group_that_no_autoscaler_may_scale_is_none() {
    for (kind, annotation) in [
        ("MachinePool", json!({ "cluster.x-k8s.io/replicas-managed-by": "others" })),
        ("MachinePool", json!({ "cluster.x-k8s.io/paused": "" })),
        ("MachineDeployment", json!({ AUTOSCALER_MAX: "x" })),
    ] {
        let group = group(kind, 1, &annotation);
        assert_eq!(group.limits(), None, "{annotation}");
        assert!(matches!(increase(&group, 1, now()), Err(ScaleRefusal::NoGroup(_))));
    }
    let paused = group("MachineDeployment", 1, &json!({ "cluster.x-k8s.io/paused": "" }));
    assert!(paused.limits().is_some(), "its scaling goes on");
}

#[test]
fn options_are_read_and_what_cannot_be_read_is_none() {
    let key = |name: &str| format!("cluster.x-k8s.io/autoscaling-options-{name}");
    let given = json!({
        key("scaledownutilizationthreshold"): "0.3", key("scaledownunneededtime"): "90s",
        key("scaledownunreadytime"): "soon", key("scaledowngpuutilizationthreshold"): "NaN"
    });
    let options = Options::of(&group("MachineDeployment", 1, &given)).unwrap();
    assert_eq!(options.utilization, Some(0.3));
    assert_eq!(options.unneeded.map(|it| it.as_secs()), Some(90));
    assert_eq!((options.unready, options.gpu_utilization, options.provision), (None, None, None));
    assert_eq!(Options::of(&deployment(1)), None);
}

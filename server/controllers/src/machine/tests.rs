use std::time::Duration;

use ostler_api::machine::MachineStatus;
use ostler_api::names::{annotation, finalizer};
use ostler_lifecycle::node::NodeView;
use ostler_lifecycle::operation::{OperationView, SecretText};
use ostler_lifecycle::plan::{Action, Event, EventReason, PodRef, TokenRequest};
use ostler_lifecycle::unwritten::Unwritten;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

use super::*;
use crate::api_health::ApiCheck;
use crate::bench::{Bench, handed_out, put};

/// The controller in term 2.
fn machines(bench: &Bench) -> Machines {
    let (queue, registry) = (Bench::queue(), &mut Registry::default());
    let begun = Instant::now();
    let clock: crate::clock::Clock =
        Arc::new(move || jiff::Timestamp::UNIX_EPOCH + begun.elapsed());
    Machines {
        writer: bench.writer(),
        stores: bench.stores.clone(),
        sessions: bench.sessions.clone(),
        settings: Arc::clone(&bench.settings),
        clock: DebugClock(Arc::clone(&clock)),
        recorder: bench.recorder(),
        state: Arc::new(State::of(&bench.stores.machines)),
        configs: bench.configs(),
        answers: AnswerMetrics::default(),
        scans: OrphanScans::new(Bench::queue()),
        left: LeftGroups::new(&Bench::queue()),
        steps: StepMetrics::register(registry),
        term: Term(2),
        api_health: Arc::new(ApiHealth::new(ApiCheck::default(), clock, registry)),
        schemas: Schemas::default().into(),
        reviewer: bench.reviewer(),
        queue,
    }
}

/// A machine with a create recorded in this term.
fn machine(term: i64) -> Value {
    json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": "m", "namespace": "default", "uid": "u" },
        "spec": { "class": { "kind": "MachineClass", "name": "c" } },
        "status": { "operation": {
            "id": "op", "kind": "CreateMachine", "idempotencyKey": "u:c", "attempt": 1,
            "term": term
        } }
    })
}

async fn operation(machines: &Machines) -> OperationView {
    let snapshot = machines.observe(&ObjectName::new("default", "m")).await.unwrap();
    snapshot.unwrap().operation
}

#[tokio::test(start_paused = true)]
async fn an_operation_of_the_leader_before_is_expected_for_as_long_as_drivers_may_bring_it() {
    let bench = Bench::new();
    put(&bench.stores.machines, machine(1));
    let machines = machines(&bench);
    bench.sessions.lead(ostler_sessions::Term(2));
    assert_eq!(operation(&machines).await, OperationView::Expected(Duration::from_secs(30)));
    advance(Duration::from_secs(31)).await;
    tokio::task::yield_now().await;
    assert!(!bench.sessions.adoption_open());
    assert_eq!(operation(&machines).await, OperationView::Idle, "no driver brought it");
}

#[tokio::test(start_paused = true)]
async fn an_operation_of_this_term_that_no_session_knows_was_never_sent() {
    let bench = Bench::new();
    put(&bench.stores.machines, machine(2));
    let machines = machines(&bench);
    bench.sessions.lead(ostler_sessions::Term(2));
    assert_eq!(operation(&machines).await, OperationView::Idle);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_has_an_instance_is_another_one_only_by_the_name_of_its_driver() {
    let settings = |bench: &mut Bench| {
        Arc::make_mut(&mut bench.settings).aliases = [("A".into(), "a.example.com".into())].into();
    };
    for (class, holder, expected) in [
        ("a.example.com", "a.example.com", None),
        ("A", "a.example.com", None),
        ("a.example.com", "A", None),
        ("b.example.com", "A", Some("a.example.com".into())),
    ] {
        let mut bench = Bench::new();
        settings(&mut bench);
        put(
            &bench.stores.classes,
            json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
                "metadata": {
                    "name": "c", "namespace": "default", "finalizers": [finalizer::MACHINE]
                },
                "provider": class, "providerSpec": {}
            }),
        );
        let record = json!({ "machineUID": "u", "provider": holder }).to_string();
        let mut machine = machine(2);
        machine["metadata"]["annotations"] = json!({ (annotation::OPERATION): record });
        put(&bench.stores.machines, machine);
        let snapshot = machines(&bench).observe(&ObjectName::new("default", "m")).await;
        assert_eq!(snapshot.unwrap().unwrap().elsewhere, expected, "{class}, {holder}");
    }
}

/// The core's snapshot of a machine in deletion, whose Node the watch has not shown yet.
async fn of_deleted(bench: &mut Bench, watched: Option<Value>) -> Snapshot {
    bench.stores.targets = crate::target::Targets::one(bench.client());
    let mut machine = machine(2);
    machine["spec"]["providerID"] = json!("fake:///m");
    machine["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    machine["metadata"]["finalizers"] = json!(["machine.sapcloud.io/machine-controller"]);
    put(&bench.stores.machines, machine);
    for target in bench.stores.targets.all() {
        if let Some(node) = &watched {
            put(&target.nodes, node.clone());
        }
    }
    let name = ObjectName::new("default", "m");
    machines(bench).observe(&name).await.unwrap().unwrap()
}

fn cordoned() -> Value {
    json!({ "metadata": { "name": "m" }, "spec": { "unschedulable": true, "providerID": "fake:///m" } })
}

#[tokio::test(start_paused = true)]
async fn the_node_of_a_machine_that_is_deleted_is_read_from_the_api_server() {
    let mut bench = Bench::new().having(cordoned());
    let node = of_deleted(&mut bench, None).await.node;
    assert!(matches!(node, NodeView::Known(_)), "a watch may be late: {node:?}");
    let mut bench = Bench::new();
    assert_eq!(of_deleted(&mut bench, None).await.node, NodeView::Absent, "there is none");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_down_is_not_asked_for_the_node_of_a_machine_that_is_deleted() {
    let mut bench = Bench::new();
    assert_eq!(of_deleted(&mut bench, None).await.node, NodeView::Absent);
    let machines = machines(&bench);
    machines.api_health.lost();
    let snapshot = machines.observe(&ObjectName::new("default", "m")).await.unwrap().unwrap();
    assert_eq!(snapshot.node, NodeView::Unknown);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_down_for_long_is_asked_for_nothing() {
    let mut bench = Bench::new();
    of_deleted(&mut bench, Some(cordoned())).await;
    let machines = machines(&bench);
    machines.api_health.lost();
    let (name, uid) = ("m".to_owned(), ostler_api::Uid::default());
    let evict = Action::Evict(PodRef {
        namespace: "default".to_owned(),
        name: name.clone(),
        uid: uid.clone(),
    });
    let plan = |snapshot: &Snapshot| Plan {
        actions: vec![evict.clone(), Action::DeleteNode { name: name.clone(), uid: uid.clone() }],
        ..ostler_lifecycle::machine::plan(snapshot)
    };
    for (seconds, asks) in [(0, true), (31, false)] {
        advance(Duration::from_secs(seconds)).await;
        let before = bench.writes().len();
        let snapshot = machines.observe(&ObjectName::new("default", "m")).await.unwrap().unwrap();
        machines.perform_all(&snapshot, &plan(&snapshot)).await.unwrap();
        assert_eq!(bench.writes().len() > before, asks, "after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn the_node_of_another_machine_is_not_missed_where_none_was_seen() {
    let node = json!({ "metadata": { "name": "node-1" }, "spec": { "providerID": "fake:///o" } });
    let mut bench = Bench::new().having(node);
    let snapshot = of_deleted(&mut bench, None).await;
    let machines = machines(&bench);
    assert!(machines.confirm_node(&snapshot, "node-1", None).await.is_err(), "it came since");
    let mut other = machine(2);
    other["metadata"] = json!({ "name": "other", "namespace": "default", "uid": "o" });
    other["spec"]["providerID"] = json!("fake:///o");
    other["status"]["instanceUID"] = json!("o");
    put(&bench.stores.machines, other);
    assert!(machines.confirm_node(&snapshot, "node-1", None).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn before_a_drain_ends_pods_are_read_from_the_api_server() {
    let pod = json!({
        "metadata": { "name": "web", "namespace": "default", "uid": "p" },
        "spec": { "nodeName": "m", "containers": [] }
    });
    let pods = json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [pod] });
    let mut bench = Bench::new().having(pods);
    let pods = of_deleted(&mut bench, Some(cordoned())).await.pods;
    assert_eq!(pods.known().map(Vec::len), Some(1), "a watch may be older than the cordon");
}

/// How many objects the caches hand out for the snapshot of a machine among so many, each with its Node and a pod
/// there.
async fn handed_out_among(count: usize) -> usize {
    let mut bench = Bench::new();
    bench.stores.targets = crate::target::Targets::one(bench.client());
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": "c", "namespace": "default", "finalizers": [finalizer::MACHINE] },
        "provider": "a.example.com", "providerSpec": {}
    });
    put(&bench.stores.classes, class);
    let target = bench.stores.targets.all().remove(0);
    for number in 0..count {
        let (name, id) = (format!("m{number}"), format!("fake:///m{number}"));
        let mut machine = machine(2);
        machine["metadata"]["name"] = json!(name);
        machine["metadata"]["uid"] = json!(format!("u{number}"));
        machine["spec"]["providerID"] = json!(id);
        machine["status"] = json!({ "currentStatus": { "phase": "Unknown" } });
        put(&bench.stores.machines, machine);
        put(&target.nodes, json!({ "metadata": { "name": name }, "spec": { "providerID": id } }));
        put(
            &target.pods,
            json!({
                "metadata": { "name": name, "namespace": "default", "uid": format!("p{number}") },
                "spec": { "nodeName": name, "containers": [] }
            }),
        );
    }
    let machines = machines(&bench);
    handed_out();
    machines.observe(&ObjectName::new("default", "m7")).await.unwrap().unwrap();
    handed_out()
}

#[tokio::test(start_paused = true)]
async fn a_pass_over_a_machine_does_not_look_at_the_others() {
    assert_eq!(handed_out_among(100).await, handed_out_among(10_000).await);
}

#[tokio::test(start_paused = true)]
async fn a_status_of_another_client_counts_and_what_was_to_be_told_is_told_all_the_same() {
    let bench = Bench::new();
    put(&bench.stores.machines, machine(2));
    let machines = machines(&bench);
    let event = Event::normal(EventReason::InstanceCreated, "made".to_owned());
    let kept = Unwritten {
        stored: None,
        status: MachineStatus::default(),
        events: vec![event.clone()],
        since: jiff::Timestamp::UNIX_EPOCH,
    };
    machines.state.unwritten.set("u", kept);
    let snapshot = machines.observe(&ObjectName::new("default", "m")).await.unwrap().unwrap();
    let theirs = bench.stores.machines.all().remove(0).status.clone();
    assert!(theirs.is_some());
    assert_eq!((&snapshot.machine.status, snapshot.stored_status()), (&theirs, theirs.as_ref()));
    assert_eq!(snapshot.unwritten.unwrap().events, [event]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_this_core_deleted_is_deleted_again_only_if_it_may_have_been_made_again() {
    let secret = json!({ "metadata": {
        "name": "bootstrap-token-abcdef", "uid": "s", "annotations": { annotation::TOKEN_OF: "u" }
    } });
    // An error of the API server says nothing about what became of a request.
    let bench = Bench::new().having(secret).refusing_after(1, 500);
    put(&bench.stores.machines, machine(2));
    let target = crate::target::Targets::one(bench.client()).all().remove(0);
    let machines = machines(&bench);
    let methods = || {
        let writes = bench.writes().into_iter();
        writes.filter_map(|(path, _)| path.split_once(' ').map(|(method, _)| method.to_owned()))
    };
    machines.delete_token(&target, "u", "abcdef").await.unwrap();
    machines.delete_token(&target, "u", "abcdef").await.unwrap();
    assert_eq!(methods().collect::<Vec<_>>(), ["DELETE"]);

    let request = TokenRequest {
        id: "abcdef".to_owned(),
        owner: "u".into(),
        secret: SecretText::new("abcdefghijklmnop".to_owned()),
        expires: jiff::Timestamp::UNIX_EPOCH,
        node: None,
        groups: String::new(),
        description: String::new(),
    };
    machines.ensure_token(&target, &request).await.unwrap_err();
    machines.delete_token(&target, "u", "abcdef").await.unwrap_err();
    assert_eq!(methods().collect::<Vec<_>>(), ["DELETE", "POST", "DELETE"]);
}

/// A machine that is deleted and has only our finalizer.
fn released() -> Value {
    let mut machine = machine(2);
    machine["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    machine["metadata"]["finalizers"] = json!(["machine.sapcloud.io/machine-controller"]);
    machine
}

async fn release(machines: &Machines) -> bool {
    let machine = machines.stores.machines.all().remove(0);
    machines.remove_finalizer(&mut execute::Executed::of(machine)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn a_machine_counts_as_ended_before_the_watch_can_say_that_it_is_gone() {
    let bench = Bench::new();
    put(&bench.stores.machines, released());
    let mut machines = machines(&bench);
    let (state, cache) = (Arc::clone(&machines.state), Arc::clone(&bench.stores.machines));
    // The watch is faster than the answer.
    let server = tower::service_fn(move |_: http::Request<kube::client::Body>| {
        assert!(state.has_ended("u"), "no orphan scan is needed");
        let gone =
            kube::runtime::watcher::Event::Delete(serde_json::from_value(released()).unwrap());
        cache.apply(gone);
        state.forget("u");
        let answer = kube::client::Body::from(released().to_string().into_bytes());
        async { Ok::<_, std::io::Error>(http::Response::new(answer)) }
    });
    let metrics = crate::client::WriteMetrics::register(&mut Registry::default());
    machines.writer = Writer::new(kube::Client::new(server, "default"), metrics);
    assert!(release(&machines).await);
    assert!(!machines.state.has_ended("u"), "nothing is kept");
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_finalizer_was_not_removed_has_not_ended() {
    let bench = Bench::new().refusing(409);
    put(&bench.stores.machines, released());
    let machines = machines(&bench);
    assert!(!release(&machines).await);
    assert!(!machines.state.has_ended("u"));
}

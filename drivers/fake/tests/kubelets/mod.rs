//! Simulated kubelets against an API server in memory, on a paused clock.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod api;

use std::time::Duration;

use api::Api;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use ostler_driver_fake::Kubelets;
use ostler_driver_fake::cloud::{Bootstrap, Clock, Cloud, Identity, Instance, NewInstance};
use ostler_driver_fake::control::ControlFile;
use ostler_driver_fake::spec::ProviderSpec;
use ostler_driver_sdk::CancellationToken;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

const NODE: &str = "nodes//m";
const LEASE: &str = "leases/kube-node-lease/m";
const TOKEN: &str = "secrets/kube-system/bootstrap-token-abcdef";
const POD: &str = "pods/default/p";
const LONG: Duration = Duration::from_hours(1);

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn cloud() -> Cloud {
    Cloud::in_memory(Clock::tokio(start()))
}

fn machine(cloud: &Cloud, name: &str, extra: &Value) -> Instance {
    let mut spec = json!({"region": "eu-1", "image": "linux"});
    json_patch::merge(&mut spec, extra);
    let spec: ProviderSpec = serde_json::from_value(spec).unwrap();
    let identity = Identity {
        cluster_id: "c".to_owned(),
        machine_name: name.to_owned(),
        machine_uid: format!("uid-{name}"),
    };
    let new = NewInstance {
        identity,
        class: "small".to_owned(),
        spec,
        identity_tags: [].into(),
        bootstrap: Bootstrap::read(b"--token=abcdef.0123456789abcdef"),
        previous: None,
        by_name: None,
        previous_clusters: Vec::new(),
    };
    cloud.create(&new).unwrap()
}

fn token(expires_in: i64) -> Value {
    let data = |text: &str| STANDARD.encode(text);
    json!({
        "type": "bootstrap.kubernetes.io/token",
        "data": {
            "token-id": data("abcdef"),
            "token-secret": data("0123456789abcdef"),
            "usage-bootstrap-authentication": data("true"),
            "expiration": data(&(start() + SignedDuration::from_secs(expires_in)).to_string()),
        },
    })
}

fn pod(node: &str) -> Value {
    json!({
        "metadata": {},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending"},
    })
}

fn delete(mut pod: Value, grace: u64) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    pod
}

/// A fleet that is aborted on drop.
struct Fleet(JoinHandle<()>);

impl Drop for Fleet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn run(kubelets: Kubelets) -> Fleet {
    Fleet(tokio::spawn(async move {
        kubelets.run(CancellationToken::new()).await.unwrap();
    }))
}

fn fleet(cloud: &Cloud, api: &Api) -> Fleet {
    run(Kubelets::new(cloud.clone(), api.client()))
}

fn phase(pod: Option<&Value>) -> Option<&str> {
    pod?.pointer("/status/phase")?.as_str()
}

fn ready(node: Option<&Value>) -> Option<&str> {
    let conditions = node?.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|c| c["type"] == "Ready")?["status"].as_str()
}

fn writes(api: &Api) -> Vec<String> {
    api.requests().into_iter().filter(|request| !request.starts_with("GET")).collect()
}

async fn joined(api: &Api) {
    api.until(LEASE, |lease| lease.is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_with_a_good_token_becomes_a_node_at_once_and_with_two_writes() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    let _fleet = fleet(&cloud, &api);
    let instance = machine(&cloud, "m", &json!({"nodeCapacity": {"cpu": "8"}}));
    joined(&api).await;
    let node = api.get(NODE).unwrap();
    assert_eq!(node["spec"]["providerID"], instance.provider_id);
    assert_eq!(node["spec"]["taints"][0]["key"], "node.machine.sapcloud.io/instance-not-ready");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "m");
    assert_eq!(node["status"]["allocatable"]["cpu"], "8");
    assert_eq!(ready(Some(&node)), Some("True"));
    assert_eq!(api.get(LEASE).unwrap()["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(writes(&api), ["POST nodes/m", "POST leases/m"]);
    assert_eq!(cloud.clock().now(), start(), "it took simulated time");
}

#[tokio::test(start_paused = true)]
async fn nobody_joins_without_a_token_and_everybody_as_soon_as_it_is_there() {
    let (api, cloud) = (Api::default(), cloud());
    machine(&cloud, "m", &json!({}));
    let _fleet = fleet(&cloud, &api);
    tokio::time::sleep(LONG).await;
    assert_eq!(writes(&api), Vec::<String>::new());
    api.put(TOKEN, token(60));
    tokio::time::sleep(LONG).await;
    assert_eq!(writes(&api), Vec::<String>::new(), "it had expired");
    api.put(TOKEN, token(24 * 3600));
    joined(&api).await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_joins_after_it_has_booted() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    let _fleet = fleet(&cloud, &api);
    machine(&cloud, "m", &json!({"latency": {"create": "1s", "boot": "20s", "join": "3s"}}));
    joined(&api).await;
    assert_eq!(cloud.clock().now(), start() + SignedDuration::from_secs(24));
}

#[tokio::test(start_paused = true)]
async fn faulty_kubelets_stay_out_until_the_control_file_mends_them() {
    for join in ["never", "foreignToken"] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.json");
        let (api, cloud) = (Api::default(), cloud());
        api.put(TOKEN, token(24 * 3600));
        let kubelets = Kubelets::new(cloud.clone(), api.client());
        let _fleet = run(kubelets.control_file(ControlFile::new(&path)));
        machine(&cloud, "m", &json!({"kubelet": {"join": join}}));
        tokio::time::sleep(LONG).await;
        assert_eq!(api.get(NODE), None, "{join}");
        std::fs::write(&path, r#"{"kubelets":[{"machine":"m","join":"normal"}]}"#).unwrap();
        joined(&api).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_renewed_until_the_instance_is_gone_and_the_node_stays() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    let _fleet = fleet(&cloud, &api);
    let instance = machine(&cloud, "m", &json!({}));
    joined(&api).await;
    let renewals = || api.requests().iter().filter(|r| *r == "PATCH leases/m").count();
    tokio::time::sleep(Duration::from_secs(100)).await;
    let before = renewals();
    assert!((9..=10).contains(&before), "{before} renewals");
    cloud.begin_delete(&instance.identity, None).unwrap();
    cloud.remove(&[instance.provider_id]).unwrap();
    tokio::time::sleep(LONG).await;
    assert_eq!(renewals(), before);
    assert!(api.get(NODE).is_some(), "the core deletes Nodes, kubelets do not");
}

#[tokio::test(start_paused = true)]
async fn pods_of_the_node_run_and_end_after_their_grace() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    api.put(POD, pod("m"));
    api.put("pods/default/elsewhere", pod("other"));
    let _fleet = fleet(&cloud, &api);
    machine(&cloud, "m", &json!({}));
    api.until(POD, |pod| phase(pod) == Some("Running")).await;
    let running = api.get(POD).unwrap();
    assert_eq!(running["status"]["containerStatuses"][0]["ready"], true);
    let told = tokio::time::Instant::now();
    api.put(POD, delete(running, 30));
    api.until(POD, |pod| pod.is_none()).await;
    assert_eq!(told.elapsed().as_secs(), 30);
    assert_eq!(phase(api.get("pods/default/elsewhere").as_ref()), Some("Pending"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_replaced_another_of_its_name_is_left_alone() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    api.put(POD, delete(pod("m"), 30));
    let _fleet = fleet(&cloud, &api);
    machine(&cloud, "m", &json!({}));
    joined(&api).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    api.remove(POD);
    api.put(POD, pod("m"));
    tokio::time::sleep(LONG).await;
    assert_eq!(phase(api.get(POD).as_ref()), Some("Running"));
}

#[tokio::test(start_paused = true)]
async fn stuck_pods_never_end() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    api.put(POD, delete(pod("m"), 1));
    let _fleet = fleet(&cloud, &api);
    machine(&cloud, "m", &json!({"kubelet": {"pods": "stuck"}}));
    joined(&api).await;
    tokio::time::sleep(LONG).await;
    assert!(api.get(POD).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_goes_not_ready_and_comes_back_as_its_class_says() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    let _fleet = fleet(&cloud, &api);
    let kubelet = json!({"notReadyAfter": "60s", "readyAgainAfter": "30s"});
    machine(&cloud, "m", &json!({"kubelet": kubelet}));
    joined(&api).await;
    for (status, seconds) in [("False", 60), ("True", 90)] {
        api.until(NODE, |node| ready(node) == Some(status)).await;
        assert_eq!(cloud.clock().now(), start() + SignedDuration::from_secs(seconds));
    }
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_stood_still_or_starts_again_takes_back_what_was_said_of_it() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(24 * 3600));
    let mut running = fleet(&cloud, &api);
    machine(&cloud, "m", &json!({}));
    joined(&api).await;
    for restarts in [false, true] {
        let mut node = api.get(NODE).unwrap();
        for condition in node["status"]["conditions"].as_array_mut().unwrap() {
            condition["status"] = json!("Unknown");
        }
        api.put(NODE, node);
        if restarts {
            drop(running);
            running = fleet(&cloud, &api);
        }
        tokio::time::advance(Duration::from_mins(1)).await;
        api.until(NODE, |node| ready(node) == Some("True")).await;
        let node = api.get(NODE).unwrap();
        let all = node["status"]["conditions"].as_array().unwrap();
        let statuses: Vec<_> = all.iter().map(|it| it["status"].as_str().unwrap()).collect();
        assert_eq!(statuses, ["False", "False", "False", "True"]);
    }
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_starts_again_renews_at_once_and_takes_back_what_is_said_just_then() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(24 * 3600));
    let before = fleet(&cloud, &api);
    machine(&cloud, "m", &json!({}));
    joined(&api).await;
    drop(before);
    tokio::time::advance(Duration::from_secs(35)).await;
    let renewed = api.get(LEASE);
    let now = cloud.clock().now();
    let _fleet = fleet(&cloud, &api);
    api.until(LEASE, |lease| lease != renewed.as_ref()).await;
    assert_eq!(cloud.clock().now(), now, "immediately");
    // Writes a decision from before that renewal, after the kubelet looked.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut node = api.get(NODE).unwrap();
    for condition in node["status"]["conditions"].as_array_mut().unwrap() {
        condition["status"] = json!("Unknown");
    }
    api.put(NODE, node);
    api.until(NODE, |node| ready(node) == Some("True")).await;
}

#[tokio::test(start_paused = true)]
async fn the_control_file_makes_a_node_not_ready() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.json");
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    let kubelets = Kubelets::new(cloud.clone(), api.client());
    let _fleet = run(kubelets.control_file(ControlFile::new(&path)));
    machine(&cloud, "m", &json!({}));
    joined(&api).await;
    std::fs::write(&path, r#"{"kubelets":[{"ready":false}]}"#).unwrap();
    api.until(NODE, |node| ready(node) == Some("False")).await;
    std::fs::remove_file(&path).unwrap();
    api.until(NODE, |node| ready(node) == Some("True")).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_of_an_earlier_instance_is_not_taken_over() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(24 * 3600));
    api.put(NODE, json!({"spec": {"providerID": "fake:///eu-1/i-before"}}));
    let _fleet = fleet(&cloud, &api);
    let instance = machine(&cloud, "m", &json!({}));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(api.get(NODE).unwrap()["spec"]["providerID"], "fake:///eu-1/i-before");
    api.remove(NODE);
    joined(&api).await;
    assert_eq!(api.get(NODE).unwrap()["spec"]["providerID"], instance.provider_id);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_goes_on_after_a_restart_of_the_driver_though_its_token_is_gone() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    let first = fleet(&cloud, &api);
    machine(&cloud, "m", &json!({}));
    joined(&api).await;
    drop(first);
    api.remove(TOKEN);
    api.put(POD, pod("m"));
    let _second = fleet(&cloud, &api);
    api.until(POD, |pod| phase(pod) == Some("Running")).await;
    let posts = api.requests().iter().filter(|r| *r == "POST nodes/m").count();
    assert_eq!(posts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_registered_just_before_the_driver_died_is_recognised() {
    let (api, cloud) = (Api::default(), cloud());
    let instance = machine(&cloud, "m", &json!({}));
    api.put(NODE, json!({"spec": {"providerID": instance.provider_id}}));
    let _fleet = fleet(&cloud, &api);
    api.until(NODE, |node| ready(node) == Some("True")).await;
    let noted = || cloud.instance(&instance.provider_id).unwrap().unwrap().joined_at.is_some();
    let mut changes = cloud.subscribe();
    while !noted() {
        changes.changed().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_is_tried_again() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    api.fail_next_writes(3);
    let _fleet = fleet(&cloud, &api);
    machine(&cloud, "m", &json!({}));
    api.put(POD, pod("m"));
    api.until(POD, |pod| phase(pod) == Some("Running")).await;
    joined(&api).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_deleted_is_not_registered_again() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    let _fleet = fleet(&cloud, &api);
    machine(&cloud, "m", &json!({}));
    joined(&api).await;
    api.remove(NODE);
    api.remove(LEASE);
    tokio::time::sleep(LONG).await;
    assert_eq!((api.get(NODE), api.get(LEASE)), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_instances_join_with_two_writes_each() {
    let (api, cloud) = (Api::default(), cloud());
    api.put(TOKEN, token(600));
    let _fleet = fleet(&cloud, &api);
    for number in 0..1000 {
        machine(&cloud, &format!("m-{number}"), &json!({}));
    }
    for number in 0..1000 {
        let lease = format!("leases/kube-node-lease/m-{number}");
        api.until(&lease, |lease| lease.is_some()).await;
    }
    assert_eq!(writes(&api).len(), 2000);
}

//! What the server does by itself, on a paused clock: nothing here waits for real time.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "tests")]

use std::time::Duration;

use axum::body::Body;
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::StreamExt;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use ostler_apiserver::{
    clock::tokio_clock,
    serve::{ApiServer, Options},
    store::{Change, Expect, Key, Prefix},
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use tower::ServiceExt;

struct Cluster {
    api: ApiServer,
}

impl Cluster {
    async fn start() -> Self {
        Self::with_grace(Some(Duration::from_secs(40))).await
    }

    async fn with_grace(node_grace: Option<Duration>) -> Self {
        let clock = tokio_clock("2026-01-01T00:00:00Z".parse().unwrap());
        let options = Options { clock, node_grace, ..Options::memory() };
        let api = ApiServer::open(options).await.unwrap();
        Self { api }
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        let media_type = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", media_type)
            .body(Body::from(body.to_string()))
            .unwrap();
        let response = self.api.local_service().oneshot(request).await.unwrap();
        let code = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&body).unwrap_or_default())
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        let (code, created) = self.send("POST", path, &object).await;
        assert_eq!(code, StatusCode::CREATED, "{created:#}");
        created
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let (code, object) = self.send("GET", path, &Value::Null).await;
        (code == StatusCode::OK).then_some(object)
    }

    async fn delete(&self, path: &str, policy: &str) {
        let options = json!({"propagationPolicy": policy});
        let (code, body) = self.send("DELETE", path, &options).await;
        assert!(code.is_success(), "{body:#}");
    }

    async fn patch(&self, path: &str, patch: Value) -> Value {
        let (code, body) = self.send("PATCH", path, &patch).await;
        assert_eq!(code, StatusCode::OK, "{body:#}");
        body
    }

    /// Waits until an object is as wanted, looking again after every change of the store.
    async fn until(&self, path: &str, wanted: impl Fn(Option<&Value>) -> bool) -> Option<Value> {
        let store = &self.api.context().store;
        let mut changes = store.watch(Prefix::all(), store.revision()).unwrap();
        let waiting = async {
            loop {
                let object = self.get(path).await;
                if wanted(object.as_ref()) {
                    return object;
                }
                changes.next().await;
            }
        };
        // Of the paused clock: it passes as soon as nothing else is left to do.
        let waited = tokio::time::timeout(Duration::from_hours(2), waiting).await;
        let Ok(object) = waited else {
            panic!("{path} stays as it is: {:#?}", self.get(path).await);
        };
        object
    }

    async fn until_gone(&self, path: &str) {
        self.until(path, |object| object.is_none()).await;
    }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn map(name: &str, owners: &[&Value]) -> Value {
    let owners: Vec<Value> = owners
        .iter()
        .map(|owner| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true})
        })
        .collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "ownerReferences": owners}})
}

fn at(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

#[tokio::test(start_paused = true)]
async fn dependents_follow_their_last_owner() {
    let cluster = Cluster::start().await;
    let first = cluster.create(MAPS, map("first", &[])).await;
    let second = cluster.create(MAPS, map("second", &[])).await;
    let both = cluster.create(MAPS, map("both", &[&first, &second])).await;
    cluster.create(MAPS, map("grandchild", &[&both])).await;

    cluster.delete(&at(MAPS, "first"), "Background").await;
    let one_owner = |object: Option<&Value>| {
        object.unwrap()["metadata"]["ownerReferences"].as_array().map(Vec::len) == Some(1)
    };
    cluster.until(&at(MAPS, "both"), one_owner).await;
    cluster.delete(&at(MAPS, "second"), "Background").await;
    cluster.until_gone(&at(MAPS, "both")).await;
    cluster.until_gone(&at(MAPS, "grandchild")).await;
}

#[tokio::test(start_paused = true)]
async fn a_dependent_that_names_an_owner_that_never_was_goes_at_once() {
    let cluster = Cluster::start().await;
    let ghost = json!({"metadata": {"name": "ghost", "uid": "nobody"}});
    cluster.create(MAPS, map("dependent", &[&ghost])).await;
    cluster.until_gone(&at(MAPS, "dependent")).await;
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_waits_for_dependents_that_hold_on() {
    let cluster = Cluster::start().await;
    let owner = cluster.create(MAPS, map("owner", &[])).await;
    let mut dependent = map("dependent", &[&owner]);
    dependent["metadata"]["finalizers"] = json!(["example.org/hold"]);
    cluster.create(MAPS, dependent).await;

    cluster.delete(&at(MAPS, "owner"), "Foreground").await;
    let marked =
        |object: Option<&Value>| object.unwrap()["metadata"]["deletionTimestamp"].is_string();
    cluster.until(&at(MAPS, "dependent"), marked).await;
    let owner = cluster.get(&at(MAPS, "owner")).await.unwrap();
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));

    let free = json!({"metadata": {"finalizers": null}});
    cluster.patch(&at(MAPS, "dependent"), free).await;
    cluster.until_gone(&at(MAPS, "owner")).await;
    assert!(cluster.get(&at(MAPS, "dependent")).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_frees_the_dependents() {
    let cluster = Cluster::start().await;
    let owner = cluster.create(MAPS, map("owner", &[])).await;
    cluster.create(MAPS, map("dependent", &[&owner])).await;
    cluster.delete(&at(MAPS, "owner"), "Orphan").await;
    cluster.until_gone(&at(MAPS, "owner")).await;
    let dependent = cluster.get(&at(MAPS, "dependent")).await.unwrap();
    assert!(dependent["metadata"].get("ownerReferences").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_when_the_last_of_its_contents_is_gone() {
    let cluster = Cluster::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    cluster.create("/api/v1/namespaces", namespace).await;
    let maps = "/api/v1/namespaces/n/configmaps";
    cluster.create(maps, map("plain", &[])).await;
    let mut held = map("held", &[]);
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    cluster.create(maps, held).await;

    cluster.delete("/api/v1/namespaces/n", "Background").await;
    cluster.until_gone(&at(maps, "plain")).await;
    let told = |object: Option<&Value>| {
        let conditions = object.unwrap()["status"]["conditions"].clone();
        let conditions = conditions.as_array().cloned().unwrap_or_default();
        conditions.iter().any(|condition| {
            condition["type"] == "NamespaceFinalizersRemaining" && condition["status"] == "True"
        })
    };
    cluster.until("/api/v1/namespaces/n", told).await;
    cluster.patch(&at(maps, "held"), json!({"metadata": {"finalizers": null}})).await;
    cluster.until_gone("/api/v1/namespaces/n").await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_deletion_was_cut_short_goes_with_its_namespace() {
    let cluster = Cluster::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    cluster.create("/api/v1/namespaces", namespace).await;
    let mut bound = pod("p");
    bound["spec"]["nodeName"] = json!("n1");
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    cluster.create(NODES, node).await;
    cluster.create("/api/v1/namespaces/n/pods", bound).await;
    let (store, key) = (&cluster.api.context().store, Key::new("", "pods", "n", "p"));
    let record = store.get(&key).unwrap();
    let mut marked: Value = serde_json::from_slice(&record.value).unwrap();
    marked["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    marked["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    let change = Change::Put(marked.to_string().into());
    store.write(key, Expect::Revision(record.revision), change).await.unwrap();
    cluster.delete("/api/v1/namespaces/n", "Background").await;
    cluster.until_gone("/api/v1/namespaces/n").await;
}

#[tokio::test(start_paused = true)]
async fn what_is_in_a_namespace_that_cannot_be_read_stays() {
    let cluster = Cluster::start().await;
    cluster.create(MAPS, map("early", &[])).await;
    let (store, key) = (&cluster.api.context().store, Key::new("", "namespaces", "", "default"));
    let expect = Expect::Revision(store.get(&key).unwrap().revision);
    store.write(key, expect, Change::Put("damaged".into())).await.unwrap();
    let late = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    let key = Key::new("", "configmaps", "default", "late");
    store.write(key, Expect::Absent, Change::Put(late.to_string().into())).await.unwrap();
    // On the paused clock: long after every controller has seen it.
    tokio::time::sleep(Duration::from_hours(1)).await;
    for name in ["early", "late"] {
        assert!(cluster.get(&at(MAPS, name)).await.is_some(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_whose_names_an_address_must_encode_are_deleted_and_decided_like_others() {
    let cluster = Cluster::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    cluster.create("/api/v1/namespaces", namespace).await;
    let key = KeyPair::generate().unwrap();
    let pem = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    let asked = BASE64_STANDARD.encode(pem);
    let (names, group) = (["my role", "a?b", "a#b"], "rbac.authorization.k8s.io");
    for name in names {
        let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role",
            "metadata": {"name": name}});
        cluster.create(&format!("/apis/{group}/v1/namespaces/n/roles"), role).await;
        let request = json!({"apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"request": asked, "usages": ["client auth"],
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet"}});
        cluster.create(REQUESTS, request).await;
    }
    cluster.delete("/api/v1/namespaces/n", "Background").await;
    cluster.until_gone("/api/v1/namespaces/n").await;
    let requests = ["my%20role", "a%3Fb", "a%23b"].map(|name| at(REQUESTS, name));
    for request in &requests {
        let failed = |object: Option<&Value>| condition(object.unwrap(), "Failed").is_some();
        cluster.until(request, failed).await;
    }
    for request in &requests {
        cluster.until_gone(request).await;
    }
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "example.org/main"}]}})
}

fn ready(ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}})
}

#[tokio::test(start_paused = true)]
async fn a_budget_follows_its_pods_and_a_granted_eviction_counts_at_once() {
    let cluster = Cluster::start().await;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    cluster.create(BUDGETS, budget).await;
    for name in ["p1", "p2"] {
        cluster.create(PODS, pod(name)).await;
        cluster.patch(&format!("{PODS}/{name}/status"), ready(true)).await;
    }
    let allows = |wanted: i64| {
        move |object: Option<&Value>| object.unwrap()["status"]["disruptionsAllowed"] == wanted
    };
    cluster.until(&at(BUDGETS, "b"), allows(1)).await;

    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "p1", "namespace": "default"}});
    let (code, _) = cluster.send("POST", &format!("{PODS}/p1/eviction"), &eviction).await;
    assert_eq!(code, StatusCode::CREATED);
    let (code, _) = cluster.send("POST", &format!("{PODS}/p2/eviction"), &eviction_of("p2")).await;
    assert_eq!(code, StatusCode::TOO_MANY_REQUESTS);
    let told = cluster.until(&at(BUDGETS, "b"), allows(0)).await.unwrap();
    assert_eq!(told["status"]["conditions"][0]["reason"], "InsufficientPods");
}

#[tokio::test(start_paused = true)]
async fn a_budget_that_cannot_be_reckoned_is_reckoned_once_it_can() {
    let cluster = Cluster::start().await;
    cluster.create(DEFINITIONS, definition("widgets")).await;
    cluster.until(&at(DEFINITIONS, "widgets.example.org"), established).await;
    let widget = json!({"apiVersion": "example.org/v1", "kind": "Widget",
        "metadata": {"name": "w"}});
    let owner = cluster.create("/apis/example.org/v1/namespaces/default/widgets", widget).await;
    let mut owned = pod("p");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.org/v1",
        "kind": "Widget", "name": "w", "uid": owner["metadata"]["uid"], "controller": true}]);
    cluster.create(PODS, owned).await;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "b"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    cluster.create(BUDGETS, budget).await;
    let says = |reason: &'static str| {
        move |object: Option<&Value>| object.unwrap()["status"]["conditions"][0]["reason"] == reason
    };
    cluster.until(&at(BUDGETS, "b"), says("SyncFailed")).await;
    let mut scaled = definition("widgets");
    let version = &mut scaled["spec"]["versions"][0];
    version["subresources"] = json!({"scale": {"specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas"}});
    let versions = json!({"spec": {"versions": [version]}});
    cluster.patch(&at(DEFINITIONS, "widgets.example.org"), versions).await;
    cluster.until(&at(BUDGETS, "b"), says("InsufficientPods")).await;
}

fn eviction_of(name: &str) -> Value {
    json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"}})
}

fn definition(plural: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.org")},
        "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": plural, "singular": "widget", "kind": "Widget",
                "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
}

#[tokio::test(start_paused = true)]
async fn what_a_webhook_would_convert_is_written_in_the_version_that_is_stored_and_in_no_other() {
    let cluster = Cluster::start().await;
    let version = |name: &str, field: &str| {
        let spec = json!({"type": "object", "properties": {field: {"type": "string"}}});
        json!({"name": name, "served": true, "storage": name == "v2", "schema":
            {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}})
    };
    let mut converted = definition("widgets");
    converted["spec"]["versions"] = json!([version("v1", "size"), version("v2", "dimensions")]);
    converted["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook":
        {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://example.org"}}});
    cluster.create(DEFINITIONS, converted).await;
    cluster.until(&at(DEFINITIONS, "widgets.example.org"), established).await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    cluster.create("/api/v1/namespaces", namespace).await;
    let [v1, v2] = ["v1", "v2"].map(|it| format!("/apis/example.org/{it}/namespaces/n/widgets"));
    let widget = |version: &str, name: &str| {
        json!({"apiVersion": format!("example.org/{version}"), "kind": "Widget", "metadata":
            {"name": name, "finalizers": ["example.org/hold"]}, "spec": {"dimensions": "1x2"}})
    };
    let stored = cluster.create(&v2, widget("v2", "w")).await;
    assert!(cluster.get(&at(&v1, "w")).await.is_some());
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    for (method, path, body) in [
        ("PATCH", at(&v1, "w"), labels),
        ("POST", v1.clone(), widget("v1", "other")),
        ("DELETE", at(&v1, "w"), json!({})),
    ] {
        let (code, status) = cluster.send(method, &path, &body).await;
        assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR, "{method}: {status:#}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("webhook") && message.contains("example.org/v2"), "{message}");
    }
    assert_eq!(cluster.get(&at(&v2, "w")).await, Some(stored));
    // The server deletes the object in the stored version.
    cluster.delete("/api/v1/namespaces/n", "Background").await;
    let marked =
        |object: Option<&Value>| object.unwrap()["metadata"]["deletionTimestamp"].is_string();
    let marked = cluster.until(&at(&v2, "w"), marked).await.unwrap();
    assert_eq!(marked["spec"]["dimensions"], "1x2");
}

fn condition(object: &Value, kind: &str) -> Option<Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind).cloned()
}

fn established(object: Option<&Value>) -> bool {
    condition(object.unwrap(), "Established").is_some_and(|one| one["status"] == "True")
}

#[tokio::test(start_paused = true)]
async fn names_of_a_definition_are_free_again_when_their_holder_is_gone() {
    let cluster = Cluster::start().await;
    cluster.create(DEFINITIONS, definition("widgets")).await;
    cluster.until(&at(DEFINITIONS, "widgets.example.org"), established).await;
    cluster.create(DEFINITIONS, definition("gadgets")).await;
    let refused = |object: Option<&Value>| {
        condition(object.unwrap(), "NamesAccepted").is_some_and(|one| one["status"] == "False")
    };
    cluster.until(&at(DEFINITIONS, "gadgets.example.org"), refused).await;
    cluster.delete(&at(DEFINITIONS, "widgets.example.org"), "Background").await;
    cluster.until(&at(DEFINITIONS, "gadgets.example.org"), established).await;
}

#[tokio::test(start_paused = true)]
async fn a_definition_goes_when_the_last_of_its_objects_is_gone() {
    let cluster = Cluster::start().await;
    let widgets = "/apis/example.org/v1/namespaces/default/widgets";
    cluster.create(DEFINITIONS, definition("widgets")).await;
    cluster.until(&at(DEFINITIONS, "widgets.example.org"), established).await;
    let widget = |name: &str| json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name}});
    cluster.create(widgets, widget("plain")).await;
    let mut held = widget("held");
    held["metadata"]["finalizers"] = json!(["example.org/hold"]);
    cluster.create(widgets, held).await;

    cluster.delete(&at(DEFINITIONS, "widgets.example.org"), "Background").await;
    cluster.until_gone(&at(widgets, "plain")).await;
    assert!(cluster.get(&at(DEFINITIONS, "widgets.example.org")).await.is_some());
    cluster.patch(&at(widgets, "held"), json!({"metadata": {"finalizers": null}})).await;
    cluster.until_gone(&at(DEFINITIONS, "widgets.example.org")).await;
}

#[tokio::test(start_paused = true)]
async fn events_are_kept_for_an_hour() {
    let cluster = Cluster::start().await;
    let events = "/api/v1/namespaces/default/events";
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
        "involvedObject": {"namespace": "default"}, "reason": "Because", "type": "Normal"});
    cluster.create(events, event).await;
    tokio::time::sleep(Duration::from_mins(59)).await;
    assert!(cluster.get(&at(events, "e")).await.is_some());
    cluster.until_gone(&at(events, "e")).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_of_the_far_future_is_kept_for_an_hour_and_other_events_end_too() {
    let cluster = Cluster::start().await;
    let events = "/api/v1/namespaces/default/events";
    for (name, last) in [("future", "9999-12-30T00:00:00Z"), ("other", "2026-01-01T00:00:00Z")] {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
            "involvedObject": {"namespace": "default"}, "lastTimestamp": last});
        cluster.create(events, event).await;
    }
    for name in ["future", "other"] {
        cluster.until_gone(&at(events, name)).await;
    }
}

const NODES: &str = "/api/v1/nodes";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const STATUS: &str = "/status/conditions/0/status";

#[tokio::test(start_paused = true)]
async fn a_node_whose_kubelet_is_silent_is_unknown_and_its_pods_are_deleted_after_their_toleration()
{
    let cluster = Cluster::start().await;
    for name in ["silent", "alive", "by-hand"] {
        let ready = json!({"type": "Ready", "status": "True"});
        cluster
            .create(
                NODES,
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
                    "status": {"conditions": [ready]}}),
            )
            .await;
        let container = json!({"name": "c", "image": "i"});
        cluster
            .create(
                PODS,
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                    "spec": {"nodeName": name, "containers": [container]}}),
            )
            .await;
    }
    let lease = |name: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": name}})
    };
    for name in ["silent", "alive"] {
        cluster.create(LEASES, lease(name)).await;
    }
    let beats = async {
        for count in 0.. {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let renewed = json!({"spec": {"leaseTransitions": count}});
            cluster.patch(&at(LEASES, "alive"), renewed).await;
        }
    };
    let started = tokio::time::Instant::now();
    let watch = async {
        let silent = at(NODES, "silent");
        let unknown = |node: Option<&Value>| {
            node.is_some_and(|it| it.pointer(STATUS) == Some(&json!("Unknown")))
        };
        cluster.until(&silent, unknown).await;
        assert!(started.elapsed() >= Duration::from_secs(40), "{:?}", started.elapsed());
        let tainted =
            |node: Option<&Value>| node.is_some_and(|it| it["spec"]["taints"][1].is_object());
        cluster.until(&silent, tainted).await;
        let leaves = |pod: Option<&Value>| {
            pod.is_none_or(|it| !it["metadata"]["deletionTimestamp"].is_null())
        };
        cluster.until(&at(PODS, "silent"), leaves).await;
        assert!(started.elapsed() >= Duration::from_secs(340), "{:?}", started.elapsed());
        // The kubelet is back.
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"status": {"conditions": ready}});
        cluster.patch(&at(LEASES, "silent"), json!({"spec": {"leaseTransitions": 7}})).await;
        cluster.patch(&format!("{silent}/status"), status).await;
        let clean = |node: Option<&Value>| {
            let taints = node.and_then(|it| it["spec"]["taints"].as_array());
            taints.is_none_or(Vec::is_empty)
        };
        cluster.until(&silent, clean).await;
    };
    tokio::select! { () = beats => {}, () = watch => {} }
    for name in ["alive", "by-hand"] {
        let node = cluster.get(&at(NODES, name)).await.unwrap();
        assert_eq!(node.pointer(STATUS), Some(&json!("True")), "{name}");
        let pod = cluster.get(&at(PODS, name)).await.unwrap();
        assert_eq!(pod["metadata"]["deletionTimestamp"], Value::Null, "{name}");
    }
}

/// `--node-grace 0`.
#[tokio::test(start_paused = true)]
async fn without_a_grace_a_node_whose_kubelet_is_silent_stays_as_it_said() {
    let cluster = Cluster::with_grace(None).await;
    cluster
        .create(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "silent"}}))
        .await;
    let silent = at(NODES, "silent");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.patch(&format!("{silent}/status"), ready).await;
    let before = cluster.get(&silent).await.unwrap();
    // On the paused clock: long after any grace.
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(cluster.get(&silent).await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn pods_go_when_their_node_was_gone_for_a_while() {
    let cluster = Cluster::start().await;
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    cluster.create(NODES, node("gone")).await;
    for (name, node) in
        [("running", "gone"), ("ending", "gone"), ("early", "late"), ("lost", "never")]
    {
        let mut pod = pod(name);
        pod["spec"]["nodeName"] = json!(node);
        cluster.create(PODS, pod).await;
    }
    cluster.create(PODS, pod("unbound")).await;
    cluster.delete(&at(PODS, "ending"), "Background").await;
    let started = tokio::time::Instant::now();
    cluster.delete(&at(NODES, "gone"), "Background").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(cluster.get(&at(PODS, "running")).await.is_some());
    cluster.create(NODES, node("late")).await;
    for name in ["running", "ending", "lost"] {
        cluster.until_gone(&at(PODS, name)).await;
    }
    assert!(started.elapsed() >= Duration::from_secs(40), "{:?}", started.elapsed());
    // On the paused clock: long after that.
    tokio::time::sleep(Duration::from_hours(1)).await;
    for name in ["early", "unbound"] {
        assert!(cluster.get(&at(PODS, name)).await.is_some(), "{name}");
    }
}

//! What requests mean, through the whole server in process, on a paused clock.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::join_all};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use ostler_apiserver::{
    clock::tokio_clock,
    serve::{ApiServer, Options},
    store::Retention,
};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

struct Cluster {
    api: ApiServer,
}

impl Cluster {
    async fn start() -> Self {
        Self::with(Retention::default()).await
    }

    async fn with(retention: Retention) -> Self {
        let clock = tokio_clock("2026-01-01T00:00:00Z".parse().unwrap());
        let options = Options { clock, retention, ..Options::memory() };
        Self { api: ApiServer::open(options).await.unwrap() }
    }

    async fn request(&self, method: &str, path: &str, body: &str) -> Response<Body> {
        let media_type = match (method, body.starts_with('[')) {
            ("PATCH", true) => "application/json-patch+json",
            ("PATCH", false) => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", media_type);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        self.api.local_service().oneshot(request).await.unwrap()
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.request(method, path, &body).await;
        let code = response.status().as_u16();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&text).unwrap_or_default())
    }

    async fn create(&self, path: &str, object: Value) -> Value {
        let (code, created) = self.send("POST", path, &object).await;
        assert_eq!(code, 201, "{created:#}");
        created
    }

    async fn get(&self, path: &str) -> Value {
        self.send("GET", path, &Value::Null).await.1
    }

    async fn patch(&self, path: &str, patch: Value) -> Value {
        let (code, patched) = self.send("PATCH", path, &patch).await;
        assert_eq!(code, 200, "{patched:#}");
        patched
    }

    async fn watch(&self, path: &str) -> Events {
        let response = self.request("GET", path, "").await;
        assert_eq!(response.status(), StatusCode::OK);
        Events { body: response.into_body().into_data_stream(), rest: Vec::new() }
    }
}

/// The lines of a watch.
struct Events {
    body: BodyDataStream,
    rest: Vec<u8>,
}

impl Events {
    /// The next event; none at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame: Bytes = self.body.next().await?.unwrap();
            self.rest.extend_from_slice(&frame);
        }
    }

    /// The next event as `TYPE name`.
    async fn brief(&mut self) -> String {
        let Some(event) = self.next().await else { return "end".to_owned() };
        let kind = event["type"].as_str().unwrap_or_default();
        let name = event.pointer("/object/metadata/name").and_then(Value::as_str);
        format!("{kind} {}", name.unwrap_or_default()).trim_end().to_owned()
    }
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"on": "1"}}, "data": {"n": "0"}})
}

fn version(object: &Value) -> String {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap().to_owned()
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn patches_that_name_no_version_all_take_effect() {
    let cluster = Cluster::start().await;
    cluster.create(MAPS, map("a")).await;
    let path = format!("{MAPS}/a");
    let patches = (0..40).map(|at| cluster.patch(&path, json!({"data": {format!("k{at}"): "x"}})));
    join_all(patches).await;
    assert_eq!(cluster.get(&path).await["data"].as_object().unwrap().len(), 41);
}

#[tokio::test]
async fn patches_race_on_disk_and_all_take_effect() {
    let directory = tempfile::tempdir().unwrap();
    let api = ApiServer::open(Options::directory(directory.path())).await.unwrap();
    let cluster = Cluster { api };
    cluster.create(MAPS, map("a")).await;
    let path = format!("{MAPS}/a");
    let patches = (0..20).map(|at| cluster.patch(&path, json!({"data": {format!("k{at}"): "x"}})));
    join_all(patches).await;
    assert_eq!(cluster.get(&path).await["data"].as_object().unwrap().len(), 21);
    cluster.api.close().await;
}

#[tokio::test(start_paused = true)]
async fn of_writers_that_name_a_version_one_wins() {
    let cluster = Cluster::start().await;
    let mut object = cluster.create(MAPS, map("a")).await;
    let path = format!("{MAPS}/a");
    let mut bodies = Vec::new();
    for at in 0..5 {
        object["data"]["n"] = json!(at.to_string());
        bodies.push(object.clone());
    }
    // The first of them changes nothing, so the version it names stays current.
    let codes = join_all(bodies.iter().map(|body| cluster.send("PUT", &path, body))).await;
    let mut codes: Vec<u16> = codes.into_iter().map(|(code, _)| code).collect();
    codes.sort_unstable();
    assert_eq!(codes, [200, 200, 409, 409, 409]);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_keeps_the_version_and_is_not_seen() {
    let cluster = Cluster::start().await;
    let object = cluster.create(MAPS, map("a")).await;
    let path = format!("{MAPS}/a");
    let mut events =
        cluster.watch(&format!("{MAPS}?watch=1&resourceVersion={}", version(&object))).await;
    let same = cluster.patch(&path, json!({"data": {"n": "0"}})).await;
    assert_eq!(version(&same), version(&object));
    let (code, same) = cluster.send("PUT", &path, &map("a")).await;
    assert_eq!((code, version(&same)), (200, version(&object)));
    cluster.patch(&path, json!({"data": {"n": "1"}})).await;
    let event = events.next().await.unwrap();
    assert_eq!(event["object"]["data"]["n"], "1");
}

#[tokio::test(start_paused = true)]
async fn patches_cannot_let_an_object_grow_without_end() {
    let cluster = Cluster::start().await;
    cluster.create(PODS, pod("p")).await;
    let path = format!("{PODS}/p/status");
    let large = "x".repeat(3 << 19);
    cluster.patch(&path, json!({"status": {"message": large}})).await;
    let (code, answer) = cluster.send("PATCH", &path, &json!({"status": {"reason": large}})).await;
    assert_eq!((code, &answer["reason"]), (413, &json!("RequestEntityTooLarge")));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_added_and_removed_by_tested_json_patches() {
    let cluster = Cluster::start().await;
    cluster.create(MAPS, map("a")).await;
    let path = format!("{MAPS}/a");
    let add = json!([
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["x.io/f"]}]);
    cluster.patch(&path, add.clone()).await;
    assert_eq!(cluster.send("PATCH", &path, &add).await.0, 422);
    let (code, marked) = cluster.send("DELETE", &path, &json!({})).await;
    assert_eq!(code, 200);
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2026-01-01T00:00:00Z");
    let remove = json!([
        {"op": "test", "path": "/metadata/finalizers/0", "value": "x.io/f"},
        {"op": "remove", "path": "/metadata/finalizers/0"}]);
    cluster.patch(&path, remove).await;
    assert_eq!(cluster.send("GET", &path, &Value::Null).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn who_watches_a_selection_sees_objects_enter_and_leave_it() {
    let cluster = Cluster::start().await;
    let list = cluster.get(MAPS).await;
    let selection =
        format!("{MAPS}?watch=1&labelSelector=on%3D1&resourceVersion={}", version(&list));
    let mut events = cluster.watch(&selection).await;
    let path = format!("{MAPS}/a");
    cluster.create(MAPS, map("a")).await;
    cluster.patch(&path, json!({"metadata": {"labels": {"on": "0"}}})).await;
    let unseen = cluster.patch(&path, json!({"data": {"n": "9"}})).await;
    cluster.patch(&path, json!({"metadata": {"labels": {"on": "1"}}})).await;
    cluster.send("DELETE", &path, &Value::Null).await;
    assert_eq!(events.brief().await, "ADDED a");
    let left = events.next().await.unwrap();
    assert_eq!(
        (&left["type"], &left["object"]["metadata"]["labels"]["on"]),
        (&json!("DELETED"), &json!("1"))
    );
    assert!(version(&left["object"]) < version(&unseen));
    assert_eq!(events.brief().await, "ADDED a");
    assert_eq!(events.brief().await, "DELETED a");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_bookmarks_every_minute_and_ends_with_one_on_time() {
    let cluster = Cluster::start().await;
    let begun = Instant::now();
    let path = format!(
        "{MAPS}?watch=1&allowWatchBookmarks=true&timeoutSeconds=150&resourceVersion={}",
        version(&cluster.get(MAPS).await)
    );
    let mut events = cluster.watch(&path).await;
    let mut seconds = Vec::new();
    while let Some(event) = events.next().await {
        assert_eq!(event["type"], "BOOKMARK");
        seconds.push(begun.elapsed().as_secs());
    }
    assert_eq!(seconds, [60, 120, 150]);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_ends_its_first_part_with_a_marked_bookmark() {
    let cluster = Cluster::start().await;
    cluster.create(MAPS, map("a")).await;
    let created = cluster.create(MAPS, map("b")).await;
    let path = format!(
        "{MAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    );
    let mut events = cluster.watch(&path).await;
    assert_eq!(events.brief().await, "ADDED a");
    assert_eq!(events.brief().await, "ADDED b");
    let end = events.next().await.unwrap();
    assert_eq!(end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(version(&end["object"]), version(&created));
    cluster.create(MAPS, map("c")).await;
    assert_eq!(events.brief().await, "ADDED c");
}

#[tokio::test(start_paused = true)]
async fn pages_show_one_moment_even_if_the_list_changes_meanwhile() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c", "d", "e"] {
        cluster.create(MAPS, map(name)).await;
    }
    let first = cluster.get(&format!("{MAPS}?&limit=2")).await;
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    cluster.create(MAPS, map("bb")).await;
    cluster.send("DELETE", &format!("{MAPS}/d"), &Value::Null).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = cluster.get(&format!("{MAPS}?limit=10&continue={token}")).await;
    assert_eq!(names(&rest), ["c", "d", "e"]);
    assert_eq!(version(&rest), version(&first));
    let now = cluster.get(&format!("{MAPS}?labelSelector=on%3D1&limit=3")).await;
    assert_eq!(names(&now), ["a", "b", "bb"]);
    let token = now["metadata"]["continue"].as_str().unwrap();
    let rest = cluster.get(&format!("{MAPS}?labelSelector=on%3D1&limit=3&continue={token}")).await;
    assert_eq!(names(&rest), ["c", "e"]);
    assert_eq!(rest["metadata"].get("continue"), None);
}

#[tokio::test(start_paused = true)]
async fn history_that_is_gone_is_an_error_event_in_a_watch_and_410_in_a_list() {
    let retention = Retention {
        min_age: Duration::ZERO,
        min_revisions: 1,
        max_revisions: 300,
        ..Retention::default()
    };
    let cluster = Cluster::with(retention).await;
    let old = version(&cluster.create(MAPS, map("a")).await);
    let page = cluster.get(&format!("{MAPS}?limit=1")).await;
    let token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    for at in 0..1500 {
        cluster.patch(&format!("{MAPS}/a"), json!({"data": {"n": at.to_string()}})).await;
    }
    let mut events = cluster.watch(&format!("{MAPS}?watch=1&resourceVersion={old}")).await;
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.next().await, None);
    let exact = format!("{MAPS}?resourceVersion={old}&resourceVersionMatch=Exact");
    assert_eq!(cluster.send("GET", &exact, &Value::Null).await.0, 410);
    if !token.is_empty() {
        let continued = format!("{MAPS}?limit=1&continue={token}");
        assert_eq!(cluster.send("GET", &continued, &Value::Null).await.0, 410);
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_watch_shows_objects_under_the_definition_of_now() {
    let cluster = Cluster::start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let spec = |fields: Value| {
        json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": fields}}})
    };
    let version = |schema: Value| {
        json!([{"name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}}])
    };
    let definition = json!({"metadata": {"name": "things.x.io"}, "spec": {"group": "x.io",
        "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing",
            "listKind": "ThingList"},
        "versions": version(spec(json!({"a": {"type": "string"}})))}});
    cluster.create(definitions, definition).await;
    let things = "/apis/x.io/v1/namespaces/default/things";
    let mut changes = cluster.watch(&format!("{definitions}?watch=1")).await;
    let established = |event: &Value| {
        let conditions = event.pointer("/object/status/conditions").and_then(Value::as_array);
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|one| one["type"] == "Established" && one["status"] == "True")
    };
    while !established(&changes.next().await.unwrap()) {}
    let mut events = cluster.watch(&format!("{things}?watch=1&resourceVersion=0")).await;
    let wider = spec(json!({"a": {"type": "string"}, "b": {"type": "string"}}));
    let change = json!({"spec": {"versions": version(wider)}});
    cluster.patch(&format!("{definitions}/things.x.io"), change).await;
    let thing = json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"},
        "spec": {"b": "new"}});
    cluster.create(things, thing).await;
    assert_eq!(events.next().await.unwrap()["object"]["spec"]["b"], "new");
}

#[tokio::test(start_paused = true)]
async fn watches_end_when_the_server_closes() {
    let cluster = Cluster::start().await;
    let mut events = cluster.watch(&format!("{MAPS}?watch=1&resourceVersion=0")).await;
    cluster.create(MAPS, map("a")).await;
    while events.brief().await != "ADDED a" {}
    cluster.api.close().await;
    assert_eq!(events.next().await, None);
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(start_paused = true)]
async fn evictions_at_once_spend_a_budget_no_further_than_it_allows() {
    let cluster = Cluster::start().await;
    let pods = ["p0", "p1", "p2", "p3", "p4", "p5"];
    for name in pods {
        cluster.create(PODS, pod(name)).await;
        let ready = json!({"status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]}});
        cluster.patch(&format!("{PODS}/{name}/status"), ready).await;
    }
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"minAvailable": 4, "selector": {"matchLabels": {"app": "x"}}}});
    cluster.create(BUDGETS, budget).await;
    let allowed = |budget: &Value| budget.pointer("/status/disruptionsAllowed") == Some(&json!(2));
    let mut events = cluster.watch(&format!("{BUDGETS}?watch=1")).await;
    while !allowed(&events.next().await.unwrap()["object"]) {}
    let cluster = &cluster;
    let codes = join_all(pods.iter().map(|name| async move {
        let eviction = json!({"metadata": {"name": *name}});
        let path = format!("{PODS}/{name}/eviction");
        cluster.send("POST", &path, &eviction).await.0
    }))
    .await;
    assert_eq!(codes.iter().filter(|code| **code == 201).count(), 2, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 429).count(), 4, "{codes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_what_would_be_and_changes_nothing() {
    let cluster = Cluster::start().await;
    let path = format!("{MAPS}/a");
    let (code, shown) = cluster.send("POST", &format!("{MAPS}?dryRun=All"), &map("a")).await;
    assert_eq!((code, shown["metadata"].get("resourceVersion")), (201, None));
    assert_eq!(cluster.send("GET", &path, &Value::Null).await.0, 404);
    let created = cluster.create(MAPS, map("a")).await;
    let patch = json!({"data": {"n": "1"}});
    let (_, shown) = cluster.send("PATCH", &format!("{path}?dryRun=All"), &patch).await;
    assert_eq!(shown["data"]["n"], "1");
    cluster.send("DELETE", &format!("{path}?dryRun=All"), &Value::Null).await;
    assert_eq!(cluster.get(&path).await, created);
}

#[tokio::test(start_paused = true)]
async fn an_event_written_on_one_face_is_read_on_the_other() {
    let cluster = Cluster::start().await;
    let event = json!({"metadata": {"name": "e"}, "action": "Make", "reason": "Made",
        "eventTime": "2026-01-01T00:00:00.000000Z", "note": "made it", "type": "Normal",
        "regarding": {"kind": "ConfigMap", "name": "a", "namespace": "default"},
        "reportingController": "x.io/c", "reportingInstance": "c-0"});
    cluster.create("/apis/events.k8s.io/v1/namespaces/default/events", event).await;
    let selected = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Da";
    let list = cluster.get(selected).await;
    assert_eq!(list["items"][0]["message"], "made it");
    assert_eq!(list["items"][0]["reportingComponent"], "x.io/c");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_selects_little_lets_others_have_their_turn_while_it_looks() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c", "d", "e", "f"] {
        let mut large = map(name);
        large["data"]["text"] = "x".repeat(100 << 10).into();
        cluster.create(MAPS, large).await;
    }
    let path = format!(
        "{MAPS}?watch=1&labelSelector=a%3Dnone&allowWatchBookmarks=1&sendInitialEvents=1&resourceVersionMatch=NotOlderThan"
    );
    let mut events = cluster.watch(&path).await;
    assert!(events.next().now_or_never().is_none(), "all that there is, in one turn");
    assert_eq!(events.brief().await, "BOOKMARK");
}

#[tokio::test(start_paused = true)]
async fn a_binding_and_a_scale_hold_values_of_their_types() {
    let cluster = Cluster::start().await;
    cluster
        .create(
            PODS,
            json!({"metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}}),
        )
        .await;
    let apps = "/apis/apps/v1/namespaces/default/deployments";
    let (labels, container) = (json!({"a": "b"}), json!({"name": "c", "image": "i"}));
    cluster
        .create(
            apps,
            json!({"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}}}}),
        )
        .await;
    let scale = format!("{apps}/d/scale");
    for (method, path, body) in [
        (
            "POST",
            format!("{PODS}/p/binding"),
            json!({"metadata": {"name": "p", "annotations": {"a": 5}}, "target": {"name": "n"}}),
        ),
        (
            "PUT",
            scale.clone(),
            json!({"metadata": {"name": "d"}, "spec": {"replicas": 5_000_000_000_i64}}),
        ),
        ("PATCH", scale.clone(), json!({"spec": {"replicas": 5_000_000_000_i64}})),
    ] {
        let (code, refused) = cluster.send(method, &path, &body).await;
        assert_eq!(code, 400, "{method} {path}: {refused:#}");
    }
    assert_eq!(
        cluster.patch(&scale, json!({"spec": {"replicas": 3}})).await["spec"]["replicas"],
        3
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_wants_to_last_for_ever_is_served() {
    let cluster = Cluster::start().await;
    let path = format!("{MAPS}?watch=true&timeoutSeconds=9223372036854775807");
    let mut events = cluster.watch(&path).await;
    cluster.create(MAPS, map("a")).await;
    while !events.brief().await.contains("ADDED") {}
}

#[tokio::test(start_paused = true)]
async fn what_was_read_once_and_is_gone_is_not_made_anew_by_a_put() {
    let cluster = Cluster::start().await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/l";
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "l"}});
    let (code, created) = cluster.send("PUT", path, &lease).await;
    assert_eq!(code, 201, "{created:#}");
    assert_eq!(cluster.send("DELETE", path, &Value::Null).await.0, 200);
    for field in ["uid", "resourceVersion"] {
        let mut stale = lease.clone();
        stale["metadata"][field] = created["metadata"][field].clone();
        let (code, refused) = cluster.send("PUT", path, &stale).await;
        assert_eq!((code, refused["reason"].as_str()), (409, Some("Conflict")), "{refused:#}");
    }
    assert_eq!(cluster.send("PUT", path, &lease).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_the_priority_of_its_class_and_no_other() {
    let cluster = Cluster::start().await;
    let pod = |spec: Value| {
        let mut pod = json!({"metadata": {"generateName": "p-"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    };
    let made = |pod: Value| {
        let spec = &pod["spec"];
        (
            spec["priorityClassName"].clone(),
            spec["priority"].clone(),
            spec["preemptionPolicy"].clone(),
        )
    };
    let plain = cluster.create(PODS, pod(json!({}))).await;
    assert_eq!(made(plain), (Value::Null, json!(0), json!("PreemptLowerPriority")));
    for (name, value, default) in [("high", 100, false), ("usual", 5, true)] {
        let class = json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": "Never"});
        cluster.create("/apis/scheduling.k8s.io/v1/priorityclasses", class).await;
    }
    let high = cluster.create(PODS, pod(json!({"priorityClassName": "high"}))).await;
    assert_eq!(made(high), (json!("high"), json!(100), json!("Never")));
    let usual = cluster.create(PODS, pod(json!({}))).await;
    assert_eq!(made(usual), (json!("usual"), json!(5), json!("Never")));
    for (spec, told) in [
        (json!({"priorityClassName": "none"}), "no PriorityClass with name none was found"),
        (
            json!({"priorityClassName": "high", "priority": 3}),
            "computed 100 from the given PriorityClass name",
        ),
    ] {
        let (code, refusal) = cluster.send("POST", PODS, &pod(spec)).await;
        assert_eq!(code, 403);
        assert!(refusal["message"].as_str().unwrap().ends_with(told), "{refusal}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_would_change_a_deletion_owns_its_time_and_changes_nothing() {
    let cluster = Cluster::start().await;
    let held = json!({"metadata": {"name": "a", "finalizers": ["x.io/f"], "deletionGracePeriodSeconds": 5}});
    let new = cluster.create(MAPS, held).await;
    let owned = "/metadata/managedFields/0/fieldsV1/f:metadata";
    assert!(new.pointer(&format!("{owned}/f:deletionGracePeriodSeconds")).is_none(), "{new:#}");
    let path = format!("{MAPS}/a");
    cluster.send("DELETE", &path, &Value::Null).await;
    let before = cluster.get(&path).await;
    let change = json!({"metadata": {"deletionTimestamp": "2030-01-01T00:00:00Z"}});
    let after = cluster.patch(&path, change.clone()).await;
    assert_eq!(after["metadata"]["deletionTimestamp"], before["metadata"]["deletionTimestamp"]);
    let owned = format!("{owned}/f:deletionTimestamp");
    assert!(after.pointer(&owned).is_some() && before.pointer(&owned).is_none(), "{after:#}");
    assert_eq!(version(&cluster.patch(&path, change).await), version(&after));
}

#[tokio::test(start_paused = true)]
async fn who_reads_the_binary_form_alone_is_refused_in_it() {
    let cluster = Cluster::start().await;
    let request = Request::get(MAPS).header("accept", "application/vnd.kubernetes.protobuf");
    let request = request.body(Body::empty()).unwrap();
    let response = cluster.api.local_service().oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_ACCEPTABLE);
    assert_eq!(response.headers()["content-type"], "application/vnd.kubernetes.protobuf");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"k8s\0") && body.windows(13).any(|part| part == b"NotAcceptable"));
}

//! Objects that cannot be read are errors with their keys, and can be deleted.

use axum::body::Body;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::Api;
use crate::{
    clock::tokio_clock,
    context::Context,
    store::{Change, Expect, Key, Store, StoreOptions},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

struct Server {
    api: Api,
    store: Store,
}

impl Server {
    async fn start() -> Self {
        let store = Store::open(StoreOptions::memory()).await.unwrap();
        let clock = tokio_clock("2026-01-01T00:00:00Z".parse().unwrap());
        let api = Api::new(&Context { store: store.clone(), clock });
        let server = Self { api, store };
        server
            .put(Key::new("", "namespaces", "", "default"), r#"{"metadata":{"name":"default"}}"#)
            .await;
        server
    }

    /// Puts a text into the store past every check.
    async fn put(&self, key: Key, text: &str) {
        let expect =
            self.store.get(&key).map_or(Expect::Absent, |record| Expect::Revision(record.revision));
        self.store.write(key, expect, Change::Put(text.to_owned().into())).await.unwrap();
    }

    /// An object as it could be stored before there were limits.
    async fn poison(&self, name: &str) {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"default","uid":"u-{name}","finalizers":["x/f"]}},"data":{deep}}}"#
        );
        self.put(Key::new("", "configmaps", "default", name), &text).await;
    }

    async fn answer(&self, method: &str, path: &str, body: String) -> (u16, HeaderMap, String) {
        let patch = if body.starts_with('[') { "json-patch" } else { "merge-patch" };
        let media_type = match method {
            "PATCH" => format!("application/{patch}+json"),
            _ => "application/json".to_owned(),
        };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", media_type).body(Body::from(body)).unwrap();
        let response = self.api.handle(request).await;
        let (head, body) = response.into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        (head.status.as_u16(), head.headers, String::from_utf8(text.to_vec()).unwrap())
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (code, _, text) = self.answer(method, path, body).await;
        (code, serde_json::from_str(&text).unwrap_or_default())
    }

    async fn create(&self, name: &str) {
        let map = json!({"metadata": {"name": name}, "data": {"a": "b"}});
        assert_eq!(self.send("POST", MAPS, &map).await.0, 201);
    }

    /// The types of the events of a watch, with the names of their objects.
    async fn watched(&self, query: &str) -> Vec<(String, String)> {
        let path = format!("{MAPS}?watch=true&timeoutSeconds=1&{query}");
        let (_, _, text) = self.answer("GET", &path, String::new()).await;
        let event = |line: &str| {
            let event: Value = serde_json::from_str(line).unwrap();
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let object = &event["object"];
            let about = if event["type"] == "ERROR" {
                &object["message"]
            } else {
                &object["metadata"]["name"]
            };
            (text(&event["type"]), text(about))
        };
        text.lines().map(event).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn get_list_and_patch_name_the_object_that_cannot_be_read() {
    let server = Server::start().await;
    server.create("fine").await;
    server.poison("bad").await;
    let bad = format!("{MAPS}/bad");
    for (method, path, body) in [
        ("GET", bad.as_str(), Value::Null),
        ("GET", MAPS, Value::Null),
        ("PATCH", &bad, json!({"data": {"a": "c"}})),
    ] {
        let (code, status) = server.send(method, path, &body).await;
        assert_eq!(code, 500, "{method} {path}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains("/configmaps/default/bad"), "{message}");
    }
    assert_eq!(server.send("GET", &format!("{MAPS}/fine"), &Value::Null).await.0, 200);
}

/// Also shows that only pods of the Node are read: an index finds them.
#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_read_is_nothing_to_who_asks_for_the_pods_of_another_node() {
    let server = Server::start().await;
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (name, node, data) in [("fine", "n1", "1"), ("bad", "n2", &deep)] {
        let text = format!(
            r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"default","uid":"u-{name}","labels":{{"was-on":"n1"}}}},"spec":{{"nodeName":"{node}","containers":[]}},"data":{data}}}"#
        );
        server.put(Key::new("", "pods", "default", name), &text).await;
    }
    let pods = "/api/v1/pods";
    for (selector, code) in [("", 500), ("?fieldSelector=spec.nodeName%3Dn1", 200)] {
        let path = format!("{pods}{selector}");
        assert_eq!(server.send("GET", &path, &Value::Null).await.0, code, "{path}");
    }
    let path = format!("{pods}?watch=true&timeoutSeconds=1&fieldSelector=spec.nodeName%3Dn1");
    let (_, _, text) = server.answer("GET", &path, String::new()).await;
    let events: Vec<Value> = text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    let types: Vec<_> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["ADDED"], "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_can_be_deleted_whatever_held_it() {
    let server = Server::start().await;
    server.create("fine").await;
    server.poison("bad").await;
    let bad = format!("{MAPS}/bad");
    let other = json!({"preconditions": {"uid": "another"}});
    assert_eq!(server.send("DELETE", &bad, &other).await.0, 409);
    let same = json!({"preconditions": {"uid": "u-bad"}});
    assert_eq!(server.send("DELETE", &bad, &same).await.0, 200);
    assert_eq!(server.send("GET", &bad, &Value::Null).await.0, 404);
    let (code, list) = server.send("GET", MAPS, &Value::Null).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 1));
}

#[tokio::test(start_paused = true)]
async fn a_watch_tells_of_the_object_that_cannot_be_read_and_follows_the_others() {
    let server = Server::start().await;
    let begin = server.store.revision();
    server.poison("bad").await;
    server.create("fine").await;
    server.send("DELETE", &format!("{MAPS}/bad"), &Value::Null).await;
    for selection in ["", "&labelSelector=!x"] {
        let events = server.watched(&format!("resourceVersion={begin}{selection}")).await;
        let types: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(types, ["ERROR", "ADDED", "DELETED"], "{events:?}");
        assert!(events[0].1.contains("/configmaps/default/bad"), "{events:?}");
        assert_eq!((events[1].1.as_str(), events[2].1.as_str()), ("fine", "bad"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_begins_with_all_there_is_ends_where_it_cannot_tell() {
    let server = Server::start().await;
    server.create("a").await;
    server.poison("bad").await;
    server.create("z").await;
    let events = server.watched("").await;
    let types: Vec<&str> = events.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(types, ["ADDED", "ERROR"], "{events:?}");
}

/// Lists in lists, so many.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

#[tokio::test(start_paused = true)]
async fn no_write_stores_what_cannot_be_read_again() {
    let server = Server::start().await;
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "frees.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "frees", "kind": "Free"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}}, "schema": {"openAPIV3Schema": open}}]}});
    assert_eq!(server.send("POST", definitions, &definition).await.0, 201);
    let key =
        Key::new("apiextensions.k8s.io", "customresourcedefinitions", "", "frees.example.com");
    let mut stored = server.store.get(&key).unwrap().object().unwrap();
    stored["status"]["acceptedNames"] = json!({"plural": "frees", "kind": "Free"});
    stored["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
    server.put(key, &stored.to_string()).await;

    let frees = "/apis/example.com/v1/namespaces/default/frees";
    let free = |spec: Value| json!({"apiVersion": "example.com/v1", "kind": "Free", "metadata": {"name": "f"}, "spec": spec});
    let (code, status) = server.send("POST", frees, &free(nested(100))).await;
    assert_eq!(code, 422, "{status}");
    assert!(status["message"].as_str().unwrap().contains("spec[0][0]"), "{status}");
    assert_eq!(server.send("POST", frees, &free(nested(50))).await.0, 201);

    let one = format!("{frees}/f");
    let (add, deeper) = (json!(nested(80)), format!("/spec{}", "/0".repeat(49)));
    let patches = [
        json!([{"op": "add", "path": deeper, "value": add}]),
        json!([{"op": "add", "path": "/spec/-", "value": nested(99)}]),
        json!({"spec": nested(101)}),
    ];
    for patch in patches {
        let (code, status) = server.send("PATCH", &one, &patch).await;
        assert_eq!(code, 422, "{status}");
    }
    let (code, _) =
        server.send("PATCH", &format!("{one}/status"), &json!({"status": nested(101)})).await;
    assert_eq!(code, 422);
    let (code, _) =
        server.send("PATCH", &format!("{one}?dryRun=All"), &json!({"spec": nested(101)})).await;
    assert_eq!(code, 422, "a dry run says the same");
    let (code, read) = server.send("GET", &one, &Value::Null).await;
    assert_eq!((code, &read["spec"]), (200, &nested(50)));
    let (code, list) = server.send("GET", frees, &Value::Null).await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (200, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pointer_of_a_million_parts_is_an_answer_and_no_abort() {
    let server = Server::start().await;
    server.create("a").await;
    let path = format!("{MAPS}/a");
    let patch = json!([{"op": "test", "path": "/a".repeat(1_000_000), "value": 1}]);
    let (code, status) = server.send("PATCH", &path, &patch).await;
    assert_eq!(code, 422);
    assert!(status["message"].as_str().unwrap().contains("1000000 parts"), "{status}");
}

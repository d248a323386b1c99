//! Lists and watches by field, and what is counted of requests, through the whole server in process.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use ostler_apiserver::serve::{ApiServer, Options};
use serde_json::{Value, json};
use tower::ServiceExt;

const PODS: &str = "/api/v1/namespaces/default/pods";

struct Cluster(ApiServer);

impl Cluster {
    async fn start() -> Self {
        Self(ApiServer::open(Options::memory()).await.unwrap())
    }

    async fn text(&self, method: &str, path: &str, body: &Value) -> String {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/json");
        let request = request.header("user-agent", "tests/1.0 (any)").body(Body::from(body));
        let response = self.0.local_service().oneshot(request.unwrap()).await.unwrap();
        let text = response.into_body().collect().await.unwrap().to_bytes();
        String::from_utf8(text.to_vec()).unwrap()
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> Value {
        serde_json::from_str(&self.text(method, path, &body).await).unwrap()
    }

    async fn names(&self, query: &str) -> Vec<String> {
        let mut names = Vec::new();
        let mut next = String::new();
        loop {
            let from = if next.is_empty() { String::new() } else { format!("&continue={next}") };
            let path = format!("{PODS}?{query}{from}");
            let list = self.send("GET", &path, Value::Null).await;
            let items = list["items"].as_array().unwrap().clone();
            names
                .extend(items.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()));
            let token = list["metadata"]["continue"].as_str();
            token.unwrap_or_default().clone_into(&mut next);
            if next.is_empty() {
                return names;
            }
        }
    }
}

/// Pods of three nodes, some of none.
async fn with_pods() -> Cluster {
    let cluster = Cluster::start().await;
    for at in 0..40 {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        if at % 4 != 0 {
            spec["nodeName"] = json!(format!("n{}", at % 4));
        }
        let labels = json!({"even": (at % 2 == 0).to_string()});
        let metadata = json!({"name": format!("p{at:02}"), "labels": labels});
        cluster.send("POST", PODS, json!({"metadata": metadata, "spec": spec})).await;
    }
    cluster.send("DELETE", &format!("{PODS}/p05"), json!({"gracePeriodSeconds": 0})).await;
    cluster
}

#[tokio::test]
async fn pods_of_a_node_are_those_that_a_look_at_every_pod_finds() {
    let cluster = with_pods().await;
    let all = cluster.send("GET", PODS, Value::Null).await;
    let revision = all["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    cluster.send("DELETE", &format!("{PODS}/p09"), json!({"gracePeriodSeconds": 0})).await;
    for (query, gone) in [
        (String::new(), true),
        ("limit=3".to_owned(), true),
        ("resourceVersion=0".to_owned(), true),
        (format!("resourceVersion={revision}&resourceVersionMatch=Exact"), false),
        (format!("resourceVersion={revision}&resourceVersionMatch=NotOlderThan"), true),
    ] {
        for node in ["n1", "n2", "n9", ""] {
            for (label, value) in [("", ""), ("&labelSelector=even%3Dtrue", "true")] {
                let expected: Vec<&str> = all["items"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|pod| {
                        pod["spec"]["nodeName"].as_str().unwrap_or_default() == node
                            && (value.is_empty() || pod["metadata"]["labels"]["even"] == value)
                    })
                    .map(|pod| pod["metadata"]["name"].as_str().unwrap())
                    .filter(|name| !gone || *name != "p09")
                    .collect();
                let wanted = format!("fieldSelector=spec.nodeName%3D{node}{label}&{query}");
                assert_eq!(cluster.names(&wanted).await, expected, "{wanted}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_of_the_pods_of_a_node_sees_them_come_and_go_and_no_others() {
    let cluster = with_pods().await;
    let begin = cluster.send("GET", PODS, Value::Null).await["metadata"]["resourceVersion"].clone();
    for (name, node) in [("a", Some("n1")), ("b", Some("n2")), ("c", None)] {
        let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
        spec["nodeName"] = json!(node);
        cluster.send("POST", PODS, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let binding = json!({"metadata": {"name": "c"}, "target": {"kind": "Node", "name": "n1"}});
    cluster.send("POST", &format!("{PODS}/c/binding"), binding).await;
    for name in ["a", "b"] {
        cluster.send("DELETE", &format!("{PODS}/{name}"), json!({"gracePeriodSeconds": 0})).await;
    }
    let begin = begin.as_str().unwrap();
    let path = format!(
        "{PODS}?watch=true&timeoutSeconds=1&resourceVersion={begin}&fieldSelector=spec.nodeName%3Dn1"
    );
    let text = cluster.text("GET", &path, &Value::Null).await;
    let events: Vec<String> = text
        .lines()
        .map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            let name = event["object"]["metadata"]["name"].as_str().unwrap();
            format!("{} {name}", event["type"].as_str().unwrap())
        })
        .collect();
    assert_eq!(events, ["ADDED a", "ADDED c", "MODIFIED a", "DELETED a"]);
}

#[tokio::test]
async fn the_metrics_count_requests_by_verb_resource_code_and_user_agent() {
    let cluster = with_pods().await;
    let text = cluster.text("GET", "/metrics", &Value::Null).await;
    for line in [
        r#"apiserver_request_total{verb="create",resource="pods",code="201",agent="tests"} 40"#,
        r#"apiserver_request_total{verb="delete",resource="pods",code="200",agent="tests"} 1"#,
        "apiserver_current_inflight_requests 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

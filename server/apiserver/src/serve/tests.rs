//! The limits of clients without administrator rights, and their audit: requests as the listener hands them on.

use std::{
    fmt::{Debug, Write as _},
    sync::{Arc, Mutex},
};

use axum::body::Body;
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::StreamExt;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use super::{
    ApiServer, Limits, Options, ServeOptions,
    door::Door,
    metrics::Metrics,
    pipeline::{self, Origin, Pipeline},
};
use crate::{
    auth::Auth,
    clock::wall_clock,
    context::Context,
    kinds::{
        access::text,
        identity::{Identity, NODE_ANNOTATION},
    },
    store::{Prefix, tests::disk},
};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";

/// Sends a request and reads the answer.
async fn send(
    pipeline: &Pipeline,
    origin: Origin,
    headers: &[(&str, &str)],
    line: (&str, &str),
    body: &Value,
) -> (StatusCode, HeaderMap, String) {
    let (method, path) = line;
    let media_type =
        if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let mut request =
        Request::builder().method(method).uri(path).header("content-type", media_type);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let response = pipeline.handle(origin, request.body(Body::from(text)).unwrap()).await;
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(body.to_vec()).unwrap())
}

struct World {
    api: ApiServer,
}

impl World {
    async fn new() -> Self {
        Self { api: ApiServer::open(Options::memory()).await.unwrap() }
    }

    async fn by(&self, who: &Identity, line: (&str, &str), body: &Value) -> (StatusCode, Value) {
        let origin = Origin::Process(who.clone());
        let (code, _, text) = send(&self.api.inner.pipeline, origin, &[], line, body).await;
        (code, serde_json::from_str(&text).unwrap_or_default())
    }

    async fn admin(&self, line: (&str, &str), body: &Value) -> (StatusCode, Value) {
        self.by(&Identity::admin(), line, body).await
    }

    /// Over a connection, with a token.
    async fn with(
        &self,
        token: &str,
        headers: &[(&str, &str)],
        line: (&str, &str),
        body: &Value,
    ) -> (StatusCode, HeaderMap, String) {
        let bearer = format!("Bearer {token}");
        let mut all = vec![("authorization", bearer.as_str())];
        all.extend_from_slice(headers);
        send(&self.api.inner.pipeline, stranger().await, &all, line, body).await
    }

    /// Makes a bootstrap token, bound to a node if there is one.
    async fn token(&self, id: &str, node: Option<&str>) -> String {
        let annotations = node.map_or_else(|| json!({}), |node| json!({ NODE_ANNOTATION: node }));
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{id}"), "annotations": annotations},
            "stringData": {"token-id": id, "token-secret": "0123456789abcdef",
                "usage-bootstrap-authentication": "true"}});
        assert_eq!(self.admin(("POST", SECRETS), &secret).await.0, StatusCode::CREATED);
        format!("{id}.0123456789abcdef")
    }

    async fn ask(&self, token: &str, name: &str, request: &str) -> (StatusCode, String) {
        let body = json!({"apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest", "metadata": {"name": name},
            "spec": {"request": request, "usages": ["digital signature", "client auth"],
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet"}});
        let (code, _, text) = self.with(token, &[], ("POST", CSRS), &body).await;
        (code, text)
    }

    async fn asks(&self, token: &str, name: &str, node: &str) -> (StatusCode, String) {
        self.ask(token, name, &BASE64_STANDARD.encode(pem(node))).await
    }

    /// A request once the control plane has decided over it.
    async fn decided(&self, name: &str) -> Value {
        let store = &self.api.context().store;
        let prefix = Prefix::resource("certificates.k8s.io", "certificatesigningrequests");
        let mut changes = store.watch(prefix, store.revision()).unwrap();
        loop {
            let (_, object) = self.admin(("GET", &format!("{CSRS}/{name}")), &Value::Null).await;
            if object["status"]["certificate"].is_string()
                || object["status"]["conditions"][0]["type"] == "Failed"
            {
                return object;
            }
            changes.next().await.unwrap().unwrap();
        }
    }

    async fn node(&self, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        assert_eq!(self.admin(("POST", "/api/v1/nodes"), &node).await.0, StatusCode::CREATED);
    }
}

fn pem(node: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node}"));
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

/// A connection without credentials.
async fn stranger() -> Origin {
    let door = Door::new(ServeOptions::default(), Metrics::new());
    let guest = door.admit([127, 0, 0, 1].into()).await.unwrap();
    Origin::Connection(pipeline::Visit { guest, certificate: None })
}

fn node(name: &str) -> Identity {
    Identity::user(&format!("system:node:{name}"), vec!["system:nodes".to_owned()])
}

#[tokio::test]
async fn a_server_that_cannot_store_says_so_and_is_well_when_there_is_space_again() {
    let disk = disk::SharedDisk::default();
    let context = Context { store: disk::open(&disk), clock: wall_clock() };
    let auth = Auth::open(context.clone(), None).unwrap();
    let pipeline = Pipeline::new(auth, &context, Limits::default());
    let admin = |line, body| {
        let pipeline = pipeline.clone();
        async move { send(&pipeline, Origin::Process(Identity::admin()), &[], line, &body).await }
    };
    let anybody = |path: &'static str| {
        let pipeline = pipeline.clone();
        async move {
            let origin = stranger().await;
            let (code, _, text) = send(&pipeline, origin, &[], ("GET", path), &Value::Null).await;
            (code.as_u16(), text)
        }
    };
    let namespace =
        |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let all = "/api/v1/namespaces";
    assert_eq!(admin(("POST", all), namespace("a")).await.0, StatusCode::CREATED);
    for path in ["/readyz", "/livez", "/healthz", "/readyz/store", "/livez/ping", "/readyz/"] {
        assert_eq!(anybody(path).await, (200, "ok".to_owned()), "{path}");
    }
    assert_eq!(anybody("/readyz/nothing").await.0, 404);
    assert!(anybody("/readyz?verbose").await.1.contains("[+]store ok"));

    disk.with(|disk| {
        (disk.syncs_left, disk.reason) = (Some(0), Some(std::io::ErrorKind::StorageFull));
    });
    let (code, _, text) = admin(("POST", all), namespace("b")).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(text.contains("the disk of the store is full"), "{text}");
    for path in ["/readyz", "/livez", "/healthz"] {
        let (code, text) = anybody(path).await;
        assert_eq!(code, 500, "{path}");
        assert!(text.contains("[-]store failed: the disk of the store is full"), "{text}");
    }
    assert_eq!(anybody("/readyz/ping").await.0, 200);
    assert_eq!(anybody("/readyz/store").await.0, 500);
    let (code, ..) = admin(("GET", "/api/v1/namespaces/a"), Value::Null).await;
    assert_eq!(code, StatusCode::OK, "reads go on");

    disk.with(|disk| disk.syncs_left = None);
    assert_eq!(admin(("POST", all), namespace("b")).await.0, StatusCode::CREATED);
    assert_eq!(anybody("/readyz").await, (200, "ok".to_owned()));
}

#[tokio::test]
async fn a_request_as_somebody_else_is_refused_and_not_done_as_oneself() {
    let world = World::new().await;
    let token = world.api.admin_token().expose().to_owned();
    let (get, delete) = ("/api/v1/namespaces/default", "/api/v1/namespaces/kube-public");
    for name in [
        "Impersonate-User",
        "impersonate-group",
        "Impersonate-Uid",
        "Impersonate-Extra-scopes",
        "Impersonate-Extra-a%2Fb",
    ] {
        for line in [("GET", get), ("DELETE", delete)] {
            let (code, _, text) = world.with(&token, &[(name, "nobody")], line, &Value::Null).await;
            assert_eq!(code, StatusCode::FORBIDDEN, "{name}: {text}");
            assert!(text.contains("impersonation is not supported"), "{text}");
        }
    }
    let (code, ..) =
        world.with("wrong", &[("Impersonate-User", "x")], ("GET", get), &Value::Null).await;
    assert_eq!(code, StatusCode::UNAUTHORIZED);
    assert_eq!(world.admin(("GET", delete), &Value::Null).await.0, StatusCode::OK, "it is there");
}

#[tokio::test]
async fn a_bound_token_joins_its_node_and_no_other() {
    let world = World::new().await;
    let token = world.token("aaaaaa", Some("n1")).await;
    world.node("n1").await;
    let (code, text) = world.asks(&token, "other", "n2").await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert!(text.contains("CN=system:node:n1"), "{text}");
    let (code, text) = world.asks(&token, "own", "n1").await;
    assert_eq!(code, StatusCode::CREATED, "{text}");
    let own = world.decided("own").await;
    assert!(own["status"]["certificate"].is_string(), "though the node is there: {own:#}");
}

#[tokio::test]
async fn a_token_without_a_bound_takes_no_node_that_is_there() {
    let world = World::new().await;
    let token = world.token("bbbbbb", None).await;
    world.node("n2").await;
    assert_eq!(world.asks(&token, "a-taken", "n2").await.0, StatusCode::CREATED);
    assert_eq!(world.asks(&token, "new", "n3").await.0, StatusCode::CREATED);
    assert!(world.decided("new").await["status"]["certificate"].is_string());
    let path = format!("{CSRS}/a-taken");
    let (_, waiting) = world.admin(("GET", &path), &Value::Null).await;
    assert_eq!(waiting["status"], json!({}), "{waiting:#}");
    // what the token becomes bound to later counts, too
    let bound = json!({"metadata": {"annotations": {NODE_ANNOTATION: "n4"}}});
    let secret = format!("{SECRETS}/bootstrap-token-bbbbbb");
    assert_eq!(world.admin(("PATCH", &secret), &bound).await.0, StatusCode::OK);
    assert_eq!(world.asks(&token, "late", "n3").await.0, StatusCode::FORBIDDEN);
    // an administrator may let it
    let mut approved = waiting;
    approved["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "x", "message": "y"}]);
    let approval = format!("{path}/approval");
    assert_eq!(world.admin(("PUT", &approval), &approved).await.0, StatusCode::OK);
    assert!(world.decided("a-taken").await["status"]["certificate"].is_string());
}

#[tokio::test]
async fn a_token_stores_few_and_small_requests() {
    let world = World::new().await;
    let token = world.token("cccccc", None).await;
    let plain = pem("n1");
    let text = "x".repeat(1000);
    let two = format!("{plain}{plain}");
    for (name, request) in [
        ("before", format!("{text}\n{plain}")),
        ("after", format!("{plain}{text}")),
        ("two", two),
        ("long", plain.replace("-----END", &format!("{}-----END", "A".repeat(11 << 10)))),
    ] {
        let (code, text) = world.ask(&token, name, &BASE64_STANDARD.encode(request)).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{name}: {text}");
        assert!(text.contains("spec.request has"), "{name}: {text}");
    }
    let mut stored = 0;
    for number in 0..20 {
        let (code, text) = world.asks(&token, &format!("r{number}"), "n1").await;
        if code == StatusCode::CREATED {
            stored += 1;
        } else {
            assert_eq!(code, StatusCode::FORBIDDEN);
            assert!(text.contains("exceeded quota"), "{text}");
        }
    }
    assert_eq!(stored, 10);
    let other = world.token("dddddd", None).await;
    assert_eq!(world.asks(&other, "other", "n9").await.0, StatusCode::CREATED);
}

#[tokio::test]
async fn a_node_moves_no_metadata_that_is_not_its_own() {
    let world = World::new().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p",
        "finalizers": ["example.com/held"]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    assert_eq!(world.admin(("POST", PODS), &pod).await.0, StatusCode::CREATED);
    let status = format!("{PODS}/p/status");
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "u"}]);
    let one = node("n1");
    let patch = json!({"metadata": {"ownerReferences": owner}, "status": {"phase": "Running"}});
    let (code, pod) = world.by(&one, ("PATCH", &status), &patch).await;
    assert_eq!((code, text(&pod, "/status/phase")), (StatusCode::OK, "Running"), "{pod:#}");
    assert_eq!(pod["metadata"].get("ownerReferences"), None, "as Kubernetes: left as they are");
    for metadata in [
        json!({"finalizers": []}),
        json!({"finalizers": ["example.com/held", "example.com/more"]}),
        json!({"labels": {"a": "b"}}),
    ] {
        let (code, answer) =
            world.by(&one, ("PATCH", &status), &json!({ "metadata": metadata })).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{answer:#}");
    }
    for metadata in [
        json!({"deletionGracePeriodSeconds": 0}),
        json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ] {
        let (code, answer) =
            world.by(&one, ("PATCH", &status), &json!({ "metadata": metadata })).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{answer:#}");
    }

    let own = |metadata: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata});
    let nodes = "/api/v1/nodes";
    for metadata in [
        json!({"name": "n1", "finalizers": ["example.com/held"]}),
        json!({"name": "n1", "ownerReferences": owner}),
    ] {
        assert_eq!(world.by(&one, ("POST", nodes), &own(metadata)).await.0, StatusCode::FORBIDDEN);
    }
    let (code, made) = world.by(&one, ("POST", nodes), &own(json!({"name": "n1"}))).await;
    assert_eq!(code, StatusCode::CREATED, "{made:#}");
    for path in ["/api/v1/nodes/n1", "/api/v1/nodes/n1/status"] {
        let patch = json!({"metadata": {"finalizers": ["example.com/held"]}});
        assert_eq!(
            world.by(&one, ("PATCH", path), &patch).await.0,
            StatusCode::FORBIDDEN,
            "{path}"
        );
        let large = json!({"metadata": {"annotations": {"a": "x".repeat(257 << 10)}}});
        let (code, answer) = world.by(&one, ("PATCH", path), &large).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{path}");
        assert!(text(&answer, "/message").contains("may write 262144"), "{answer:#}");
        let small = json!({"metadata": {"annotations": {"a": "x"}}});
        assert_eq!(world.by(&one, ("PATCH", path), &small).await.0, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn a_token_of_an_account_ends_within_a_day() {
    let world = World::new().await;
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    let all = "/api/v1/namespaces/default/serviceaccounts";
    assert_eq!(world.admin(("POST", all), &account).await.0, StatusCode::CREATED);
    for (asked, granted) in
        [(json!(null), 3600), (json!(600), 600), (json!(86400), 86400), (json!(1_i64 << 32), 86400)]
    {
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"audiences": [], "expirationSeconds": asked}});
        let path = format!("{all}/bot/token");
        let (code, answer) = world.admin(("POST", &path), &request).await;
        assert_eq!(code, StatusCode::CREATED, "{answer:#}");
        assert_eq!(answer["spec"]["expirationSeconds"], granted);
    }
}

/// Keeps the events of the audit as text.
#[derive(Clone, Default)]
struct Records(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for Records {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ostler::audit"
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        if event.metadata().target() != "ostler::audit" {
            return;
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test]
async fn writes_refusals_and_reads_of_secrets_are_told_without_what_is_in_them() {
    let records = Records::default();
    // With this subscriber alone, a place that another test comes by first would count as unheard.
    let _another = tracing::Dispatch::new(Records::default());
    let _guard = tracing::subscriber::set_default(records.clone());
    let world = World::new().await;
    let admin = world.api.admin_token().expose().to_owned();
    let secrets = "/api/v1/namespaces/default/secrets";
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "s-"},
        "stringData": {"password": "canary"}});
    let (_, head, made) = world.with(&admin, &[], ("POST", secrets), &secret).await;
    let name = serde_json::from_str::<Value>(&made).unwrap();
    let name = text(&name, "/metadata/name").to_owned();
    let id = head["audit-id"].to_str().unwrap().to_owned();
    let path = format!("{secrets}/{name}");
    world.with(&admin, &[], ("GET", &path), &Value::Null).await;
    world.with(&admin, &[], ("GET", "/api/v1/namespaces/default"), &Value::Null).await;
    world.with("canary-token", &[], ("GET", "/api/v1/nodes"), &Value::Null).await;
    world.by(&node("n1"), ("DELETE", "/api/v1/nodes/n2"), &Value::Null).await;
    let all = records.0.lock().unwrap().clone();
    let one = |what: &[&str]| all.iter().any(|line| what.iter().all(|part| line.contains(part)));
    let object = format!("object=\"secrets/default/{name}\"");
    assert!(
        one(&["who=\"system:admin\"", "verb=\"create\"", &object, "code=201", &id]),
        "{all:#?}"
    );
    assert!(one(&["verb=\"get\"", &object, "code=200"]), "{all:#?}");
    assert!(one(&["who=\"-\"", "object=\"nodes\"", "code=401"]), "{all:#?}");
    assert!(
        one(&["who=\"system:node:n1\"", "verb=\"delete\"", "object=\"nodes/n2\"", "code=403"]),
        "{all:#?}"
    );
    let told = all.join("\n");
    let read = "object=\"namespaces/default\" code=200";
    assert!(!told.contains(read), "other reads are not told: {told}");
    assert!(!told.contains("canary") && !told.contains(&admin), "{told}");
}

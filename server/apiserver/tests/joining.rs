//! How a machine becomes a node: a bootstrap token, a certificate request, a client certificate;
//! over HTTPS, as a stranger meets it.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::body::Body;
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::StreamExt;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use jiff::SignedDuration;
use kube::api::PostParams;
use ostler_apiserver::{
    serve::{ApiServer, Options, TlsMaterial},
    store::Prefix,
};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::sync::{CancellationToken, DropGuard};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const TOKEN: &str = "abcdef.0123456789abcdef";
const TOKENS: &str = "/api/v1/namespaces/kube-system/secrets";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// The credential of a client.
#[derive(Clone, Copy)]
enum Credential<'a> {
    Nothing,
    Token(&'a str),
    Certificate(&'a Certified),
}

/// A client certificate with its key, as PEM.
struct Certified {
    certificate: String,
    key: String,
}

struct Server {
    api: ApiServer,
    tls: TlsMaterial,
    address: SocketAddr,
    _shutdown: DropGuard,
}

/// A key and a PKCS#10 request for it, base64-encoded as objects hold it.
fn request(common_name: &str, organization: &str) -> (KeyPair, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, common_name);
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    (key, BASE64_STANDARD.encode(pem))
}

fn signing_request(name: &str, signer: &str, request: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name}, "spec": {"request": request, "signerName": signer,
        "usages": ["digital signature", "client auth"], "expirationSeconds": 3600}})
}

fn bootstrap_secret() -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef"}, "stringData": {"token-id": "abcdef",
        "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:machines"}})
}

impl Server {
    async fn start(options: Options) -> Self {
        let api = ApiServer::open(options).await.unwrap();
        let tls = api.tls(&[]).unwrap();
        assert_eq!(tls.authority_pem(), api.authority_pem());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        tokio::spawn({
            let (api, tls, shutdown) = (api.clone(), tls.clone(), shutdown.clone());
            async move { api.serve(listener, tls, shutdown).await }
        });
        Self { api, tls, address, _shutdown: shutdown.drop_guard() }
    }

    /// A server that knows the token [`TOKEN`].
    async fn with_token() -> Self {
        let server = Self::start(Options::memory()).await;
        let (code, secret) = server.admin("POST", TOKENS, &bootstrap_secret()).await;
        assert_eq!(code, StatusCode::CREATED, "{secret:#}");
        server
    }

    /// A connection; an error if the server refuses it, at the latest when something is sent.
    async fn connect(&self, credential: Credential<'_>) -> std::io::Result<SendRequest<Body>> {
        let mut roots = RootCertStore::empty();
        let authority = self.tls.authority_pem().as_bytes();
        roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match credential {
            Credential::Certificate(Certified { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
            Credential::Nothing | Credential::Token(_) => config.with_no_client_auth(),
        };
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::from(self.address.ip());
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        Ok(sender)
    }

    async fn send(
        &self,
        credential: Credential<'_>,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (StatusCode, Value) {
        let mut connection = self.connect(credential).await.unwrap();
        exchange(&mut connection, credential, method, path, body).await.unwrap()
    }

    async fn admin(&self, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        let token = self.api.admin_token().expose();
        self.send(Credential::Token(token), method, path, body).await
    }

    async fn get(&self, credential: Credential<'_>, path: &str) -> (StatusCode, Value) {
        self.send(credential, "GET", path, &Value::Null).await
    }

    /// A request as soon as `ready` says so.
    async fn until(&self, name: &str, ready: impl Fn(&Value) -> bool) -> Value {
        let store = &self.api.context().store;
        let prefix = Prefix::resource("certificates.k8s.io", "certificatesigningrequests");
        let mut changes = store.watch(prefix, store.revision()).unwrap();
        loop {
            let (code, object) =
                self.admin("GET", &format!("{REQUESTS}/{name}"), &json!(null)).await;
            assert_eq!(code, StatusCode::OK);
            if ready(&object) {
                return object;
            }
            changes.next().await.unwrap().unwrap();
        }
    }

    /// Nothing was decided about a request.
    async fn waits(&self, name: &str) {
        let (_, waiting) = self.admin("GET", &format!("{REQUESTS}/{name}"), &json!(null)).await;
        assert_eq!(waiting["status"], json!({}), "{waiting:#}");
    }

    /// A machine asks for the certificate of a node that is there, and waits.
    async fn asks_for_one_that_is_there(&self, name: &str) {
        let node = json!({"metadata": {"name": name}});
        assert_eq!(self.admin("POST", NODES, &node).await.0, StatusCode::CREATED);
        let (_, asked) = request(&format!("system:node:{name}"), "system:nodes");
        let sent = signing_request(name, SIGNER, &asked);
        let machine = Credential::Token(TOKEN);
        assert_eq!(self.send(machine, "POST", REQUESTS, &sent).await.0, StatusCode::CREATED);
        self.certified("n2").await;
        self.waits(name).await;
    }

    /// A client certificate for a node, got as a machine gets it.
    async fn certified(&self, node: &str) -> Certified {
        let (key, request) = request(&format!("system:node:{node}"), "system:nodes");
        let object = signing_request(node, SIGNER, &request);
        let (code, created) = self.send(Credential::Token(TOKEN), "POST", REQUESTS, &object).await;
        assert_eq!(code, StatusCode::CREATED, "{created:#}");
        let signed = self.until(node, |one| one["status"]["certificate"].is_string()).await;
        assert_eq!(signed["status"]["conditions"][0]["reason"], "AutoApproved", "{signed:#}");
        let pem = BASE64_STANDARD.decode(signed["status"]["certificate"].as_str().unwrap());
        let certificate = String::from_utf8(pem.unwrap()).unwrap();
        Certified { certificate, key: key.serialize_pem() }
    }
}

async fn exchange(
    connection: &mut SendRequest<Body>,
    credential: Credential<'_>,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<(StatusCode, Value), hyper::Error> {
    let media_type =
        if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Credential::Token(token) = credential {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let request = request.header("content-type", media_type).body(Body::from(text)).unwrap();
    let response = connection.send_request(request).await?;
    let code = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((code, serde_json::from_slice(&body).unwrap_or_default()))
}

#[tokio::test]
async fn a_bootstrap_token_is_good_for_a_certificate_request_and_nothing_else() {
    let server = Server::with_token().await;
    let machine = Credential::Token(TOKEN);
    let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (_, me) = server.send(machine, "POST", path, &who).await;
    assert_eq!(
        me["status"]["userInfo"],
        json!({"username": "system:bootstrap:abcdef", "groups":
            ["system:bootstrappers", "system:bootstrappers:machines", "system:authenticated"]})
    );
    for path in [NODES, PODS, TOKENS, "/api/v1/namespaces", "/api/v1/services"] {
        let (code, refusal) = server.get(machine, path).await;
        assert_eq!(code, StatusCode::FORBIDDEN, "{path}: {refusal:#}");
        assert!(!refusal.to_string().contains("0123456789abcdef"));
    }
    assert_eq!(server.get(machine, REQUESTS).await.0, StatusCode::OK);
    let (_, request) = request("system:node:n1", "system:nodes");
    let mut sent = signing_request("n1", SIGNER, &request);
    sent["spec"]["username"] = json!("system:admin");
    let (code, created) = server.send(machine, "POST", REQUESTS, &sent).await;
    assert_eq!(code, StatusCode::CREATED, "{created:#}");
    assert_eq!(created["spec"]["username"], "system:bootstrap:abcdef");
    for part in ["approval", "status"] {
        let path = format!("{REQUESTS}/n1/{part}");
        assert_eq!(server.send(machine, "PUT", &path, &created).await.0, StatusCode::FORBIDDEN);
    }
}

#[tokio::test]
async fn a_token_ends_with_its_secret_or_at_its_time() {
    let server = Server::with_token().await;
    let secret = format!("{TOKENS}/bootstrap-token-abcdef");
    let tried = async |token: &str| server.get(Credential::Token(token), REQUESTS).await.0;
    assert_eq!(tried(TOKEN).await, StatusCode::OK);
    for wrong in ["abcdef.0123456789abcdee", "abcdee.0123456789abcdef", "abcdef.", "abcdef"] {
        assert_eq!(tried(wrong).await, StatusCode::UNAUTHORIZED, "{wrong}");
    }
    let off = json!({"stringData": {"usage-bootstrap-authentication": "false"}});
    assert_eq!(server.admin("PATCH", &secret, &off).await.0, StatusCode::OK);
    assert_eq!(tried(TOKEN).await, StatusCode::UNAUTHORIZED);
    assert_eq!(server.admin("DELETE", &secret, &json!({})).await.0, StatusCode::OK);
    assert_eq!(tried(TOKEN).await, StatusCode::UNAUTHORIZED);
    let mut expired = bootstrap_secret();
    expired["stringData"]["expiration"] = json!("2020-01-01T00:00:00Z");
    assert_eq!(server.admin("POST", TOKENS, &expired).await.0, StatusCode::CREATED);
    assert_eq!(tried(TOKEN).await, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_node_with_its_certificate_sees_itself_and_not_another() {
    let server = Server::with_token().await;
    let certified = server.certified("n1").await;
    let node = Credential::Certificate(&certified);
    let object =
        |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    let (code, created) = server.send(node, "POST", NODES, &object("n1")).await;
    assert_eq!(code, StatusCode::CREATED, "{created:#}");
    let (code, refused) = server.send(node, "POST", NODES, &object("n2")).await;
    assert_eq!(code, StatusCode::FORBIDDEN, "{refused:#}");
    assert_eq!(server.admin("POST", NODES, &object("n2")).await.0, StatusCode::CREATED);
    assert_eq!(server.get(node, &format!("{NODES}/n1")).await.0, StatusCode::OK);
    assert_eq!(server.get(node, &format!("{NODES}/n2")).await.0, StatusCode::FORBIDDEN);
    assert_eq!(server.get(node, NODES).await.0, StatusCode::FORBIDDEN);

    let status = json!({"status": {"capacity": {"cpu": "2"}}});
    let path = format!("{NODES}/n1/status");
    assert_eq!(server.send(node, "PATCH", &path, &status).await.0, StatusCode::OK);
    let path = format!("{NODES}/n1");
    for (patch, allowed) in [
        (json!({"metadata": {"labels": {"kubernetes.io/hostname": "n1", "tier": "gold"}}}), true),
        (json!({"metadata": {"labels": {"node-role.kubernetes.io/master": ""}}}), false),
        (json!({"metadata": {"labels": {"node-restriction.kubernetes.io/a": "b"}}}), false),
        (json!({"spec": {"taints": []}}), false),
        (json!({"spec": {"providerID": "docker://n1"}}), true),
    ] {
        let (code, answer) = server.send(node, "PATCH", &path, &patch).await;
        let expected = if allowed { StatusCode::OK } else { StatusCode::FORBIDDEN };
        assert_eq!(code, expected, "{patch} {answer:#}");
    }
    let lease = |name: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name}, "spec": {"holderIdentity": "n1"}})
    };
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    assert_eq!(server.send(node, "POST", leases, &lease("n1")).await.0, StatusCode::CREATED);
    assert_eq!(server.send(node, "POST", leases, &lease("n2")).await.0, StatusCode::FORBIDDEN);
}

fn pod(name: &str, node: &str, spec: &Value) -> Value {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}});
    if let Some(fields) = spec.as_object() {
        pod["spec"].as_object_mut().unwrap().extend(fields.clone());
    }
    pod
}

#[tokio::test]
async fn a_node_sees_and_ends_the_pods_that_are_bound_to_it_and_reads_what_they_use() {
    let server = Server::with_token().await;
    let certified = server.certified("n1").await;
    let node = Credential::Certificate(&certified);
    let volumes = json!({"volumes": [{"name": "v", "secret": {"secretName": "key"}}]});
    for object in [pod("mine", "n1", &volumes), pod("theirs", "n2", &json!({}))] {
        assert_eq!(server.admin("POST", PODS, &object).await.0, StatusCode::CREATED);
    }
    let secrets = "/api/v1/namespaces/default/secrets";
    for name in ["key", "other"] {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}});
        assert_eq!(server.admin("POST", secrets, &secret).await.0, StatusCode::CREATED);
    }
    let (code, list) = server.get(node, "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1").await;
    assert_eq!((code, list["items"].as_array().unwrap().len()), (StatusCode::OK, 1));
    let running = json!({"status": {"phase": "Running"}});
    for (method, path, body, expected) in [
        ("GET", format!("{PODS}/mine"), json!(null), StatusCode::OK),
        ("GET", format!("{PODS}/theirs"), json!(null), StatusCode::FORBIDDEN),
        ("PATCH", format!("{PODS}/mine/status"), running.clone(), StatusCode::OK),
        ("PATCH", format!("{PODS}/theirs/status"), running, StatusCode::FORBIDDEN),
        (
            "PATCH",
            format!("{PODS}/mine/status"),
            json!({"metadata": {"labels": {"a": "b"}}}),
            StatusCode::FORBIDDEN,
        ),
        ("GET", format!("{secrets}/key"), json!(null), StatusCode::OK),
        ("GET", format!("{secrets}/other"), json!(null), StatusCode::FORBIDDEN),
        ("POST", PODS.to_owned(), pod("new", "n1", &json!({})), StatusCode::FORBIDDEN),
        ("DELETE", format!("{PODS}/theirs"), json!({}), StatusCode::FORBIDDEN),
        ("DELETE", format!("{PODS}/mine"), json!({"gracePeriodSeconds": 0}), StatusCode::OK),
        (
            "GET",
            "/api/v1/pods?fieldSelector=spec.nodeName!%3Dx".into(),
            json!(null),
            StatusCode::FORBIDDEN,
        ),
        // what the handlers would take for n2 is not taken for n1 here
        (
            "GET",
            "/api/v1/pods?field%53elector=spec.nodeName%3Dn2&fieldSelector=spec.nodeName%3Dn1"
                .into(),
            json!(null),
            StatusCode::FORBIDDEN,
        ),
    ] {
        let (code, answer) = server.send(node, method, &path, &body).await;
        assert_eq!(code, expected, "{method} {path} {answer:#}");
    }
}

#[tokio::test]
async fn access_reviews_tell_a_node_the_truth() {
    let server = Server::with_token().await;
    let certified = server.certified("n1").await;
    let node = Credential::Certificate(&certified);
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let selected = json!({"requirements":
        [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]});
    for (attributes, allowed) in [
        (json!({"verb": "get", "resource": "nodes", "name": "n1"}), true),
        (json!({"verb": "get", "resource": "nodes", "name": "n2"}), false),
        (json!({"verb": "list", "resource": "pods"}), false),
        (json!({"verb": "list", "resource": "pods", "fieldSelector": selected}), true),
        (json!({"verb": "delete", "resource": "namespaces", "name": "default"}), false),
        (
            json!({"verb": "create", "group": "certificates.k8s.io",
                "resource": "certificatesigningrequests", "subresource": "selfnodeclient"}),
            true,
        ),
    ] {
        let review = json!({"apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}});
        let (code, answer) = server.send(node, "POST", path, &review).await;
        assert_eq!(code, StatusCode::CREATED, "{answer:#}");
        assert_eq!(answer["status"]["allowed"], allowed, "{attributes}");
    }
    let rules = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let (_, answer) = server.send(node, "POST", path, &rules).await;
    assert_eq!(answer["status"]["incomplete"], true, "{answer:#}");
    let (_, answer) = server.send(Credential::Token(TOKEN), "POST", path, &rules).await;
    assert_eq!(answer["status"]["incomplete"], false, "{answer:#}");
    assert!(answer.to_string().contains("certificatesigningrequests/nodeclient"), "{answer:#}");
}

#[tokio::test]
async fn a_node_renews_its_own_certificate_and_asks_for_no_other() {
    let server = Server::with_token().await;
    let certified = server.certified("n1").await;
    let node = Credential::Certificate(&certified);
    let (_, own) = request("system:node:n1", "system:nodes");
    let sent = signing_request("again", SIGNER, &own);
    assert_eq!(server.send(node, "POST", REQUESTS, &sent).await.0, StatusCode::CREATED);
    let signed = server.until("again", |one| one["status"]["certificate"].is_string()).await;
    assert_eq!(signed["spec"]["username"], "system:node:n1");
    let (_, other) = request("system:node:n2", "system:nodes");
    let sent = signing_request("other", SIGNER, &other);
    let (code, refused) = server.send(node, "POST", REQUESTS, &sent).await;
    assert_eq!(code, StatusCode::FORBIDDEN, "{refused:#}");
}

#[tokio::test]
async fn a_request_that_can_never_be_signed_fails_and_says_why() {
    let server = Server::with_token().await;
    let (_, masters) = request("system:node:n1", "system:masters");
    let (_, nobody) = request("n1", "system:nodes");
    let (_, node) = request("system:node:n1", "system:nodes");
    let mut broken = BASE64_STANDARD.decode(&node).unwrap();
    // a letter before the end belongs to the signature
    let at = broken.len() - 60;
    broken[at] = if broken[at] == b'A' { b'B' } else { b'A' };
    let mut usages = signing_request("usages", SIGNER, &node);
    usages["spec"]["usages"] = json!(["server auth"]);
    for (name, object, why) in [
        ("masters", signing_request("masters", SIGNER, &masters), "organization"),
        ("nobody", signing_request("nobody", SIGNER, &nobody), "common name"),
        ("broken", signing_request("broken", SIGNER, &BASE64_STANDARD.encode(&broken)), "own key"),
        ("usages", usages, "usages"),
    ] {
        let machine = Credential::Token(TOKEN);
        let (code, created) = server.send(machine, "POST", REQUESTS, &object).await;
        assert_eq!(code, StatusCode::CREATED, "{created:#}");
        let failed = server.until(name, |one| one["status"]["conditions"].is_array()).await;
        let condition = &failed["status"]["conditions"][0];
        assert_eq!(condition["type"], "Failed", "{name}");
        assert_eq!(condition["reason"], "SignerValidationFailure", "{name}");
        assert!(condition["message"].as_str().unwrap().contains(why), "{name}: {condition}");
        assert!(condition["lastUpdateTime"].is_string(), "{condition}");
    }
}

#[tokio::test]
async fn what_nobody_may_have_unasked_waits_for_an_administrator() {
    let server = Server::with_token().await;
    let (_, client) = request("jane", "developers");
    let sent = signing_request("jane", "example.com/people", &client);
    let machine = Credential::Token(TOKEN);
    assert_eq!(server.send(machine, "POST", REQUESTS, &sent).await.0, StatusCode::CREATED);
    // the requests of nodes after it have been seen: the one before them has been, too
    server.certified("n1").await;
    let path = format!("{REQUESTS}/jane");
    let (_, waiting) = server.admin("GET", &path, &json!(null)).await;
    assert_eq!(waiting["status"], json!({}), "{waiting:#}");
    let mut approved = waiting;
    approved["status"]["conditions"] = json!([{"type": "Approved", "status": "True",
        "reason": "KubectlApprove", "message": "looks good"}]);
    let (code, answer) = server.admin("PUT", &format!("{path}/approval"), &approved).await;
    assert_eq!(code, StatusCode::OK, "{answer:#}");
    server.certified("n2").await;
    let (_, still) = server.admin("GET", &path, &json!(null)).await;
    assert_eq!(still["status"].get("certificate"), None, "a foreign signer's request");
}

#[tokio::test]
async fn a_request_for_a_node_that_is_there_waits_until_that_is_gone() {
    let server = Server::with_token().await;
    server.asks_for_one_that_is_there("n1").await;
    let (code, _) = server.admin("DELETE", &format!("{NODES}/n1"), &json!(null)).await;
    assert_eq!(code, StatusCode::OK);
    server.until("n1", |one| one["status"]["certificate"].is_string()).await;
}

#[tokio::test]
async fn a_request_that_waits_for_a_node_to_go_is_not_approved_once_its_token_is_gone() {
    let server = Server::with_token().await;
    server.asks_for_one_that_is_there("victim").await;
    let secret = "/api/v1/namespaces/kube-system/secrets/bootstrap-token-abcdef";
    assert_eq!(server.admin("DELETE", secret, &json!(null)).await.0, StatusCode::OK);
    let gone = server.admin("DELETE", &format!("{NODES}/victim"), &json!(null)).await;
    assert_eq!(gone.0, StatusCode::OK);
    // What an administrator asks for later is signed: the request before it has been looked at.
    let (_, later) = request("system:node:n3", "system:nodes");
    let later = signing_request("n3", SIGNER, &later);
    assert_eq!(server.admin("POST", REQUESTS, &later).await.0, StatusCode::CREATED);
    server.until("n3", |one| one["status"]["certificate"].is_string()).await;
    server.waits("victim").await;
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_refused() {
    let server = Server::with_token().await;
    let stranger = Server::with_token().await;
    let certified = stranger.certified("n1").await;
    let credential = Credential::Certificate(&certified);
    let answer = match server.connect(credential).await {
        Ok(mut connection) => {
            let path = "/api/v1/nodes/n1";
            exchange(&mut connection, credential, "GET", path, &json!(null)).await.ok()
        }
        Err(_) => None,
    };
    assert_eq!(answer, None, "the handshake fails");
    assert_eq!(server.get(Credential::Nothing, "/readyz").await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_certificate_that_expires_on_an_open_connection_is_good_no_longer() {
    let now = jiff::Timestamp::now();
    let hands = Arc::new(std::sync::Mutex::new(now));
    let clock = Arc::clone(&hands);
    let clock: ostler_apiserver::clock::Clock = Arc::new(move || *clock.lock().unwrap());
    let server = Server::start(Options { clock, ..Options::memory() }).await;
    let (code, _) = server.admin("POST", TOKENS, &bootstrap_secret()).await;
    assert_eq!(code, StatusCode::CREATED);
    let certified = server.certified("n1").await;
    let node = Credential::Certificate(&certified);
    let mut connection = server.connect(node).await.unwrap();
    let get = json!(null);
    let path = "/api/v1/services";
    let (code, _) = exchange(&mut connection, node, "GET", path, &get).await.unwrap();
    assert_eq!(code, StatusCode::OK);
    *hands.lock().unwrap() = now + SignedDuration::from_secs(3601);
    let (code, _) = exchange(&mut connection, node, "GET", path, &get).await.unwrap();
    assert_eq!(code, StatusCode::UNAUTHORIZED);
    let again = match server.connect(node).await {
        Ok(mut connection) => exchange(&mut connection, node, "GET", path, &get).await.ok(),
        Err(_) => None,
    };
    assert_eq!(again, None, "a new handshake fails");
}

#[tokio::test(start_paused = true)]
async fn requests_and_tokens_that_are_done_go_by_themselves() {
    let start = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = ostler_apiserver::clock::tokio_clock(start);
    let api = ApiServer::open(Options { clock, ..Options::memory() }).await.unwrap();
    let client = kube::Client::new(api.local_service(), "kube-system");
    let mut secret = bootstrap_secret();
    secret["stringData"]["expiration"] = json!("2026-01-01T00:20:00Z");
    let secrets =
        kube::Api::<k8s_openapi::api::core::v1::Secret>::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    let requests =
        kube::Api::<k8s_openapi::api::certificates::v1::CertificateSigningRequest>::all(client);
    let (_, asked) = request("system:node:n1", "system:nodes");
    let sent = signing_request("n1", SIGNER, &asked);
    requests.create(&PostParams::default(), &serde_json::from_value(sent).unwrap()).await.unwrap();
    tokio::time::sleep(Duration::from_mins(21)).await;
    assert!(secrets.get_opt("bootstrap-token-abcdef").await.unwrap().is_none());
    let status = requests.get("n1").await.unwrap().status.unwrap();
    assert!(status.certificate.is_some(), "an administrator may have what a machine may");
    tokio::time::sleep(Duration::from_mins(40)).await;
    assert!(requests.get_opt("n1").await.unwrap().is_none());
}

//! The server over HTTPS, as a stranger meets it.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::net::SocketAddr;

use axum::body::Body;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ostler_apiserver::serve::{ApiServer, Options, TlsMaterial};
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

struct Server {
    api: ApiServer,
    tls: TlsMaterial,
    address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Server {
    async fn start() -> Self {
        let api = ApiServer::open(Options::memory()).await.unwrap();
        let tls = api.tls(&[]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn({
            let (api, tls, shutdown) = (api.clone(), tls.clone(), shutdown.clone());
            async move { api.serve(listener, tls, shutdown).await }
        });
        Self { api, tls, address, shutdown, serving }
    }

    async fn connect(&self, protocol: &[u8]) -> TlsStream<TcpStream> {
        crate::tls::connect(self.tls.authority_pem(), self.address, protocol).await
    }

    async fn send(&self, request: Request<Body>) -> Response<Incoming> {
        let stream = TokioIo::new(self.connect(b"http/1.1").await);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }

    async fn get(&self, path: &str, token: Option<&str>) -> (StatusCode, Value) {
        read(self.send(request("GET", path, token, Body::empty())).await).await
    }

    fn admin(&self) -> &str {
        self.api.admin_token().expose()
    }
}

fn request(method: &str, path: &str, token: Option<&str>, body: Body) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.header("content-type", "application/json").body(body).unwrap()
}

async fn read(response: Response<Incoming>) -> (StatusCode, Value) {
    let code = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = || Value::from(String::from_utf8_lossy(&body).into_owned());
    (code, serde_json::from_slice(&body).unwrap_or_else(|_| text()))
}

const NAMESPACES: &str = "/api/v1/namespaces";

#[tokio::test]
async fn nobody_sees_more_than_health_and_a_wrong_token_sees_nothing() {
    let server = Server::start().await;
    assert_eq!(server.get("/readyz", None).await, (StatusCode::OK, json!("ok")));
    let (code, body) = server.get(NAMESPACES, None).await;
    assert_eq!((code, &body["reason"]), (StatusCode::FORBIDDEN, &json!("Forbidden")));
    let (code, body) = server.get("/readyz", Some("wrong")).await;
    assert_eq!((code, &body["reason"]), (StatusCode::UNAUTHORIZED, &json!("Unauthorized")));
    let (code, body) = server.get(NAMESPACES, Some(server.admin())).await;
    assert_eq!((code, &body["kind"]), (StatusCode::OK, &json!("NamespaceList")));
}

#[tokio::test]
async fn both_http_versions_are_spoken() {
    let server = Server::start().await;
    let stream = TokioIo::new(server.connect(b"h2").await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let uri = format!("https://localhost{NAMESPACES}");
    let request = request("GET", &uri, Some(server.admin()), Body::empty());
    let (code, _) = read(sender.send_request(request).await.unwrap()).await;
    assert_eq!(code, StatusCode::OK);
}

#[tokio::test]
async fn a_service_account_token_is_who_it_says_until_its_account_is_gone() {
    let server = Server::start().await;
    let admin = Some(server.admin().to_owned());
    let post = async |path: &str, token: Option<&str>, body: Value| {
        read(server.send(request("POST", path, token, Body::from(body.to_string()))).await).await
    };
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bot"}});
    assert_eq!(post(accounts, admin.as_deref(), account).await.0, StatusCode::CREATED);
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": 600}, "status": {"token": ""}});
    let (code, granted) = post(&format!("{accounts}/bot/token"), admin.as_deref(), ask).await;
    assert_eq!(code, StatusCode::CREATED, "{granted:#}");
    let token = granted["status"]["token"].as_str().unwrap();

    let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (code, me) = post(reviews, Some(token), who).await;
    assert_eq!(code, StatusCode::CREATED);
    assert_eq!(me["status"]["userInfo"]["username"], "system:serviceaccount:default:bot");
    assert_eq!(server.get(NAMESPACES, Some(token)).await.0, StatusCode::FORBIDDEN);

    let path = format!("{accounts}/bot");
    let gone = server.send(request("DELETE", &path, admin.as_deref(), Body::empty())).await;
    assert_eq!(gone.status(), StatusCode::OK);
    assert_eq!(server.get(NAMESPACES, Some(token)).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_body_over_three_mebibytes_is_refused() {
    let server = Server::start().await;
    let body = Body::from(vec![b' '; (3 << 20) + 1]);
    let path = "/api/v1/namespaces/default/configmaps";
    let refused = server.send(request("POST", path, Some(server.admin()), body)).await;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn the_shutdown_ends_watches_and_then_the_server() {
    let server = Server::start().await;
    let path = format!("{NAMESPACES}?watch=true");
    let watch = server.send(request("GET", &path, Some(server.admin()), Body::empty())).await;
    assert_eq!(watch.status(), StatusCode::OK);
    server.shutdown.cancel();
    assert!(watch.into_body().collect().await.is_ok(), "the stream ends cleanly");
    assert!(server.serving.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_directory_keeps_objects_tokens_and_certificates_and_serves_one_server_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let options = || Options::directory(directory.path().join("data"));
    let first = ApiServer::open(options()).await.unwrap();
    let token = first.admin_token().clone();
    let authority = first.tls(&[]).unwrap().authority_pem().to_owned();
    let revision = first.context().store.revision();
    let refused = ApiServer::open(options()).await.unwrap_err();
    assert!(refused.to_string().contains("cannot open the objects"), "{refused}");
    first.close().await;

    let second = ApiServer::open(options()).await.unwrap();
    assert_eq!(second.admin_token(), &token);
    assert_eq!(second.tls(&[]).unwrap().authority_pem(), authority);
    assert_eq!(second.context().store.revision(), revision);
    second.close().await;
}

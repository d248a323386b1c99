//! What clients that do not read, do not finish or do not say who they are can take from others.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use axum::body::Body;
use bytes::Bytes;
use futures::{StreamExt, future::join_all};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ostler_apiserver::{
    serve::{ApiServer, Limits, Options, ServeOptions, TlsMaterial},
    store::{Change, Expect, Key},
};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_rustls::client::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard};

/// For waits that only a failing test exhausts, and for limits that no test reaches.
const PATIENCE: Duration = Duration::from_mins(1);
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const TOKEN: &str = "abcdef.0123456789abcdef";

struct Server {
    api: ApiServer,
    tls: TlsMaterial,
    address: SocketAddr,
    metrics: Registry,
    _shutdown: DropGuard,
}

type Connection = JoinHandle<Result<(), hyper::Error>>;

impl Server {
    async fn start(limits: Limits, options: ServeOptions) -> Self {
        let api = ApiServer::open(Options { limits, ..Options::memory() }).await.unwrap();
        let tls = api.tls(&[]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        tokio::spawn({
            let (api, tls, shutdown) = (api.clone(), tls.clone(), shutdown.clone());
            async move { api.serve_with(listener, tls, options, shutdown).await }
        });
        let mut metrics = Registry::default();
        api.register_metrics(&mut metrics);
        Self { api, tls, address, metrics, _shutdown: shutdown.drop_guard() }
    }

    async fn with(limits: Limits) -> Self {
        Self::start(limits, ServeOptions::default()).await
    }

    async fn connect(&self, protocol: &[u8]) -> TlsStream<TcpStream> {
        crate::tls::connect(self.tls.authority_pem(), self.address, protocol).await
    }

    /// An HTTP/2 connection whose streams take so many bytes before they are read.
    async fn http2(&self, window: u32) -> (SendRequest<Body>, Connection) {
        let stream = TokioIo::new(self.connect(b"h2").await);
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(window);
        let (sender, connection) = builder.handshake(stream).await.unwrap();
        (sender, tokio::spawn(connection))
    }

    async fn send(&self, request: Request<Body>) -> Response<Incoming> {
        let stream = TokioIo::new(self.connect(b"http/1.1").await);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    }

    fn admin(&self) -> &str {
        self.api.admin_token().expose()
    }

    /// Whether the administrator is served.
    async fn serves(&self) -> bool {
        let answer = self.send(request("GET", MAPS, Some(self.admin()), Body::empty())).await;
        answer.status() == StatusCode::OK
    }

    /// The bootstrap token becomes valid.
    async fn know_token(&self) {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": "bootstrap-token-abcdef"}, "stringData": {"token-id": "abcdef",
            "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}});
        let path = "/api/v1/namespaces/kube-system/secrets";
        let body = Body::from(secret.to_string());
        let made = self.send(request("POST", path, Some(self.admin()), body)).await;
        assert_eq!(made.status(), StatusCode::CREATED);
    }

    /// Puts `count` certificate requests of this length into the store.
    async fn fill(&self, count: usize, length: usize) {
        for at in 0..count {
            let name = format!("r{at}");
            let text = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                "metadata": {"name": name, "uid": name, "creationTimestamp": "2999-01-01T00:00:00Z", "annotations": {"a": "x".repeat(length)}},
                "spec": {"request": "", "signerName": "example.com/none", "usages": []}});
            let key = Key::new("certificates.k8s.io", "certificatesigningrequests", "", &name);
            let change = Change::Put(text.to_string().into());
            self.api.context().store.write(key, Expect::Absent, change).await.unwrap();
        }
    }

    fn metric(&self, line: &str) -> i64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.metrics).unwrap();
        let value = text.lines().find_map(|one| one.strip_prefix(line)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse().unwrap())
    }

    async fn until_metric(&self, line: &str, wanted: impl Fn(i64) -> bool) {
        let reached = async {
            while !wanted(self.metric(line)) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, reached).await.unwrap();
    }
}

fn request(method: &str, path: &str, token: Option<&str>, body: Body) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    request.header("content-type", "application/json").body(body).unwrap()
}

fn over_http2(path: &str, token: &str) -> Request<Body> {
    request("GET", &format!("https://localhost{path}"), Some(token), Body::empty())
}

async fn read(response: Response<Incoming>) -> (StatusCode, Value) {
    let code = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap_or_default())
}

const ANSWERS: &str = "apiserver_held{kind=\"answer_bytes\"}";

#[tokio::test]
async fn connections_that_say_nothing_lock_nobody_out() {
    let limits = Limits { introduction: PATIENCE, ..Limits::default() };
    let server = Server::start(limits, ServeOptions { connections: 16 }).await;
    let (mut known, _connection) = server.http2(1 << 20).await;
    let first = known.send_request(over_http2(MAPS, server.admin())).await.unwrap();
    assert_eq!(first.status(), StatusCode::OK);
    let mut idle = Vec::new();
    for _ in 0..24 {
        idle.push(server.connect(b"h2").await);
    }
    assert!(server.serves().await, "four places for strangers, all taken many times over");
    let again = known.send_request(over_http2(MAPS, server.admin())).await.unwrap();
    assert_eq!(again.status(), StatusCode::OK, "who is known keeps the connection");
    let mut oldest = idle.remove(0);
    let mut sent = Vec::new();
    timeout(PATIENCE, oldest.read_to_end(&mut sent)).await.unwrap().ok();
    assert!(server.metric("apiserver_ended_total{reason=\"crowded\"}") >= 20);
    assert!(server.metric("apiserver_unknown_connections") <= 4);
}

#[tokio::test]
async fn a_connection_without_credentials_is_ended_though_it_speaks_http2() {
    let limits = Limits { introduction: Duration::from_millis(300), ..Limits::default() };
    let server = Server::with(limits).await;
    let (mut known, _connection) = server.http2(1 << 20).await;
    let list = known.send_request(over_http2(MAPS, server.admin())).await.unwrap();
    assert_eq!(list.status(), StatusCode::OK);
    let (mut stranger, connection) = server.http2(1 << 20).await;
    let health = request("GET", "https://localhost/readyz", None, Body::empty());
    assert_eq!(stranger.send_request(health).await.unwrap().status(), StatusCode::OK);
    let ended = timeout(PATIENCE, connection).await.unwrap().unwrap();
    assert!(ended.is_ok(), "it is told, not cut: {ended:?}");
    let again = known.send_request(over_http2(MAPS, server.admin())).await.unwrap();
    assert_eq!(again.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_body_that_does_not_end_is_refused() {
    let limits = Limits { body_time: Duration::from_millis(300), ..Limits::default() };
    let server = Server::with(limits).await;
    let begun = futures::stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"{"))]);
    let body = Body::from_stream(begun.chain(futures::stream::pending()));
    let refused = server.send(request("POST", MAPS, Some(server.admin()), body));
    let (code, status) = read(timeout(PATIENCE, refused).await.unwrap()).await;
    assert_eq!((code, &status["reason"]), (StatusCode::REQUEST_TIMEOUT, &json!("Timeout")));
    assert_eq!(server.metric("apiserver_held{kind=\"request_bytes\"}"), 0);
}

#[tokio::test]
async fn answers_that_nobody_reads_hold_few_bytes_and_are_ended() {
    let limits =
        Limits { stall: Duration::from_secs(1), answer_bytes: 1 << 20, ..Limits::default() };
    let server = Server::with(limits).await;
    server.know_token().await;
    server.fill(20, 200 << 10).await;
    let (sender, _connection) = server.http2(0).await;
    let streams = join_all((0..12).map(|_| {
        let mut sender = sender.clone();
        async move { sender.send_request(over_http2(REQUESTS, TOKEN)).await.unwrap() }
    }));
    let streams = streams.await;
    assert!(streams.iter().all(|stream| stream.status() == StatusCode::OK));
    let held = server.metric(ANSWERS);
    assert!(held < 1 << 20, "12 lists of 4 MB hold {held} bytes");
    assert!(server.serves().await);
    for stream in streams {
        let ended = timeout(PATIENCE, stream.into_body().collect()).await.unwrap();
        assert!(ended.is_err(), "a list that is cut must not look like one that is whole");
    }
    server.until_metric(ANSWERS, |bytes| bytes == 0).await;
    assert!(server.metric("apiserver_ended_total{reason=\"stalled_answer\"}") >= 12);
    server.until_metric("apiserver_held{kind=\"read\"}", |held| held == 0).await;
}

#[tokio::test]
async fn what_a_stream_left_behind_ends_with_its_connection() {
    let limits = Limits { stall: Duration::from_millis(500), ..Limits::default() };
    let server = Server::with(limits).await;
    server.know_token().await;
    server.fill(1, 20 << 10).await;
    // All of the answer is with the connection, which may send one byte of it.
    let (mut sender, connection) = server.http2(1).await;
    let list = sender.send_request(over_http2(REQUESTS, TOKEN)).await.unwrap();
    assert_eq!(list.status(), StatusCode::OK);
    timeout(PATIENCE, connection).await.unwrap().unwrap().ok();
    server.until_metric(ANSWERS, |bytes| bytes == 0).await;
}

#[tokio::test]
async fn who_has_its_share_is_refused_and_the_administrator_is_not() {
    let limits = Limits { reads: 16, stall: PATIENCE, ..Limits::default() };
    let server = Server::with(limits).await;
    server.know_token().await;
    server.fill(4, 100 << 10).await;
    let (mut sender, _connection) = server.http2(0).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        held.push(sender.send_request(over_http2(REQUESTS, TOKEN)).await.unwrap());
    }
    let refused = server.send(request("GET", REQUESTS, Some(TOKEN), Body::empty())).await;
    assert_eq!(refused.headers().get("retry-after").unwrap(), "1");
    let (code, status) = read(refused).await;
    assert_eq!(
        (code, &status["reason"]),
        (StatusCode::TOO_MANY_REQUESTS, &json!("TooManyRequests"))
    );
    assert!(server.serves().await);
    drop(held);
    server.until_metric("apiserver_held{kind=\"read\"}", |held| held == 0).await;
    let served = server.send(request("GET", REQUESTS, Some(TOKEN), Body::empty())).await;
    assert_eq!(served.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_bootstrap_token_sends_small_bodies_only() {
    let server = Server::with(Limits::default()).await;
    server.know_token().await;
    let body = || Body::from(vec![b' '; 100 << 10]);
    let (code, status) =
        read(server.send(request("POST", REQUESTS, Some(TOKEN), body())).await).await;
    assert_eq!(code, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(status["message"], "Request entity too large: limit is 65536");
    let read = server.send(request("POST", REQUESTS, Some(server.admin()), body())).await;
    assert_eq!(read.status(), StatusCode::BAD_REQUEST, "it was read, and is no object");
}

#[tokio::test]
async fn a_long_list_is_whole_for_whoever_reads_it() {
    let server = Server::with(Limits::default()).await;
    server.know_token().await;
    server.fill(50, 50 << 10).await;
    for (token, query) in [(server.admin(), ""), (TOKEN, ""), (TOKEN, "?pretty=1")] {
        let path = format!("{REQUESTS}{query}");
        let (code, list) =
            read(server.send(request("GET", &path, Some(token), Body::empty())).await).await;
        assert_eq!(code, StatusCode::OK);
        assert_eq!(list["items"].as_array().map(Vec::len), Some(50), "{query}");
    }
    for (token, encoded) in [(server.admin(), true), (TOKEN, false)] {
        let mut request = request("GET", REQUESTS, Some(token), Body::empty());
        request.headers_mut().insert("accept-encoding", "gzip".parse().unwrap());
        let answer = server.send(request).await;
        assert_eq!(answer.headers().contains_key("content-encoding"), encoded);
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(text.starts_with(&[0x1f, 0x8b]), encoded);
    }
}

const WATCHES: &str = "apiserver_held{kind=\"watch_bytes\"}";
const UNWRITTEN: &str = "apiserver_held{kind=\"unwritten_bytes\"}";

/// A selector of this many bytes, with as many terms as fit.
fn selector(length: usize) -> String {
    let terms: Vec<String> = (0..(length - 1) / 5).map(|at| format!("!{at:03},")).collect();
    let mut text = terms.concat();
    text.push_str(&"x".repeat(length - text.len()));
    text
}

#[tokio::test]
async fn a_selector_of_who_is_no_administrator_is_short_and_the_refusal_names_the_limit() {
    let server = Server::with(Limits::default()).await;
    server.know_token().await;
    let ask = async |token: &str, query: &str| {
        let path = format!("{REQUESTS}?timeoutSeconds=1&{query}");
        let (code, status) =
            read(server.send(request("GET", &path, Some(token), Body::empty())).await).await;
        (code.as_u16(), status["message"].as_str().unwrap_or_default().to_owned())
    };
    let fields = |length: usize| format!("metadata.name!%3D{}", "x".repeat(length - 15));
    for watch in ["", "watch=1&"] {
        let labels = |length| format!("{watch}labelSelector={}", selector(length));
        let fields = |length| format!("{watch}fieldSelector={}", fields(length));
        for short in [labels(1024), fields(1024)] {
            assert_eq!(ask(TOKEN, &short).await, (200, String::new()), "{short}");
        }
        for (long, name) in [(labels(1025), "labelSelector"), (fields(1025), "fieldSelector")] {
            let (code, message) = ask(TOKEN, &long).await;
            let wanted = format!("{name}: Too long: may not be more than 1024 bytes");
            assert!(code == 422 && message.contains(&wanted), "{code} {message}");
            assert_eq!(ask(server.admin(), &long).await.0, 200);
        }
    }
    let (code, message) = ask(TOKEN, &format!("fieldManager={}", "x".repeat(9000))).await;
    assert!(code == 400 && message.contains("may have more than 8192"), "{code} {message}");
}

#[tokio::test]
async fn what_watches_keep_is_counted_in_bytes_until_they_end() {
    let limits = Limits { watch_bytes: 256 << 10, ..Limits::default() };
    let server = Server::with(limits).await;
    server.know_token().await;
    let (mut sender, _connection) = server.http2(1 << 20).await;
    let mut watch = async |selector: &str| {
        let path = format!("{REQUESTS}?watch=1&labelSelector={selector}");
        sender.send_request(over_http2(&path, TOKEN)).await.unwrap()
    };
    let mut held = Vec::new();
    let refused = loop {
        let answer = watch(&selector(1000)).await;
        if answer.status() != StatusCode::OK {
            break answer;
        }
        held.push(answer);
    };
    let (code, status) = read(refused).await;
    assert_eq!(code, StatusCode::TOO_MANY_REQUESTS, "{status}");
    let bytes = server.metric(WATCHES);
    assert!((32 << 10..64 << 10).contains(&bytes), "its share is 32 KiB, and it has {bytes} bytes");
    let each = bytes / i64::try_from(held.len()).unwrap();
    assert!((4_000..16_000).contains(&each), "a selector of 200 terms takes {each} bytes");
    assert_eq!(watch("").await.status(), StatusCode::OK, "one that keeps nothing may come");
    drop(held);
    server.until_metric(WATCHES, |bytes| bytes == 0).await;
    assert_eq!(watch(&selector(1000)).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn watches_of_the_past_that_nobody_reads_hold_few_bytes() {
    let limits = Limits {
        stall: Duration::from_secs(1),
        unwritten_bytes: 8 << 20,
        answer_bytes: 64 << 20,
        ..Limits::default()
    };
    let server = Server::with(limits).await;
    server.know_token().await;
    let before = server.api.context().store.revision();
    server.fill(40, 100 << 10).await;
    let (sender, _connection) = server.http2(0).await;
    let streams = join_all((0..60).map(|_| {
        let mut sender = sender.clone();
        let path = format!("{REQUESTS}?watch=1&resourceVersion={before}");
        async move { sender.send_request(over_http2(&path, TOKEN)).await.unwrap() }
    }));
    let streams = streams.await;
    server.until_metric(UNWRITTEN, |bytes| bytes > 1 << 20).await;
    let held = server.metric(UNWRITTEN);
    assert!(held < 3 << 19, "60 watches of 4 MB hold {held} bytes");
    assert!(server.serves().await);
    drop(streams);
    server.until_metric(UNWRITTEN, |bytes| bytes == 0).await;
}

//! Clients of the API server, by what they show: an administrator, a machine with its bootstrap token, a node.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper_util::rt::TokioIo;
use ostler_tests::process::PATIENCE;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use tokio::io;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::attacks::up::{Up, within};

/// Where attackers dial from.
pub(crate) const ATTACKER: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Long enough for what an honest client asks.
const SHORT: Duration = Duration::from_secs(30);

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE: &str = "application/merge-patch+json";
pub(crate) const PATCH: &str = "application/json-patch+json";
pub(crate) const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// A client of the API server.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) api: SocketAddr,
    authority: Vec<u8>,
    from: Ipv4Addr,
    token: Option<String>,
    certificate: Option<Arc<(Vec<u8>, Vec<u8>)>>,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The answer, which must be a success.
    pub(crate) fn good(self) -> Self {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(2000)]).into_owned();
        assert!((200..300).contains(&self.code), "{}: {text}", self.code);
        self
    }

    pub(crate) fn refused(&self) -> bool {
        (400..500).contains(&self.code)
    }
}

/// A connection for one request after the other.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    token: Option<String>,
}

/// The error of a request, as text.
pub(crate) type Outcome<T> = Result<T, String>;

impl Client {
    /// Without credentials.
    pub(crate) fn anonymous(up: &Up) -> Self {
        let config = up.kubeconfig();
        let authority = &config["clusters"][0]["cluster"]["certificate-authority-data"];
        let authority = BASE64_STANDARD.decode(authority.as_str().unwrap()).unwrap();
        Self { api: up.api(), authority, from: ATTACKER, token: None, certificate: None }
    }

    pub(crate) fn admin(up: &Up) -> Self {
        let token = up.kubeconfig()["users"][0]["user"]["token"].as_str().unwrap().to_owned();
        Self { token: Some(token), ..Self::anonymous(up) }
    }

    /// A machine that has not joined yet. `id` has six characters.
    pub(crate) async fn machine(up: &Up, id: &str) -> Self {
        let secret = json!({"apiVersion": "v1", "kind": "Secret",
            "type": "bootstrap.kubernetes.io/token",
            "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
            "stringData": {"token-id": id, "token-secret": "0123456789abcdef",
                "usage-bootstrap-authentication": "true"}});
        let admin = Self::admin(up);
        let path = "/api/v1/namespaces/kube-system/secrets";
        admin.post(path, &secret).await.unwrap().good();
        Self { token: Some(format!("{id}.0123456789abcdef")), ..Self::anonymous(up) }
    }

    /// A joined machine with certificate and Node.
    pub(crate) async fn node(up: &Up, id: &str, name: &str) -> Self {
        let machine = Self::machine(up, id).await;
        let key = KeyPair::generate().unwrap();
        let request = request(
            &key,
            &[
                (DnType::OrganizationName, "system:nodes"),
                (DnType::CommonName, &format!("system:node:{name}")),
            ],
            &[],
        );
        machine.post(CSRS, &csr(name, &request)).await.unwrap().good();
        let certificate = machine.signed(name).await.expect("a new node gets its certificate");
        let node = machine.with_certificate(certificate, &key);
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        node.post("/api/v1/nodes", &object).await.unwrap().good();
        node
    }

    pub(crate) fn with_certificate(&self, certificate: Vec<u8>, key: &KeyPair) -> Self {
        let certificate = Some(Arc::new((certificate, key.serialize_pem().into_bytes())));
        Self { token: None, certificate, ..self.clone() }
    }

    /// The same from another address of loopback.
    pub(crate) fn from(&self, from: Ipv4Addr) -> Self {
        Self { from, ..self.clone() }
    }

    /// The certificate of a request, once it is signed.
    pub(crate) async fn signed(&self, request: &str) -> Option<Vec<u8>> {
        let path = format!("{CSRS}/{request}");
        let signed = within(SHORT, async || {
            let answer = self.get(&path).await.ok()?;
            let certificate = answer.json()["status"]["certificate"].as_str()?.to_owned();
            BASE64_STANDARD.decode(certificate).ok()
        });
        signed.await
    }

    fn config(&self, protocol: &[u8]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&self.authority) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = CertificateDer::pem_slice_iter(&pair.0).map(Result::unwrap).collect();
                let key = PrivateKeyDer::from_pem_slice(&pair.1).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        config
    }

    pub(crate) async fn tcp(&self) -> io::Result<TcpStream> {
        dial(self.from, self.api).await
    }

    /// A connection after the handshake, for `http/1.1` or `h2`.
    pub(crate) async fn tls(&self, protocol: &str) -> io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(Arc::new(self.config(protocol.as_bytes())));
        let name = ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST));
        connector.connect(name, self.tcp().await?).await
    }

    pub(crate) fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    pub(crate) async fn connect(&self) -> Outcome<Connection> {
        let stream = self.tls("http/1.1").await.map_err(|error| error.to_string())?;
        let (sender, connection) = Builder::new()
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(Connection { sender, token: self.token.clone() })
    }

    /// Sends a request on a new connection.
    pub(crate) async fn ask(&self, request: Request<Full<Bytes>>) -> Outcome<Answer> {
        let asked = async { self.connect().await?.ask(request).await };
        timeout(PATIENCE, asked).await.map_err(|_elapsed| "no answer".to_owned())?
    }

    pub(crate) async fn get(&self, path: &str) -> Outcome<Answer> {
        self.ask(plain("GET", path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Outcome<Answer> {
        self.ask(plain("DELETE", path)).await
    }

    pub(crate) async fn post(&self, path: &str, object: &Value) -> Outcome<Answer> {
        self.ask(with_body("POST", path, JSON, object.to_string())).await
    }

    /// `kind` is the media type of the patch.
    pub(crate) async fn patch(&self, path: &str, kind: &str, patch: String) -> Outcome<Answer> {
        self.ask(with_body("PATCH", path, kind, patch)).await
    }
}

impl Connection {
    pub(crate) async fn ask(&mut self, mut request: Request<Full<Bytes>>) -> Outcome<Answer> {
        if let Some(token) = &self.token {
            let bearer = format!("Bearer {token}").parse().unwrap();
            request.headers_mut().insert(header::AUTHORIZATION, bearer);
        }
        request.headers_mut().insert(header::HOST, "127.0.0.1".parse().unwrap());
        self.sender.ready().await.map_err(|error| error.to_string())?;
        let answer = self.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.map_err(|error| error.to_string())?;
        Ok(Answer { code, body: body.to_bytes() })
    }
}

/// A request without a body.
pub(crate) fn plain(method: &str, path: &str) -> Request<Full<Bytes>> {
    Request::builder().method(method).uri(path).body(Full::default()).unwrap()
}

pub(crate) fn with_body(
    method: &str,
    path: &str,
    kind: &str,
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, kind);
    request.body(Full::new(body.into())).unwrap()
}

/// A TCP connection from an address of loopback to another.
pub(crate) async fn dial(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    assert!(to.ip().is_loopback(), "attacks stay on this machine");
    let socket = TcpSocket::new_v4()?;
    if from != ATTACKER {
        socket.bind(SocketAddr::from((from, 0)))?;
    }
    socket.connect(to).await
}

/// The PEM of a request for a certificate.
pub(crate) fn request(key: &KeyPair, subject: &[(DnType, &str)], names: &[&str]) -> String {
    let names: Vec<String> = names.iter().copied().map(str::to_owned).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    params.serialize_request(key).unwrap().pem().unwrap()
}

/// The CertificateSigningRequest, as kubelets make it.
pub(crate) fn csr(name: &str, pem: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"request": BASE64_STANDARD.encode(pem), "signerName": SIGNER,
            "usages": ["digital signature", "client auth"]}})
}

/// Lets this process open as many files as it may, once.
pub(crate) fn raise_files() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let hard = line.split_whitespace().nth(4).unwrap().to_owned();
        let me = std::process::id().to_string();
        let limit = format!("--nofile={hard}:{hard}");
        let raised = std::process::Command::new("prlimit").args(["--pid", &me, &limit]).status();
        assert!(raised.is_ok_and(|status| status.success()), "prlimit raises the limit of files");
    });
}

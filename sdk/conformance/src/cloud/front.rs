//! A listener before a cloud, which passes requests on and lets some of them meet a fault.
//!
//! A driver reaches it by its address, or as its proxy: then requests for other clouds pass, and so do tunnels to them. The
//! TLS of its own cloud ends here, and another begins.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use http::header::{CONTENT_LENGTH, HOST, RETRY_AFTER, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sha2::Digest as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::fault::Fault;
use super::script::{self, Script, Turn};
use super::tls::Tls;

/// Of one request or of an answer that is kept.
const MOST_BYTES: usize = 64 * 1024 * 1024;
/// Between half of an answer and the end of its connection.
const FLUSH: Duration = Duration::from_millis(20);
const DIAL: Duration = Duration::from_secs(10);
/// What a cloud says that wants to be left alone for a moment.
const LATER: &str = "1";

type Body = BoxBody<Bytes, io::Error>;
type Answer = io::Result<Response<Body>>;

/// The listener; it ends with the value.
#[derive(Debug)]
pub(super) struct Front {
    pub(super) address: SocketAddr,
    accept: JoinHandle<()>,
}

struct Way {
    /// The authority of the cloud, with its port.
    cloud: String,
    /// As in the address of the cloud: the port is left out if the address has none.
    host: String,
    /// The cloud speaks https.
    tls: Option<Tls>,
    /// The driver takes the suite for its proxy, not for the cloud.
    is_proxy: bool,
    script: Arc<Script>,
}

impl Front {
    pub(super) async fn open(
        cloud: &Uri,
        tls: Option<Tls>,
        is_proxy: bool,
        script: Arc<Script>,
    ) -> io::Result<Self> {
        if let Some(tls) = &tls {
            trusted(cloud, tls).await?;
        }
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let host = cloud.authority().map(ToString::to_string).unwrap_or_default();
        let way = Way { cloud: authority(cloud).unwrap_or_default(), host, tls, is_proxy, script };
        let way = Arc::new(way);
        let accept = tokio::spawn(async move {
            // They end with the listener.
            let mut connections = JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                while connections.try_join_next().is_some() {}
                connections.spawn(serve(stream, Arc::clone(&way)));
            }
        });
        Ok(Self { address, accept })
    }
}

/// A cloud that the suite does not trust would look like one that never answers. One that does not listen may come later.
async fn trusted(cloud: &Uri, tls: &Tls) -> io::Result<()> {
    let at = authority(cloud).unwrap_or_default();
    let Ok(Ok(stream)) = tokio::time::timeout(DIAL, TcpStream::connect(at)).await else {
        return Ok(());
    };
    let shaken = tokio::time::timeout(DIAL, tls.connect(stream)).await?;
    shaken.map(drop).map_err(|error| {
        io::Error::other(format!(
            "--cloud {cloud}: {error}; if its authority is not one of this system, name the authority's file in SSL_CERT_FILE"
        ))
    })
}

impl Drop for Front {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn serve(stream: TcpStream, way: Arc<Way>) {
    match way.tls.as_ref().filter(|_| !way.is_proxy) {
        None => speak(stream, way).await,
        Some(tls) => {
            // A client that does not trust the suite goes away.
            let Ok(stream) = tls.accept(stream).await else { return };
            speak(stream, Arc::clone(&way)).await;
        }
    }
}

/// HTTP/1.1 with a driver, until either side ends it. A tunnel leads here again, so the type is not told.
fn speak<S>(stream: S, way: Arc<Way>) -> BoxFuture<'static, ()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let way = Arc::clone(&way);
        async move { way.answer(request).await }
    });
    let connection =
        server::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades();
    // A fault ends it with an error.
    connection.map(drop).boxed()
}

/// Host and port.
fn authority(uri: &Uri) -> Option<String> {
    let usual = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    Some(format!("{}:{}", uri.host()?, uri.port_u16().unwrap_or(usual)))
}

fn whole(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed()
}

impl Way {
    async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> Answer {
        if request.method() == Method::CONNECT {
            let to = authority(request.uri());
            let ends_here = self.tls.is_some() && to.as_ref() == Some(&self.cloud);
            return if ends_here { Ok(self.opened(request)) } else { tunnel(request).await };
        }
        let named = authority(request.uri());
        if let Some(other) = named.filter(|it| *it != self.cloud) {
            return Ok(pass(&other, None, request.map(streamed)).await?.map(streamed));
        }
        let (head, body) = request.into_parts();
        let body = bytes(body).await?;
        let path = head.uri.path_and_query().map_or("/", |it| it.as_str());
        let key = script::Request {
            line: format!("{} {path}", head.method),
            body: Bytes::copy_from_slice(&sha2::Sha256::digest(&body)),
        };
        let request = Request::from_parts(head, whole(body));
        match self.script.turn(&key) {
            Turn::Answer(answer) => Ok(answer.map(whole)),
            Turn::Meet(Fault::Refused(status)) => refused(status),
            Turn::Meet(Fault::Reset) => Err(io::Error::other("reset, as asked")),
            Turn::Meet(fault) => self.spoiled(fault, request).await,
            Turn::Pass => {
                let answer = self.pass(request).await?;
                if !self.script.keeps(&key) {
                    return Ok(answer.map(streamed));
                }
                let answer = collected(answer).await?;
                self.script.keep(key, &answer);
                Ok(answer.map(whole))
            }
        }
    }

    async fn pass(&self, mut request: Request<Body>) -> io::Result<Response<Incoming>> {
        if self.tls.is_some() {
            // Servers of many names answer by it.
            let host = HeaderValue::from_str(&self.host).map_err(io::Error::other)?;
            request.headers_mut().insert(HOST, host);
        }
        pass(&self.cloud, self.tls.as_ref(), request).await
    }

    /// A tunnel to the cloud, in which the suite speaks in its place.
    fn opened(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let way = Arc::clone(self);
        tokio::spawn(async move {
            let (Ok(near), Some(tls)) = (hyper::upgrade::on(request).await, &way.tls) else {
                return;
            };
            let Ok(near) = tls.accept(TokioIo::new(near)).await else { return };
            speak(near, Arc::clone(&way)).await;
        });
        Response::new(whole(Bytes::new()))
    }

    /// What is done all the same, and not told.
    async fn spoiled(&self, fault: Fault, request: Request<Body>) -> Answer {
        let over = self.script.over();
        let answer = collected(self.pass(request).await?).await?;
        if fault == Fault::Hang {
            over.await;
        }
        if fault != Fault::Half || answer.body().is_empty() {
            return Err(io::Error::other("lost, as asked"));
        }
        let (mut head, body) = answer.into_parts();
        // Of a length that is told a reader misses the rest.
        head.headers.remove(TRANSFER_ENCODING);
        head.headers.insert(CONTENT_LENGTH, body.len().into());
        let half = body.slice(..body.len() / 2);
        let breaks = async {
            // What was said before is on its way by then.
            tokio::time::sleep(FLUSH).await;
            Err(io::Error::other("half, as asked"))
        };
        let frames = stream::iter([Ok(Frame::data(half))]).chain(stream::once(breaks));
        Ok(Response::from_parts(head, BodyExt::boxed(StreamBody::new(frames))))
    }
}

fn refused(status: u16) -> Answer {
    let text = format!(r#"{{"error": {{"code": {status}, "message": "the suite answers so"}}}}"#);
    let mut answer = Response::new(whole(text.into()));
    *answer.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/json"));
    if status == 429 {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(LATER));
    }
    Ok(answer)
}

/// Sends a request to a cloud, in a connection of its own.
async fn pass(
    authority: &str,
    tls: Option<&Tls>,
    request: Request<Body>,
) -> io::Result<Response<Incoming>> {
    let stream = tokio::time::timeout(DIAL, TcpStream::connect(authority)).await??;
    match tls {
        Some(tls) => send(tokio::time::timeout(DIAL, tls.connect(stream)).await??, request).await,
        None => send(stream, request).await,
    }
}

async fn send<S>(stream: S, mut request: Request<Body>) -> io::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let dialed = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = dialed.map_err(io::Error::other)?;
    tokio::spawn(connection.with_upgrades());
    let path = request.uri().path_and_query().map_or("/", |it| it.as_str());
    *request.uri_mut() = path.parse().map_err(io::Error::other)?;
    sender.send_request(request).await.map_err(io::Error::other)
}

async fn collected(answer: Response<Incoming>) -> io::Result<Response<Bytes>> {
    let (head, body) = answer.into_parts();
    Ok(Response::from_parts(head, bytes(body).await?))
}

async fn bytes(body: Incoming) -> io::Result<Bytes> {
    let whole = Limited::new(body, MOST_BYTES).collect().await;
    Ok(whole.map_err(io::Error::other)?.to_bytes())
}

fn streamed(body: Incoming) -> Body {
    body.map_err(io::Error::other).boxed()
}

/// What a driver says to another program through its proxy, untouched.
async fn tunnel(request: Request<Incoming>) -> Answer {
    let to = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    let mut far = tokio::time::timeout(DIAL, TcpStream::connect(to)).await??;
    tokio::spawn(async move {
        let Ok(near) = hyper::upgrade::on(request).await else { return };
        // Either end ends it.
        let _ended = tokio::io::copy_bidirectional(&mut TokioIo::new(near), &mut far).await;
    });
    Ok(Response::new(whole(Bytes::new())))
}

#[cfg(test)]
mod tests {
    use std::slice;

    use rustls_pki_types::CertificateDer;
    use rustls_pki_types::pem::PemObject as _;

    use super::super::tls::Authority;
    use super::*;

    type Log = Arc<parking_lot::Mutex<Vec<String>>>;

    /// A cloud that counts its changes, and returns the number.
    async fn cloud() -> (SocketAddr, Log) {
        cloud_of(None).await
    }

    async fn cloud_of(tls: Option<Tls>) -> (SocketAddr, Log) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (address, log) = (listener.local_addr().unwrap(), Log::default());
        let (tls, done) = (tls.map(Arc::new), Arc::clone(&log));
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, log) = (tls.clone(), Arc::clone(&done));
                let service = service_fn(move |request: Request<Incoming>| {
                    let host = request.headers().get(HOST).map(|it| it.to_str().unwrap());
                    log.lock().push(format!(
                        "{}{}",
                        host.unwrap_or_default(),
                        request.uri().path()
                    ));
                    let text = format!("done {}", log.lock().len());
                    async move { Ok::<_, io::Error>(Response::new(whole(text.into()))) }
                });
                tokio::spawn(async move {
                    let http = server::Builder::new();
                    let Some(tls) = tls else {
                        return http.serve_connection(TokioIo::new(stream), service).await;
                    };
                    let Ok(stream) = tls.accept(stream).await else { return Ok(()) };
                    http.serve_connection(TokioIo::new(stream), service).await
                });
            }
        });
        (address, log)
    }

    /// The status, and the text if all of it comes.
    async fn ask(to: SocketAddr, target: &str) -> Option<(u16, Option<String>)> {
        let request = Request::get(target).header("host", "cloud").body(whole(Bytes::new()));
        let stream = TcpStream::connect(to).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let answer = sender.send_request(request.unwrap()).await.ok()?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.ok().map(http_body_util::Collected::to_bytes);
        Some((status, body.map(|it| String::from_utf8(it.to_vec()).unwrap())))
    }

    #[tokio::test]
    async fn each_fault_is_what_its_name_says_and_what_was_done_is_done() {
        let (upstream, done) = cloud().await;
        let script = Arc::new(Script::default());
        let uri: Uri = format!("http://{upstream}").parse().unwrap();
        let front = Front::open(&uri, None, false, Arc::clone(&script)).await.unwrap();
        for (fault, answer, does) in [
            (None, Some((200, true)), 1),
            (Some(Fault::Refused(429)), Some((429, true)), 0),
            (Some(Fault::Reset), None, 0),
            (Some(Fault::Lost), None, 1),
            (Some(Fault::Half), Some((200, false)), 1),
        ] {
            script.begin(fault.map(|fault| (1, fault)));
            let before = done.lock().len();
            let came =
                ask(front.address, "/a").await.map(|(status, text)| (status, text.is_some()));
            assert_eq!((came, done.lock().len() - before), (answer, does), "{fault:?}");
            assert_eq!(script.end().requests, ["GET /a"]);
        }
        script.begin(Some((1, Fault::Hang)));
        let hangs = tokio::spawn(ask(front.address, "/a"));
        let before = done.lock().len();
        while done.lock().len() == before {
            tokio::task::yield_now().await;
        }
        assert!(!hangs.is_finished());
        script.end();
        assert_eq!(hangs.await.unwrap(), None, "what hangs ends with the operation");
    }

    #[tokio::test]
    async fn as_a_proxy_it_counts_what_is_for_the_cloud_and_passes_the_rest() {
        let ((upstream, _), (other, asked)) = (cloud().await, cloud().await);
        let script = Arc::new(Script::default());
        let uri: Uri = format!("http://{upstream}").parse().unwrap();
        let front = Front::open(&uri, None, true, Arc::clone(&script)).await.unwrap();
        script.begin(Some((1, Fault::Refused(500))));
        let to_other = ask(front.address, &format!("http://{other}/b")).await;
        assert_eq!(to_other, Some((200, Some("done 1".to_owned()))));
        assert_eq!(*asked.lock(), ["cloud/b"]);
        let refused = ask(front.address, &format!("http://{upstream}/a")).await;
        assert_eq!(refused.map(|(status, _)| status), Some(500));
        assert_eq!(script.end().hit.as_deref(), Some("GET /a"));
    }

    /// Asks over TLS for `/a`, and returns the answer if any comes.
    async fn ask_tls<S>(stream: S, tls: &Tls) -> Option<u16>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = tls.connect(stream).await.unwrap();
        let request = Request::get("/a").header("host", "the-suite").body(whole(Bytes::new()));
        let answer = send(stream, request.unwrap()).await.ok()?;
        Some(answer.status().as_u16())
    }

    #[tokio::test]
    async fn https_ends_here_and_begins_anew_for_its_address_and_for_its_proxy() {
        let theirs = Authority::trusting(&[]).unwrap();
        let certificates = CertificateDer::pem_file_iter(theirs.file()).unwrap();
        let certificates: Vec<_> = certificates.map(Result::unwrap).collect();
        let ours = Authority::trusting(&certificates).unwrap();
        let uri: Uri = "https://localhost".parse().unwrap();
        let (upstream, done) = cloud_of(Some(theirs.of(&uri).unwrap())).await;
        let uri: Uri = format!("https://localhost:{}", upstream.port()).parse().unwrap();
        // Their own authority does not sign for the suite, and that of the suite not for them.
        let driver =
            Authority::trusting(slice::from_ref(&ours.certificate)).unwrap().of(&uri).unwrap();
        let stranger = Authority::trusting(&[]).unwrap().of(&uri).unwrap();
        let script = Arc::new(Script::default());
        let refused = Front::open(&uri, Some(stranger), false, Arc::clone(&script)).await;
        assert!(refused.unwrap_err().to_string().contains("SSL_CERT_FILE"));
        for is_proxy in [false, true] {
            let tls = Some(ours.of(&uri).unwrap());
            let front = Front::open(&uri, tls, is_proxy, Arc::clone(&script)).await.unwrap();
            for (fault, status) in [
                (None, Some(200)),
                (Some(Fault::Refused(500)), Some(500)),
                (Some(Fault::Lost), None),
            ] {
                script.begin(fault.map(|fault| (1, fault)));
                let stream = TcpStream::connect(front.address).await.unwrap();
                let came = if is_proxy {
                    ask_tls(tunnelled(stream, uri.authority().unwrap().as_str()).await, &driver)
                        .await
                } else {
                    ask_tls(stream, &driver).await
                };
                assert_eq!((came, script.end().requests), (status, vec!["GET /a".to_owned()]));
            }
        }
        // A server of many names knows its own.
        assert_eq!(*done.lock(), vec![format!("{}/a", uri.authority().unwrap()); 4]);
    }

    /// A connection through a proxy.
    async fn tunnelled(stream: TcpStream, to: &str) -> TokioIo<hyper::upgrade::Upgraded> {
        let dialed = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = dialed.unwrap();
        tokio::spawn(connection.with_upgrades());
        let request = Request::connect(to).body(whole(Bytes::new())).unwrap();
        let answer = sender.send_request(request).await.unwrap();
        TokioIo::new(hyper::upgrade::on(answer).await.unwrap())
    }
}

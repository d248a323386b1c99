//! A listener before a cloud, which passes requests on and lets some of them meet a fault.
//!
//! A driver reaches it by its address, or as its proxy: then requests for other clouds pass, and so do tunnels, whose
//! content nobody can read.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::header::{CONTENT_LENGTH, RETRY_AFTER, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use sha2::Digest as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::fault::Fault;
use super::script::{self, Script, Turn};

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
    /// The authority of the cloud.
    cloud: String,
    script: Arc<Script>,
}

impl Front {
    pub(super) async fn open(cloud: &Uri, script: Arc<Script>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let way = Arc::new(Way { cloud: authority(cloud).unwrap_or_default(), script });
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

impl Drop for Front {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn serve(stream: TcpStream, way: Arc<Way>) {
    let service = service_fn(|request| {
        let way = Arc::clone(&way);
        async move { way.answer(request).await }
    });
    let connection =
        server::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades();
    // A fault ends it with an error.
    let _ended = connection.await;
}

/// Host and port.
fn authority(uri: &Uri) -> Option<String> {
    Some(format!("{}:{}", uri.host()?, uri.port_u16().unwrap_or(80)))
}

fn whole(body: Bytes) -> Body {
    Full::new(body).map_err(|never| match never {}).boxed()
}

impl Way {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if request.method() == Method::CONNECT {
            return tunnel(request).await;
        }
        let named = authority(request.uri());
        if let Some(other) = named.filter(|it| *it != self.cloud) {
            return Ok(pass(&other, request.map(streamed)).await?.map(streamed));
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
                let answer = pass(&self.cloud, request).await?;
                if !self.script.keeps(&key) {
                    return Ok(answer.map(streamed));
                }
                let answer = collected(answer).await?;
                self.script.keep(key, &answer);
                Ok(answer.map(whole))
            }
        }
    }

    /// What is done all the same, and not told.
    async fn spoiled(&self, fault: Fault, request: Request<Body>) -> Answer {
        let over = self.script.over();
        let answer = collected(pass(&self.cloud, request).await?).await?;
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
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    if status == 429 {
        answer.headers_mut().insert(RETRY_AFTER, http::HeaderValue::from_static(LATER));
    }
    Ok(answer)
}

/// Sends a request to a cloud, in a connection of its own.
async fn pass(authority: &str, mut request: Request<Body>) -> io::Result<Response<Incoming>> {
    let stream = TokioIo::new(tokio::time::timeout(DIAL, TcpStream::connect(authority)).await??);
    let dialed = hyper::client::conn::http1::handshake(stream).await;
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
    use super::*;

    /// A cloud that counts its changes, and returns the number.
    async fn cloud() -> (SocketAddr, Arc<parking_lot::Mutex<Vec<String>>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let (address, done) = (listener.local_addr().unwrap(), Arc::default());
        let log: Arc<parking_lot::Mutex<Vec<String>>> = Arc::clone(&done);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let log = Arc::clone(&log);
                let service = service_fn(move |request: Request<Incoming>| {
                    log.lock().push(request.uri().path().to_owned());
                    let text = format!("done {}", log.lock().len());
                    async move { Ok::<_, io::Error>(Response::new(whole(text.into()))) }
                });
                tokio::spawn(
                    server::Builder::new().serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        (address, done)
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
        let front = Front::open(&uri, Arc::clone(&script)).await.unwrap();
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
        let front = Front::open(&uri, Arc::clone(&script)).await.unwrap();
        script.begin(Some((1, Fault::Refused(500))));
        let to_other = ask(front.address, &format!("http://{other}/b")).await;
        assert_eq!(to_other, Some((200, Some("done 1".to_owned()))));
        assert_eq!(*asked.lock(), ["/b"]);
        let refused = ask(front.address, &format!("http://{upstream}/a")).await;
        assert_eq!(refused.map(|(status, _)| status), Some(500));
        assert_eq!(script.end().hit.as_deref(), Some("GET /a"));
    }
}

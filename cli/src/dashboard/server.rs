//! The listener: files of the page to any page of this computer, what is in the cluster to who shows the token.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::access::{Token, names_loopback};
use super::follow::Hub;
use super::model::{Snapshot, update};
use crate::kinds::Kind;
use crate::terminal;

/// Pages that are open at a time: more than a team has, and each compares its last state with the new one.
const PAGES: usize = 16;
/// Descriptions that are read at a time: each is a dozen requests to the API server.
const DESCRIPTIONS: usize = 4;
/// Connections: a page has its stream and two or three more.
const CONNECTIONS: usize = 4 * PAGES;
/// So long a page may take for an update; then its connection ends, and it begins anew.
const SLOW: Duration = Duration::from_secs(10);
/// A page that hears nothing for longer than this thinks that the connection is gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// The head of a request is a few hundred bytes.
const HEAD: Duration = Duration::from_secs(10);
/// After a connection could not be accepted, usually for lack of descriptors.
const REFUSED: Duration = Duration::from_millis(100);

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// The files of the page. They hold nothing of the cluster.
const FILES: [(&str, &str, &str); 4] = [
    ("/", HTML, include_str!("page.html")),
    ("/page.css", CSS, include_str!("page.css")),
    ("/page.js", SCRIPT, include_str!("page.js")),
    ("/timeline.js", SCRIPT, include_str!("timeline.js")),
];

/// With every answer: the page runs its own files alone, and nothing is kept or told to others.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

type Body = UnsyncBoxBody<Bytes, Infallible>;
type Answer = Response<Body>;

/// What all connections share.
struct Server {
    token: Token,
    hub: Arc<Hub>,
    pages: Arc<Semaphore>,
    descriptions: Semaphore,
}

/// Serves until `end`.
pub(super) async fn serve(
    listener: TcpListener,
    token: Token,
    hub: Arc<Hub>,
    end: CancellationToken,
) {
    let (pages, descriptions) = (Arc::new(Semaphore::new(PAGES)), Semaphore::new(DESCRIPTIONS));
    let server = Arc::new(Server { token, hub, pages, descriptions });
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    while let Some(accepted) = end.run_until_cancelled(listener.accept()).await {
        match (accepted, Arc::clone(&places).try_acquire_owned()) {
            (Ok((stream, _)), Ok(place)) => {
                connections.spawn(connection(
                    Arc::clone(&server),
                    stream,
                    place,
                    end.child_token(),
                ));
            }
            // It is closed.
            (Ok(_), Err(_)) => {}
            (Err(error), _) => {
                tracing::warn!(%error, "the dashboard cannot accept a connection");
                sleep(REFUSED).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

async fn connection(
    server: Arc<Server>,
    stream: TcpStream,
    _place: OwnedSemaphorePermit,
    end: CancellationToken,
) {
    let answers = service_fn(|request| {
        let (server, end) = (Arc::clone(&server), end.clone());
        async move { Ok::<_, Infallible>(server.answer(&request, end).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
    let served = builder.serve_connection(TokioIo::new(stream), answers);
    if let Some(Err(error)) = end.run_until_cancelled(served).await {
        tracing::debug!(%error, "a connection of the dashboard ended");
    }
}

impl Server {
    /// Answers a question; `end` ends its connection.
    async fn answer(&self, request: &Request<Incoming>, end: CancellationToken) -> Answer {
        let mut answer =
            self.answer_of(request.method(), request.uri().path(), request.headers(), end).await;
        for (name, value) in HEADERS {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn answer_of(
        &self,
        method: &Method,
        path: &str,
        headers: &http::HeaderMap,
        end: CancellationToken,
    ) -> Answer {
        if !names_loopback(headers) {
            return told(
                StatusCode::MISDIRECTED_REQUEST,
                "this page is served to names of this computer only, such as 127.0.0.1",
            );
        }
        if method != Method::GET {
            let mut refused =
                told(StatusCode::METHOD_NOT_ALLOWED, "this page is only read, with GET");
            refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
            return refused;
        }
        if let Some((_, media_type, text)) = FILES.iter().find(|file| file.0 == path) {
            return file(media_type, text);
        }
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        if !matches!(parts.as_slice(), ["events"] | ["describe", _, _, _]) {
            return told(StatusCode::NOT_FOUND, "there is no such page");
        }
        if !self.token.is_shown(headers) {
            return told(
                StatusCode::UNAUTHORIZED,
                "the token of the link is missing, or of an earlier start",
            );
        }
        match parts.as_slice() {
            ["describe", kind, namespace, name] => self.description(kind, namespace, name).await,
            _ => self.events(end),
        }
    }

    /// The page of `ostler describe`.
    async fn description(&self, kind: &str, namespace: &str, name: &str) -> Answer {
        let Ok(kind) = kind.parse::<Kind>() else {
            return told(StatusCode::NOT_FOUND, "there is no such kind");
        };
        let _turn = self.descriptions.acquire().await;
        match self.hub.describe(kind, namespace, name).await {
            Ok(page) => file(TEXT, &terminal::lines(&page)),
            Err(error) => told(StatusCode::BAD_GATEWAY, &terminal::line(&format!("{error:#}"))),
        }
    }

    /// The stream of a page: first everything, then what is another one, as often as the page can read it.
    fn events(&self, end: CancellationToken) -> Answer {
        let Ok(page) = Arc::clone(&self.pages).try_acquire_owned() else {
            return told(
                StatusCode::SERVICE_UNAVAILABLE,
                &format!("{PAGES} pages are open; close one"),
            );
        };
        // One update at a time: a slow page gets fewer, and takes no memory.
        let (sender, updates) = mpsc::channel(1);
        let live = self.hub.join();
        tokio::spawn(async move {
            feed(live.snapshots(), sender, end).await;
            drop((live, page));
        });
        let frames = stream::unfold(updates, |mut updates: mpsc::Receiver<Bytes>| async move {
            let update = updates.recv().await?;
            Some((Ok(Frame::data(update)), updates))
        });
        of_type("text/event-stream", StreamBody::new(frames).boxed_unsync())
    }
}

/// Sends a page what it does not know yet until it is gone, or `end`s the connection of one that does not read.
async fn feed(
    mut snapshots: watch::Receiver<Arc<Snapshot>>,
    sender: mpsc::Sender<Bytes>,
    end: CancellationToken,
) {
    let mut known = None::<Arc<Snapshot>>;
    loop {
        let changed = tokio::select! {
            changed = timeout(SIGN_OF_LIFE, snapshots.changed()) => changed,
            () = sender.closed() => return,
        };
        let update = match changed {
            Ok(Err(_ended)) => return,
            Ok(Ok(())) => {
                let now = Arc::clone(&snapshots.borrow_and_update());
                let update = update(known.as_deref(), &now);
                known = Some(now);
                update
            }
            Err(_nothing) => Some(": \n\n".to_owned()),
        };
        if let Some(update) = update {
            match timeout(SLOW, sender.send(update.into())).await {
                Ok(Ok(())) => {}
                Ok(Err(_gone)) => return,
                Err(_slow) => return end.cancel(),
            }
        }
    }
}

fn of_type(media_type: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer
}

fn file(media_type: &'static str, text: &str) -> Answer {
    of_type(media_type, Full::new(Bytes::copy_from_slice(text.as_bytes())).boxed_unsync())
}

/// A refusal, for people.
fn told(status: StatusCode, why: &str) -> Answer {
    let mut answer = file(TEXT, why);
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use http::Uri;
    use kube::Config;
    use ostler_dial::cluster;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::super::Source;
    use super::*;
    use crate::drivers::AdminArgs;

    /// A page of a cluster that does not answer: where it is, and its token.
    async fn page(end: &CancellationToken) -> (std::net::SocketAddr, String) {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let address: Uri = format!("http://{closed}/").parse().unwrap();
        let source = Source {
            client: cluster::client(Config::new(address)).unwrap(),
            cluster: "test".to_owned(),
            namespace: None,
            admin: AdminArgs::default(),
            home: None,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, token) = (listener.local_addr().unwrap(), Token::new());
        let shown = token.expose().to_owned();
        tokio::spawn(serve(listener, token, Arc::new(Hub::new(source)), end.clone()));
        (address, shown)
    }

    /// Asks; of HTTP/1.0 an answer is as it is, and a stream ends with its connection.
    async fn ask(address: std::net::SocketAddr, line: &str, host: &str, token: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request =
            format!("{line} HTTP/1.0\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// What comes until the text is there.
    async fn until(stream: &mut TcpStream, text: &str) -> String {
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains(text) {
            let mut part = [0; 4096];
            match stream.read(&mut part).await.unwrap() {
                0 => break,
                length => said.extend_from_slice(&part[..length]),
            }
        }
        String::from_utf8(said).unwrap()
    }

    #[tokio::test]
    async fn only_questions_with_the_token_to_a_name_of_this_computer_are_answered() {
        let end = CancellationToken::new();
        let _end = end.clone().drop_guard();
        let (address, token) = page(&end).await;
        let own = address.to_string();
        for (line, host, token, status) in [
            ("GET /", own.as_str(), "", 200),
            ("GET /page.js", "localhost:1", "", 200),
            ("GET /", "rebound.example.com", token.as_str(), 421),
            ("GET /events", "rebound.example.com", token.as_str(), 421),
            ("GET /events", own.as_str(), "", 401),
            ("GET /events", own.as_str(), "another", 401),
            ("GET /describe/machine/default/a", own.as_str(), "", 401),
            ("GET /describe/pod/default/a", own.as_str(), token.as_str(), 404),
            ("GET /describe/machine/default/a", own.as_str(), token.as_str(), 502),
            ("GET /api/v1/secrets", own.as_str(), token.as_str(), 404),
            ("POST /events", own.as_str(), token.as_str(), 405),
            ("DELETE /describe/machine/default/a", own.as_str(), token.as_str(), 405),
        ] {
            let mut stream = ask(address, line, host, token).await;
            let said = until(&mut stream, "\r\n\r\n").await;
            assert!(said.starts_with(&format!("HTTP/1.0 {status} ")), "{line} {host}: {said}");
            assert!(said.contains("content-security-policy: default-src 'none'"), "{said}");
            assert!(
                said.contains("referrer-policy: no-referrer")
                    && (token.is_empty() || !said.contains(token)),
                "{said}"
            );
        }
    }

    #[tokio::test]
    async fn a_page_says_what_cannot_be_read_and_of_many_pages_some_are_refused() {
        let end = CancellationToken::new();
        let _end = end.clone().drop_guard();
        let (address, token) = page(&end).await;
        let mut pages = Vec::new();
        for _ in 0..PAGES {
            let mut stream = ask(address, "GET /events", "localhost", &token).await;
            until(&mut stream, "data: {").await;
            pages.push(stream);
        }
        until(&mut pages[0], "machines cannot be read").await;
        let mut more = ask(address, "GET /events", "localhost", &token).await;
        assert!(until(&mut more, "close one").await.contains(" 503 "));
        pages.pop();
        loop {
            let mut again = ask(address, "GET /events", "localhost", &token).await;
            if until(&mut again, "\r\n\r\n").await.contains(" 200 ") {
                break;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_of_a_page_that_does_not_read_ends() {
        let (_snapshots, mut watched) = watch::channel(Arc::<Snapshot>::default());
        watched.mark_changed();
        let (sender, _unread) = mpsc::channel(1);
        let end = CancellationToken::new();
        feed(watched, sender, end.clone()).await;
        assert!(end.is_cancelled());
    }
}

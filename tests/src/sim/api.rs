//! What stands between each party and the API server: delays, refusals, lost answers, late and broken
//! watches. Every request is written into the trace, and every change told to the oracle.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, BodyStream, Collected, Full, StreamBody};
use kube::Client;
use ostler_apiserver::serve::LocalService;
use serde_json::{Value, json};
use tokio::time::sleep;
use tower::{BoxError, Service};

use super::mutation::{LEASE, Mutation};
use super::oracle::{Change, Oracle};
use super::plan::Party;
use super::trace::Trace;
use super::weather::{Luck, Sky};

type Body = UnsyncBoxBody<Bytes, BoxError>;
/// Called with the number of the write that was just done; true: the caller dies now.
pub type OnWrite = Arc<dyn Fn() -> bool + Send + Sync>;

/// One party's way to the API server.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "a service cannot be shown")]
pub struct Front {
    /// Name in the trace.
    pub name: String,
    /// None: nothing goes wrong for this party.
    pub party: Option<Party>,
    /// What goes wrong.
    pub sky: Sky,
    /// Where it is written down.
    pub trace: Trace,
    /// Who judges.
    pub oracle: Oracle,
    /// The server.
    pub api: LocalService,
    /// The safety measure that is missing.
    pub mutation: Option<Mutation>,
    /// Hears of every write that was done.
    pub on_write: Option<OnWrite>,
}

impl Front {
    /// A client for this front.
    pub fn client(self) -> Client {
        Client::new(self, "default")
    }

    async fn delay(&self) {
        let delay = self.party.map_or(Duration::ZERO, |party| self.sky.request_delay(party));
        if !delay.is_zero() {
            sleep(delay).await;
        }
    }

    async fn answer(
        self,
        request: Request<kube::client::Body>,
    ) -> Result<Response<Body>, BoxError> {
        let (mut head, body) = request.into_parts();
        let method = head.method.to_string();
        let path = head.uri.path().to_owned();
        let query = head.uri.query().unwrap_or_default();
        let watch = query.split('&').any(|one| one == "watch=true" || one == "watch=1");
        let mut body = body.collect().await?.to_bytes();
        let lease = self.mutation.and_then(|mutation| mutation.lease(&self.name));
        // The body before a mutation removes a safety measure.
        let asked = body.clone();
        if self.party.is_some() && method != "GET" {
            self.oracle.asks(&self.name, &method, &path, &asked);
        }
        if let Some(mutation) = self.mutation {
            body = mutated(mutation, &method, &path, body);
        }
        if let Some(lease) = lease.as_ref().filter(|_| path.contains("/leases")) {
            head.uri = head.uri.to_string().replace(LEASE, lease).parse()?;
            body = Bytes::from(String::from_utf8_lossy(&body).replace(LEASE, lease));
        }
        self.delay().await;
        let luck = self.party.map_or(Luck::Fine, |party| self.sky.request(party));
        let told = format!("{method} {path}{}", if watch { " watch" } else { "" });
        if let Some(refusal) = self.refusal(luck, &told, watch) {
            return refusal;
        }
        let wrote = body.clone();
        let request = Request::from_parts(head, Full::new(body));
        let answer = self.api.clone().call(request).await.map_err(|never| match never {})?;
        if watch {
            self.trace.note(&self.name, format_args!("{told} -> {}", answer.status().as_u16()));
            return Ok(self.watched(answer));
        }
        let (head, body) = answer.into_parts();
        let body = body.collect().await.map_err(|error| -> BoxError { error.into() })?.to_bytes();
        // Reads of users say nothing about any core.
        let told_of = method != "GET" || self.party.is_some();
        if told_of {
            let sent = sent_to_group(&method, &path, &wrote);
            self.trace.note(&self.name, format_args!("{told} -> {} {sent}", head.status.as_u16()));
        }
        if method != "GET" && head.status.is_success() {
            if let Some(mutation) = self.mutation {
                self.early(mutation, &method, &path, &wrote).await;
            }
            if Oracle::judges(&path) {
                let change = Change::read(&self.name, &method, &path, &asked, &body);
                self.oracle.wrote(&change);
            }
            if self.on_write.as_ref().is_some_and(|on_write| on_write()) {
                self.trace.note(&self.name, "dies with the answer on its way");
                std::future::pending::<()>().await;
            }
        }
        self.delay().await;
        if luck == Luck::Lost {
            self.trace.note(&self.name, format_args!("{told} -> answer lost"));
            return Err(refused("the connection broke"));
        }
        let body = match lease {
            Some(lease) => Bytes::from(String::from_utf8_lossy(&body).replace(&lease, LEASE)),
            None => body,
        };
        Ok(Response::from_parts(
            head,
            Full::new(body).map_err(|never| match never {}).boxed_unsync(),
        ))
    }

    /// The answer to a request that does not get through.
    fn refusal(
        &self,
        luck: Luck,
        told: &str,
        watch: bool,
    ) -> Option<Result<Response<Body>, BoxError>> {
        if luck == Luck::Down {
            self.trace.note(&self.name, format_args!("{told} -> not reached"));
            return Some(Err(refused("the API server cannot be reached")));
        }
        let expired = || watch && self.party.is_some_and(|party| self.sky.expired(party));
        let code = match luck {
            Luck::Code(code) => code,
            Luck::Down | Luck::Fine | Luck::Lost => expired().then_some(410)?,
        };
        self.trace.note(&self.name, format_args!("{told} -> {code}, injected"));
        Some(Ok(status(code)))
    }

    /// An additional write of a mutation.
    async fn early(&self, mutation: Mutation, method: &str, path: &str, wrote: &[u8]) {
        let sent = serde_json::from_slice(wrote).unwrap_or_default();
        let Some((path, patch)) = mutation.early(method, path, &sent) else { return };
        let request = Request::patch(&path)
            .header("content-type", "application/merge-patch+json")
            .body(Full::new(Bytes::from(patch.to_string())));
        let request = request.expect("the path is one that was asked for");
        let Ok(answer) = self.api.clone().call(request).await;
        let body = answer.into_body().collect().await.map(Collected::to_bytes).unwrap_or_default();
        self.oracle.wrote(&Change::read(&self.name, "PATCH", &path, &[], &body));
    }

    /// A watch with late events, which ends at a cut.
    fn watched(self, answer: Response<axum::body::Body>) -> Response<Body> {
        let Some(party) = self.party else {
            return answer.map(|body| body.map_err(Into::into).boxed_unsync());
        };
        let mut cuts = self.sky.cuts(party);
        cuts.borrow_and_update();
        let cut = Box::pin(async move {
            let _gone = cuts.changed().await;
        });
        let sky = self.sky;
        answer.map(move |body| {
            let frames = BodyStream::new(body).then(move |frame| {
                let delay = sky.watch_delay(party);
                async move {
                    if !delay.is_zero() {
                        sleep(delay).await;
                    }
                    frame.map_err(Into::into)
                }
            });
            let frames = frames.take_until(cut);
            StreamBody::new(frames.map(|frame: Result<Frame<Bytes>, BoxError>| frame))
                .boxed_unsync()
        })
    }
}

/// The patch of a set or a deployment, for the timeline.
fn sent_to_group<'a>(method: &str, path: &str, body: &'a [u8]) -> Cow<'a, str> {
    let of_group = path.contains("/machinesets/") || path.contains("/machinedeployments/");
    let shown = if of_group && method == "PATCH" { body } else { &[] };
    String::from_utf8_lossy(shown)
}

fn mutated(mutation: Mutation, method: &str, path: &str, body: Bytes) -> Bytes {
    let Ok(mut sent) = serde_json::from_slice::<Value>(&body) else { return body };
    mutation.write(method, path, &mut sent);
    Bytes::from(sent.to_string())
}

fn refused(why: &'static str) -> BoxError {
    std::io::Error::new(std::io::ErrorKind::ConnectionReset, why).into()
}

fn status(code: u16) -> Response<Body> {
    let reason = match code {
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status: Value = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "metadata": {},
        "message": "injected", "reason": reason, "code": code,
    });
    let body = Full::new(Bytes::from(status.to_string()));
    let mut answer = Response::new(body.map_err(|never| match never {}).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    answer
}

impl Service<Request<kube::client::Body>> for Front {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<kube::client::Body>) -> Self::Future {
        let changes = request.method() != http::Method::GET;
        let late = self.party.filter(|_| changes).and_then(|party| self.sky.request_late(party));
        let answer = self.clone().answer(request);
        let Some(late) = late else { return Box::pin(answer) };
        // The request is on its way: a task of its own, which nobody can cancel.
        let arrives = tokio::spawn(async move {
            sleep(late).await;
            answer.await
        });
        Box::pin(async move { arrives.await? })
    }
}

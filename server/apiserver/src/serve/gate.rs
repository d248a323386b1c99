//! The admission and the turns of requests.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, header::CONTENT_LENGTH};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout, timeout_at},
};

use super::{
    door::{Guest, Refusal},
    kind::Kind,
    limits::{
        BODY, HEARTBEAT_BODY, Limits, NODE_BODY, QUERY, SELECTOR, SMALL_BODY, WORK, WORK_BYTES,
    },
    metrics::{Metrics, Why},
    tenant::{Held, Ledger, Tenant},
};
use crate::{
    auth::{Attributes, Target},
    kinds::{
        field::FieldError,
        identity::Identity,
        query::Query,
        status::{Answer, Status},
    },
    rest::Kept,
};

/// How much of a body is read at most, as a multiple of what may be: a client that still sends would
/// not see the answer.
const DISCARD: usize = 8;
/// When to try again what was refused for lack of room.
const RETRY: u32 = 1;
/// Where nodes renew their Leases.
const NODE_LEASES: &str = "kube-node-lease";

/// The limits of requests. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) limits: Limits,
    ledger: Ledger,
    work: Arc<Semaphore>,
    work_bytes: Arc<Semaphore>,
    metrics: Metrics,
}

/// The class of a request for the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Health and version: costs nothing, and must be answered when nothing else is.
    Public,
    /// The heartbeat of a node.
    Heartbeat,
    Read,
    Write,
    Watch,
}

impl Class {
    fn of(identity: &Identity, attributes: &Attributes, headers: &HeaderMap) -> Self {
        let reads = matches!(attributes.verb.as_str(), "get" | "head" | "list" | "");
        match &attributes.target {
            Target::Path(path)
                if reads && !path.starts_with("/api") && !path.starts_with("/openapi") =>
            {
                Self::Public
            }
            Target::Resource { .. } if is_heartbeat(identity, attributes, headers) => {
                Self::Heartbeat
            }
            Target::Resource { .. } if attributes.verb == "watch" => Self::Watch,
            Target::Path(_) | Target::Resource { .. } if reads => Self::Read,
            Target::Path(_) | Target::Resource { .. } => Self::Write,
        }
    }

    fn seat(self) -> Option<Kind> {
        match self {
            Self::Public => None,
            Self::Heartbeat => Some(Kind::Heartbeat),
            Self::Read => Some(Kind::Read),
            Self::Write => Some(Kind::Write),
            Self::Watch => Some(Kind::Watch),
        }
    }
}

/// Whether a node renews its Lease or tells its status.
fn is_heartbeat(identity: &Identity, attributes: &Attributes, headers: &HeaderMap) -> bool {
    let Target::Resource { group, resource, subresource, namespace, name } = &attributes.target
    else {
        return false;
    };
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let small =
        attributes.verb == "get" || length.is_some_and(|length: usize| length <= HEARTBEAT_BODY);
    let own = identity.node().is_some_and(|node| node == name);
    let renews = matches!(attributes.verb.as_str(), "get" | "update" | "patch");
    let object = match (group.as_str(), resource.as_str(), subresource.as_str()) {
        ("coordination.k8s.io", "leases", "") => namespace == NODE_LEASES,
        ("", "nodes", "" | "status") => true,
        _ => false,
    };
    own && renews && small && object
}

/// Bytes of memory that a request's head takes.
fn head_bytes(request: &Request<Body>) -> usize {
    /// Overhead of a header, as HTTP/2 counts it.
    const HEADER: usize = 32;
    let headers = request.headers().iter();
    let headers = headers.map(|(name, value)| name.as_str().len() + value.len() + HEADER);
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    path.len() + query.len() + headers.sum::<usize>()
}

/// Refuses a query that is longer than any of who is no administrator.
fn check_query(text: &str) -> Answer<()> {
    if text.len() > QUERY {
        let length = text.len();
        let why = format!(
            "the query has {length} bytes, and only an administrator's may have more than {QUERY}"
        );
        return Err(Status::bad_request(why));
    }
    let query = Query::parse(text);
    let long = |name: &&str| query.all(name).any(|selector| selector.len() > SELECTOR);
    let names = ["labelSelector", "fieldSelector"].into_iter().filter(long);
    let errors: Vec<_> = names.map(|name| FieldError::too_long(name, SELECTOR)).collect();
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid_kind("meta.k8s.io", "ListOptions", "", &errors))
}

/// A request that was let in, until its answer is read. Clones are the same one.
#[derive(Clone, Debug)]
pub(super) struct Ticket(Arc<Admitted>);

#[derive(Debug)]
struct Admitted {
    tenant: Arc<Tenant>,
    class: Class,
    /// When it must be done.
    until: Instant,
    _seat: Option<Held>,
    _refusal: Option<Refusal>,
    /// Memory that the answer keeps.
    keeping: Mutex<Option<Keeping>>,
}

/// Counted memory of an answer.
#[derive(Debug)]
struct Keeping {
    kept: Kept,
    _always: Held,
    unwritten: Held,
}

impl Ticket {
    fn new(
        tenant: Arc<Tenant>,
        class: Class,
        until: Instant,
        seat: Option<Held>,
        refusal: Option<Refusal>,
    ) -> Self {
        let keeping = Mutex::default();
        Self(Arc::new(Admitted { tenant, class, until, _seat: seat, _refusal: refusal, keeping }))
    }

    pub(super) fn tenant(&self) -> &Arc<Tenant> {
        &self.0.tenant
    }

    /// Whether it shares what there is with others: heartbeats are few, and health costs nothing.
    fn is_counted(&self) -> bool {
        self.0.tenant.limited && !matches!(self.0.class, Class::Heartbeat | Class::Public)
    }

    pub(super) fn is_watch(&self) -> bool {
        self.0.class == Class::Watch
    }

    pub(super) fn until(&self) -> Instant {
        self.0.until
    }

    /// Whether more of the answer may be written: by who has something to write it of, or may have more.
    pub(super) fn may_write(&self) -> bool {
        let tenant = self.tenant();
        let begun = || self.0.keeping.lock().as_ref().is_some_and(|it| it.kept.unwritten() > 0);
        tenant.may_take(Kind::AnswerBytes) && (tenant.may_take(Kind::UnwrittenBytes) || begun())
    }

    /// Counts what the answer keeps now.
    pub(super) fn settle(&self) {
        if let Some(Keeping { kept, unwritten, .. }) = &mut *self.0.keeping.lock() {
            unwritten.set(kept.unwritten());
        }
    }
}

/// The turn of a request at being worked on, and its bytes.
#[derive(Debug)]
pub(super) struct Turn {
    _bytes: Held,
    _permits: Option<[OwnedSemaphorePermit; 3]>,
}

impl Gate {
    pub(super) fn new(limits: Limits, metrics: Metrics) -> Self {
        Self {
            ledger: Ledger::new(limits.clone(), metrics.clone()),
            work: Arc::new(Semaphore::new(WORK)),
            work_bytes: Arc::new(Semaphore::new(WORK_BYTES)),
            limits,
            metrics,
        }
    }

    /// Lets a request in, or says that there are too many.
    pub(super) fn admit(
        &self,
        guest: &Guest,
        identity: &Identity,
        attributes: &Attributes,
        request: &Request<Body>,
    ) -> Answer<Ticket> {
        let tenant = self.ledger.tenant(&identity.username, !identity.is_master());
        if identity.is_authenticated() {
            guest.introduce(&tenant).map_err(|why| self.refuse(Why::Connections, why))?;
        }
        if tenant.limited {
            check_query(request.uri().query().unwrap_or_default())?;
        }
        let class = Class::of(identity, attributes, request.headers());
        let seat = match class.seat() {
            Some(kind) => {
                Some(tenant.try_take(kind).ok_or_else(|| self.refuse(Why::Requests, BUSY))?)
            }
            None => None,
        };
        let until = Instant::now() + self.time_for(request);
        Ok(Ticket::new(tenant, class, until, seat, None))
    }

    /// Counts what an answer keeps, from now until it is read.
    pub(super) fn keep(&self, ticket: &Ticket, kept: Kept) -> Answer<()> {
        let (tenant, always, unwritten) = (ticket.tenant(), kept.always(), kept.unwritten());
        for (kind, bytes) in [(Kind::WatchBytes, always), (Kind::UnwrittenBytes, unwritten)] {
            if bytes > 0 && !tenant.may_take(kind) {
                return Err(self.refuse(Why::Kept, KEPT));
            }
        }
        let always = tenant.take(Kind::WatchBytes, always);
        let unwritten = tenant.take(Kind::UnwrittenBytes, unwritten);
        *ticket.0.keeping.lock() = Some(Keeping { kept, _always: always, unwritten });
        Ok(())
    }

    /// For the answer to a request that was refused or came without credentials.
    pub(super) fn refused(&self, refusal: Refusal) -> Ticket {
        let tenant = self.ledger.tenant(&Identity::anonymous().username, true);
        let until = Instant::now() + self.limits.stall;
        Ticket::new(tenant, Class::Public, until, None, Some(refusal))
    }

    fn refuse(&self, why: Why, message: &str) -> Box<Status> {
        self.metrics.refused(why);
        Status::busy(message).retry_after(RETRY)
    }

    /// The time limit of the request: its `timeout`, up to the general limit.
    fn time_for(&self, request: &Request<Body>) -> Duration {
        let query = Query::parse(request.uri().query().unwrap_or_default());
        let wanted = query.text("timeout").parse::<jiff::SignedDuration>().ok();
        let wanted = wanted.and_then(|wanted| Duration::try_from(wanted).ok());
        let wanted = wanted.filter(|wanted| !wanted.is_zero());
        wanted.map_or(self.limits.request_time, |wanted| wanted.min(self.limits.request_time))
    }

    /// Reads the body of a request and waits for its turn.
    pub(super) async fn turn(
        &self,
        ticket: &Ticket,
        identity: &Identity,
        request: Request<Body>,
    ) -> Answer<(Turn, Request<Body>)> {
        let held = self.take_head(ticket, head_bytes(&request))?;
        let (head, body) = request.into_parts();
        let limit = match (ticket.tenant().limited, identity.node()) {
            (false, _) => BODY,
            (true, Some(_)) => NODE_BODY,
            (true, None) => SMALL_BODY,
        };
        let (body, bytes) = self.read(ticket, body, limit, held).await?;
        let waits = ticket.is_counted();
        let permits =
            if waits { Some(self.permits(ticket.tenant(), body.len()).await?) } else { None };
        Ok((Turn { _bytes: bytes, _permits: permits }, Request::from_parts(head, Body::from(body))))
    }

    /// Counts the head of a request.
    fn take_head(&self, ticket: &Ticket, bytes: usize) -> Answer<Held> {
        let tenant = ticket.tenant();
        if ticket.is_counted() && !tenant.may_take(Kind::RequestBytes) {
            return Err(self.refuse(Why::Bodies, UNDER_WAY));
        }
        Ok(tenant.take(Kind::RequestBytes, bytes))
    }

    async fn permits(&self, tenant: &Tenant, length: usize) -> Answer<[OwnedSemaphorePermit; 3]> {
        let (own, work) = (Arc::clone(&tenant.work), Arc::clone(&self.work));
        let bytes = u32::try_from(length.clamp(1, WORK_BYTES)).unwrap_or(u32::MAX);
        let permits = async {
            let own = own.acquire_owned().await.ok()?;
            let work = work.acquire_owned().await.ok()?;
            let bytes = Arc::clone(&self.work_bytes).acquire_many_owned(bytes).await.ok()?;
            Some([own, work, bytes])
        };
        let permits = timeout(self.limits.turn, permits).await.ok().flatten();
        permits.ok_or_else(|| self.refuse(Why::Requests, BUSY))
    }

    /// Reads a body within the time limit. Bytes beyond the size limit are read and thrown away.
    async fn read(
        &self,
        ticket: &Ticket,
        mut body: Body,
        limit: usize,
        mut held: Held,
    ) -> Answer<(Bytes, Held)> {
        let head = held.amount();
        let (mut kept, mut seen) = (BytesMut::new(), 0);
        let end = Instant::now() + self.limits.body_time;
        loop {
            let pause = Instant::now() + self.limits.body_pause;
            let frame = timeout_at(end.min(pause), body.frame()).await.map_err(|_| {
                self.metrics.refused(Why::SlowBody);
                Status::body_timeout()
            })?;
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| {
                Status::bad_request(format!("unable to read the body: {error}"))
            })?;
            let Ok(data) = frame.into_data() else { continue };
            seen += data.len();
            if seen > DISCARD * limit {
                break;
            }
            if seen > limit {
                kept = BytesMut::new();
                held.set(head);
            } else if ticket.tenant().may_take(Kind::RequestBytes) {
                held.grow(data.len());
                kept.extend_from_slice(&data);
            } else {
                return Err(self.refuse(Why::Bodies, UNDER_WAY));
            }
        }
        if seen > limit {
            self.metrics.refused(Why::LargeBody);
            return Err(Status::too_large(limit));
        }
        Ok((kept.freeze(), held))
    }

    /// Does the work of a request in the time that it has.
    pub(super) async fn in_time<T>(
        &self,
        ticket: &Ticket,
        work: impl Future<Output = Answer<T>>,
    ) -> Answer<T> {
        if ticket.is_watch() {
            return work.await;
        }
        timeout_at(ticket.until(), work).await.unwrap_or_else(|_| {
            self.metrics.refused(Why::SlowRequest);
            Err(Status::request_timeout())
        })
    }

    /// Whether there is room for an answer that is there as a whole.
    pub(super) fn check_answer(&self, ticket: &Ticket, length: u64) -> Answer<()> {
        if length <= SMALL_ANSWER || ticket.tenant().may_take(Kind::AnswerBytes) {
            return Ok(());
        }
        Err(self.refuse(Why::Answers, "too many bytes of answers are not read"))
    }
}

/// Answers of this length are always given: a Status, a health check.
const SMALL_ANSWER: u64 = 4 << 10;

const UNDER_WAY: &str = "too many bytes of requests are under way";
const KEPT: &str = "too many bytes are kept for watches and answers that are not read";
const BUSY: &str = "the server is too busy with requests of this kind, please try again later";

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Method;
    use http_body_util::StreamBody;

    use super::*;
    use crate::serve::{door::Door, limits::ServeOptions};

    struct Hall {
        gate: Gate,
        guest: Arc<Guest>,
    }

    impl Hall {
        async fn with(limits: Limits) -> Self {
            let metrics = Metrics::new();
            let door = Door::new(ServeOptions::default(), metrics.clone());
            let guest = door.admit([127, 0, 0, 1].into()).await.unwrap();
            Self { gate: Gate::new(limits, metrics), guest }
        }

        fn ask(&self, who: &Identity, method: &Method, uri: &str, length: usize) -> Answer<Ticket> {
            let request = request(method, uri, length);
            let (path, query) = (request.uri().path(), request.uri().query());
            let attributes = Attributes::of(method, path, query);
            self.gate.admit(&self.guest, who, &attributes, &request)
        }
    }

    fn request(method: &Method, uri: &str, length: usize) -> Request<Body> {
        let request = Request::builder().method(method).uri(uri);
        request.header(CONTENT_LENGTH, length).body(Body::empty()).unwrap()
    }

    fn node(name: &str) -> Identity {
        Identity::user(&format!("system:node:{name}"), vec!["system:nodes".to_owned()])
    }

    const PODS: &str = "/api/v1/pods";
    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";

    #[tokio::test]
    async fn who_asks_for_too_much_is_refused_and_heartbeats_and_others_are_not() {
        let limits = Limits { reads: 16, writes: 8, watches: 8, ..Limits::default() };
        let hall = Hall::with(limits).await;
        let one = node("n1");
        let mut held = vec![
            hall.ask(&one, &Method::GET, PODS, 0).unwrap(),
            hall.ask(&one, &Method::GET, PODS, 0).unwrap(),
            hall.ask(&one, &Method::POST, PODS, 10).unwrap(),
            hall.ask(&one, &Method::GET, "/api/v1/pods?watch=true", 0).unwrap(),
        ];
        for (method, uri) in
            [(Method::GET, PODS), (Method::POST, PODS), (Method::GET, "/api/v1/pods?watch=1")]
        {
            let refused = hall.ask(&one, &method, uri, 10).unwrap_err();
            assert_eq!(refused.code, 429, "{uri}");
            assert_eq!(refused.details.unwrap().retry_after_seconds, RETRY);
        }
        for (method, uri) in [
            (Method::PUT, LEASE),
            (Method::PATCH, "/api/v1/nodes/n1/status"),
            (Method::GET, "/api/v1/nodes/n1"),
            (Method::GET, "/readyz"),
        ] {
            held.push(hall.ask(&one, &method, uri, 1000).unwrap());
        }
        // What looks like a heartbeat and is none takes a place like all else.
        for (uri, length) in [(LEASE, HEARTBEAT_BODY + 1), ("/api/v1/nodes/n2/status", 100)] {
            assert_eq!(hall.ask(&one, &Method::PUT, uri, length).unwrap_err().code, 429, "{uri}");
        }
        assert!(hall.ask(&node("n2"), &Method::GET, PODS, 0).is_ok());
        assert!(hall.ask(&Identity::admin(), &Method::GET, PODS, 0).is_ok());
        held.clear();
        assert!(hall.ask(&one, &Method::GET, PODS, 0).is_ok());
    }

    #[tokio::test]
    async fn heartbeats_of_one_node_are_few() {
        let hall = Hall::with(Limits::default()).await;
        let asked: Vec<_> =
            (0..10).map(|_| hall.ask(&node("n1"), &Method::PUT, LEASE, 9)).collect();
        assert_eq!(
            asked.iter().filter(|one| one.is_ok()).count(),
            crate::serve::limits::HEARTBEATS
        );
    }

    fn frames(count: usize, length: usize) -> Body {
        let frame = move |_| Ok::<_, Infallible>(http_body::Frame::data(vec![b' '; length].into()));
        Body::new(StreamBody::new(futures::stream::iter((0..count).map(frame))))
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_a_size_a_time_and_its_share_of_all_bytes() {
        let hall = Hall::with(Limits { request_bytes: 8 << 10, ..Limits::default() }).await;
        let ticket = |who: &Identity| hall.ask(who, &Method::POST, PODS, 9).unwrap();
        let read = async |who: &Identity, body: Body| {
            let request = Request::new(body);
            hall.gate.turn(&ticket(who), who, request).await.map_or_else(|no| no.code, |_| 200)
        };
        let (admin, one) = (Identity::admin(), node("n1"));
        let booting = Identity::user("system:bootstrap:abcdef", Vec::new());
        assert_eq!(read(&one, frames(1, 2000)).await, 200);
        assert_eq!(read(&one, frames(2, 2000)).await, 429, "the share is 1 KiB");
        assert_eq!(read(&admin, frames(2, 1 << 20)).await, 200);
        assert_eq!(read(&admin, frames(4, 1 << 20)).await, 413);
        assert_eq!(read(&one, frames(1, NODE_BODY + 1)).await, 413);
        assert_eq!(read(&booting, frames(1, SMALL_BODY + 1)).await, 413);
        let never = StreamBody::new(futures::stream::pending::<
            Result<http_body::Frame<Bytes>, Infallible>,
        >());
        assert_eq!(read(&admin, Body::new(never)).await, 408);
        // One byte every second is progress, but not for ever.
        let slow = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, Infallible>(http_body::Frame::data(Bytes::from_static(b" "))), ()))
        });
        assert_eq!(read(&admin, Body::new(StreamBody::new(slow))).await, 408);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_ends_in_its_time_and_a_watch_does_not() {
        let hall = Hall::with(Limits::default()).await;
        let admin = Identity::admin();
        let begun = Instant::now();
        for (uri, seconds) in
            [(PODS, 60), ("/api/v1/pods?timeout=5s", 5), ("/api/v1/pods?timeout=9h", 60)]
        {
            let (ticket, begun) = (hall.ask(&admin, &Method::GET, uri, 0).unwrap(), Instant::now());
            let done = hall.gate.in_time::<()>(&ticket, std::future::pending()).await;
            assert_eq!(done.unwrap_err().code, 504);
            assert_eq!(begun.elapsed().as_secs(), seconds, "{uri}");
        }
        let ticket = hall.ask(&admin, &Method::GET, "/api/v1/pods?watch=1&timeout=1s", 0).unwrap();
        let late = async {
            tokio::time::sleep(Duration::from_secs(90)).await;
            Ok(())
        };
        assert!(hall.gate.in_time(&ticket, late).await.is_ok());
        assert!(begun.elapsed() > Duration::from_secs(200));
    }

    #[tokio::test(start_paused = true)]
    async fn the_others_have_their_turn_while_one_waits_for_its_own() {
        let hall = Hall::with(Limits::default()).await;
        let turn = async |who: &Identity| {
            let ticket = hall.ask(who, &Method::POST, PODS, 9).unwrap();
            let turn = hall.gate.turn(&ticket, who, Request::new(frames(1, 9))).await;
            turn.map(|(turn, _)| (turn, ticket))
        };
        let one = node("n1");
        let mut held = Vec::new();
        for _ in 0..crate::serve::limits::OWN_WORK {
            held.push(turn(&one).await.unwrap());
        }
        assert_eq!(turn(&one).await.unwrap_err().code, 429, "after a short wait");
        assert!(turn(&node("n2")).await.is_ok());
        held.clear();
        assert!(turn(&one).await.is_ok());
    }
}

//! The way of a request: authentication, authorization, then its handler.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::body::Body;
use futures::FutureExt;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header::CACHE_CONTROL};
use tokio::time::Instant;

use crate::{
    auth::{Attributes, Auth, Review, certificates::ClientCertificate, refuse_impersonation},
    clock::Clock,
    context::Context,
    kinds::{
        identity::Identity,
        status::{Answer, Status},
    },
    rest::{Api, Encoding, body, path, read, respond},
    store::{Store, secret::Secret},
};

use super::{
    audit::{Audit, Entry},
    backup::Backups,
    counted::Asker,
    door::Guest,
    gate::{Gate, Ticket},
    health,
    limits::Limits,
    metrics::Metrics,
};

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Everything between a connection and the handlers. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    auth: Auth,
    api: Api,
    backups: Backups,
    gate: Gate,
    metrics: Metrics,
    audit: Audit,
    store: Store,
}

/// Where a request comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// This process: the identity is given.
    Process(Identity),
    /// A connection: the certificate that was shown on it and the request's own credentials count.
    Connection(Visit),
}

/// The connection of a request.
#[derive(Clone, Debug)]
pub(super) struct Visit {
    pub(super) guest: Arc<Guest>,
    pub(super) certificate: Option<Arc<ClientCertificate>>,
}

impl Pipeline {
    pub(super) fn new(auth: Auth, context: &Context, limits: Limits) -> Self {
        let (api, backups) = (Api::new(context), Backups::new(context));
        let (metrics, audit, store) = (Metrics::new(), Audit::new(), context.store.clone());
        let gate = Gate::new(limits, metrics.clone());
        Self { auth, api, backups, gate, metrics, audit, store }
    }

    /// The limits of requests that come over the network.
    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    pub(super) fn admin_token(&self) -> &Secret {
        self.auth.admin_token()
    }

    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The clock that certificates are judged by.
    pub(super) fn clock(&self) -> Clock {
        self.auth.clock()
    }

    /// Answers a request.
    pub(super) async fn handle(
        &self,
        origin: Origin,
        mut request: Request<Body>,
    ) -> Response<Body> {
        if let Some(uri) = path::of_watch(request.uri()) {
            *request.uri_mut() = uri;
        }
        let uri = request.uri();
        let attributes = Attributes::of(request.method(), uri.path(), uri.query());
        let entry = Entry::of(&attributes, &request);
        let asker = Asker::of(&attributes, &request);
        let audit_id = uuid::Uuid::new_v4().to_string();
        let mut who = None;
        let verb = attributes.verb.clone();
        let begun = Instant::now();
        let _in_flight = self.metrics.begun();
        let handled = AssertUnwindSafe(self.answer(origin, attributes, request, &mut who));
        let mut response = match handled.catch_unwind().await {
            Ok(Ok(response)) => response,
            Ok(Err(refusal)) => respond::status(Encoding::Json, &refusal),
            Err(_) => {
                tracing::error!(verb, "a request handler panicked");
                respond::status(Encoding::Json, &Status::internal("the request handler failed"))
            }
        };
        self.metrics.answered(&asker, response.status(), begun.elapsed());
        self.audit.record(&entry, who.as_ref(), &response, &audit_id);
        complete(&mut response, &audit_id);
        response
    }

    async fn answer(
        &self,
        origin: Origin,
        attributes: Attributes,
        request: Request<Body>,
        who: &mut Option<Identity>,
    ) -> Answer<Response<Body>> {
        match origin {
            Origin::Process(identity) => {
                *who = Some(identity.clone());
                self.auth.check(&identity, &attributes)?;
                self.perform(identity, attributes, request).await
            }
            Origin::Connection(visit) => self.admitted(&visit, attributes, request, who).await,
        }
    }

    /// The way of a request from the network: it shares what there is with all others.
    async fn admitted(
        &self,
        visit: &Visit,
        attributes: Attributes,
        request: Request<Body>,
        who: &mut Option<Identity>,
    ) -> Answer<Response<Body>> {
        let identity = self.auth.authenticate(request.headers(), visit.certificate.as_deref())?;
        *who = Some(identity.clone());
        refuse_impersonation(request.headers())?;
        let ticket = self.gate.admit(&visit.guest, &identity, &attributes, &request)?;
        // Before the body is read: a forbidden request need not send it.
        self.auth.check(&identity, &attributes)?;
        let done = async {
            let (_turn, request) = self.gate.turn(&ticket, &identity, request).await?;
            self.perform(identity, attributes, request).await
        };
        let mut response = self.gate.in_time(&ticket, done).await?;
        if let Some(length) = http_body::Body::size_hint(response.body()).exact() {
            self.gate.check_answer(&ticket, length)?;
        }
        if let Some(kept) = response.extensions_mut().remove() {
            self.gate.keep(&ticket, kept)?;
        }
        response.extensions_mut().insert::<Ticket>(ticket);
        Ok(response)
    }

    /// Does what `identity` may do.
    async fn perform(
        &self,
        identity: Identity,
        attributes: Attributes,
        mut request: Request<Body>,
    ) -> Answer<Response<Body>> {
        if let Some(response) = health::answer(&attributes, request.uri().query(), &self.store) {
            return Ok(response);
        }
        if let Some(response) = self.metrics.answer(&attributes) {
            return Ok(response);
        }
        if let Some(response) = self.backups.answer(&identity, &attributes) {
            return Ok(response);
        }
        if let Some(review) = Review::of(&attributes) {
            return self.review(review, &identity, request).await;
        }
        request.extensions_mut().insert(identity);
        Ok(self.api.handle(request).await)
    }

    async fn review(
        &self,
        review: Review,
        identity: &Identity,
        request: Request<Body>,
    ) -> Answer<Response<Body>> {
        let (head, body) = request.into_parts();
        let body = read(body).await?;
        if head.method != Method::POST {
            return Err(Status::method_not_allowed());
        }
        let body = body::decode(&head.headers, &body)?.value;
        let review = review.answer(&self.auth, identity, body)?;
        Ok(respond::document(Encoding::Json, StatusCode::CREATED, &review))
    }
}

/// The headers that every answer has.
fn complete(response: &mut Response<Body>, audit_id: &str) {
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    if let Ok(id) = HeaderValue::from_str(audit_id) {
        headers.entry(AUDIT_ID).or_insert(id);
    }
}

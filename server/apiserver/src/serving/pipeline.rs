//! The way of a request: who, may they, and then to whom it belongs.

use std::{panic::AssertUnwindSafe, sync::Arc};

use axum::body::Body;
use futures::FutureExt;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode, header::CACHE_CONTROL};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::Instant;

use crate::{
    auth::{Attributes, Auth, Identity, Review, Secret, Target},
    certificates::ClientCertificate,
    clock::Clock,
    context::Context,
    rest::Api,
    status::{Answer, Status},
};

use super::{answer, metrics::Metrics};

/// The largest request body, as kube-apiserver's.
pub(super) const BODY_LIMIT: usize = 3 << 20;

const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Everything between a connection and the handlers. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    auth: Auth,
    api: Api,
    metrics: Metrics,
}

/// Where a request comes from.
#[derive(Clone, Debug)]
pub(super) enum Origin {
    /// This process: it is known who asks.
    Process(Identity),
    /// A connection: the certificate that was shown on it and the request's own credentials count.
    Connection(Option<Arc<ClientCertificate>>),
}

impl Pipeline {
    pub(super) fn new(auth: Auth, context: &Context) -> Self {
        Self { auth, api: Api::new(context), metrics: Metrics::new() }
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
    pub(super) async fn handle(&self, origin: Origin, request: Request<Body>) -> Response<Body> {
        let uri = request.uri();
        let attributes = Attributes::of(request.method(), uri.path(), uri.query());
        let verb = attributes.verb.clone();
        let begun = Instant::now();
        let _in_flight = self.metrics.begun();
        let handled = AssertUnwindSafe(self.answer(origin, attributes, request));
        let mut response = match handled.catch_unwind().await {
            Ok(Ok(response)) => response,
            Ok(Err(refusal)) => answer::status(&refusal),
            Err(_) => {
                tracing::error!(verb, "a request handler panicked");
                answer::status(&Status::internal("the request handler failed"))
            }
        };
        self.metrics.answered(&verb, response.status(), begun.elapsed());
        complete(&mut response);
        response
    }

    async fn answer(
        &self,
        origin: Origin,
        attributes: Attributes,
        mut request: Request<Body>,
    ) -> Answer<Response<Body>> {
        let identity = match origin {
            Origin::Process(identity) => identity,
            Origin::Connection(certificate) => {
                self.auth.authenticate(request.headers(), certificate.as_deref())?
            }
        };
        self.auth.check(&identity, &attributes)?;
        if let Some(response) = health(&attributes) {
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
        let body = Limited::new(body, BODY_LIMIT).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                Status::too_large(BODY_LIMIT)
            } else {
                Status::bad_request(error.to_string())
            }
        })?;
        let body = body.to_bytes();
        let review = review.answer(&self.auth, identity, &head.method, &head.headers, &body)?;
        Ok(answer::json(StatusCode::CREATED, &review))
    }
}

/// The headers that every answer has.
fn complete(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    let id = uuid::Uuid::new_v4().to_string();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.entry(AUDIT_ID).or_insert(id);
    }
}

/// The one check that there is: the process answers.
const CHECK: &str = "ping";

/// Answers a health check, if it is one.
fn health(attributes: &Attributes) -> Option<Response<Body>> {
    let Target::Path(path) = &attributes.target else { return None };
    let mut parts = path.trim_end_matches('/').splitn(3, '/').skip(1);
    let endpoint = parts.next().filter(|part| ["healthz", "livez", "readyz"].contains(part))?;
    let healthy = match parts.next() {
        None => true,
        Some(check) => check == CHECK,
    };
    tracing::trace!(endpoint, healthy, "health check");
    Some(if healthy {
        answer::text(StatusCode::OK, "ok")
    } else {
        answer::text(StatusCode::NOT_FOUND, "404 page not found\n")
    })
}

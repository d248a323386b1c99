//! The server as a service in this process.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header::USER_AGENT};
use tower::Service;

use crate::kinds::identity::Identity;

use super::pipeline::{Origin, Pipeline};

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// Who writes, as managedFields and metrics name it, unless a request says so itself.
const AGENT: &str = concat!("ostler/", env!("CARGO_PKG_VERSION"));

/// A tower service that answers as the API server does, for callers in this process:
/// every request acts as `Identity::admin`.
#[derive(Clone, Debug)]
pub struct LocalService {
    pipeline: Pipeline,
}

impl LocalService {
    pub(super) fn new(pipeline: Pipeline) -> Self {
        Self { pipeline }
    }
}

impl<B> Service<Request<B>> for LocalService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        answer(self.pipeline.clone(), request.map(Body::new))
    }
}

/// Not generic, so that it is compiled here and not once more in each crate that has a client.
fn answer(pipeline: Pipeline, mut request: Request<Body>) -> Answer {
    request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
    let origin = Origin::Process(Identity::admin());
    Box::pin(async move { Ok(pipeline.handle(origin, request).await) })
}

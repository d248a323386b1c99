//! gzip for large answers to clients that ask for it.

use axum::body::Body;
use http::{
    HeaderValue, Request, Response,
    header::{CONTENT_ENCODING, VARY},
};
use tower::{Service, ServiceBuilder};
use tower_http::compression::{CompressionBody, CompressionLayer, Predicate};

use crate::rest::Streamed;

/// Answers smaller than this are not worth the work; kube-apiserver's threshold.
const THRESHOLD: u64 = 128 << 10;

/// Answers that are large, and have an end: watches have none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Large;

/// Marks an answer that is never compressed: a compressor takes more memory than most answers, and only administrators
/// get answers large enough to pay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plain;

impl Predicate for Large {
    fn should_compress<B: http_body::Body>(&self, response: &Response<B>) -> bool {
        let extensions = response.extensions();
        let large = response.body().size_hint().exact().is_some_and(|length| length >= THRESHOLD);
        extensions.get::<Plain>().is_none() && (large || extensions.get::<Streamed>().is_some())
    }
}

/// Compresses the large answers of a service.
pub(super) fn large_answers<S, B>(
    service: S,
) -> impl Service<Request<B>, Response = Response<CompressionBody<Body>>, Error = S::Error, Future: Send>
+ Clone
where
    S: Service<Request<B>, Response = Response<Body>, Future: Send> + Clone,
{
    ServiceBuilder::new()
        .map_response(|mut response: Response<CompressionBody<Body>>| {
            if response.headers().contains_key(CONTENT_ENCODING) {
                let vary = HeaderValue::from_static("Accept-Encoding");
                response.headers_mut().insert(VARY, vary);
            }
            response
        })
        .layer(CompressionLayer::new().compress_when(Large))
        .service(service)
}

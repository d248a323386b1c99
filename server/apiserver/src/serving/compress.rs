//! gzip for large answers to clients that ask for it.

use axum::body::Body;
use http::{
    HeaderValue, Request, Response,
    header::{CONTENT_ENCODING, VARY},
};
use tower::{Service, ServiceBuilder};
use tower_http::compression::{CompressionBody, CompressionLayer, Predicate};

/// Answers smaller than this are not worth the work; kube-apiserver's threshold.
const THRESHOLD: u64 = 128 << 10;

/// Answers whose whole length is known and large. Watches are none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Large;

impl Predicate for Large {
    fn should_compress<B: http_body::Body>(&self, response: &Response<B>) -> bool {
        response.body().size_hint().exact().is_some_and(|length| length >= THRESHOLD)
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

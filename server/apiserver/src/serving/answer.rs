//! Answers that are no objects, as HTTP responses.

use axum::body::Body;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CONTENT_TYPE, RETRY_AFTER},
};
use serde::Serialize;

use crate::status::Status;

/// A JSON document.
pub(super) fn json(code: StatusCode, document: &impl Serialize) -> Response<Body> {
    let mut text = serde_json::to_vec(document).unwrap_or_default();
    text.push(b'\n');
    typed(code, HeaderValue::from_static("application/json"), text)
}

/// A plain text, as health checks answer.
pub(super) fn text(code: StatusCode, text: impl Into<String>) -> Response<Body> {
    let media_type = HeaderValue::from_static("text/plain; charset=utf-8");
    typed(code, media_type, text.into().into_bytes())
}

/// A refusal.
pub(super) fn status(status: &Status) -> Response<Body> {
    let mut response = json(status.http_code(), status);
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if seconds > 0 {
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

fn typed(code: StatusCode, media_type: HeaderValue, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

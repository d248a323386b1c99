//! From values to HTTP answers.

use axum::body::Body;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use serde_json::Value;

use super::negotiate::Encoding;
use crate::status::Status;

/// A document in an encoding.
pub(crate) fn document(
    encoding: Encoding,
    code: StatusCode,
    document: &impl Serialize,
) -> Response<Body> {
    let text = match encoding {
        Encoding::Json => serde_json::to_vec(document).map(|mut text| {
            text.push(b'\n');
            text
        }),
        Encoding::PrettyJson => serde_json::to_vec_pretty(document),
        Encoding::Yaml => return yaml(code, document),
    };
    typed(code, encoding, text.unwrap_or_default())
}

fn yaml(code: StatusCode, document: &impl Serialize) -> Response<Body> {
    let text = serde_saphyr::to_string(document).unwrap_or_default();
    typed(code, Encoding::Yaml, text.into_bytes())
}

/// A document whose compact JSON text is there already.
pub(crate) fn text(encoding: Encoding, code: StatusCode, mut text: Vec<u8>) -> Response<Body> {
    match encoding {
        Encoding::Json => {
            text.push(b'\n');
            typed(code, encoding, text)
        }
        Encoding::PrettyJson | Encoding::Yaml => {
            let value: Value = serde_json::from_slice(&text).unwrap_or_default();
            document(encoding, code, &value)
        }
    }
}

/// A Status, with the headers that repeat what it says.
pub(crate) fn status(encoding: Encoding, status: &Status) -> Response<Body> {
    let mut response = document(encoding, status.http_code(), status);
    let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    if seconds > 0 {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Nothing is here: the answer for addresses outside the API.
pub(crate) fn no_page() -> Response<Body> {
    let mut response = Response::new(Body::from("404 page not found\n"));
    *response.status_mut() = StatusCode::NOT_FOUND;
    let headers = response.headers_mut();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, plain);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Adds warnings to an answer, each as a header of its own.
pub(crate) fn warn(response: &mut Response<Body>, warnings: &[String]) {
    for warning in warnings {
        let text = format!("299 - {}", crate::field::quote(warning));
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
}

fn typed(code: StatusCode, encoding: Encoding, text: Vec<u8>) -> Response<Body> {
    let media_type = match encoding {
        Encoding::Json | Encoding::PrettyJson => "application/json",
        Encoding::Yaml => "application/yaml",
    };
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = code;
    let value = HeaderValue::from_static(media_type);
    response.headers_mut().insert(header::CONTENT_TYPE, value);
    response
}

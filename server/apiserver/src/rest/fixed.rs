//! Answers besides resources: version, discovery, schemas.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use serde_json::{Value, json};

use super::{negotiate, respond};
use crate::kinds::{
    Registry, discovery, document::Document, openapi, query::Query, status::Status,
};

/// The Kubernetes version of this server. Clients derive features from it.
const VERSION: &str = "v1.33.0+ostler";

/// Answers a request for one of them; none if the request is for something else.
pub(crate) fn answer(head: &Parts, query: &Query, registry: &Registry) -> Option<Response<Body>> {
    let path = head.uri.path();
    let encoding = negotiate::error_encoding(&head.headers, query);
    let reading = matches!(head.method, Method::GET | Method::HEAD);
    let accept = head.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if discovery::is_discovery(path) {
        if !reading {
            return Some(respond::status(encoding, &Status::method_not_allowed()));
        }
        return Some(match discovery::answer(registry, path, accept) {
            discovery::Found::Document(found) => document(&head.headers, &found, false),
            discovery::Found::UnknownVersion => {
                respond::status(encoding, &Status::no_such_resource())
            }
            discovery::Found::Nothing => respond::no_page(),
        });
    }
    if path == "/openapi/v3" || path.starts_with("/openapi/v3/") {
        let found = openapi::answer(registry, path, head.uri.query());
        return Some(found.map_or_else(
            || nothing(StatusCode::NOT_FOUND),
            |found| document(&head.headers, &found.document, found.immutable),
        ));
    }
    if path == "/openapi/v2" {
        let found = openapi::v2::answer(registry, accept);
        return Some(found.map_or_else(
            || nothing(StatusCode::NOT_ACCEPTABLE),
            |found| document(&head.headers, found, false),
        ));
    }
    match path.trim_end_matches('/') {
        "/version" => Some(respond::document(encoding, StatusCode::OK, &version())),
        "" => Some(respond::document(encoding, StatusCode::OK, &roots())),
        _ => None,
    }
}

/// There is no such OpenAPI document: Kubernetes says so with nothing but the code.
fn nothing(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    response
}

/// A document of discovery, or the word that the client has it already.
fn document(headers: &HeaderMap, found: &Document, immutable: bool) -> Response<Body> {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let unchanged = found.etag.is_some() && known == found.etag.as_deref();
    let body = if unchanged { Body::empty() } else { Body::from(found.bytes.clone()) };
    let mut response = Response::new(body);
    if unchanged {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    if let (false, Ok(media_type)) = (unchanged, HeaderValue::from_str(&found.content_type)) {
        headers.insert(header::CONTENT_TYPE, media_type);
    }
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if immutable {
        let forever = HeaderValue::from_static("public, immutable");
        headers.insert(header::CACHE_CONTROL, forever);
    }
    if let Some(tag) = found.etag.as_deref().and_then(|tag| HeaderValue::from_str(tag).ok()) {
        headers.insert(header::ETAG, tag);
    }
    response
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "33",
        "gitVersion": VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn roots() -> Value {
    json!({"paths": [
        "/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"
    ]})
}

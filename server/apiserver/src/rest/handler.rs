//! The way of a request: from its address to what it names, then to what it asks for.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::BodyExt;
use serde_json::Value;

use super::{
    Api, Target,
    body::LIMIT,
    call::Call,
    fixed, negotiate, path,
    query::Query,
    resolve::{Missing, resolve},
    respond, stored,
};
use crate::status::{Answer, Status};

/// How much of a body is read at most, be it only to throw it away.
const DISCARD: usize = 8 * LIMIT;

impl Api {
    /// Answers a request. Who asks was found, and whether they may was checked, before.
    pub async fn handle(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let registry = self.registry();
        let path = head.uri.path();
        if let Some(response) = fixed::answer(&head, &query, &registry) {
            return response;
        }
        let encoding = negotiate::error_encoding(&head.headers, &query);
        let target = match path::parse(path).map(|path| resolve(&registry, &path, &head.method)) {
            Some(Ok(target)) => target,
            Some(Err(Missing::Status(status))) => return respond::status(encoding, &status),
            Some(Err(Missing::Page)) | None => return respond::no_page(),
        };
        let view = match negotiate::negotiate(&head.headers, &query) {
            Ok(view) => view,
            Err(status) => return respond::status(encoding, &status),
        };
        let body = match read(body).await {
            Ok(body) => body,
            Err(status) => return respond::status(encoding, &status),
        };
        let (query, headers, warnings) = (&query, &head.headers, Vec::new());
        let method = head.method.clone();
        let mut call = Call { api: self, target, method, query, headers, body, view, warnings };
        let mut response = match call.answer().await {
            Ok(response) => response,
            Err(status) => respond::status(encoding, &status),
        };
        respond::warn(&mut response, &call.warnings);
        response
    }
}

/// Reads a body. What is beyond the limit is thrown away, but read: a client that still sends
/// would not see the answer.
async fn read(mut body: Body) -> Answer<Bytes> {
    let (mut kept, mut seen) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame
            .map_err(|error| Status::bad_request(format!("unable to read the body: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        seen += data.len();
        if seen > DISCARD {
            break;
        }
        if seen <= LIMIT {
            kept.extend_from_slice(&data);
        }
    }
    if seen > LIMIT { Err(Status::too_large(LIMIT)) } else { Ok(kept.freeze()) }
}

impl Api {
    /// Reads an object.
    ///
    /// # Errors
    /// There is no such object (404).
    pub(crate) fn get(&self, target: &Target) -> Answer<Value> {
        let key = stored::key(&target.resource, &target.namespace, &target.name);
        match self.context.store.get(&key) {
            Some(record) => Ok(stored::load(&target.resource, &record)),
            None => Err(Status::not_found(&target.resource, &target.name)),
        }
    }
}

//! The way of a request: from the address to the target, then to the operation.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{Request, Response, request::Parts};
use http_body_util::BodyExt;
use serde_json::Value;

use super::{
    Api, Target,
    body::LIMIT,
    call::Call,
    fixed, negotiate, path,
    resolve::{Missing, resolve},
    respond, stored,
};
use crate::kinds::{
    identity::Identity,
    query::Query,
    status::{Answer, Status},
};

/// How much of a body is read at most, be it only to throw it away.
const DISCARD: usize = 8 * LIMIT;

impl Api {
    /// Answers a request. Authentication and authorization came before.
    pub(crate) async fn handle(&self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let query = Query::parse(head.uri.query().unwrap_or_default());
        let mut warnings = Vec::new();
        let mut response = match self.answer(&head, body, &query, &mut warnings).await {
            Ok(response) => response,
            Err(Missing::Page) => respond::no_page(),
            Err(Missing::Status(refusal)) if negotiate::wants_binary(&head.headers, &query) => {
                respond::binary(&refusal)
            }
            Err(Missing::Status(status)) => {
                respond::status(negotiate::error_encoding(&head.headers, &query), &status)
            }
        };
        respond::warn(&mut response, &warnings);
        response
    }

    async fn answer(
        &self,
        head: &Parts,
        body: Body,
        query: &Query,
        warnings: &mut Vec<String>,
    ) -> Result<Response<Body>, Missing> {
        let registry = self.registry();
        if let Some(response) = fixed::answer(head, query, &registry) {
            return Ok(response);
        }
        let path = path::parse(head.uri.path()).ok_or(Missing::Page)?;
        let target = resolve(&registry, &path, &head.method)?;
        let headers = &head.headers;
        let view = negotiate::negotiate(headers, query)?;
        let body = read(body).await?;
        let method = head.method.clone();
        let requester = head.extensions.get::<Identity>();
        let call =
            Call { api: self, target, requester, method, query, headers, body, view, warnings };
        Ok(call.answer().await?)
    }
}

/// Reads a body. What is beyond the limit is thrown away, but read: a client that still sends
/// would not see the answer.
pub(crate) async fn read(mut body: Body) -> Answer<Bytes> {
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
            Some(record) => stored::load(&target.resource, &record),
            None => Err(Status::not_found(&target.resource, &target.name)),
        }
    }
}

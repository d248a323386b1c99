//! How controllers change objects: by the same requests as everybody else, in process.

use std::convert::Infallible;

use axum::body::Body;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::{Service, ServiceExt, util::BoxCloneSyncService};

/// The server's answer.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) code: StatusCode,
    /// The object or the Status; null if the body was no JSON.
    pub(crate) body: Value,
}

/// A client without a connection.
#[derive(Clone, Debug)]
pub(crate) struct Loopback {
    service: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
}

impl Loopback {
    pub(crate) fn new<S>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
    {
        Self { service: BoxCloneSyncService::new(service) }
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Reply {
        self.send(Method::POST, path, "application/json", object).await
    }

    pub(crate) async fn replace(&self, path: &str, object: &Value) -> Reply {
        self.send(Method::PUT, path, "application/json", object).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Reply {
        self.send(Method::PATCH, path, "application/merge-patch+json", patch).await
    }

    pub(crate) async fn delete(&self, path: &str, options: &Value) -> Reply {
        self.send(Method::DELETE, path, "application/json", options).await
    }

    async fn send(&self, method: Method, path: &str, media_type: &str, body: &Value) -> Reply {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, media_type)
            .body(Body::from(body.to_string()));
        let Ok(request) = request else {
            return Reply { code: StatusCode::BAD_REQUEST, body: Value::Null };
        };
        let Ok(response) = self.service.clone().oneshot(request).await;
        let code = response.status();
        let body = match response.into_body().collect().await {
            Ok(body) => serde_json::from_slice(&body.to_bytes()).unwrap_or_default(),
            Err(_) => Value::Null,
        };
        Reply { code, body }
    }
}

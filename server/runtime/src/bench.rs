//! An API server that records writes, for tests.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::service_fn;

/// Answers a write with the sent object, a deletion with success.
#[derive(Debug, Default)]
pub(crate) struct Bench(Arc<Mutex<Vec<(String, Value)>>>);

impl Bench {
    /// The recorded writes: method and path, and the body.
    pub(crate) fn writes(&self) -> Vec<(String, Value)> {
        self.0.lock().clone()
    }

    pub(crate) fn client(&self) -> Client {
        let writes = Arc::clone(&self.0);
        let service = service_fn(move |request: Request<Body>| {
            let writes = Arc::clone(&writes);
            async move {
                let name = format!("{} {}", request.method(), request.uri().path());
                let deletes = request.method() == Method::DELETE;
                let sent = request.into_body().collect().await.map_err(std::io::Error::other)?;
                let sent: Value = serde_json::from_slice(&sent.to_bytes()).unwrap_or_default();
                writes.lock().push((name, sent.clone()));
                let done = json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
                let answer = if deletes { done } else { sent };
                let answer = Full::new(Bytes::from(answer.to_string()));
                Response::builder().body(answer).map_err(std::io::Error::other)
            }
        });
        Client::new(service, "default")
    }
}

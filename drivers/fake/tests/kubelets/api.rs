//! As much of an API server as kubelets need, in memory.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

type Answer = Response<BoxBody<Bytes, Infallible>>;

/// Clones are the same server.
#[derive(Clone, Default)]
pub(crate) struct Api {
    inner: Arc<Mutex<Inner>>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct Inner {
    /// By `<plural>/<namespace>/<name>`.
    objects: BTreeMap<String, Value>,
    version: u64,
    watchers: Vec<(String, mpsc::UnboundedSender<Value>)>,
    requests: Vec<String>,
    /// The next writes fail.
    failures: usize,
}

impl Api {
    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let serve = tower::service_fn(move |request| {
            let api = api.clone();
            async move { Ok::<_, Infallible>(api.serve(request).await) }
        });
        Client::new(serve, "default")
    }

    pub(crate) fn get(&self, key: &str) -> Option<Value> {
        self.inner.lock().unwrap().objects.get(key).cloned()
    }

    pub(crate) fn put(&self, key: &str, object: Value) {
        self.inner.lock().unwrap().write(key, Some(object));
        self.changed.send_modify(|changes| *changes += 1);
    }

    pub(crate) fn remove(&self, key: &str) {
        self.inner.lock().unwrap().write(key, None);
        self.changed.send_modify(|changes| *changes += 1);
    }

    pub(crate) fn fail_next_writes(&self, count: usize) {
        self.inner.lock().unwrap().failures = count;
    }

    /// `METHOD path` of every request that was no list and no watch.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.inner.lock().unwrap().requests.clone()
    }

    /// Returns when the object satisfies the condition.
    pub(crate) async fn until(&self, key: &str, fits: impl Fn(Option<&Value>) -> bool) {
        let mut changed = self.changed.subscribe();
        while !fits(self.get(key).as_ref()) {
            changed.changed().await.unwrap();
        }
    }

    async fn serve(&self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let target = Target::of(parts.uri.path());
        let answer = self.inner.lock().unwrap().answer(
            &parts.method,
            &target,
            parts.uri.query().unwrap_or_default(),
            &body,
        );
        self.changed.send_modify(|changes| *changes += 1);
        answer
    }
}

/// The target of a path.
struct Target {
    plural: String,
    namespace: String,
    name: Option<String>,
}

impl Target {
    fn of(path: &str) -> Self {
        let mut words = path.split('/').skip_while(|word| !word.starts_with('v')).skip(1);
        let mut namespace = "";
        let mut plural = words.next().unwrap();
        if plural == "namespaces" {
            namespace = words.next().unwrap();
            plural = words.next().unwrap();
        }
        let name = words.next().map(str::to_owned);
        Self { plural: plural.to_owned(), namespace: namespace.to_owned(), name }
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{}/{name}", self.plural, self.namespace)
    }
}

impl Inner {
    fn answer(&mut self, method: &Method, target: &Target, query: &str, body: &Value) -> Answer {
        let Some(name) = target.name.clone().or_else(|| text(body, "/metadata/name")) else {
            return self.collection(target, query);
        };
        self.requests.push(format!("{method} {}/{name}", target.plural));
        if *method != Method::GET && self.failures > 0 {
            self.failures -= 1;
            return status(StatusCode::INTERNAL_SERVER_ERROR);
        }
        let key = target.key(&name);
        let present = self.objects.get(&key).cloned();
        let uid = text(body, "/metadata/uid").or_else(|| text(body, "/preconditions/uid"));
        match (method.as_str(), present) {
            ("GET", Some(object)) => answer(StatusCode::OK, &object),
            ("POST", Some(_)) => status(StatusCode::CONFLICT),
            ("POST", None) => answer(StatusCode::CREATED, &self.write(&key, Some(body.clone()))),
            (_, None) => status(StatusCode::NOT_FOUND),
            (_, Some(object)) if uid.is_some() && uid != text(&object, "/metadata/uid") => {
                status(StatusCode::CONFLICT)
            }
            ("PATCH", Some(mut object)) => {
                json_patch::merge(&mut object, body);
                answer(StatusCode::OK, &self.write(&key, Some(object)))
            }
            ("DELETE", Some(_)) => answer(StatusCode::OK, &self.write(&key, None)),
            (method, _) => panic!("{method} {key}"),
        }
    }

    /// A list or a watch of everything of one plural; a namespace in the path narrows it.
    fn collection(&mut self, target: &Target, query: &str) -> Answer {
        let prefix = match target.namespace.as_str() {
            "" => format!("{}/", target.plural),
            namespace => format!("{}/{namespace}/", target.plural),
        };
        if query.contains("watch=true") {
            let (sender, receiver) = mpsc::unbounded_channel();
            self.watchers.push((prefix, sender));
            let lines = UnboundedReceiverStream::new(receiver)
                .map(|event: Value| Ok(http_body::Frame::data(Bytes::from(format!("{event}\n")))));
            return Response::new(BoxBody::new(StreamBody::new(lines)));
        }
        let of_prefix = self.objects.iter().filter(|(key, _)| key.starts_with(&prefix));
        let items: Vec<_> = of_prefix.map(|(_, object)| object).collect();
        let metadata = json!({"resourceVersion": self.version.to_string()});
        answer(StatusCode::OK, &json!({"metadata": metadata, "items": items}))
    }

    fn write(&mut self, key: &str, object: Option<Value>) -> Value {
        self.version += 1;
        let (event, mut object) = match object {
            Some(object) => ("MODIFIED", object),
            None => ("DELETED", self.objects.remove(key).unwrap()),
        };
        let mut words = key.split('/');
        let (plural, namespace, name) =
            (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
        let (kind, api_version) = match plural {
            "pods" => ("Pod", "v1"),
            "nodes" => ("Node", "v1"),
            "secrets" => ("Secret", "v1"),
            _ => ("Lease", "coordination.k8s.io/v1"),
        };
        let metadata = json!({
            "kind": kind, "apiVersion": api_version,
            "metadata": {
                "name": name,
                "namespace": (!namespace.is_empty()).then_some(namespace),
                "resourceVersion": self.version.to_string(),
            },
        });
        if object.pointer("/metadata/uid").is_none() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        json_patch::merge(&mut object, &metadata);
        if event == "MODIFIED" {
            self.objects.insert(key.to_owned(), object.clone());
        }
        let line = json!({"type": event, "object": object});
        let reached = |prefix: &str, sender: &mpsc::UnboundedSender<Value>| -> bool {
            !key.starts_with(prefix) || sender.send(line.clone()).is_ok()
        };
        self.watchers.retain(|(prefix, sender)| reached(prefix, sender));
        object
    }
}

fn text(object: &Value, pointer: &str) -> Option<String> {
    object.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

fn answer(code: StatusCode, object: &Value) -> Answer {
    let mut response = Response::new(BoxBody::new(Full::new(Bytes::from(object.to_string()))));
    *response.status_mut() = code;
    response
}

fn status(code: StatusCode) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": code.to_string(), "reason": code.to_string(), "code": code.as_u16(),
    });
    answer(code, &status)
}

//! The surroundings of one controller in a test: caches filled by the test, and an API server that records writes.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::client::Body;
use kube::runtime::watcher::Event;
use ostler_api::names::MACHINE_DEPLOYMENT;
use ostler_sessions::{Sessions, SessionsOptions, StaticTokens};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::service_fn;

use crate::REPORTER;
use crate::bootstrap::{Configs, Queues};
use crate::client::{WriteMetrics, Writer};
use crate::clock::DebugClock;
use crate::events::{EventMetrics, EventWriter, Recorder};
use crate::fleet::Tools;
use crate::hot_update::Reviewer;
use crate::namespaces::Namespaces;
use crate::queue::{Queue, QueueMetrics, QueueSettings};
use crate::settings::Settings;
use crate::stores::{StoreClassSource, Stores};
use crate::target::Targets;
use crate::watch::{Cache, CacheIndex, ObjectName, Seen, Unreadable, WatchMetrics};

pub(crate) use crate::watch::handed_out;

type Writes = Arc<Mutex<Vec<(String, Value)>>>;

/// The surroundings of a controller.
pub(crate) struct Bench {
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    pub(crate) sessions: Sessions,
    writes: Writes,
    refuses: Option<u16>,
    accepts: usize,
    has: Option<Value>,
    has_name: bool,
    /// The data of every ConfigMap; `None`: no ConfigMap exists.
    pub(crate) config_map: Arc<Mutex<Option<Value>>>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let stores = Stores::new(Targets::None);
        let source = StoreClassSource::new(stores.clone(), Namespaces::one("default"), "default");
        let tokens = Arc::new(StaticTokens::default());
        let sessions = Sessions::new(SessionsOptions::default(), Arc::new(source), tokens);
        let settings = Arc::new(Settings::default());
        let writes = Writes::default();
        let (refuses, has, has_name) = (None, None, false);
        let (accepts, config_map) = (0, Arc::default());
        Self { stores, settings, sessions, writes, refuses, accepts, has, has_name, config_map }
    }

    /// With an API server that answers every write with `code`.
    pub(crate) fn refusing(self, code: u16) -> Self {
        Self { refuses: Some(code), ..self }
    }

    /// With an API server that accepts so many writes, and answers later ones with `code`.
    pub(crate) fn refusing_after(self, accepts: usize, code: u16) -> Self {
        Self { accepts, refuses: Some(code), ..self }
    }

    /// With an API server that answers every read, every JSON patch and every status without a version with
    /// this object.
    pub(crate) fn having(self, object: Value) -> Self {
        Self { has: Some(object), ..self }
    }

    /// With an API server that has the object, and so refuses another object of the same name.
    pub(crate) fn having_already(self, object: Value) -> Self {
        Self { has: Some(object), has_name: true, ..self }
    }

    /// What is watched of bootstrap providers: nothing.
    pub(crate) fn configs(&self) -> Arc<Configs> {
        let registry = &mut Registry::default();
        let (machines, sets, pools) = (Self::queue(), Self::queue(), Self::queue());
        let (queues, watches) =
            (Queues { machines, sets, pools }, WatchMetrics::register(registry));
        Arc::new(Configs::new(self.client(), self.stores.clone(), queues, watches, registry))
    }

    /// What was written: method and path, and the body.
    pub(crate) fn writes(&self) -> Vec<(String, Value)> {
        self.writes.lock().clone()
    }

    /// Answers a write with the sent object, a deletion with success, and a read with 404 or the existing object. The
    /// API server has the deployments of the cache, unless it has another object.
    pub(crate) fn client(&self) -> Client {
        let (writes, refuses, has) = (Arc::clone(&self.writes), self.refuses, self.has.clone());
        let stores = self.stores.clone();
        let (has_name, accepts) = (self.has_name, self.accepts);
        let config_map = Arc::clone(&self.config_map);
        let service = service_fn(move |request: Request<Body>| {
            let (writes, mut has) = (Arc::clone(&writes), has.clone());
            let deployment = request.uri().path().split_once("/machinedeployments/");
            let deployment = deployment.map(|(_, name)| ObjectName::new("default", name));
            let cached = deployment.and_then(|name| stores.deployments.get(&name));
            if let Some(cached) = cached.filter(|_| request.method() == Method::GET)
                && has.as_ref().is_none_or(|has| has["kind"] != MACHINE_DEPLOYMENT)
            {
                has = Some(json!(cached.as_ref()));
            }
            if let (true, Some(data)) =
                (request.uri().path().contains("/configmaps/"), config_map.lock().as_ref())
            {
                has = Some(json!({ "metadata": {}, "data": data }));
            }
            async move {
                let name = format!("{} {}", request.method(), request.uri().path());
                let sent = request.into_body().collect().await.map_err(std::io::Error::other)?;
                let sent = serde_json::from_slice(&sent.to_bytes()).unwrap_or(Value::Null);
                let code = match refuses {
                    _ if name.starts_with("GET") => has.as_ref().map_or(404, |_| 200),
                    Some(code) if writes.lock().len() >= accepts => code,
                    _ if has_name && name.starts_with("POST") => 409,
                    _ => 200,
                };
                let status = json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                    "message": "refused by the test",
                    "reason": (code == 404).then_some("NotFound"),
                });
                let answer = match code {
                    200 if name.starts_with("DELETE") => {
                        json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" })
                    }
                    200 if name.starts_with("GET") || sent.is_array() || has_name => {
                        has.unwrap_or_default()
                    }
                    // A status without a version is answered with the object that has it.
                    200 if sent["metadata"].is_null() && has.is_some() => {
                        let mut object = has.unwrap_or_default();
                        object["status"] = sent["status"].clone();
                        object
                    }
                    200 => sent.clone(),
                    _ => status,
                };
                if !name.starts_with("GET") {
                    writes.lock().push((name, sent));
                }
                let answer = Full::new(Bytes::from(answer.to_string()));
                Response::builder().status(code).body(answer).map_err(std::io::Error::other)
            }
        });
        Client::new(service, "default")
    }

    pub(crate) fn writer(&self) -> Writer {
        Writer::new(self.client(), WriteMetrics::register(&mut Registry::default()))
    }

    pub(crate) fn recorder(&self) -> Recorder {
        self.recorder_and_writer().0
    }

    pub(crate) fn recorder_and_writer(&self) -> (Recorder, EventWriter) {
        let clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        Recorder::new(self.client(), (REPORTER, "test"), clock, EventMetrics::default())
    }

    pub(crate) fn tools(&self) -> Tools {
        Tools {
            writer: self.writer(),
            stores: self.stores.clone(),
            sessions: self.sessions.clone(),
            settings: Arc::clone(&self.settings),
            clock: DebugClock(Arc::new(|| Timestamp::UNIX_EPOCH)),
            recorder: self.recorder(),
        }
    }

    /// The reasons of the events that were recorded, in any order.
    pub(crate) async fn told(&self, events: EventWriter) -> Vec<String> {
        let stop = CancellationToken::new();
        stop.cancel();
        events.run(stop).await;
        let of_events = self.writes().into_iter().filter(|(path, _)| path.ends_with("/events"));
        of_events.map(|(_, event)| event["reason"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn queue<K>() -> Arc<Queue<K>>
    where
        K: Clone + std::fmt::Debug + Eq + std::hash::Hash + Send + 'static,
    {
        let metrics = QueueMetrics::register(&mut Registry::default());
        Queue::new(QueueSettings::new("test", 1), &metrics)
    }

    pub(crate) fn reviewer(&self) -> Arc<Reviewer> {
        Arc::new(Reviewer::new(
            self.stores.clone(),
            self.sessions.clone(),
            Arc::clone(&self.settings),
            self.recorder(),
            Self::queue(),
            [Self::queue(), Self::queue()],
        ))
    }

    /// The API server shows a machine in the default namespace that this core cannot parse.
    pub(crate) fn a_machine_cannot_be_read(&self) {
        let (name, namespace) = (Some("x".to_owned()), Some("default".to_owned()));
        let meta = ObjectMeta { name, namespace, ..ObjectMeta::default() };
        let object = Unreadable { meta, why: "it is broken".to_owned() };
        self.stores.machines.skip(None, Seen::Changed, &object);
    }
}

/// Puts an object into a cache.
pub(crate) fn put<I: CacheIndex<Object: DeserializeOwned>>(cache: &Cache<I>, object: Value) {
    cache.apply(Event::Apply(serde_json::from_value(object).unwrap()));
}

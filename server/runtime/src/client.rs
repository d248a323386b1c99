//! Requests to the API: counted, limited in time, with a typed result.

use std::borrow::Cow;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::Eviction;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    APIResource, DeleteOptions, ObjectMeta, Preconditions, Status,
};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use crate::watch::{Found, Lenient, ObjectName};

/// Longest wait for an answer. After that, a retry is better than a waiting worker.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// Page size of lists.
const PAGE: u32 = 500;
/// Most pages of a list, and of the pods of a Node: an API server must not keep a worker, and fill the memory, for ever.
const PAGES: (usize, usize) = (1000, 20);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The object changed after the read, or another object has its name.
    #[error("the object changed meanwhile")]
    Conflict,
    /// The object does not exist.
    #[error("the object does not exist")]
    NotFound,
    /// Refused for now (429).
    #[error("refused for now: {message}")]
    TooManyRequests {
        /// Why.
        message: String,
        /// The earliest retry.
        retry_after: Option<Duration>,
    },
    /// No answer in time; the write may have happened.
    #[error("no answer within {}s", PATIENCE.as_secs())]
    NoAnswer,
    /// The right is missing (403); the API server's message.
    #[error("{0}")]
    Forbidden(String),
    /// The API server failed (500).
    #[error("{0}")]
    Internal(String),
    /// The content is refused (422), or a `test` of a JSON patch failed.
    #[error("{0}")]
    Invalid(String),
    /// The connection failed; the write may have happened.
    #[error("{0}")]
    Lost(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl WriteError {
    /// The retry delay that the API server asked for.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::TooManyRequests { retry_after, .. } => *retry_after,
            Self::Conflict
            | Self::NotFound
            | Self::NoAnswer
            | Self::Forbidden(_)
            | Self::Internal(_)
            | Self::Invalid(_)
            | Self::Lost(_)
            | Self::Other(_) => None,
        }
    }

    /// Whether the API server may have done it nevertheless.
    pub const fn may_have_happened(&self) -> bool {
        matches!(self, Self::NoAnswer | Self::Lost(_) | Self::Internal(_))
    }
}

impl From<kube::Error> for WriteError {
    fn from(error: kube::Error) -> Self {
        let kube::Error::Api(status) = &error else { return Self::Lost(error.to_string()) };
        match status.code {
            404 => Self::NotFound,
            409 => Self::Conflict,
            429 => Self::TooManyRequests {
                message: status.message.clone(),
                retry_after: status
                    .details
                    .as_ref()
                    .filter(|details| details.retry_after_seconds > 0)
                    .map(|details| Duration::from_secs(details.retry_after_seconds.into())),
            },
            403 => Self::Forbidden(status.message.clone()),
            422 => Self::Invalid(status.message.clone()),
            504 => Self::NoAnswer,
            500 => Self::Internal(status.message.clone()),
            // From a proxy or a load balancer in front of the API server, which may have passed the request on.
            408 | 501.. => Self::Lost(status.message.clone()),
            _ => Self::Other(status.message.clone()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WriteLabel {
    kind: Cow<'static, str>,
    verb: &'static str,
}

/// Counts writes.
#[derive(Debug, Clone, Default)]
pub struct WriteMetrics {
    written: Family<WriteLabel, Counter>,
    failed: Family<WriteLabel, Counter>,
}

impl WriteMetrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let (written, failed) = (metrics.written.clone(), metrics.failed.clone());
        registry.register("ostler_api_writes", "Writes that the API server accepted", written);
        registry.register("ostler_api_write_failures", "Writes that failed", failed);
        metrics
    }
}

/// The objects of requests.
pub trait Typed: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned {}

impl<K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned> Typed for K {}

impl<K> Found<K> {
    /// All objects, for a decision that an unreadable object might change.
    pub fn complete(self) -> Result<Vec<Arc<K>>, WriteError> {
        match self.unreadable {
            None => Ok(self.objects),
            Some(broken) => Err(WriteError::Other(broken)),
        }
    }
}

/// Sends requests to the API.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    metrics: WriteMetrics,
    /// When the last request ended without an answer.
    unanswered: Arc<Mutex<Option<Instant>>>,
}

impl Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

/// A request that may have an effect later, also if who waits for the answer is aborted.
struct Underway<'a>(Option<&'a Mutex<Option<Instant>>>);

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if let Some(unanswered) = self.0 {
            *unanswered.lock() = Some(Instant::now());
        }
    }
}

impl Writer {
    /// Sends requests by this client.
    pub fn new(client: Client, metrics: WriteMetrics) -> Self {
        Self { client, metrics, unanswered: Arc::default() }
    }

    /// The writer of another cluster.
    #[must_use]
    pub fn to(&self, cluster: &Client) -> Self {
        Self { client: cluster.clone(), ..self.clone() }
    }

    /// Whether every request that has ended was answered, or so long ago that it has no effect any more.
    pub fn all_answered(&self) -> bool {
        self.unanswered.lock().is_none_or(|at| at.elapsed() >= PATIENCE)
    }

    /// The API of a kind; in a namespace, or of the cluster if `namespace` is empty.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The API of a kind that has no namespace.
    pub fn cluster_api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = kube::core::ClusterResourceScope>,
    {
        Api::all(self.client.clone())
    }

    async fn run<T>(
        &self,
        kind: impl Into<Cow<'static, str>>,
        verb: &'static str,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        let label = WriteLabel { kind: kind.into(), verb };
        let mut underway = Underway(Some(&self.unanswered));
        let result = self.read(request).await;
        if !result.as_ref().is_err_and(WriteError::may_have_happened) {
            underway.0 = None;
        }
        let counters = if result.is_ok() { &self.metrics.written } else { &self.metrics.failed };
        counters.get_or_create(&label).inc();
        result
    }

    /// A request that no counter of writes counts.
    async fn read<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        match tokio::time::timeout(PATIENCE, request).await {
            Ok(answer) => answer.map_err(WriteError::from),
            Err(_) => Err(WriteError::NoAnswer),
        }
    }

    /// Merge-patches an object. `patch` must contain `metadata.resourceVersion`, so that a cache may store the answer
    /// and lists of other clients are never overwritten.
    pub async fn patch<K: Typed>(
        &self,
        api: &Api<K>,
        name: &str,
        patch: &Value,
    ) -> Result<K, WriteError> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.run(K::kind(&()), "patch", api.patch(name, &params, &patch)).await
    }

    /// As [`Self::patch`], for the status. That of a built-in kind takes a strategic merge: the entries of its lists
    /// have keys.
    pub async fn patch_status<K: Typed>(
        &self,
        api: &Api<K>,
        name: &str,
        patch: Patch<&Value>,
    ) -> Result<K, WriteError> {
        let params = PatchParams::default();
        self.run(K::kind(&()), "patch_status", api.patch_status(name, &params, &patch)).await
    }

    fn dynamic(&self, resource: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, resource)
    }

    /// Merge-patches an object of a kind that is known at run time only, and counted as `label`; `patch` as in
    /// [`Self::patch`].
    pub async fn patch_dynamic(
        &self,
        label: &'static str,
        (resource, name): (&ApiResource, &ObjectName),
        patch: &Value,
    ) -> Result<DynamicObject, WriteError> {
        let api = self.dynamic(resource, &name.namespace);
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.run(label, "patch", api.patch(&name.name, &params, &patch)).await
    }

    /// Creates an object of a kind that is known at run time only.
    pub async fn create_dynamic(
        &self,
        label: &'static str,
        (resource, namespace): (&ApiResource, &str),
        object: &DynamicObject,
    ) -> Result<DynamicObject, WriteError> {
        let api = self.dynamic(resource, namespace);
        self.run(label, "create", api.create(&PostParams::default(), object)).await
    }

    /// Reads the metadata of an object of a kind that is known at run time only.
    pub async fn get_dynamic(
        &self,
        (resource, name): (&ApiResource, &ObjectName),
    ) -> Result<Option<ObjectMeta>, WriteError> {
        let api = self.dynamic(resource, &name.namespace);
        Ok(self.read(api.get_metadata_opt(&name.name)).await?.map(|found| found.metadata))
    }

    /// Deletes the object with this UID of a kind that is known at run time only.
    pub async fn delete_dynamic(
        &self,
        label: &'static str,
        (resource, name): (&ApiResource, &ObjectName),
        uid: &str,
    ) -> Result<(), WriteError> {
        let api = self.dynamic(resource, &name.namespace);
        let params = Deletion { uid: Some(uid), ..Deletion::default() }.params();
        self.run(label, "delete", api.delete(&name.name, &params)).await.map(drop)
    }

    /// Applies a JSON patch. The patch must contain a `test` of the state behind the plan.
    pub async fn patch_json<K: Typed>(
        &self,
        api: &Api<K>,
        name: &str,
        operations: Vec<Value>,
    ) -> Result<K, WriteError> {
        let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations))
            .map_err(|error| WriteError::Other(error.to_string()))?;
        let (params, patch) = (PatchParams::default(), Patch::Json::<K>(patch));
        self.run(K::kind(&()), "patch", api.patch(name, &params, &patch)).await
    }

    /// Creates an object.
    pub async fn create<K: Typed>(&self, api: &Api<K>, object: &K) -> Result<K, WriteError> {
        self.run(K::kind(&()), "create", api.create(&PostParams::default(), object)).await
    }

    /// Replaces an object, whatever its current version.
    pub async fn replace<K: Typed>(
        &self,
        api: &Api<K>,
        name: &str,
        object: &K,
    ) -> Result<K, WriteError> {
        self.run(K::kind(&()), "update", api.replace(name, &PostParams::default(), object)).await
    }

    /// Every object of a name in the cluster, read from the API.
    ///
    /// # Errors
    /// Fails if an object cannot be read.
    pub async fn find_everywhere<K: Typed>(&self, name: &str) -> Result<Vec<Arc<K>>, WriteError> {
        let api: Api<Lenient<K>> = Api::all(self.client.clone());
        let named = ListParams::default().fields(&format!("metadata.name={name}"));
        self.pages(&api, named, PAGES.0).await?.complete()
    }

    /// A page of the objects of all namespaces, read from the API, and the token of the next page.
    ///
    /// # Errors
    /// Fails if an object cannot be read.
    pub async fn page_everywhere<K: Typed>(
        &self,
        from: Option<String>,
    ) -> Result<(Vec<Arc<K>>, Option<String>), WriteError> {
        let api: Api<Lenient<K>> = Api::all(self.client.clone());
        let mut some = ListParams::default().limit(PAGE);
        some.continue_token = from;
        let found = self.read(api.list(&some)).await?;
        let mut objects = Found::default();
        objects.add(found.items);
        Ok((objects.complete()?, found.metadata.continue_.filter(|token| !token.is_empty())))
    }

    /// All objects of a kind, of a namespace or of all, read from the API.
    pub async fn all<K>(&self, namespace: Option<&str>) -> Result<Found<K>, WriteError>
    where
        K: Typed + Resource<Scope = kube::core::NamespaceResourceScope>,
    {
        let api: Api<Lenient<K>> = match namespace {
            Some(namespace) => self.api(namespace),
            None => Api::all(self.client.clone()),
        };
        self.pages(&api, ListParams::default(), PAGES.0).await
    }

    /// All pages of a list: without a limit, an API server may read all that it searches in one go.
    async fn pages<K: Typed>(
        &self,
        api: &Api<Lenient<K>>,
        page: ListParams,
        most: usize,
    ) -> Result<Found<K>, WriteError> {
        let (mut all, mut page) = (Found::default(), page.limit(PAGE));
        for _ in 0..most {
            let found = self.read(api.list(&page)).await?;
            all.add(found.items);
            let Some(next) = found.metadata.continue_.filter(|token| !token.is_empty()) else {
                return Ok(all);
            };
            page.continue_token = Some(next);
        }
        Err(WriteError::Other(format!(
            "the list of {} has not ended after {most} pages",
            K::kind(&())
        )))
    }

    /// The pods on a Node, read from the API.
    pub async fn pods_on(&self, node: &str) -> Result<Vec<Arc<Pod>>, WriteError> {
        let api: Api<Lenient<Pod>> = Api::all(self.client.clone());
        let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
        self.pages(&api, there, PAGES.1).await?.complete()
    }

    /// The core group's resources, from the API server itself; `None`: no answer.
    pub async fn core_resources(&self) -> Option<Vec<APIResource>> {
        let asked = self.client.list_core_api_resources("v1");
        Some(tokio::time::timeout(PATIENCE, asked).await.ok()?.ok()?.resources)
    }

    /// Reads an object from the API.
    pub async fn get<K: Typed>(&self, api: &Api<K>, name: &str) -> Result<Option<K>, WriteError> {
        self.read(api.get_opt(name)).await
    }

    /// Deletes an object, on condition of its UID and version if given.
    pub async fn delete<K: Typed>(
        &self,
        api: &Api<K>,
        name: &str,
        options: Deletion<'_>,
    ) -> Result<(), WriteError> {
        let params = options.params();
        self.run(K::kind(&()), "delete", api.delete(name, &params)).await.map(drop)
    }

    /// Evicts the pod with this UID, with its own grace period.
    pub async fn evict(&self, pod: &ObjectName, uid: &str) -> Result<(), WriteError> {
        let api: Api<Pod> = self.api(&pod.namespace);
        let eviction = Eviction {
            metadata: ObjectMeta {
                name: Some(pod.name.clone()),
                namespace: Some(pod.namespace.clone()),
                ..ObjectMeta::default()
            },
            delete_options: Some(DeleteOptions {
                preconditions: Some(Preconditions {
                    uid: Some(uid.to_owned()),
                    resource_version: None,
                }),
                ..DeleteOptions::default()
            }),
        };
        let params = PostParams::default();
        let request =
            api.create_subresource::<_, Status>("eviction", &pod.name, &params, &eviction);
        self.run("Pod", "evict", request).await.map(drop)
    }
}

/// Options of a deletion.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deletion<'a> {
    /// Only the object with this UID.
    pub uid: Option<&'a str>,
    /// Only in this version.
    pub version: Option<&'a str>,
    /// With a grace period of 0.
    pub force: bool,
}

impl Deletion<'_> {
    fn params(self) -> DeleteParams {
        let (uid, resource_version) =
            (self.uid.map(str::to_owned), self.version.map(str::to_owned));
        let only = kube::api::Preconditions { uid, resource_version };
        DeleteParams {
            preconditions: (self.uid.is_some() || self.version.is_some()).then_some(only),
            grace_period_seconds: self.force.then_some(0),
            ..DeleteParams::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;
    use crate::bench::Bench;

    #[tokio::test]
    async fn a_deletion_and_an_eviction_name_the_uid_of_what_was_observed() {
        let bench = Bench::default();
        let writer = Writer::new(bench.client(), WriteMetrics::default());
        let pods: Api<Pod> = writer.api("apps");
        let nodes: Api<Node> = writer.cluster_api();
        let only = |force| Deletion { uid: Some("u"), force, ..Deletion::default() };
        writer.delete(&nodes, "n", only(false)).await.unwrap();
        writer.delete(&pods, "p", only(true)).await.unwrap();
        // The answer to an eviction is a Status, which the bench does not make.
        drop(writer.evict(&ObjectName::new("apps", "p"), "u").await);
        let [(_, node), (_, pod), (evicted, eviction)] = bench.writes().try_into().unwrap();
        assert_eq!(node["preconditions"], json!({ "uid": "u" }));
        assert_eq!(
            (&pod["preconditions"], &pod["gracePeriodSeconds"]),
            (&json!({ "uid": "u" }), &json!(0))
        );
        assert_eq!(evicted, "POST /api/v1/namespaces/apps/pods/p/eviction");
        assert_eq!(eviction["deleteOptions"]["preconditions"], json!({ "uid": "u" }));
    }

    #[tokio::test]
    async fn a_list_that_never_ends_is_given_up_with_its_number_of_pages() {
        let endless = tower::service_fn(async |_: http::Request<kube::client::Body>| {
            let page = json!({ "metadata": { "continue": "more" }, "items": [] });
            let body = kube::client::Body::from(serde_json::to_vec(&page)?);
            std::io::Result::Ok(http::Response::new(body))
        });
        let metrics = WriteMetrics::register(&mut Registry::default());
        let writer = Writer::new(Client::new(endless, "default"), metrics);
        let pods = writer.pods_on("n").await.unwrap_err().to_string();
        let named = writer.find_everywhere::<Pod>("m").await.unwrap_err().to_string();
        assert!(pods.contains("20 pages") && named.contains("1000 pages"), "{pods} {named}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_whose_worker_is_aborted_may_still_have_an_effect() {
        let mute = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<std::io::Result<http::Response<kube::client::Body>>>()
        });
        let metrics = WriteMetrics::register(&mut Registry::default());
        let writer = Writer::new(Client::new(mute, "default"), metrics);
        let pod = ObjectName::new("apps", "p");
        let evicted = writer.evict(&pod, "u");
        assert!(tokio::time::timeout(Duration::from_secs(1), evicted).await.is_err());
        assert!(!writer.all_answered());
        tokio::time::advance(PATIENCE).await;
        assert!(writer.all_answered());
    }

    #[test]
    fn what_a_load_balancer_answers_may_have_happened_and_what_is_refused_did_not() {
        let answered = |code| {
            let status = Status { code: Some(code), ..Status::default() };
            let status = serde_json::from_value(json!(status)).unwrap();
            WriteError::from(kube::Error::Api(Box::new(status))).may_have_happened()
        };
        for (code, unknown) in [
            (400, false),
            (401, false),
            (403, false),
            (404, false),
            (408, true),
            (409, false),
            (422, false),
            (429, false),
            (500, true),
            (502, true),
            (503, true),
            (504, true),
        ] {
            assert_eq!(answered(code), unknown, "{code}");
        }
    }

    #[tokio::test]
    async fn every_page_is_read_of_a_search_in_all_namespaces() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let queries = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let (namespace, next) =
                if query.contains("continue=2") { ("b", "") } else { ("a", "2") };
            queries.lock().push(query);
            let pod = json!({ "metadata": { "name": "m", "namespace": namespace } });
            let list = json!({
                "apiVersion": "v1", "kind": "PodList",
                "metadata": { "continue": next }, "items": [pod]
            });
            let answer =
                http::Response::new(kube::client::Body::from(list.to_string().into_bytes()));
            async move { Ok::<_, std::io::Error>(answer) }
        });
        let metrics = WriteMetrics::register(&mut Registry::default());
        let writer = Writer::new(Client::new(service, "default"), metrics);
        let found = writer.find_everywhere::<Pod>("m").await.unwrap();
        let found: Vec<_> = found.iter().map(|one| ObjectName::of(one.as_ref())).collect();
        assert_eq!(found, ["a", "b"].map(|namespace| ObjectName::new(namespace, "m")));
        let all_ask = |what: &str| asked.lock().iter().all(|query| query.contains(what));
        assert!(all_ask("limit=500") && all_ask("metadata.name"), "{asked:?}");
    }
}

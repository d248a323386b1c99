//! The requests of a kubelet.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeStatus, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::node::{conditions, is_ready, keep_transitions, lease, other_owner, renewed};

const LEASE_NAMESPACE: &str = "kube-node-lease";

/// Why a request has no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The API server refused it, or cannot be reached.
    #[error("the API server refused or did not answer")]
    Api(#[source] Box<Error>),
    /// The API server took too long.
    #[error("the API server did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
}

impl From<Error> for RequestError {
    fn from(error: Error) -> Self {
        Self::Api(Box::new(error))
    }
}

impl RequestError {
    /// The HTTP status of a refusal.
    pub fn code(&self) -> Option<u16> {
        let Self::Api(error) = self else { return None };
        if let Error::Api(status) = error.as_ref() { Some(status.code) } else { None }
    }
}

/// Why a Node cannot be registered; the next attempt may succeed.
#[derive(Debug, thiserror::Error)]
pub enum NotRegistered {
    /// A request failed.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A Node of this name has the provider id of another instance.
    #[error("a Node of this name belongs to {0}: delete it if that instance is gone")]
    NameTaken(String),
    /// Another Node of this name was there, and is not any more.
    #[error("a Node of this name was deleted just now")]
    Deleted,
}

impl From<Error> for NotRegistered {
    fn from(error: Error) -> Self {
        Self::Request(error.into())
    }
}

/// The API server as kubelets use it. Clones share the limit of concurrent requests.
#[derive(Clone)]
pub struct KubeletApi {
    client: Client,
    slots: Option<Arc<Semaphore>>,
    timeout: Option<Duration>,
}

impl std::fmt::Debug for KubeletApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubeletApi").field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl KubeletApi {
    /// Requests through `client`, without limits.
    pub fn new(client: Client) -> Self {
        Self { client, slots: None, timeout: None }
    }

    /// Sends at most so many requests at the same time.
    #[must_use]
    pub fn concurrency(mut self, requests: usize) -> Self {
        self.slots = Some(Arc::new(Semaphore::new(requests)));
        self
    }

    /// Waits at most so long for each answer.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The client, for watches, which the limits are not for.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request within the limits.
    pub async fn request<T>(
        &self,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, RequestError> {
        let _slot = match &self.slots {
            // It is never closed.
            Some(slots) => slots.acquire().await.ok(),
            None => None,
        };
        let Some(timeout) = self.timeout else { return Ok(request.await?) };
        let answer = tokio::time::timeout(timeout, request).await;
        Ok(answer.map_err(|_| RequestError::Timeout(timeout))??)
    }

    /// The Node of this name.
    pub async fn node(&self, name: &str) -> Result<Option<Node>, RequestError> {
        self.request(self.nodes().get_opt(name)).await
    }

    /// Registers `node` with its Lease. Takes a Node of the same name over if its provider id is this instance's or empty;
    /// its taints stay as they are.
    pub async fn register(&self, node: &Node, now: Timestamp) -> Result<(), NotRegistered> {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let created = self.request(self.nodes().create(&PostParams::default(), node)).await;
        let (registered, status_is_new) = match created {
            Err(error) if error.code() == Some(409) => (self.take_over(name, node).await?, false),
            created => {
                let created = created?;
                // Not every API server takes the status along when a Node is created.
                let is_ready = is_ready(&created);
                (created, is_ready)
            }
        };
        if !status_is_new {
            let mut status = node.status.clone().unwrap_or_default();
            let own = status.conditions.as_deref_mut().unwrap_or_default();
            keep_transitions(own, conditions(&registered));
            self.patch_node_status(name, &status).await?;
        }
        self.create_lease(registered, now).await?;
        Ok(())
    }

    async fn take_over(&self, name: &str, node: &Node) -> Result<Node, NotRegistered> {
        let found = self.node(name).await?.ok_or(NotRegistered::Deleted)?;
        let own = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        if let Some(other) = other_owner(&found, own) {
            return Err(NotRegistered::NameTaken(other.to_owned()));
        }
        let mut patch = json!({"metadata": {"labels": node.metadata.labels}});
        if let (Some(id), Some(patch)) = (own, patch.as_object_mut()) {
            patch.insert("spec".to_owned(), json!({"providerID": id}));
        }
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.request(self.nodes().patch(name, &params, &patch)).await?;
        Ok(found)
    }

    /// Patches the status of a Node. A deleted Node stays deleted.
    pub async fn patch_node_status(
        &self,
        name: &str,
        status: &NodeStatus,
    ) -> Result<(), RequestError> {
        let mut status = serde_json::to_value(status).map_err(Error::SerdeError)?;
        // Lists are merged by type: without the directive an address that is left out would stay.
        if let Some(addresses) = status.get_mut("addresses").and_then(Value::as_array_mut) {
            addresses.insert(0, json!({"$patch": "replace"}));
        }
        let patch = Patch::Strategic(json!({"status": status}));
        let nodes = self.nodes();
        let patched = self.request(nodes.patch_status(name, &PatchParams::default(), &patch)).await;
        ignore_codes(patched, &[404])
    }

    /// Renews the Lease of a Node. It is made anew if it is gone and the Node is still this instance's.
    pub async fn renew_lease(
        &self,
        name: &str,
        own: Option<&str>,
        now: Timestamp,
    ) -> Result<(), RequestError> {
        let patch = Patch::Merge(json!({"spec": renewed(name, now)}));
        match self.request(self.leases().patch(name, &PatchParams::default(), &patch)).await {
            Err(error) if error.code() == Some(404) => {}
            renewed => return renewed.map(drop),
        }
        match self.node(name).await? {
            Some(node) if other_owner(&node, own).is_none() => self.create_lease(node, now).await,
            // A Lease would outlive a Node that was deleted.
            Some(_) | None => Ok(()),
        }
    }

    /// Creates the Lease of a Node; one that is left over from before is as good.
    async fn create_lease(&self, node: Node, now: Timestamp) -> Result<(), RequestError> {
        let (Some(name), Some(uid)) = (node.metadata.name, node.metadata.uid) else {
            return Ok(());
        };
        let lease = lease(&name, uid, now);
        let created = self.request(self.leases().create(&PostParams::default(), &lease)).await;
        ignore_codes(created, &[409])
    }

    /// Patches the status of a pod with `patch`, which names the UID. A deleted pod stays deleted.
    pub async fn patch_pod_status(
        &self,
        namespace: &str,
        name: &str,
        patch: &Patch<Value>,
    ) -> Result<(), RequestError> {
        let pods = self.pods(namespace);
        let patched = self.request(pods.patch_status(name, &PatchParams::default(), patch)).await;
        ignore_codes(patched, &GONE)
    }

    /// Deletes an ended pod by name and UID.
    pub async fn delete_pod(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
    ) -> Result<(), RequestError> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(preconditions),
            ..DeleteParams::default()
        };
        ignore_codes(self.request(self.pods(namespace).delete(name, &params)).await, &GONE)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), LEASE_NAMESPACE)
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }
}

/// The codes of a refusal because the object is gone, or is another one of the same name.
const GONE: [u16; 2] = [404, 409];

/// A refusal with one of these codes counts as success.
fn ignore_codes<T>(outcome: Result<T, RequestError>, fine: &[u16]) -> Result<(), RequestError> {
    match outcome {
        Err(error) if !error.code().is_some_and(|code| fine.contains(&code)) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

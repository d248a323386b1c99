//! The requests that kubelets make, a bounded number at once.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::pods::PodView;

/// Enough to keep an API server busy, and few enough not to drown it.
const REQUESTS_AT_ONCE: usize = 64;
const LEASE_NAMESPACE: &str = "kube-node-lease";

/// The API as kubelets use it. Clones share the bound.
#[derive(Clone)]
pub(super) struct NodeApi {
    client: Client,
    gate: Arc<Semaphore>,
}

impl NodeApi {
    pub(super) fn new(client: Client) -> Self {
        Self { client, gate: Arc::new(Semaphore::new(REQUESTS_AT_ONCE)) }
    }

    /// Creates the Node; `None` if there is one of this name.
    pub(super) async fn create_node(&self, node: &Node) -> Result<Option<Node>, Error> {
        let _turn = self.turn().await;
        match self.nodes().create(&PostParams::default(), node).await {
            Ok(node) => Ok(Some(node)),
            Err(error) if has_code(&error, 409) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn get_node(&self, name: &str) -> Result<Option<Node>, Error> {
        let _turn = self.turn().await;
        self.nodes().get_opt(name).await
    }

    pub(super) async fn claim_node(&self, name: &str, provider_id: &str) -> Result<(), Error> {
        let _turn = self.turn().await;
        let patch = json!({"spec": {"providerID": provider_id}});
        self.nodes().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Patches the status of the Node. A Node that was deleted stays so.
    pub(super) async fn patch_node_status(&self, name: &str, status: Value) -> Result<(), Error> {
        let _turn = self.turn().await;
        let patch = Patch::Strategic(json!({"status": status}));
        let patched = self.nodes().patch_status(name, &PatchParams::default(), &patch).await;
        gone_is_fine(patched.map(drop))
    }

    /// Creates the Lease; one that is left over from before is as good.
    pub(super) async fn create_lease(&self, lease: &Lease) -> Result<(), Error> {
        let _turn = self.turn().await;
        match self.leases().create(&PostParams::default(), lease).await {
            Err(error) if !has_code(&error, 409) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Renews the Lease; false if there is none.
    pub(super) async fn renew_lease(&self, name: &str, renewal: Value) -> Result<bool, Error> {
        let _turn = self.turn().await;
        let patch = Patch::Merge(renewal);
        match self.leases().patch(name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(true),
            Err(error) if has_code(&error, 404) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) async fn start_pod(&self, pod: &PodView, patch: Value) -> Result<(), Error> {
        let _turn = self.turn().await;
        let params = PatchParams::default();
        let patched = self.pods(pod).patch_status(&pod.name, &params, &Patch::Merge(patch)).await;
        gone_is_fine(patched.map(drop))
    }

    pub(super) async fn end_pod(&self, pod: &PodView) -> Result<(), Error> {
        let _turn = self.turn().await;
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(pod.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        gone_is_fine(self.pods(pod).delete(&pod.name, &params).await.map(drop))
    }

    async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed.
        self.gate.acquire().await.ok()
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), LEASE_NAMESPACE)
    }

    fn pods(&self, pod: &PodView) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &pod.namespace)
    }
}

/// Gone, or another object of the same name.
fn gone_is_fine(outcome: Result<(), Error>) -> Result<(), Error> {
    match outcome {
        Err(error) if has_code(&error, 404) || has_code(&error, 409) => Ok(()),
        outcome => outcome,
    }
}

fn has_code(error: &Error, code: u16) -> bool {
    matches!(error, Error::Api(status) if status.code == code)
}

//! The objects of the API: read once, and never written.

use std::collections::BTreeSet;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, ListParams};
use kube::core::NamespaceResourceScope;
use ostler_api::{Machine, MachineClass, MachineDeployment, MachineSet};
use ostler_controllers::{
    EnabledControllers, GivenIds, Namespaces, SchemaError, check_schemas, known_cluster_ids,
};
use ostler_lifecycle::cluster::ClusterIds;
use serde::de::DeserializeOwned;

use super::rights;
use crate::cluster;

/// What is there.
#[derive(Debug)]
pub(super) struct Cluster {
    /// The cluster id for new tags, and the ids that instances may carry.
    pub(super) ids: ClusterIds,
    pub(super) machines: Vec<Machine>,
    pub(super) classes: Vec<MachineClass>,
    pub(super) sets: Vec<MachineSet>,
    pub(super) deployments: Vec<MachineDeployment>,
    /// Secrets that classes refer to, as far as they can be read.
    pub(super) secrets: Vec<Secret>,
    /// Faults of the CustomResourceDefinitions.
    pub(super) definitions: Vec<String>,
    /// Rights that are missing.
    pub(super) rights: Vec<String>,
}

impl Cluster {
    /// Reads a namespace. `given`: what is said of the cluster id.
    ///
    /// # Errors
    /// The API server cannot be reached, or Machines and classes cannot be read.
    pub(super) async fn read(
        client: &Client,
        namespace: &str,
        given: &GivenIds,
    ) -> anyhow::Result<Self> {
        let scope = Namespaces::one(namespace);
        let ids = known_cluster_ids(client, namespace, &scope, given).await;
        let classes: Vec<MachineClass> = list(client, namespace, "machine classes").await?;
        let mut secrets = Vec::new();
        for name in named(&classes, namespace) {
            secrets.extend(secret(client, namespace, &name).await?);
        }
        Ok(Self {
            ids: ids.context("the cluster id is not known")?,
            machines: list(client, namespace, "machines").await?,
            sets: list(client, namespace, "machine sets").await?,
            deployments: list(client, namespace, "machine deployments").await?,
            classes,
            secrets,
            definitions: definitions(client).await?,
            rights: rights::missing(client, namespace).await?,
        })
    }

    /// The secrets that are there, as namespace and name.
    pub(super) fn secret_names(&self) -> BTreeSet<(String, String)> {
        let name = |secret: &Secret| {
            let meta = &secret.metadata;
            (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
        };
        self.secrets.iter().map(name).collect()
    }
}

/// Everything of a kind. A kind that is not served has no objects; what is missing of the definitions says so.
async fn list<K>(client: &Client, namespace: &str, what: &str) -> anyhow::Result<Vec<K>>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    let all = cluster::list(client, Some(namespace)).await;
    all.with_context(|| format!("{what} cannot be read"))
}

/// The secrets in `namespace` that classes refer to.
fn named(classes: &[MachineClass], namespace: &str) -> BTreeSet<String> {
    let refs = classes.iter().flat_map(MachineClass::secret_refs);
    refs.filter(|(of, _)| of == namespace).map(|(_, name)| name).collect()
}

/// A secret, if it is there and may be read; what is missing of the rights says so. The core may list secrets, and
/// not get them.
async fn secret(client: &Client, namespace: &str, name: &str) -> anyhow::Result<Option<Secret>> {
    let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
    let only = ListParams::default().fields(&format!("metadata.name={name}"));
    match secrets.list(&only).await {
        Ok(list) => Ok(list.items.into_iter().next()),
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
        Err(error) => Err(error).with_context(|| format!("secret {name} cannot be read")),
    }
}

async fn definitions(client: &Client) -> anyhow::Result<Vec<String>> {
    match check_schemas(client, EnabledControllers::all()).await {
        Ok(()) => Ok(Vec::new()),
        Err(SchemaError::Pruned(fields)) => Ok(fields.iter().map(ToString::to_string).collect()),
        Err(error @ SchemaError::Api { .. }) => Err(error.into()),
    }
}

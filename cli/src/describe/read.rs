//! Reads the object that is described.

use std::fmt::Debug;

use anyhow::{Context as _, anyhow};
use kube::api::Api;
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

/// A kind that is described.
pub(super) trait Described:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned
{
}

impl<K> Described for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
{
}

/// Reads an object that has to be there.
pub(super) async fn get<K: Described>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<K> {
    let found = find::<K>(client, namespace, name).await?;
    found.ok_or_else(|| absent::<K>(namespace, name))
}

/// Reads an object; `None`: it is not there.
pub(super) async fn find<K: Described>(
    client: &Client,
    namespace: &str,
    name: &str,
) -> anyhow::Result<Option<K>> {
    let found = Api::<K>::namespaced(client.clone(), namespace).get_opt(name).await;
    found.with_context(|| format!("the {} cannot be read", K::kind(&()).to_lowercase()))
}

/// That an object is not there.
pub(super) fn absent<K: Described>(namespace: &str, name: &str) -> anyhow::Error {
    let (kind, all) = (K::kind(&()).to_lowercase(), K::plural(&()));
    anyhow!(
        "there is no {kind} {name:?} in namespace {namespace}; `kubectl get {all} -A` lists all"
    )
}

//! Reads the object that is described.

use std::fmt::Debug;

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use k8s_openapi::api::events::v1::Event;
use kube::api::Api;
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::found::Found;
use super::sheet::{Page, event_lines};

/// A kind that is described.
pub(crate) trait Described:
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

/// An object with the data that every page shows.
#[derive(Debug)]
pub(super) struct Subject<K> {
    pub(super) object: K,
    /// Says that no core serves the namespace of the object.
    pub(super) unserved: Option<String>,
    /// Oldest first.
    pub(super) events: Vec<Event>,
}

impl<K> Subject<K> {
    /// Says that no core serves the object, or that no core has looked at its last change.
    fn waits(&self, seen: bool) -> Option<String> {
        let unseen = || (!seen).then(|| "the last change was not looked at yet".to_owned());
        self.unserved.clone().or_else(unseen)
    }

    /// The text of a page with its end: whether the object waits to be looked at, and its events.
    pub(super) fn end(&self, mut page: Page, seen: bool, now: Timestamp) -> String {
        if let Some(wait) = self.waits(seen) {
            page.line("Waits for", &wait);
        }
        event_lines(&mut page, &self.events, now);
        page.text()
    }
}

impl<K: Serialize> Subject<K> {
    /// The page and its data.
    pub(super) fn found(&self, page: String, seen: bool) -> Found {
        let waits: Vec<_> = self.waits(seen).into_iter().collect();
        Found::new(page, &self.object, &waits, json!({ "events": self.events }))
    }
}

/// Reads an object that has to be there, and what every page tells of it.
pub(super) async fn subject<K: Described>(
    client: &Client,
    namespace: &str,
    name: &str,
    now: Timestamp,
) -> anyhow::Result<Subject<K>> {
    let object = get::<K>(client, namespace, name).await?;
    let uid = object.meta().uid.as_deref().unwrap_or_default();
    let events = super::events_of(client, namespace, uid).await;
    let unserved = super::unserved(client, namespace, now).await;
    Ok(Subject { object, unserved, events })
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

/// The error for a missing object.
pub(super) fn absent<K: Described>(namespace: &str, name: &str) -> anyhow::Error {
    let (kind, all) = (K::kind(&()).to_lowercase(), K::plural(&()));
    anyhow!(
        "there is no {kind} {name:?} in namespace {namespace}; `kubectl get {all} -A` lists all"
    )
}

//! What a control plane does by itself.
//!
//! * `garbage`: objects whose owners are gone go too; foreground and orphaning deletion.
//! * `namespaces`: what is in a namespace that is being deleted goes, then the namespace.
//! * `budgets`: the status of PodDisruptionBudgets, which evictions are judged by.
//! * `definitions`: accepted names of CustomResourceDefinitions, and their end.
//! * `certificates`: requests of nodes for client certificates are approved and signed.
//! * `nodes`: Nodes whose kubelet is silent, and their pods.
//! * `expiry`: the end of old events, of certificate requests that are done, and of bootstrap
//!   tokens.
//!
//! Each is a `Controller`: it observes every change of the store, in order, and acts on one
//! key at a time, after all that happened before is observed. There are no periodic resyncs;
//! what failed is tried again with growing delays on tokio's clock. Objects are changed by the
//! same requests as everybody sends (`Loopback`), so every rule of the API holds for
//! controllers too.

mod budgets;
mod certificates;
mod conditions;
mod definitions;
mod expiry;
mod feed;
mod garbage;
mod loopback;
mod namespaces;
mod nodes;
mod queue;

use std::{future::Future, hash::Hash, sync::Arc, time::Duration};

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    certificates::Authority,
    context::Context,
    kinds::access::{items, text},
    rest::Served,
    store::{Key, Prefix},
};

pub(crate) use definitions::begin_deletion;
use feed::{Feed, Update};
pub(crate) use loopback::Loopback;
use queue::Queue;

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is nothing to do until something changes.
    Done,
    /// Something was refused or has changed meanwhile: try again, later each time.
    Retry,
    /// Look again after this time even if nothing changes.
    After(Duration),
}

/// One part of the control plane.
pub(super) trait Controller: Send + 'static {
    /// What it acts on.
    type Key: Clone + Ord + Hash + Send;

    /// What it stands on.
    fn plane(&self) -> &Plane;

    /// Forgets what was noted: all of it follows again.
    fn forget(&mut self) {}

    /// Takes note of an object (none: it is gone) and queues what it may concern.
    fn note(&mut self, _key: &Key, _value: Option<&[u8]>, _queue: &mut Queue<Self::Key>) {}

    /// Takes note of a change.
    fn observe(&mut self, update: Update, queue: &mut Queue<Self::Key>) {
        if update.is_all() {
            self.forget();
        }
        for (key, value) in update.objects() {
            self.note(key, value, queue);
        }
    }

    /// Brings one thing to where it should be.
    fn act(&mut self, key: Self::Key) -> impl Future<Output = Outcome> + Send;
}

/// Starts all controllers; each ends when `stop` is cancelled or the store is closed.
pub(crate) fn start(
    tasks: &TaskTracker,
    context: &Context,
    loopback: &Loopback,
    authority: &Arc<Authority>,
    node_grace: Option<Duration>,
    stop: &CancellationToken,
) {
    let plane = Plane {
        context: context.clone(),
        served: Served::new(context.store.clone()),
        loopback: loopback.clone(),
    };
    tasks.spawn(run(garbage::Garbage::new(plane.clone()), stop.clone()));
    tasks.spawn(run(namespaces::Namespaces::new(plane.clone()), stop.clone()));
    tasks.spawn(run(budgets::Budgets::new(plane.clone()), stop.clone()));
    tasks.spawn(run(definitions::Definitions::new(plane.clone()), stop.clone()));
    let certificates = certificates::Certificates::new(plane.clone(), Arc::clone(authority));
    tasks.spawn(run(certificates, stop.clone()));
    if let Some(grace) = node_grace {
        tasks.spawn(run(nodes::Nodes::new(plane.clone(), grace), stop.clone()));
    }
    tasks.spawn(run(expiry::Expiry::new(plane), stop.clone()));
}

async fn run<C: Controller>(mut controller: C, stop: CancellationToken) {
    let mut feed = Feed::new(controller.plane().context.store.clone(), Prefix::all());
    let mut queue = Queue::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            update = feed.next() => match update {
                Some(update) => controller.observe(update, &mut queue),
                None => return,
            },
            key = queue.next() => {
                let outcome = controller.act(key.clone()).await;
                queue.settle(key, outcome);
            }
        }
    }
}

/// A reference from an object to one of its owners.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    api_version: String,
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

/// What all controllers stand on.
#[derive(Clone, Debug)]
pub(super) struct Plane {
    context: Context,
    served: Served,
    loopback: Loopback,
}

impl Plane {
    /// An object as it is stored, if it is there and can be read.
    fn object(&self, key: &Key) -> Option<Value> {
        self.context.store.get(key)?.readable()
    }

    /// The address of an object, if its kind is served now.
    fn path(&self, key: &Key) -> Option<String> {
        let registry = self.served.registry();
        let resource = registry.resources().find(|resource| {
            resource.storage.group == key.group() && resource.storage.plural == key.resource()
        })?;
        let root = if resource.group.is_empty() {
            format!("/api/{}", resource.version)
        } else {
            format!("/apis/{}/{}", resource.group, resource.version)
        };
        let (plural, name) = (&resource.plural, key.name());
        Some(if key.namespace().is_empty() {
            format!("{root}/{plural}/{name}")
        } else {
            format!("{root}/namespaces/{}/{plural}/{name}", key.namespace())
        })
    }
}

/// Whether an object is being deleted.
fn is_deleting(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Whether a list of texts in an object holds one of them.
fn holds(object: &Value, list: &str, wanted: &str) -> bool {
    items(object, list).iter().any(|item| item == wanted)
}

/// How a request of a controller ended: what is gone already needs nothing, what was refused is
/// looked at again.
fn settled(code: StatusCode) -> Outcome {
    if code.is_success() || code == StatusCode::NOT_FOUND { Outcome::Done } else { Outcome::Retry }
}

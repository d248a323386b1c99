//! The controllers of the control plane.
//!
//! * `garbage`: objects whose owners are gone go too; foreground and orphaning deletion.
//! * `namespaces`: what is in a namespace that is being deleted goes, then the namespace.
//! * `budgets`: the status of PodDisruptionBudgets, which evictions are judged by.
//! * `definitions`: accepted names of CustomResourceDefinitions, and their end.
//! * `certificates`: requests of nodes for client certificates are approved and signed.
//! * `nodes`: Nodes with a silent kubelet, deleted Nodes, and their pods.
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
mod definitions;
mod expiry;
mod feed;
mod garbage;
mod loopback;
mod namespaces;
mod nodes;
mod queue;

use std::{
    any::type_name, future::Future, hash::Hash, panic::AssertUnwindSafe, sync::Arc, time::Duration,
};

use futures::FutureExt as _;
use http::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    auth::certificates::Authority,
    context::Context,
    kinds::access::{items, text},
    rest::Served,
    store::{Key, Prefix},
};

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
    /// The key of a unit of work.
    type Key: Clone + Ord + Hash + Send;

    /// The shared base of the controllers.
    fn plane(&self) -> &Plane;

    /// Forgets all notes: all objects are noted again.
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

    /// Reconciles one key.
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
                Some(update) => {
                    guarded::<C, _>(async { controller.observe(update, &mut queue) }).await;
                }
                None => return,
            },
            key = queue.next() => {
                let outcome = guarded::<C, _>(controller.act(key.clone())).await;
                queue.settle(key, outcome.unwrap_or(Outcome::Retry));
            }
        }
    }
}

/// What a part of a controller's work came to; none if it panicked. What goes wrong with one object must not
/// end the controller for all.
async fn guarded<C, T>(work: impl Future<Output = T>) -> Option<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    if done.is_err() {
        tracing::error!(controller = type_name::<C>(), "a controller panicked");
    }
    done.ok()
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

/// Characters that are escaped in an address.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b':');

/// The shared parts of all controllers.
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

    /// The address of an object, if its kind is served now: in the storage version, if that is served.
    fn path(&self, key: &Key) -> Option<String> {
        let registry = self.served.registry();
        let same = registry.resources().filter(|resource| {
            resource.storage.group == key.group() && resource.storage.plural == key.resource()
        });
        let resource = same.max_by_key(|resource| resource.is_stored_version())?;
        let root = if resource.group.is_empty() {
            format!("/api/{}", resource.version)
        } else {
            format!("/apis/{}/{}", resource.group, resource.version)
        };
        let (plural, name) = (&resource.plural, utf8_percent_encode(key.name(), ENCODED));
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Response;
    use tokio::sync::mpsc;

    use super::*;
    use crate::store::{Change, Expect, Store, StoreOptions};

    /// Tells the name of each object that it acts on, and panics at two of them.
    struct Fragile {
        plane: Plane,
        acted: mpsc::UnboundedSender<String>,
    }

    impl Controller for Fragile {
        type Key = Key;

        fn plane(&self) -> &Plane {
            &self.plane
        }

        fn note(&mut self, key: &Key, _value: Option<&[u8]>, queue: &mut Queue<Key>) {
            assert_ne!(key.name(), "unreadable");
            queue.push(key.clone());
        }

        async fn act(&mut self, key: Key) -> Outcome {
            assert_ne!(key.name(), "impossible");
            self.acted.send(key.name().to_owned()).unwrap();
            Outcome::Done
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_makes_a_controller_panic_does_not_end_it() {
        let store = Store::open(StoreOptions::memory()).await.unwrap();
        let clock: crate::clock::Clock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
        let context = Context { store: store.clone(), clock };
        let nobody = tower::service_fn(async |_| Ok::<_, Infallible>(Response::default()));
        let (served, loopback) = (Served::new(store.clone()), Loopback::new(nobody));
        let (acted, mut told) = mpsc::unbounded_channel();
        let fragile = Fragile { plane: Plane { context, served, loopback }, acted };
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(run(fragile, stop.clone()));
        for name in ["first", "unreadable", "impossible", "last"] {
            let (key, change) = (Key::new("", "nodes", "", name), Change::Put("{}".into()));
            store.write(key, Expect::Absent, change).await.unwrap();
        }
        assert_eq!(
            (told.recv().await, told.recv().await),
            (Some("first".into()), Some("last".into()))
        );
        stop.cancel();
    }
}

//! Events that may wake a kind. Each kind's `triggers.rs` says which keys of its queue an event wakes.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use ostler_api::{
    Machine, MachineClass, MachineDeployment, MachineHealthCheck, MachinePool, MachineReserve,
    MachineSet, ProviderName, Uid,
};
use ostler_lifecycle::set::gathers;

use crate::kind::Kind;
use crate::queue::{Priority, Queue};
use crate::settings::Settings;
use crate::stores::{Stores, differs};
use crate::target::Target;
use crate::watch::{Change, ObjectName};

/// A listener to events. A kind adds the concerned keys to its queue. Must not block.
pub(crate) trait Triggers: Send + Sync {
    /// A Machine changed.
    fn machine(&self, _: &Change<Machine>) {}
    /// A class changed.
    fn class(&self, _: &Change<MachineClass>) {}
    /// A secret changed.
    fn secret(&self, _: &Change<Secret>) {}
    /// A set changed.
    fn set(&self, _: &Change<MachineSet>) {}
    /// A deployment changed.
    fn deployment(&self, _: &Change<MachineDeployment>) {}
    /// A pool changed.
    fn pool(&self, _: &Change<MachinePool>) {}
    /// A health check changed.
    fn check(&self, _: &Change<MachineHealthCheck>) {}
    /// A reserve changed.
    fn reserve(&self, _: &Change<MachineReserve>) {}
    /// A Node changed, in more than its heartbeat.
    fn node(&self, _: &Target, _: &Change<Node>) {}
    /// A pod changed.
    fn pod(&self, _: &Target, _: &Change<Pod>) {}
    /// A budget changed.
    fn budget(&self, _: &Target, _: &Change<PodDisruptionBudget>) {}
    /// A VolumeAttachment changed.
    fn attachment(&self, _: &Target, _: &Change<VolumeAttachment>) {}
    /// A cache that drains need is complete for the first time.
    fn drains(&self) {}
    /// A target cluster became available or unavailable.
    fn cluster(&self, _: &ObjectName) {}
    /// A target cluster is not watched any more.
    fn closed(&self, _: &Target) {}
    /// API servers stopped answering, or answer again: that of this target cluster, or (`None`) that of the control cluster
    /// or the only target cluster.
    fn health(&self, _: Option<&ObjectName>) {}
    /// Everything may have changed.
    fn everything(&self) {}
    /// Something happened to an operation on the object with this UID.
    fn operation(&self, _: &Uid) {}
    /// The driver of a provider came or went.
    fn driver(&self, _: &ProviderName, _: DriverChange) {}
    /// A driver said something of the instance of a Machine by itself.
    fn instance(&self, _: &Machine) {}
}

/// All listeners to events. Cheap to clone.
#[derive(Clone)]
pub(crate) struct AllTriggers(Arc<[Arc<dyn Triggers>]>);

impl AllTriggers {
    pub(crate) fn new(all: Vec<Arc<dyn Triggers>>) -> Self {
        Self(all.into())
    }

    /// Reports a changed Node to each listener, unless only its heartbeat changed.
    pub(crate) fn node(&self, target: &Target, change: &Change<Node>) {
        let both = change.old.as_ref().zip(change.new.as_ref());
        if both.is_none_or(|(old, new)| differs(old, new)) {
            self.tell(|it| it.node(target, change));
        }
    }

    /// Calls `news` with each listener.
    pub(crate) fn tell(&self, news: impl Fn(&dyn Triggers)) {
        self.0.iter().for_each(|it| news(it.as_ref()));
    }
}

/// The queue of a kind, and the state for its triggers.
pub(crate) struct Woken<K: Kind, T = ()> {
    pub(crate) queue: Arc<Queue<K::Key>>,
    pub(crate) stores: Stores,
    pub(crate) settings: Arc<Settings>,
    /// State shared by passes of the kind and its triggers.
    pub(crate) own: T,
}

impl<K: Kind, T> Woken<K, T> {
    pub(crate) fn add_all(&self, keys: impl IntoIterator<Item = K::Key>, priority: Priority) {
        keys.into_iter().for_each(|key| self.queue.add(key, priority));
    }
}

/// A change of a driver's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriverChange {
    /// A driver is ready.
    Came,
    /// The driver is disconnected.
    Went,
}

impl DriverChange {
    pub(crate) fn priority(self) -> Priority {
        match self {
            Self::Came => Priority::Change,
            Self::Went => Priority::Background,
        }
    }
}

/// For how long changes of many Machines are gathered.
const GATHERED: Duration = Duration::from_secs(1);
/// More Machines than this are many.
const MANY: usize = 100;

/// Adds an object, a pass over which looks at so many Machines, since a Machine changed: many changes of many Machines
/// are a single pass.
pub(crate) fn add_gathered(
    queue: &Queue<ObjectName>,
    name: ObjectName,
    machines: usize,
    priority: Priority,
) {
    if machines > MANY {
        queue.add_after(&name, GATHERED);
    } else {
        queue.add(name, priority);
    }
}

/// Adds a key because a Machine of a set changed: after the time for which the set gathers changes.
pub(crate) fn add_of_set<K>(queue: &Queue<K>, key: K, set: &MachineSet, priority: Priority)
where
    K: Clone + Debug + Eq + Hash + Send + 'static,
{
    match gathers(set) {
        Some(time) => queue.add_after(&key, time),
        None => queue.add(key, priority),
    }
}

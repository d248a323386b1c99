//! The last records of the previous core. A lagging cache may lack them when the first driver connects, and the
//! operations of a driver are compared with them.

use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

use ostler_api::Machine;

use super::{MachineIndex, Stores};
use crate::watch::Revision;

/// Machines with an intent, by UID, as the API had them when this core began to lead. There are as many as operations
/// in flight, so few compared with all Machines.
#[derive(Debug, Default)]
pub(crate) struct Inherited(RwLock<HashMap<String, Arc<Machine>>>);

impl Inherited {
    /// Keeps the Machines that have an intent.
    pub(crate) fn keep(&self, machines: impl IntoIterator<Item = Machine>) {
        let intending = machines.into_iter().filter(|machine| machine.intent().is_some());
        let mut kept = self.0.write();
        kept.extend(intending.map(|machine| (machine.uid().to_owned(), Arc::new(machine))));
    }

    fn get(&self, uid: &str) -> Option<Arc<Machine>> {
        self.0.read().get(uid).cloned()
    }
}

impl Stores {
    /// The newest known version of the Machine with this UID.
    pub(crate) fn machine_with_intent(&self, uid: &str) -> Option<Arc<Machine>> {
        let found = self.machines.find(MachineIndex::Uid, uid);
        let inherited = self.inherited.get(uid);
        let [cached] = found.as_slice() else {
            return inherited.filter(|_| found.is_empty());
        };
        let revision =
            |machine: &Machine| Revision::of(machine.metadata.resource_version.as_deref());
        let newer = |kept: &Arc<Machine>| revision(cached).is_older_than(revision(kept));
        inherited.filter(newer).or_else(|| Some(Arc::clone(cached)))
    }
}

//! The Machines of a set or a reserve, as far as its own writes are seen.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::Machine;
use ostler_lifecycle::set::{Blind, LAG};

use super::pending::Unseen;
use super::{Handover, Pending};
use crate::client::{WriteError, Writer};
use crate::kind::PassError;
use crate::settings::Settings;
use crate::stores::{MachineIndex, Stores};
use crate::watch::{Found, ObjectName};

/// How often it is checked whether a Machine that cannot be read has become readable.
const UNREADABLE: Duration = Duration::from_mins(1);

/// Looks for one kind of owners.
pub(crate) struct Seer<'a> {
    pub(crate) writer: &'a Writer,
    pub(crate) stores: &'a Stores,
    pub(crate) pending: &'a Pending,
    /// When to look again although nothing changed.
    pub(crate) resync: Duration,
}

/// The Machines seen by a pass.
pub(crate) struct Seen {
    pub(crate) machines: Vec<Arc<Machine>>,
    /// Names of Machines whose creation got no answer.
    pub(crate) unanswered: Vec<String>,
    /// Why there may be others.
    pub(crate) blind: Option<Blind>,
    /// When to look again.
    pub(crate) again: Duration,
}

impl Seer<'_> {
    /// How much longer the process that led before may have requests on their way; `None`: none any more.
    pub(crate) async fn predecessor(
        &self,
        handover: &Handover,
        settings: &Settings,
        seen: impl Fn(&Found<Machine>),
    ) -> Result<Option<Duration>, PassError> {
        let parts = settings.namespaces.parts();
        handover.wait(self.writer, &parts, seen).await.map_err(list_failed)
    }

    /// The Machines that the cache has of an owner or, where its writes should be seen by now and are not, the API server.
    pub(crate) async fn see(
        &self,
        owner: &str,
        namespace: &str,
        predecessor: Option<Duration>,
        cached: impl FnOnce() -> Vec<Arc<Machine>>,
        concerns: impl Fn(&Machine) -> bool,
    ) -> Result<Seen, PassError> {
        let store = &self.stores.machines;
        let by_name = |name: &str| store.get(&ObjectName::new(namespace, name));
        let by_uid = |uid: &str| store.find(MachineIndex::Uid, uid).into_iter().next();
        let Unseen { mut unanswered, wait } = self.pending.compare(owner, by_name, by_uid);
        let mut machines = cached();
        let (mut blind, mut again) = (None, self.resync);
        match wait {
            Some(left) if left.is_zero() => {
                let all = self.writer.all::<Machine>(Some(namespace)).await;
                let Found { objects: all, unreadable, .. } = all.map_err(list_failed)?;
                blind = unreadable.map(Blind::Unreadable);
                let open = self.pending.settle(owner, &all);
                unanswered = open.unanswered;
                if let Some(left) = open.wait {
                    (blind, again) = (Some(Blind::OwnWrites), left);
                }
                machines = all.into_iter().filter(|machine| concerns(machine)).collect();
            }
            Some(left) => (blind, again) = (Some(Blind::OwnWrites), left),
            None => {}
        }
        if !unanswered.is_empty() {
            again = again.min(LAG);
        }
        if let Some(left) = predecessor {
            (blind, again) = (Some(Blind::Predecessor), left);
        } else if blind.is_none() {
            blind = store.unreadable_in(namespace).map(Blind::Unreadable);
        }
        if matches!(blind, Some(Blind::Unreadable(_))) {
            again = again.min(UNREADABLE);
        }
        Ok(Seen { machines, unanswered, blind, again })
    }
}

fn list_failed(source: WriteError) -> PassError {
    PassError::Api { what: "cannot list the machines of a set", source }
}

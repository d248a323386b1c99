//! The snapshot of a pass over a reserve.

use std::sync::Arc;

use ostler_api::names::{MACHINE_DEPLOYMENT, MACHINE_SET};
use ostler_api::{Machine, MachineReserve, MachineSet};
use ostler_lifecycle::owner::is_controlled_by;
use ostler_lifecycle::reserve::{ReserveTarget, Snapshot, is_given};
use ostler_lifecycle::set::is_active;

use super::Reserves;
use crate::kind::PassError;
use crate::set::{Seen, Seer};
use crate::stores::{MachineIndex, SetIndex};
use crate::watch::{Found, ObjectName};

impl Reserves {
    pub(super) async fn gather(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        let Some(reserve) = self.tools.stores.reserves.get(name) else { return Ok(None) };
        let listed = |found: &Found<Machine>| {
            found.objects.iter().for_each(|it| self.tools.stores.await_listed(it));
        };
        let (writer, stores) = (&self.tools.writer, &self.tools.stores);
        let seer = Seer { writer, stores, resync: self.tools.settings.resync };
        let left = seer.predecessor(&self.handover, &self.tools.settings, listed).await?;
        let uid = reserve.uid();
        let own = |machine: &Machine| is_controlled_by(&machine.metadata, uid);
        let cached = || stores.machines.find(MachineIndex::Controller, uid);
        let Seen { machines, unanswered, blind, again } =
            seer.see(uid, &name.namespace, left, cached, own).await?;
        let named = reserve.status.iter().flat_map(|status| &status.machines);
        let named =
            named.filter_map(|it| stores.machines.get(&ObjectName::new(&name.namespace, it)));
        let target = self.target(&reserve, &name.namespace);
        let class =
            target.facts().map(|it| ObjectName::new(&name.namespace, &it.template.spec.class.name));
        Ok(Some(Snapshot {
            given: named.filter(|it| is_given(it, &reserve)).count() + self.given.count(&reserve),
            has: self.machines_of(&target),
            has_class: class.is_some_and(|class| stores.classes.get(&class).is_some()),
            seed: rand::random(),
            now: self.tools.now(),
            reserve: Arc::clone(&reserve),
            target,
            machines,
            unanswered,
            blind,
            again,
        }))
    }

    fn machines_of(&self, target: &ReserveTarget) -> usize {
        let of = |set: &Arc<MachineSet>| {
            let all = self.tools.stores.machines.find(MachineIndex::Controller, set.uid());
            all.iter().filter(|it| is_active(it)).count()
        };
        match target {
            ReserveTarget::Unknown(_) | ReserveTarget::Gone => 0,
            ReserveTarget::Deployment(_, sets) => sets.iter().map(of).sum(),
            ReserveTarget::Set(set) => of(set),
        }
    }

    fn target(&self, reserve: &MachineReserve, namespace: &str) -> ReserveTarget {
        let of = &reserve.spec.target_ref;
        let (name, stores) = (ObjectName::new(namespace, &of.name), &self.tools.stores);
        let (found, unread) = match of.kind.as_str() {
            MACHINE_SET => (
                stores.sets.get(&name).map(ReserveTarget::Set),
                stores.sets.unreadable_in(namespace),
            ),
            MACHINE_DEPLOYMENT => {
                let sets = |uid: &str| stores.sets.find(SetIndex::Controller, uid);
                let found = stores.deployments.get(&name);
                let found =
                    found.map(|it| ReserveTarget::Deployment(Arc::clone(&it), sets(it.uid())));
                (found, stores.deployments.unreadable_in(namespace))
            }
            _ => (None, None),
        };
        found.or_else(|| unread.map(ReserveTarget::Unknown)).unwrap_or(ReserveTarget::Gone)
    }
}

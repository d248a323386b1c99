//! Builds the snapshot from the caches.

use std::sync::Arc;
use std::time::Duration;

use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::deployment::snapshot::{MachineView, SetView, Snapshot};
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::selector;
use ostler_lifecycle::write::Same;

use super::Deployments;
use crate::client::WriteError;
use crate::handover::Stage;
use crate::kind::PassError;
use crate::machine::node_view;
use crate::stores::{DeploymentIndex, MachineIndex, SetIndex};
use crate::unseen::{Effect, Sent};
use crate::watch::ObjectName;

/// When to look again whether the cache shows what the API server has.
const LAG: Duration = Duration::from_secs(1);

impl Deployments {
    /// For how long there may be sets of a deployment, or their wishes, that the cache does not show: until the last
    /// requests of the former leader, and of this one, are over and seen.
    pub(super) async fn unsure(
        &self,
        deployment: &MachineDeployment,
    ) -> Result<Option<Duration>, PassError> {
        match self.handover.stage().await {
            Stage::Wait(left) => return Ok(Some(left)),
            Stage::List(mut listed) => {
                if !self.sees_all().await.map_err(unread)? {
                    return Ok(Some(LAG));
                }
                *listed = true;
            }
            Stage::Over => {}
        }
        self.unseen(deployment).await
    }

    /// For how long there may be sets of another generation. A set that is not seen, or that may still grow, would not be
    /// counted: a pass for another template would want as many Machines once more. A pass for the same generation repeats
    /// its writes, since the name follows from the template, and each write is on condition of the version.
    async fn unseen(&self, deployment: &MachineDeployment) -> Result<Option<Duration>, PassError> {
        let (unseen, owner) = (&self.tools.stores.unseen, deployment.uid());
        let namespace = deployment.namespace();
        let is_cached =
            |set: &str| self.tools.stores.sets.get(&ObjectName::new(namespace, set)).is_some();
        let open = unseen.compare(owner, |of, set, sent| {
            sent.may_arrive() || sent.answered && of == Effect::Created && !is_cached(set)
        });
        let Some(open) = open.filter(|it| it.generation != deployment.metadata.generation) else {
            return Ok(None);
        };
        let unanswered = open.sent.values().filter(|sent| !sent.answered);
        if let Some(left) = unanswered.map(Sent::left).max() {
            return Ok(Some(left));
        }
        for set in open.keys(Effect::Created) {
            let api = self.tools.writer.api::<MachineSet>(namespace);
            if self.tools.writer.get(&api, set).await.map_err(unread)?.is_none() {
                let gone = Err(&WriteError::NotFound);
                unseen.answered(owner, (Effect::Created, set), gone);
            }
        }
        Ok(Some(LAG))
    }

    /// Whether the cache has every set that there is, as its spec and metadata are.
    async fn sees_all(&self) -> Result<bool, WriteError> {
        let sets = &self.tools.stores.sets;
        for namespace in self.tools.settings.namespaces.parts() {
            // By the cache, an unreadable set holds up the deployments of its namespace.
            let mut all = self.tools.writer.all::<MachineSet>(namespace.as_deref()).await?.objects;
            // For a prefix the list has every set of the cluster, and the cache only sets of the served namespaces.
            all.retain(|set| {
                self.tools.settings.namespaces.contains(&ObjectName::of(set.as_ref()).namespace)
            });
            let seen = |set: &Arc<MachineSet>| {
                let seen = sets.get(&ObjectName::of(set.as_ref()));
                seen.is_some_and(|seen| {
                    Same::AllButStatus(LAG).holds(&seen.metadata, &set.metadata)
                })
            };
            if !all.iter().all(seen) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn snapshot(
        &self,
        name: &ObjectName,
        deployment: Arc<MachineDeployment>,
    ) -> Snapshot {
        let sets = self.tools.stores.sets.find(SetIndex::Controller, deployment.uid());
        let class = ObjectName::new(&name.namespace, &deployment.spec.template.spec.class.name);
        Snapshot {
            class: self.tools.stores.classes.get(&class),
            unreadable: self.tools.stores.sets.unreadable_in(&name.namespace),
            again: self.tools.settings.resync,
            sets: sets.into_iter().map(|set| self.set_view(set)).collect(),
            orphans: self.orphans(&deployment),
            others: self.tools.stores.deployments.find(DeploymentIndex::Namespace, &name.namespace),
            guard_nodes: self.tools.settings.fleet.keep_autoscaler_away,
            now: self.tools.now(),
            deployment,
        }
    }

    fn set_view(&self, set: Arc<MachineSet>) -> SetView {
        let machines = self.tools.stores.machines.find(MachineIndex::Controller, set.uid());
        let machines = machines.into_iter().map(|it| self.machine_view(it)).collect();
        let namespace = set.namespace();
        let class = ObjectName::new(namespace, &set.spec.template.spec.class.name);
        SetView { machines, class: self.tools.stores.classes.get(&class), set }
    }

    fn machine_view(&self, machine: Arc<Machine>) -> MachineView {
        let view = node_view(&machine, &self.tools.stores.targets.of(&machine), &self.tools.stores);
        MachineView { node: view.serving().cloned(), machine }
    }

    fn orphans(&self, deployment: &MachineDeployment) -> Vec<Arc<MachineSet>> {
        let Some(selector) = &deployment.spec.selector else { return Vec::new() };
        let mut sets = self.tools.stores.sets.find(SetIndex::Namespace, deployment.namespace());
        sets.retain(|set| {
            controller(&set.metadata).is_none()
                && selector::matches(selector, set.metadata.labels.as_ref())
        });
        sets
    }
}

fn unread(source: WriteError) -> PassError {
    PassError::Api { what: "cannot read the machine sets", source }
}

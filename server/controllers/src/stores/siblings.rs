//! The members of a MachineDeployment, for its replacement budget.

use std::sync::Arc;

use ostler_api::machine::MachinePhase;
use ostler_api::{Machine, MachineDeployment, MachineSet};
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::replacement::{Members, Sibling, Siblings, limit};
use ostler_lifecycle::snapshot::Settings;

use super::{DeploymentIndex, MachineIndex, SetIndex, Stores, deployment};
use crate::watch::ObjectName;

/// A MachineDeployment and its members.
struct Family {
    /// `namespace/name`.
    deployment: String,
    object: Option<Arc<MachineDeployment>>,
    members: Vec<Arc<Machine>>,
}

impl Stores {
    /// The MachineDeployment of a machine, if this process runs sets.
    fn head(&self, machine: &Machine) -> Option<Arc<MachineDeployment>> {
        let set = controller(&machine.metadata)
            .and_then(|owner| self.sets.find(SetIndex::Uid, &owner.uid).into_iter().next())?;
        let owner = controller(&set.metadata)?;
        self.deployments.find(DeploymentIndex::Uid, &owner.uid).into_iter().next()
    }

    /// The family of a machine: by its controller if this process runs sets, else by its label.
    fn family(&self, machine: &Machine) -> Option<Family> {
        if let Some(object) = self.head(machine) {
            let members = self.members(&object, MachineIndex::Controller);
            let deployment = ObjectName::of(object.as_ref()).to_string();
            return Some(Family { deployment, object: Some(object), members });
        }
        let deployment = deployment(machine)?;
        let members = self.machines.find(MachineIndex::Deployment, &deployment);
        Some(Family { deployment, object: None, members })
    }

    fn members(&self, deployment: &MachineDeployment, index: MachineIndex) -> Vec<Arc<Machine>> {
        let sets = self.sets.find(SetIndex::Controller, deployment.uid());
        let of = |set: &Arc<MachineSet>| self.machines.find(index, set.uid());
        sets.iter().flat_map(of).collect()
    }

    /// Members that wait for the budget.
    pub(crate) fn waiting_of(&self, deployment: &MachineDeployment) -> Vec<ObjectName> {
        let waiting = self.members(deployment, MachineIndex::WaitsForBudget);
        waiting.iter().map(|it| ObjectName::of(it.as_ref())).collect()
    }

    /// The other members that matter to the budget of `machine`. Their number is small whatever the size of the
    /// MachineDeployment: healthy and unhealthy members are not included.
    pub(crate) fn siblings(&self, machine: &Machine, settings: &Settings) -> Siblings {
        let Some(family) = self.family(machine) else { return Siblings::default() };
        let object = family.object.as_deref();
        let wanted = object.and_then(|it| usize::try_from(it.spec.replicas()).ok());
        let members = || family.members.iter().map(AsRef::as_ref);
        let others = members().filter(|member| member.uid() != machine.uid());
        Siblings {
            in_flight: others.filter_map(|member| Sibling::of(member, settings)).collect(),
            members: Members::of(members(), wanted.unwrap_or_default()),
            limit: object.map_or(1, limit),
            deployment: Some(family.deployment),
            last_failure: None,
        }
    }

    /// The member that may fail next after the change from `before` to `after`: the longest unhealthy one, if the
    /// change frees the budget or ends a mass failure.
    pub(crate) fn next_in_line(
        &self,
        before: &Machine,
        after: Option<&Machine>,
        settings: &Settings,
    ) -> Option<ObjectName> {
        let is_unhealthy = |it: &Machine| it.phase() == MachinePhase::Unknown;
        let held = Sibling::of(before, settings);
        let frees = held.is_some() && after.and_then(|it| Sibling::of(it, settings)) != held;
        if !frees && (!is_unhealthy(before) || after.is_some_and(is_unhealthy)) {
            return None;
        }
        let index = MachineIndex::WaitsForBudget;
        let waiting = match self.head(before) {
            Some(head) => self.members(&head, index),
            None => self.machines.find(index, &deployment(before)?),
        };
        let first = waiting.iter().min_by_key(|member| unhealthy_since(member))?;
        Some(ObjectName::of(first.as_ref()))
    }
}

fn unhealthy_since(machine: &Machine) -> Option<jiff::Timestamp> {
    let status = machine.status.as_ref();
    let current = status.and_then(|status| status.current_status.as_ref());
    current.and_then(|current| current.last_update_time.as_ref()).map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::target::Targets;

    fn member(name: &str, phase: &str, since: &str, waits: Option<&str>) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "labels": { "name": "pool" }
            },
            "spec": {},
            "status": {
                "currentStatus": { "phase": phase, "lastUpdateTime": since },
                "waitingFor": waits.map(|reason| json!({ "reason": reason }))
            }
        }))
        .unwrap()
    }

    fn store(members: &[Machine]) -> Stores {
        let stores = Stores::new(Targets::None);
        for member in members {
            stores.machines.apply(Event::Apply(member.clone()));
        }
        stores
    }

    const EARLY: &str = "2026-01-01T00:00:00Z";
    const LATE: &str = "2026-01-01T00:01:00Z";

    #[test]
    fn only_siblings_of_the_same_deployment_that_are_in_flight_count() {
        let asks = member("a", "Unknown", EARLY, None);
        let mut foreign = member("d", "Failed", EARLY, None);
        foreign.metadata.labels = Some([("name".to_owned(), "other".to_owned())].into());
        let failed = member("b", "Failed", EARLY, None);
        let stores = store(&[asks.clone(), failed, member("c", "Running", EARLY, None), foreign]);
        let found = stores.siblings(&asks, &Settings::default());
        let names: Vec<_> = found.in_flight.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["b"]);
        assert_eq!((found.members.living, found.members.unhealthy), (3, 1));
    }

    #[test]
    fn the_member_that_waits_for_longest_is_next() {
        let budget = Some("ReplacementBudget");
        let late = member("late", "Unknown", LATE, budget);
        let early = member("early", "Unknown", EARLY, budget);
        let busy = member("busy", "Unknown", "2025-01-01T00:00:00Z", Some("NodeUnhealthy"));
        let stores = store(&[late, early, busy]);
        let settings = Settings::default();
        let before = member("x", "Pending", EARLY, None);
        let after = member("x", "Running", LATE, None);
        let next = stores.next_in_line(&before, Some(&after), &settings);
        assert_eq!(next, Some(ObjectName::new("default", "early")));
        assert_eq!(
            stores.next_in_line(&before, None, &settings),
            next,
            "a deletion frees the budget as well"
        );
        assert_eq!(stores.next_in_line(&before, Some(&before), &settings), None);
        assert_eq!(
            stores.next_in_line(&after, None, &settings),
            None,
            "it did not occupy the budget"
        );
    }
}

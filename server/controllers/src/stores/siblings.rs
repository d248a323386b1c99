//! The members of a MachineDeployment, for its replacement budget.

use ostler_api::Machine;
use ostler_api::machine::{MachinePhase, WaitReason};
use ostler_lifecycle::replacement::Sibling;
use ostler_lifecycle::snapshot::Settings;

use super::{MachineIndex, Stores, deployment};
use crate::watch::ObjectName;

impl Stores {
    /// The other members that matter to the budget of `machine`. They are few whatever the size of the
    /// MachineDeployment: healthy and unhealthy ones are not among them.
    pub(crate) fn siblings(&self, machine: &Machine, settings: &Settings) -> Vec<Sibling> {
        let Some(deployment) = deployment(machine) else { return Vec::new() };
        let members = self.machines.find(MachineIndex::Deployment, &deployment);
        let others = members.iter().filter(|member| member.uid() != machine.uid());
        others.filter_map(|member| Sibling::of(member, settings)).collect()
    }

    /// The member that may fail next when `before` has become `after`: the one that has been unhealthy for longest,
    /// if the change frees the budget.
    pub(crate) fn next_in_line(
        &self,
        before: &Machine,
        after: Option<&Machine>,
        settings: &Settings,
    ) -> Option<ObjectName> {
        let deployment = deployment(before)?;
        let held = Sibling::of(before, settings)?;
        if after.and_then(|after| Sibling::of(after, settings)).is_some_and(|now| now == held) {
            return None;
        }
        let members = self.machines.find(MachineIndex::Deployment, &deployment);
        let waiting = members.iter().filter(|member| waits(member));
        let first = waiting.min_by_key(|member| unhealthy_since(member))?;
        Some(ObjectName::of(first.as_ref()))
    }
}

fn waits(machine: &Machine) -> bool {
    let status = machine.status.as_ref();
    let reason = status.and_then(|status| status.waiting_for.as_ref()).map(|wait| &wait.reason);
    machine.phase() == MachinePhase::Unknown && reason == Some(&WaitReason::ReplacementBudget)
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
        let names: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["b"]);
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

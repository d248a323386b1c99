//! The comparison of Nodes' provider ids with Machines', as defined by the drivers.

use std::sync::Arc;

use ostler_api::{Machine, ProviderId, ProviderIdComparison};
use ostler_lifecycle::machine::{has_own_instance, holder};
use ostler_lifecycle::node::IdComparison;
use ostler_sessions::IdComparisons;

use super::{MachineIndex, Stores};
use crate::settings::Settings;
use crate::target::cluster_of;
use crate::watch::ObjectName;

/// Where to learn the drivers' comparison of ids.
#[derive(Debug)]
pub(crate) struct Drivers {
    said: IdComparisons,
    settings: Arc<Settings>,
}

impl Stores {
    /// Names the source of drivers' comparisons. The first source stays.
    pub(crate) fn compare_ids_as(&self, said: IdComparisons, settings: &Arc<Settings>) {
        self.drivers.get_or_init(|| Drivers { said, settings: Arc::clone(settings) });
    }

    /// The comparison of Nodes' provider ids with a Machine's.
    pub(crate) fn id_comparison(&self, machine: &Machine) -> IdComparison {
        let said = self.said_comparison(machine);
        let twin = said.and_then(|by| self.twin_of(machine, by));
        IdComparison { said, twin, undecided: None }
    }

    /// Where there are no drivers to ask, as in a test, the same letters count.
    fn said_comparison(&self, machine: &Machine) -> Option<ProviderIdComparison> {
        let Some(Drivers { said, settings }) = self.drivers.get() else {
            return Some(ProviderIdComparison::Exact);
        };
        let namespace = machine.namespace();
        let class = ObjectName::new(namespace, &machine.spec.class.name);
        let of_class = || Some(self.class_or_last_known(&class)?.provider().into());
        let provider = holder(machine).or_else(of_class)?;
        said.of(&settings.driver_name(provider.as_str()))
    }

    /// Another Machine of the same cluster whose instance has another id that counts as equal.
    fn twin_of(&self, machine: &Machine, by: ProviderIdComparison) -> Option<String> {
        let own = machine.instance_id().filter(|_| by != ProviderIdComparison::Exact)?;
        let ending = ProviderId::ending(own.as_str())?;
        let twin = self.machines.find(MachineIndex::Ending, &ending).into_iter().find(|other| {
            other.uid() != machine.uid()
                && cluster_of(other) == cluster_of(machine)
                && has_own_instance(other)
                && other.instance_id().is_some_and(|id| id != own && own.equals(id.as_str(), by))
        });
        Some(twin?.name().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::runtime::watcher::Event;
    use ostler_api::MachineClass;
    use serde_json::json;

    use super::*;

    /// A Machine with an instance id from its driver.
    fn machine(name: &str, id: &str) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": name, "namespace": "default", "uid": name },
            "spec": { "class": { "name": "c" }, "providerID": id },
            "status": { "instanceUID": name, "instanceProviderID": id },
        }))
        .unwrap()
    }

    fn node(id: &str) -> Node {
        let node = json!({ "metadata": { "name": "n" }, "spec": { "providerID": id } });
        serde_json::from_value(node).unwrap()
    }

    fn world(machines: &[&Machine]) -> (Stores, IdComparisons) {
        let (stores, said) = (Stores::default(), IdComparisons::default());
        stores.compare_ids_as(said.clone(), &Arc::new(Settings::default()));
        let class: MachineClass = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": { "name": "c", "namespace": "default" }, "provider": "p",
        }))
        .unwrap();
        stores.classes.apply(Event::Apply(class));
        for one in machines {
            stores.machines.apply(Event::Apply((*one).clone()));
        }
        (stores, said)
    }

    #[test]
    fn ids_are_compared_as_the_driver_of_the_class_said_and_nothing_is_known_before() {
        let ours = machine("ours", "a:///1");
        let (stores, said) = world(&[&ours]);
        assert_eq!(stores.id_comparison(&ours).said, None);
        said.set(&"other".into(), ProviderIdComparison::LastSegment);
        assert_eq!(stores.id_comparison(&ours).said, None);
        said.set(&"p".into(), ProviderIdComparison::CaseInsensitive);
        assert_eq!(stores.id_comparison(&ours).by(), ProviderIdComparison::CaseInsensitive);
    }

    #[test]
    fn a_node_in_capitals_is_that_of_the_machine_whose_driver_compares_so_and_of_no_other() {
        let (ours, mut thief) = (machine("ours", "a:///x/vm"), machine("thief", "A:///X/VM"));
        thief.status = None;
        let (stores, said) = world(&[&ours, &thief]);
        said.set(&"p".into(), ProviderIdComparison::CaseInsensitive);
        assert_eq!(stores.id_comparison(&ours).twin, None, "a spec alone is no instance");
        assert!(stores.is_node_of_another(&thief, &node("A:///X/VM")));
        assert!(!stores.is_node_of_another(&ours, &node("A:///X/VM")));
    }

    #[test]
    fn two_instances_whose_ids_count_as_equal_are_told_by_the_same_letters_alone() {
        let (one, other) = (machine("one", "a:///x/vm"), machine("other", "a:///x/VM"));
        let (stores, said) = world(&[&one, &other]);
        said.set(&"p".into(), ProviderIdComparison::CaseInsensitive);
        for (machine, twin) in [(&one, "other"), (&other, "one")] {
            let comparison = stores.id_comparison(machine);
            assert_eq!(comparison.twin.as_deref(), Some(twin));
            assert_eq!(comparison.by(), ProviderIdComparison::Exact);
        }
        assert!(stores.is_node_of_another(&other, &node("a:///x/vm")));
        assert!(!stores.is_node_of_another(&one, &node("a:///x/vm")));
        for machine in [&one, &other] {
            assert!(!stores.is_node_of_another(machine, &node("A:///X/vm")), "it is of neither");
        }
    }
}

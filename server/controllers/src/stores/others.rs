//! Finds the owner of an instance or Node that a driver reports: what belongs to another Machine is not used.

use ostler_api::ProviderId;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use ostler_api::Machine;
use ostler_lifecycle::machine::has_own_instance;
use ostler_lifecycle::node;

use super::{MachineIndex, Stores};
use crate::target::cluster_of;
use crate::watch::ObjectName;

impl Stores {
    /// Name of another Machine with the instance of the provider id, or with the UID on the instance.
    pub(crate) fn other_holder(
        &self,
        machine: &Machine,
        provider_id: &ProviderId,
        tagged: &str,
    ) -> Option<String> {
        let of_uid = || {
            let tagged = Some(tagged).filter(|it| !it.is_empty() && *it != machine.uid())?;
            self.machines.find(MachineIndex::Uid, tagged).into_iter().next()
        };
        let holder = self.holder_of(machine, provider_id).or_else(of_uid)?;
        Some(holder.name().to_owned())
    }

    /// Another Machine with the instance of the provider id, according to its driver or pool. If only specs name the
    /// instance, which any creator of Machines may write, the oldest Machine of the namespace has it.
    pub(crate) fn holder_of(
        &self,
        machine: &Machine,
        provider_id: &ProviderId,
    ) -> Option<Arc<Machine>> {
        let has = |one: &Machine| one.instance_id() == Some(provider_id);
        let own = has_own_instance(machine) && has(machine);
        let born = |one: &Machine| one.metadata.creation_timestamp.clone().map(|born| born.0);
        // A Machine yet to be created is younger than all others.
        let older = |other: &Machine| {
            born(machine).is_none() || (born(other), other.uid()) < (born(machine), machine.uid())
        };
        let same = |other: &Machine| other.metadata.namespace == machine.metadata.namespace;
        let id = Some(provider_id).filter(|id| !id.is_empty())?;
        let all = self.machines.find(MachineIndex::ProviderId, id.as_str());
        all.into_iter().find(|other| {
            ObjectName::of(&**other) != ObjectName::of(machine)
                && has(other)
                && (has_own_instance(other) || !own && same(other) && older(other))
        })
    }

    /// Name of another Machine of the same cluster with a Node of this name, present or future.
    pub(crate) fn other_with_node(&self, machine: &Machine, node: &str) -> Option<String> {
        let is_other = |other: &Arc<Machine>| {
            other.uid() != machine.uid() && cluster_of(other) == cluster_of(machine)
        };
        let labelled = self.machines.find(MachineIndex::Node, node);
        let mut named = self.machines.find(MachineIndex::Name, node);
        named.retain(|other| other.node_name().is_none());
        let other = labelled.into_iter().chain(named).find(is_other);
        other.map(|other| other.name().to_owned())
    }

    /// Whether a Node is another Machine's of the same cluster, whatever its kubelet, the spec and the labels of this
    /// Machine say: the other Machine has a known instance, and joined as this Node, or has its provider id.
    pub(crate) fn is_node_of_another(&self, machine: &Machine, node: &Node) -> bool {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let own = has_own_instance(machine);
        let joined = own && node::joined_as(machine, node);
        let other = |index, value: &str, holds: &dyn Fn(&Machine) -> bool| {
            self.machines.find(index, value).into_iter().any(|other| {
                other.uid() != machine.uid()
                    && cluster_of(&other) == cluster_of(machine)
                    && has_own_instance(&other)
                    && holds(&other)
            })
        };
        // Of two Machines with the same claim, the older Machine wins.
        let born = |one: &Machine| one.metadata.creation_timestamp.clone();
        let older = |other: &Machine| born(other) < born(machine);
        let id = node::provider_id(node);
        let has_id = |one: &Machine| {
            let by = || self.id_comparison(one).by();
            id.is_some_and(|id| one.instance_id().is_some_and(|it| it.is_of_node(id, by())))
        };
        let of_own_instance = own && has_id(machine);
        // Names are used again: by name alone, the Machine owns only the Node with the UID recorded at joining.
        let used_again = !of_own_instance && node::joined_as_another(machine, node);
        let named = machine.node_name();
        let by_name = !own || used_again || node::joined_name(machine).or(named) != Some(name);
        // Where a driver named the Node of this Machine, the name that another one got from its driver counts, too, unless
        // the Node is of another instance: users write labels.
        let holds = |other: &Machine| {
            if joined || node::joined_as(other, node) {
                return node::joined_as(other, node) && (!joined || older(other));
            }
            let labelled = named.is_some() && (id.is_none() || has_id(other));
            by_name && (labelled || node::joined_name(other) == Some(name))
        };
        let is_its = |other: &Machine, id: &str| {
            let by = self.id_comparison(other).by();
            other.instance_id().is_some_and(|it| it.equals(id, by))
                && (!of_own_instance || older(other))
        };
        let by_id = |id: &str| {
            ProviderId::ending(id).is_some_and(|ending| {
                other(MachineIndex::Ending, &ending, &|other| is_its(other, id))
            })
        };
        other(MachineIndex::Node, name, &holds) || !joined && id.is_some_and(by_id)
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;

    fn machine(name: &str, provider_id: Option<&str>, node: Option<&str>) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": name, "namespace": "default", "uid": format!("uid-of-{name}"),
                "labels": node.map(|node| json!({ "node": node })),
            },
            "spec": { "class": { "name": "c" }, "providerID": provider_id },
        }))
        .unwrap()
    }

    fn stores() -> Stores {
        let stores = Stores::default();
        for one in [
            machine("ours", Some("a:///1"), Some("node-1")),
            machine("theirs", Some("b:///2"), Some("node-2")),
            machine("new", None, None),
        ] {
            stores.machines.apply(Event::Apply(one));
        }
        stores
    }

    #[test]
    fn an_instance_is_another_machines_by_its_id_or_by_the_uid_on_it() {
        let stores = stores();
        let ours = machine("ours", Some("a:///1"), None);
        let holder = |id: &str, uid| stores.other_holder(&ours, &id.into(), uid);
        assert_eq!(holder("b:///2", "").as_deref(), Some("theirs"), "of any provider");
        assert_eq!(holder("a:///3", "uid-of-theirs").as_deref(), Some("theirs"));
        assert_eq!(holder("a:///1", "uid-of-ours"), None);
        assert_eq!(holder("a:///3", "of a deleted machine"), None);
        assert_eq!(holder("", ""), None);
    }

    /// A user who may create Machines in one namespace could hold up the creation and the deletion of any other one.
    #[test]
    fn a_spec_names_an_instance_in_its_namespace_alone_and_takes_none_that_an_older_machine_has() {
        let born = |name: &str, namespace: &str, second| {
            let mut machine = joined_at(machine(name, Some("a:///1"), None), None, second);
            machine.metadata.namespace = Some(namespace.to_owned());
            machine.status = None;
            machine
        };
        let known = |mut machine: Machine, said: &str| {
            let status = json!({ "instanceUID": machine.uid(), "instanceProviderID": said });
            machine.status = serde_json::from_value(status).unwrap();
            machine
        };
        let ours = born("ours", "red", 5);
        let is_held = |machine: &Machine, other: Machine| {
            let stores = Stores::default();
            for one in [machine.clone(), other] {
                stores.machines.apply(Event::Apply(one));
            }
            let held = stores.other_holder(machine, &"a:///1".into(), machine.uid());
            // A pool without its Machine yet holds back only for the same reasons.
            (held.is_some(), stores.holder_of(machine, &"a:///1".into()).is_some())
        };
        let cases = vec![
            ("a spec of another namespace", born("m", "blue", 1), false),
            ("of the same namespace, older", born("m", "red", 1), true),
            ("of the same age: the first by its UID", born("m", "red", 5), true),
            ("of the same age: the last by its UID", born("z", "red", 5), false),
            ("younger", born("m", "red", 9), false),
            ("another namespace, by its driver", known(born("m", "blue", 9), "a:///1"), true),
            ("its driver said another id", known(born("m", "red", 1), "a:///2"), false),
            ("of the same namespace, too", known(born("m", "red", 9), "a:///1"), true),
        ];
        for (what, other, held) in cases {
            assert_eq!(is_held(&ours, other), (held, held), "{what}");
        }
        let confirmed = known(ours, "a:///1");
        let older = born("m", "red", 1);
        assert!(!is_held(&confirmed, older).0, "its own driver said that it has the instance");
    }

    #[test]
    fn a_driver_cannot_name_the_node_of_another_machine() {
        let stores = stores();
        let ours = machine("ours", Some("a:///1"), None);
        let other = |node| stores.other_with_node(&ours, node);
        assert_eq!(other("node-2").as_deref(), Some("theirs"));
        assert_eq!(other("new").as_deref(), Some("new"), "it will have the name of its Machine");
        assert_eq!(other("theirs"), None, "that Machine has a Node of another name");
        assert_eq!(other("node-1"), None);
        assert_eq!(other("ours"), None);
        assert_eq!(other("node-3"), None);
    }

    fn node(name: &str, provider_id: &str) -> Node {
        let node = json!({ "metadata": { "name": name }, "spec": { "providerID": provider_id } });
        serde_json::from_value(node).unwrap()
    }

    /// A Machine with an instance made by a driver, joined as the Node.
    fn joined(name: &str, provider_id: &str, node: &str) -> Machine {
        let mut machine = machine(name, Some(provider_id), Some(node));
        let status = json!({ "instanceUID": machine.uid(), "nodeRef": { "name": node } });
        machine.status = serde_json::from_value(status).unwrap();
        machine
    }

    #[test]
    fn a_node_is_the_machines_whose_instance_is_known_whatever_a_spec_or_a_kubelet_says() {
        let stores = Stores::default();
        let (victim, other) =
            (joined("victim", "a:///1", "node-1"), joined("other", "a:///2", "node-2"));
        for one in [victim.clone(), other.clone()] {
            stores.machines.apply(Event::Apply(one));
        }
        let mut pending = machine("pending", Some("a:///3"), None);
        let status = json!({ "instanceUID": pending.uid() });
        pending.status = serde_json::from_value(status).unwrap();
        let mut moved = joined("other", "a:///1", "node-2");
        let relabelled = {
            let labels = moved.metadata.labels.clone();
            moved.metadata.labels = Some([("node".to_owned(), "node-1".to_owned())].into());
            let relabelled = moved.clone();
            moved.metadata.labels = labels;
            relabelled
        };
        let real = node("node-1", "a:///1");
        for (whose, machine, node, lost) in [
            ("its own", &victim, &real, false),
            ("without an id yet", &victim, &node("node-1", ""), false),
            ("that no other has", &pending, &node("node-3", "a:///3"), false),
            ("a spec with the id of another", &machine("m", Some("a:///1"), None), &real, true),
            ("a label, too", &machine("m", Some("a:///1"), Some("node-1")), &real, true),
            (
                "the label alone",
                &machine("m", Some("a:///9"), Some("node-1")),
                &node("node-1", ""),
                true,
            ),
            ("the spec of one that runs was changed", &moved, &real, true),
            ("its label, too", &relabelled, &real, true),
            ("a kubelet took the id of another", &pending, &node("node-1", "a:///3"), true),
            ("a kubelet took the id of one that runs", &other, &node("node-1", "a:///2"), true),
        ] {
            assert_eq!(stores.is_node_of_another(machine, node), lost, "{whose}");
        }
    }

    /// A Machine as [`joined`] says, with the UID of its Node and an age in seconds.
    fn joined_at(mut machine: Machine, uid: Option<&str>, second: i64) -> Machine {
        let born = jiff::Timestamp::from_second(second).unwrap();
        machine.metadata.creation_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(born));
        let node_ref = uid.map(|uid| json!({ "name": "node-1", "uid": uid }));
        let status = json!({ "instanceUID": machine.uid(), "nodeRef": node_ref });
        machine.status = serde_json::from_value(status).unwrap();
        machine
    }

    #[test]
    fn an_instance_of_its_own_gives_no_machine_the_node_of_another() {
        let thief =
            |second| joined_at(machine("thief", Some("a:///1"), Some("node-1")), None, second);
        let victim = |label, uid| joined_at(machine("victim", Some("a:///1"), label), uid, 5);
        let said = |mut machine: Machine, id: &str| {
            machine.status.as_mut().unwrap().instance_provider_id = Some(id.into());
            machine
        };
        let moved = |mut machine: Machine| {
            machine.spec.provider_id = None;
            machine
        };
        let mut node = node("node-1", "a:///1");
        node.metadata.uid = Some("u-1".to_owned());
        let cases = vec![
            ("it joined as this Node", victim(Some("node-1"), Some("u-1")), thief(1)),
            ("a user took its label", victim(None, Some("u-1")), thief(9)),
            ("it has not joined yet and is older", victim(None, None), thief(9)),
            ("its driver said the id", victim(None, None), said(thief(1), "a:///2")),
            (
                "a user took its id",
                said(moved(victim(None, None)), "a:///1"),
                said(thief(1), "a:///2"),
            ),
        ];
        for (what, victim, thief) in cases {
            let stores = Stores::default();
            for one in [thief.clone(), victim.clone()] {
                stores.machines.apply(Event::Apply(one));
            }
            assert!(stores.is_node_of_another(&thief, &node), "{what}");
            assert!(!stores.is_node_of_another(&victim, &node), "{what}");
        }
    }

    #[test]
    fn a_label_takes_no_node_from_a_machine_that_no_driver_was_asked_for_yet() {
        let stores = Stores::default();
        let thief = joined_at(machine("thief", Some("a:///2"), Some("node-1")), None, 1);
        let victim = machine("victim", Some("a:///1"), Some("node-1"));
        for one in [thief, victim.clone()] {
            stores.machines.apply(Event::Apply(one));
        }
        assert!(!stores.is_node_of_another(&victim, &node("node-1", "a:///1")));
    }

    #[test]
    fn an_annotation_makes_no_instance_the_machines_own() {
        let stores = Stores::default();
        let victim = joined("victim", "a:///1", "node-1");
        stores.machines.apply(Event::Apply(victim));
        let mut thief = machine("thief", Some("a:///1"), Some("node-1"));
        let record = r#"{"machineUID":"uid-of-thief","instanceUID":"uid-of-thief"}"#;
        let key = ostler_api::names::annotation::OPERATION.to_owned();
        thief.metadata.annotations = Some([(key, record.to_owned())].into());
        assert!(stores.is_node_of_another(&thief, &node("node-1", "a:///1")));
    }

    #[test]
    fn a_node_that_reuses_the_name_of_one_that_is_gone_is_that_of_the_newer_machine() {
        let stores = Stores::default();
        let with_uid = |mut machine: Machine, uid: Option<&str>| {
            let node_ref = uid.map(|uid| json!({ "name": "node-1", "uid": uid }));
            let status = json!({ "instanceUID": machine.uid(), "nodeRef": node_ref });
            machine.status = serde_json::from_value(status).unwrap();
            machine
        };
        let first = with_uid(machine("first", Some("a:///1"), Some("node-1")), Some("u-1"));
        let erased = with_uid(first.clone(), None);
        let second = with_uid(machine("second", Some("a:///2"), Some("node-1")), None);
        for one in [first.clone(), second.clone()] {
            stores.machines.apply(Event::Apply(one));
        }
        let there = |uid: &str, provider_id| {
            let mut node = node("node-1", provider_id);
            node.metadata.uid = Some(uid.to_owned());
            node
        };
        for (what, machine, node, of_another) in [
            ("by its provider id", &first, there("u-2", "a:///2"), true),
            ("its UID was erased", &erased, there("u-2", "a:///2"), true),
            ("before it has its provider id", &first, there("u-2", ""), true),
            ("the newer machine's", &second, there("u-2", ""), false),
            ("with its id", &second, there("u-2", "a:///2"), false),
            ("the one that went", &first, there("u-1", "a:///1"), false),
        ] {
            assert_eq!(stores.is_node_of_another(machine, &node), of_another, "{what}");
        }
    }
}

//! Finds the Node of a Machine. A Node is a Machine's only if its provider id is empty or the instance's.

use ostler_api::{ProviderId, ProviderIdComparison};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    Machine,
    machine::MachineConditionType,
    names::{annotation, label},
};

/// Reason of condition `InstanceCreated` for an instance that was made for this very Machine.
pub(crate) const MADE: &str = "Created";
/// The same, as far as an annotation of the Machine says, which users may write.
pub(crate) const RECORDED: &str = "Recorded";

/// The Node of a Machine.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum NodeView {
    /// Could not be looked up yet.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// Several Nodes claim to be the Machine's, and none is known as the right one. Nodes with the provider id of the
    /// instance are the Machine's all the same.
    Ambiguous(Vec<Arc<Node>>),
    /// The Node.
    Known(Arc<Node>),
    /// The Node, and others with the provider id of the instance: the VM came back under another name. The provider id
    /// tells whose pods run on the instance.
    Several(Arc<Node>, Vec<Arc<Node>>),
}

impl NodeView {
    /// The Node recorded at joining, or about to join.
    pub const fn main(&self) -> Option<&Arc<Node>> {
        match self {
            Self::Known(node) | Self::Several(node, _) => Some(node),
            Self::Unknown | Self::Absent | Self::Ambiguous(_) => None,
        }
    }

    /// Every Node that runs on the instance, the main one first.
    pub fn all(&self) -> Vec<&Arc<Node>> {
        match self {
            Self::Unknown | Self::Absent => Vec::new(),
            Self::Known(node) => vec![node],
            Self::Several(node, others) => std::iter::once(node).chain(others).collect(),
            Self::Ambiguous(nodes) => {
                nodes.iter().filter(|node| provider_id(node).is_some()).collect()
            }
        }
    }

    /// The Node that stands for the Machine's health: the main Node or, while its kubelet is silent, another ready Node
    /// of the instance.
    pub fn serving(&self) -> Option<&Arc<Node>> {
        let main = self.main()?;
        Some(self.all().into_iter().find(|node| is_ready(node)).unwrap_or(main))
    }
}

/// Whether the kubelet reports the Node as ready.
pub(crate) fn is_ready(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|one| one.type_ == "Ready" && one.status == "True")
}

/// A Machine has no more Nodes than these: each costs writes, and kubelets say which provider id they have.
const MOST_NODES: usize = 32;

/// The comparison of Nodes' provider ids with a Machine's.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct IdComparison {
    /// As its driver says; `None`: none was connected since this core started.
    pub said: Option<ProviderIdComparison>,
    /// Another Machine with an instance whose id counts as equal. The driver must not name two instances so; meanwhile,
    /// only identical ids count as equal.
    pub twin: Option<String>,
    /// A Node that may be the Machine's by its provider id alone, depending on the driver's comparison of ids.
    pub undecided: Option<Arc<Node>>,
}

impl IdComparison {
    /// The comparison in effect.
    pub fn by(&self) -> ProviderIdComparison {
        self.said.filter(|_| self.twin.is_none()).unwrap_or_default()
    }
}

/// Nodes that may be the Machine's, by the way of finding them.
#[derive(Debug, Clone, Default)]
pub struct Candidates {
    /// How their provider ids are compared.
    pub by: ProviderIdComparison,
    /// Nodes with the Machine's provider id.
    pub with_id: Vec<Arc<Node>>,
    /// With the name that is [expected](expected_name).
    pub named: Option<Arc<Node>>,
    /// With the label that names the Machine.
    pub labelled: Vec<Arc<Node>>,
    /// With a provider id that may be that of the instance in [another spelling](ProviderId::is_spelled).
    pub spelled: Vec<Arc<Node>>,
}

impl Candidates {
    /// How the provider id of the instance is spelled by Nodes that are known as its own.
    pub fn spellings<'a>(&'a self, machine: &'a Machine) -> impl Iterator<Item = &'a str> {
        let instance = machine.instance_id();
        let ids = self.named.iter().chain(&self.labelled).filter_map(|node| provider_id(node));
        ids.filter(move |id| has_id(instance, id, self.by) && instance.is_none_or(|it| *it != **id))
    }

    /// Removes Nodes that do not fit.
    pub fn retain(&mut self, fits: impl Fn(&Node) -> bool) {
        self.with_id.retain(|node| fits(node));
        self.named = self.named.take().filter(|node| fits(node));
        self.labelled.retain(|node| fits(node));
        self.spelled.retain(|node| fits(node));
    }
}

/// The expected name of the Node, if known: from the driver or, for a driver without names, the Machine's name. Before
/// a driver was asked for an instance, a name proves nothing.
pub fn expected_name(machine: &Machine) -> Option<&str> {
    let asked = machine.status.as_ref().is_some_and(|status| status.creation_started_at.is_some());
    let may_come = asked || machine.provider_id().is_some() || machine.operation_record().is_some();
    machine.node_name().or_else(|| may_come.then(|| machine.name()))
}

/// Whether the Node has signs of this Machine: the label of the core, or notes of machine-controller-manager.
pub(crate) fn says_ours(machine: &Machine, node: &Node) -> bool {
    let (labels, notes) = (&node.metadata.labels, &node.metadata.annotations);
    let named = labels.as_ref().and_then(|all| all.get(label::MACHINE_NAME));
    named.is_some_and(|name| name == machine.name())
        || notes
            .as_ref()
            .is_some_and(|all| all.contains_key(annotation::LAST_APPLIED_NODE_TEMPLATE))
}

/// Whether something takes the taint `critical-components-not-ready` away. Upstream always expects it, so only a Node that
/// joined without is known to have none.
pub(crate) fn has_critical_components(node: &Node) -> bool {
    let annotations = node.metadata.annotations.as_ref();
    let noted = annotations.and_then(|all| all.get(annotation::CRITICAL_COMPONENTS));
    noted.is_none_or(|noted| noted != "false")
}

/// The Node: first of all a Node with the provider id, then a Node without any. A Node of another instance is shown
/// only for the message.
pub fn choose(machine: &Machine, found: &Candidates) -> NodeView {
    let mut with_id = found.with_id.clone();
    // The index only has Nodes with an equal id. A Node recorded at joining may have no id yet.
    for node in found.named.iter().chain(&found.labelled) {
        let its = match provider_id(node) {
            Some(_) => is_of_instance(machine, machine.instance_id(), node, found.by),
            None => joined_as(machine, node),
        };
        if its && with_id.iter().all(|one| one.metadata.name != node.metadata.name) {
            with_id.push(Arc::clone(node));
        }
    }
    if let Some(view) = unless_none(machine, with_id) {
        return view;
    }
    let free = |node: &&Arc<Node>| provider_id(node).is_none();
    if let Some(node) = found.named.iter().find(free) {
        return NodeView::Known(Arc::clone(node));
    }
    let free_ones: Vec<_> = found.labelled.iter().filter(free).cloned().collect();
    one_of(machine, free_ones)
        .or_else(|| found.named.clone().map(NodeView::Known))
        .or_else(|| machine.provider_id().and_then(|_| one_of(machine, found.labelled.clone())))
        .or_else(|| found.spelled.first().cloned().map(NodeView::Known))
        .unwrap_or(NodeView::Absent)
}

/// Any kubelet may write the provider id of another one into its own Node. Of several Nodes, the Machine owns the Node
/// recorded at joining, else the Node with the expected name, else the only ready Node: a VM may be renamed while
/// booting.
fn unless_none(machine: &Machine, mut nodes: Vec<Arc<Node>>) -> Option<NodeView> {
    let meta = |node: &Arc<Node>| {
        (node.metadata.creation_timestamp.clone().map(|it| it.0), node.metadata.name.clone())
    };
    nodes.sort_by_key(meta);
    let ready = || {
        let mut ready = nodes.iter().enumerate().filter(|(_, node)| is_ready(node));
        ready.next().filter(|_| ready.next().is_none())
    };
    let named = |node: &Node| node.metadata.name.as_deref() == expected_name(machine);
    let mut all = nodes.iter().enumerate();
    let own = all
        .find(|(_, node)| joined_as(machine, node))
        .or_else(|| nodes.iter().enumerate().find(|(_, node)| named(node)))
        .or_else(ready);
    let own = own.map(|(index, _)| index).or_else(|| (nodes.len() == 1).then_some(0));
    let Some(index) = own else {
        nodes.truncate(MOST_NODES);
        return (!nodes.is_empty()).then_some(NodeView::Ambiguous(nodes));
    };
    let own = nodes.remove(index);
    nodes.truncate(MOST_NODES - 1);
    Some(if nodes.is_empty() { NodeView::Known(own) } else { NodeView::Several(own, nodes) })
}

/// The same of Nodes that nothing but a label ties to the Machine: no other than its own is on its instance.
fn one_of(machine: &Machine, nodes: Vec<Arc<Node>>) -> Option<NodeView> {
    let view = unless_none(machine, nodes)?;
    let own = view.main().map(|own| NodeView::Known(Arc::clone(own)));
    Some(own.unwrap_or(view))
}

/// For people.
pub(crate) fn describe_several<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> String {
    format!("several nodes are of the instance of this machine: {}", names(nodes))
}

/// The names of Nodes, for people.
pub(crate) fn names<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> String {
    /// So many are told.
    const MOST: usize = 4;
    let all: Vec<_> =
        nodes.into_iter().map(|node| node.metadata.name.as_deref().unwrap_or_default()).collect();
    let told = all.iter().take(MOST).copied().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(MOST) {
        0 => told,
        more => format!("{told} and {more} more"),
    }
}

/// The provider id of a Node, if any.
pub fn provider_id(node: &Node) -> Option<&str> {
    let spec = node.spec.as_ref()?;
    spec.provider_id.as_deref().filter(|id| !id.is_empty())
}

fn has_id(instance: Option<&ProviderId>, id: &str, by: ProviderIdComparison) -> bool {
    instance.is_some_and(|it| it.is_of_node(id, by))
}

/// Whether a Node has the provider id of the instance. The id of the Node recorded at joining counted as equal, and no
/// Node changes its id: the Node stays equal, even if no driver tells any more how to compare.
pub(crate) fn is_of_instance(
    machine: &Machine,
    instance: Option<&ProviderId>,
    node: &Node,
    by: ProviderIdComparison,
) -> bool {
    provider_id(node).is_some_and(|id| has_id(instance, id, by))
        || joined_as(machine, node) && spelled_otherwise(instance, node).is_some()
}

/// Whether a Node belongs to the Machine, whose instance has this provider id.
pub fn is_ours(
    machine: &Machine,
    instance: Option<&ProviderId>,
    node: &Node,
    by: ProviderIdComparison,
) -> bool {
    match provider_id(node) {
        Some(_) => {
            is_of_instance(machine, instance, node, by)
                && (is_said(machine) || !is_elsewhere(machine, node))
        }
        // While no instance is known, there is none that it could be of.
        None => {
            (instance.is_some() || machine.node_name().is_some())
                && !is_older(machine, node)
                && !is_elsewhere(machine, node)
        }
    }
}

/// How a Node spells the provider id of the instance, if it does so in another way than the driver.
pub(crate) fn spelled_otherwise<'a>(
    instance: Option<&ProviderId>,
    node: &'a Node,
) -> Option<&'a str> {
    provider_id(node).filter(|id| instance.is_some_and(|own| own.is_spelled(id)))
}

/// Whether a driver said the provider id of the instance; else a user may have written it.
fn is_said(machine: &Machine) -> bool {
    machine.status.as_ref().is_some_and(|status| status.instance_provider_id.is_some())
}

/// Whether a Machine joined as a Node of another name.
fn is_elsewhere(machine: &Machine, node: &Node) -> bool {
    let joined = machine.status.as_ref().and_then(|status| status.node_ref.as_ref());
    joined.is_some_and(|it| Some(&it.name) != node.metadata.name.as_ref())
}

/// Whether a Node is left over from an unknown earlier instance of this Machine: the creation was never answered, and
/// the instance went before it was found. The Node has the expected name of the Machine's Node, and was created during
/// the Machine's life, but not after the Node recorded at joining. Both times are the API server's.
pub(crate) fn is_stale(
    machine: &Machine,
    instance: Option<&ProviderId>,
    node: &Node,
    by: ProviderIdComparison,
) -> bool {
    let (born, came) = (&machine.metadata.creation_timestamp, &node.metadata.creation_timestamp);
    let during = born.is_some() && came >= born;
    let named = node.metadata.name.as_deref() == expected_name(machine);
    let of_another = provider_id(node).is_some() && !is_of_instance(machine, instance, node, by);
    during && named && of_another && !joined_as_another(machine, node)
}

/// Whether a Machine joined as a Node with another UID: the name may have been used again.
pub fn joined_as_another(machine: &Machine, node: &Node) -> bool {
    joined_uid(machine).is_some() && !joined_as(machine, node)
}

/// Whether a Machine joined as this very Node.
pub fn joined_as(machine: &Machine, node: &Node) -> bool {
    joined_uid(machine).is_some_and(|uid| node.metadata.uid.as_ref() == Some(uid))
}

/// Name of the Node that a Machine joined as.
pub fn joined_name(machine: &Machine) -> Option<&str> {
    Some(machine.status.as_ref()?.node_ref.as_ref()?.name.as_str())
}

fn joined_uid(machine: &Machine) -> Option<&String> {
    machine.status.as_ref()?.node_ref.as_ref()?.uid.as_ref()
}

/// Whether a Node was there before a Machine whose instance was made for it: an older instance left
/// it behind. Both times are the API server's.
fn is_older(machine: &Machine, node: &Node) -> bool {
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    let made = conditions.into_iter().any(|condition| {
        condition.type_ == MachineConditionType::InstanceCreated.as_str()
            && condition.status == "True"
            && [Some(MADE), Some(RECORDED)].contains(&condition.reason.as_deref())
    });
    made && node.metadata.creation_timestamp < machine.metadata.creation_timestamp
        && node.metadata.creation_timestamp.is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, id: Option<&str>) -> Arc<Node> {
        let spec = id.map_or_else(|| json!({}), |id| json!({ "providerID": id }));
        let node = json!({ "metadata": { "name": name }, "spec": spec });
        Arc::new(serde_json::from_value(node).unwrap())
    }

    fn machine(spec: &Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m" }, "spec": spec
        }))
        .unwrap()
    }

    fn names<'a>(nodes: impl IntoIterator<Item = &'a Arc<Node>>) -> Vec<&'a str> {
        nodes.into_iter().filter_map(|node| node.metadata.name.as_deref()).collect()
    }

    fn ours() -> Machine {
        machine(&json!({ "providerID": "i-1" }))
    }

    fn is_ours(machine: &Machine, instance: Option<&ProviderId>, node: &Node) -> bool {
        super::is_ours(machine, instance, node, ProviderIdComparison::Exact)
    }

    fn chosen(found: &Candidates) -> Option<String> {
        choose(&ours(), found).main().and_then(|node| node.metadata.name.clone())
    }

    #[test]
    fn the_provider_id_counts_more_than_a_name_and_a_name_more_than_a_label() {
        let mut found = Candidates {
            with_id: vec![node("a", Some("i-1"))],
            named: Some(node("b", None)),
            labelled: vec![node("c", None)],
            ..Candidates::default()
        };
        assert_eq!(chosen(&found).as_deref(), Some("a"));
        found.with_id.clear();
        assert_eq!(chosen(&found).as_deref(), Some("b"));
        found.named = Some(node("b", Some("i-2")));
        assert_eq!(chosen(&found).as_deref(), Some("c"), "b is of another instance");
        found.labelled.clear();
        assert_eq!(chosen(&found).as_deref(), Some("b"), "shown, to say that it is another's");
        assert!(!is_ours(&ours(), Some(&"i-1".into()), found.named.as_ref().unwrap()));
    }

    #[test]
    fn a_node_without_provider_id_is_expected_under_the_name_of_the_machine() {
        assert_eq!(expected_name(&ours()), Some("m"));
        assert!(is_ours(&ours(), Some(&"i-1".into()), &node("m", None)));
        let mut nothing_made_yet = machine(&json!({}));
        assert_eq!(expected_name(&nothing_made_yet), None, "a name alone proves nothing");
        nothing_made_yet.status =
            serde_json::from_value(json!({ "creationStartedAt": "2026-01-01T00:00:00Z" })).unwrap();
        assert_eq!(expected_name(&nothing_made_yet), Some("m"), "it may be on its way");
        assert!(!is_ours(&nothing_made_yet, None, &node("m", None)), "of which instance?");
    }

    #[test]
    fn an_id_of_which_the_cloud_writes_the_middle_in_another_way_is_that_of_the_instance() {
        for (of_the_machine, of_the_node, is_its_own) in [
            ("aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-1", true),
            ("gce:///project/zone/m", "gce://project/zone/m", true),
            ("azure:///westeurope/m", "azure:///subscriptions/s/virtualMachines/m", true),
            ("openstack:///region/uuid-1", "openstack:///uuid-1", true),
            ("aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-2", false),
            ("aws:///eu-west-1/i-1", "gce:///eu-west-1/i-1", false),
            ("aws:///eu-west-1/", "aws:///eu-west-1a/", false),
            ("region.i-1", "zone.i-1", false),
            ("region.i-1", "region.i-1", true),
        ] {
            let machine = machine(&json!({ "providerID": of_the_machine }));
            let node = node("m", Some(of_the_node));
            let mine = is_ours(&machine, machine.instance_id(), &node);
            assert_eq!(mine, is_its_own, "{of_the_machine} {of_the_node}");
        }
    }

    #[test]
    fn ids_are_compared_as_the_driver_says_whatever_the_name_of_the_node() {
        use ProviderIdComparison::{CaseInsensitive, Exact, LastSegment};
        for (of_the_machine, of_the_node, equal) in [
            ("azure:///subs/S/vm-1", "azure:///subs/s/VM-1", vec![CaseInsensitive]),
            ("azure:///subs/S/vm-1", "azure:///subs/s/VM-2", vec![]),
            ("azure:///subs/s/vm-1", "azure:///rg/s/vm-1", vec![LastSegment]),
            ("aws:///eu-west-1/i-1", "aws:///eu-west-1a/i-1", vec![LastSegment]),
            ("aws:///eu-west-1/i-1", "AWS:///eu-west-1/i-1", vec![CaseInsensitive]),
            ("aws:///eu-west-1/i-1", "gce:///eu-west-1/i-1", vec![]),
            ("aws:///eu-west-1/", "aws:///eu-west-1a/", vec![]),
            ("i-1", "i-1", vec![Exact, CaseInsensitive, LastSegment]),
            ("i-\u{e9}", "i-\u{c9}", vec![]),
        ] {
            let id = ProviderId::from(of_the_machine);
            let by = [Exact, CaseInsensitive, LastSegment];
            let found: Vec<_> = by.into_iter().filter(|by| id.equals(of_the_node, *by)).collect();
            assert_eq!(found, equal, "{of_the_machine} {of_the_node}");
        }
        let by_name = |id: &str, by| ProviderId::from("azure:///westeurope/M").is_of_node(id, by);
        let of_node = "azure:///subscriptions/s/virtualMachines/m";
        assert!(by_name(of_node, CaseInsensitive) && !by_name(of_node, Exact));
    }

    #[test]
    fn a_kubelet_that_takes_the_very_id_of_the_machine_gets_no_precedence_over_its_node() {
        let mut machine = machine(&json!({ "providerID": "aws:///eu-west-1/i-1" }));
        machine.metadata.labels = Some([(label::NODE.to_owned(), "worker".to_owned())].into());
        let found = Candidates {
            with_id: vec![node("evil", Some("aws:///eu-west-1/i-1"))],
            named: Some(node("worker", Some("aws:///eu-west-1a/i-1"))),
            ..Candidates::default()
        };
        let view = choose(&machine, &found);
        assert_eq!(names(view.main()), ["worker"]);
        assert_eq!(names(view.all()), ["worker", "evil"]);
    }

    #[test]
    fn two_nodes_of_one_provider_id_are_a_question() {
        let found = Candidates {
            with_id: vec![node("a", Some("i-1")), node("b", Some("i-1"))],
            ..Candidates::default()
        };
        let view = choose(&ours(), &found);
        assert_eq!((names(view.main()), names(view.all())), (vec![], vec!["a", "b"]));
    }

    #[test]
    fn of_two_nodes_of_one_provider_id_the_one_that_the_machine_joined_as_is_its_own() {
        let there = |name: &str, uid: &str| {
            let mut node = Node::clone(&node(name, Some("i-1")));
            node.metadata.uid = Some(uid.to_owned());
            Arc::new(node)
        };
        let found = Candidates {
            with_id: vec![there("evil", "u-2"), there("worker", "u-1")],
            ..Candidates::default()
        };
        for (node_ref, label, own) in [
            (Some("u-1"), None, Some("worker")),
            (Some("u-1"), Some("evil"), Some("worker")),
            (Some("registered again since"), Some("worker"), Some("worker")),
            (None, Some("worker"), Some("worker")),
            (None, None, None),
        ] {
            let mut machine = ours();
            let node_ref = node_ref.map(|uid| json!({ "name": "worker", "uid": uid }));
            machine.status = serde_json::from_value(json!({ "nodeRef": node_ref })).unwrap();
            machine.metadata.labels =
                label.map(|it| [(label::NODE.to_owned(), it.to_owned())].into());
            let view = choose(&machine, &found);
            assert_eq!(names(view.main()), Vec::from_iter(own), "{machine:?}");
            assert_eq!(view.all().len(), 2, "{machine:?}");
        }
    }

    #[test]
    fn a_machine_that_joined_gets_no_node_of_another_name_by_what_users_write() {
        let mut machine = ours();
        let joined = json!({ "name": "worker", "uid": "u-1" });
        for (said, name, id, is_its_own) in [
            (None, "worker", Some("i-1"), true),
            (None, "worker", None, true),
            (None, "other", Some("i-1"), false),
            (None, "other", None, false),
            (Some("i-1"), "other", Some("i-1"), true),
            (Some("i-1"), "other", None, false),
        ] {
            let status = json!({ "nodeRef": joined, "instanceProviderID": said });
            machine.status = serde_json::from_value(status).unwrap();
            let node = node(name, id);
            assert_eq!(
                is_ours(&machine, machine.instance_id(), &node),
                is_its_own,
                "{said:?} {node:?}"
            );
        }
    }

    #[test]
    fn a_node_that_was_there_before_a_fresh_machine_is_left_behind_by_an_older_one() {
        let mut machine = ours();
        let time = |second| {
            let at = jiff::Timestamp::from_second(second).unwrap();
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at))
        };
        machine.metadata.creation_timestamp = time(100);
        for (made, created, expected) in
            [(true, 99, false), (true, 100, true), (false, 99, true), (true, 200, true)]
        {
            let reason = if made { MADE } else { "Adopted" };
            machine.status = serde_json::from_value(json!({ "conditions": [
                { "type": "InstanceCreated", "status": "True", "reason": reason }
            ] }))
            .unwrap();
            let mut node = Node::clone(&node("m", None));
            node.metadata.creation_timestamp = time(created);
            assert_eq!(
                is_ours(&machine, Some(&"i-1".into()), &node),
                expected,
                "{reason} {created}"
            );
        }
    }
}

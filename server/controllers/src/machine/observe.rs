//! Builds the snapshot that a decision is made from. The observation reads caches and sessions. The bootstrap token,
//! the pods before a drain ends, and the Node before a Machine is deleted take a request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use ostler_api::machine::MachinePhase;
use ostler_api::{Machine, MachineClass, ProviderId, ProviderIdComparison, ProviderName};
use ostler_lifecycle::class::{unresolved, uses_class};
use ostler_lifecycle::hot_update::{Question, ReviewView, SlotView};
use ostler_lifecycle::machine::{holder, is_last_look};
use ostler_lifecycle::node::{self, IdComparison};
use ostler_lifecycle::operation::OperationView;
use ostler_lifecycle::replacement::Siblings;
use ostler_lifecycle::snapshot::{
    BootstrapToken, ClassFacts, ClassView, DriverView, Fresh, NodeView, Observed, PodView, Snapshot,
};
use ostler_lifecycle::unwritten::Unwritten;
use tracing::{debug, warn};

use super::volumes::volumes_of;
use super::{Machines, PassError, operation};
use crate::cluster_id::ids_of;
use crate::hot_update::driver_of;
use crate::stores::{NodeIndex, PodIndex, Stores};
use crate::target::{Abilities, TargetOf};
use crate::tokens;
use crate::watch::ObjectName;

/// When to check again whether the class has its finalizer, if the event does not come first.
pub(crate) const HOLD_PATIENCE: Duration = Duration::from_secs(5);

impl Machines {
    /// The snapshot of the machine; `None` if it is gone.
    pub(super) async fn snapshot(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        let Some(machine) = self.stores.machines.get(name) else { return Ok(None) };
        let (machine, unwritten) = self.with_unwritten(machine);
        if self.state.has_ended(machine.uid()) {
            return Ok(None);
        }
        let class = self.class_of(&machine);
        let unheld = self.why_not_held(&machine, class.as_deref())?;
        let kept = self.last_known(&machine, class.as_deref());
        let content = class.as_ref().or(kept.as_ref()).map(Arc::as_ref);
        let secret = self.stores.secret_view(content);
        let target = self.stores.targets.of(&machine);
        let api = self.stores.targets.api_view(&self.api_health, &machine, (self.clock.0)());
        let answers = api.down_since.is_none();
        let (node, ids) = self.node_of(&machine, &target, answers).await;
        let now = (self.clock.0)();
        let (provider, elsewhere) = self.providers(&machine, content);
        let uid = machine.uid();
        let refused = || self.state.refused.get(uid);
        let mut known = operation::of_machine(self.sessions.view(uid), refused, provider.as_ref());
        self.not_of_another(&machine, &mut known);
        let expected = (known == OperationView::Idle).then(|| self.may_come_back(&machine));
        let mut operation = expected.flatten().map_or(known, OperationView::Expected);
        let bootstrap = self.configs.view(&machine);
        let bootstrap_token = self.token_of(&machine, &secret, &bootstrap, &target).await?;
        let attached = attached_volumes(&node);
        let pods = self.pods_on(&machine, &target, &node, answers).await;
        let abilities = self.abilities(&target, &bootstrap_token, &pods, answers).await;
        let driver = self.driver_view(&machine, content);
        let pool = self.own_pool(&machine).await?;
        let class = match (&class, &kept) {
            _ if let Some(why) = unheld => ClassView::NotHeld(why),
            (Some(class), _) => ClassView::Known(ClassFacts::of(class)),
            (None, Some(kept)) => ClassView::LastKnown(ClassFacts::of(kept)),
            (None, None) => ClassView::Missing,
        };
        Ok(Some(Snapshot {
            now,
            class_before: self.class_before(&machine),
            review: self.review_of(&machine, &class, &driver),
            slot: self.slot_of(&machine, &class),
            driver,
            class,
            elsewhere,
            secret,
            bootstrap,
            can_evict: abilities.evicts,
            binds_tokens: abilities.binds_tokens,
            volumes: volumes_of(&machine, &target, &node, &pods, &attached),
            pods,
            attached_volumes: attached,
            target: target.view(),
            outdated: self.schemas.outdated(),
            api,
            siblings: self.siblings_of(&machine),
            pool,
            node,
            ids,
            bootstrap_token,
            provider_id_holder: self.other_holder(&machine, &mut operation),
            operation,
            hint: self.state.hints.of(machine.uid()),
            cluster: ids_of(&self.sessions),
            term: self.term.0.into(),
            fresh: fresh(),
            settings: self.settings.lifecycle.clone(),
            machine,
            unwritten,
        }))
    }

    /// The provider whose answers count, and the instance's provider if it is not the class's. A provider under its
    /// other name in MCM is the same provider.
    fn providers(
        &self,
        machine: &Machine,
        class: Option<&MachineClass>,
    ) -> (Option<ProviderName>, Option<ProviderName>) {
        let of_class = class.map(|class| self.settings.driver_name(class.provider()));
        let held = holder(machine).map(|it| self.settings.driver_name(it.as_str()));
        let elsewhere =
            held.clone().filter(|it| of_class.as_ref().is_some_and(|class| class != it));
        (held.or(of_class), elsewhere)
    }

    /// The Machine with the status that a pass kept. If another client wrote a status since, the client's status stays,
    /// and the pass only keeps its events.
    fn with_unwritten(&self, machine: Arc<Machine>) -> (Arc<Machine>, Option<Unwritten>) {
        let Some(mut kept) = self.state.unwritten.get(machine.uid()) else {
            return (machine, None);
        };
        if kept.stored != machine.status {
            kept.stored.clone_from(&machine.status);
            kept.status = machine.status.clone().unwrap_or_default();
            return (machine, Some(kept));
        }
        let status = Some(kept.status.clone());
        (Arc::new(Machine { status, ..machine.as_ref().clone() }), Some(kept))
    }

    /// The driver's review of the class, and of the class change that this machine is about to get.
    fn review_of(&self, machine: &Machine, class: &ClassView, driver: &DriverView) -> ReviewView {
        let (ClassView::Known(class), DriverView::Ready(driver)) = (class, driver) else {
            return ReviewView::default();
        };
        let question = Question::of(machine, class, driver);
        let name = ObjectName::new(machine.namespace(), &class.name);
        question.map_or_else(ReviewView::default, |it| self.reviewer.answer(&name, &it))
    }

    fn slot_of(&self, machine: &Machine, class: &ClassView) -> SlotView {
        let limit = class.known().map_or(0, |class| {
            let name = ObjectName::new(machine.namespace(), &class.name);
            class.max_parallel.limit(self.stores.count_users(&name))
        });
        self.state.slots.view(machine, limit)
    }

    /// The siblings of a machine that may fail soon.
    fn siblings_of(&self, machine: &Machine) -> Siblings {
        if machine.phase() != MachinePhase::Unknown && machine.unhealthy_mark().is_none() {
            return Siblings::default();
        }
        let mut siblings = self.stores.siblings(machine, &self.settings.lifecycle);
        let deployment = siblings.deployment.as_deref();
        siblings.last_failure = deployment.and_then(|it| self.state.replacements.last(it));
        siblings
    }

    /// For how long a driver may still reconnect with an operation that an earlier core sent for this machine. A
    /// machine without an intent of an earlier term has none, and need not wait.
    fn may_come_back(&self, machine: &Machine) -> Option<Duration> {
        let intent = machine.intent()?;
        let ours = intent.term == i64::from(self.term.0);
        self.sessions.adoption_left().filter(|_| !ours)
    }

    /// `None` also for a machine with another kind of class, which would not get a finalizer.
    pub(super) fn class_of(&self, machine: &Machine) -> Option<Arc<MachineClass>> {
        let namespace = machine.metadata.namespace.clone().unwrap_or_default();
        let name = machine.spec.class.name.as_str();
        let class = ObjectName::new(&namespace, name);
        self.stores.classes.get(&class).filter(|_| uses_class(machine, &namespace, name))
    }

    /// Why the class of this machine cannot be used yet; `None`: it can. The moment until its finalizer is written is not
    /// worth a status message.
    fn why_not_held(
        &self,
        machine: &Machine,
        class: Option<&MachineClass>,
    ) -> Result<Option<String>, PassError> {
        if class.is_none_or(|class| !is_not_held(class, machine)) {
            return Ok(None);
        }
        let class = ObjectName::new(machine.namespace(), &machine.spec.class.name);
        self.stores.unheld.why(&class).map(Some).ok_or(PassError::NotYet(HOLD_PATIENCE))
    }

    /// The kept copy of the machine's class, if the class is gone.
    fn last_known(
        &self,
        machine: &Machine,
        live: Option<&MachineClass>,
    ) -> Option<Arc<MachineClass>> {
        let namespace = machine.metadata.namespace.clone().unwrap_or_default();
        let name = machine.spec.class.name.as_str();
        if live.is_some() || !uses_class(machine, &namespace, name) {
            return None;
        }
        let kept = self.stores.last_known(&ObjectName::new(&namespace, name));
        kept.map(|kept| Arc::new(kept.class))
    }

    /// The class at the begin of the operation of unknown outcome, if changed since.
    fn class_before(&self, machine: &Machine) -> Option<ClassFacts> {
        let begun_with = unresolved(machine)?;
        let name = ObjectName::new(machine.namespace(), &machine.spec.class.name);
        self.stores.class_before(&name, &begun_with).as_ref().map(ClassFacts::of)
    }

    /// The cached Node; but before a Machine or its instance is deleted, it is read from the API. The cache may not
    /// have a new Node yet: its pods would get no grace period, and nothing else would delete the Node. An API server
    /// that is down is not asked: each request would keep a worker until it times out.
    async fn node_of(
        &self,
        machine: &Machine,
        target: &TargetOf,
        answers: bool,
    ) -> (NodeView, IdComparison) {
        let mut ids = self.stores.id_comparison(machine);
        let watched = compared_node_view(machine, target, &self.stores, &mut ids);
        let node = self.read_if_absent(machine, target, watched, (answers, ids.by())).await;
        (node, ids)
    }

    async fn read_if_absent(
        &self,
        machine: &Machine,
        target: &TargetOf,
        watched: NodeView,
        (answers, by): (bool, ProviderIdComparison),
    ) -> NodeView {
        let name = node::expected_name(machine).filter(|_| machine.is_deleting());
        let (NodeView::Absent, TargetOf::Cluster(target), Some(name)) = (&watched, target, name)
        else {
            return watched;
        };
        if !answers {
            return NodeView::Unknown;
        }
        let writer = self.writer.to(&target.client);
        match writer.get(&writer.cluster_api::<Node>(), name).await {
            Ok(found) => {
                let named = found.filter(|it| !self.stores.is_node_of_another(machine, it));
                let named = named.map(Arc::new);
                node::choose(
                    machine,
                    &node::Candidates { by, named, ..node::Candidates::default() },
                )
            }
            Err(error) => {
                debug!(machine = machine.name(), %error, "the node could not be read");
                NodeView::Unknown
            }
        }
    }

    /// The cached pods; but before a drain ends and the instance is deleted, they are listed: the cache may be older
    /// than the cordon.
    async fn pods_on(
        &self,
        machine: &Machine,
        target: &TargetOf,
        node: &NodeView,
        answers: bool,
    ) -> Observed<Vec<PodView>> {
        let TargetOf::Cluster(target) = target else { return nothing_there(target) };
        if !machine.is_drained() {
            return Observed::Unknown;
        }
        let nodes = node.all();
        if nodes.is_empty() {
            return Observed::Known(Vec::new());
        }
        let view = |pod: &Pod| {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            PodView::of(pod, self.refusal_of(target, pod, uid))
        };
        let watched = |node: &&Arc<Node>| target.pods.find(PodIndex::Node, &name_of(node));
        let watched = nodes.iter().flat_map(watched);
        let pods: Vec<_> = watched.map(|pod| view(&pod)).collect();
        let (now, settings) = ((self.clock.0)(), &self.settings.lifecycle);
        if !is_last_look(machine, settings, now, &nodes, &pods) {
            return Observed::Known(pods);
        }
        if !answers {
            return Observed::Unknown;
        }
        let mut listed = Vec::new();
        for node in nodes {
            match self.writer.to(&target.client).pods_on(&name_of(node)).await {
                Ok(pods) => listed.extend(pods.iter().map(|pod| view(pod))),
                Err(error) => {
                    let machine = machine.name();
                    debug!(machine, %error, "the pods of the node could not be listed");
                    return Observed::Unknown;
                }
            }
        }
        Observed::Known(listed)
    }

    /// The abilities of a target's API server. Asked once, when there is a token or are pods to drain.
    async fn abilities(
        &self,
        target: &TargetOf,
        token: &Observed<BootstrapToken>,
        pods: &Observed<Vec<PodView>>,
        answers: bool,
    ) -> Abilities {
        let matters = token.known().is_some() || pods.known().is_some_and(|it| !it.is_empty());
        let (TargetOf::Cluster(target), true) = (target, matters && answers) else {
            return Abilities::ALL;
        };
        let writer = self.writer.to(&target.client);
        let found = async || {
            let resources = writer.core_resources().await.ok_or(())?;
            Ok::<_, ()>(Abilities::of(&resources))
        };
        target.abilities.get_or_try_init(found).await.copied().unwrap_or(Abilities::ALL)
    }

    fn driver_view(&self, machine: &Machine, class: Option<&MachineClass>) -> DriverView {
        let Some(class) = class else { return DriverView::Unavailable };
        let view = driver_of(&self.sessions, &self.settings, class.provider());
        if machine.has_pool() { view.of_pooled() } else { view }
    }

    /// Name of another machine with this machine's present or coming provider id.
    fn other_holder(&self, machine: &Machine, operation: &mut OperationView) -> Option<String> {
        let reported = operation.reported().filter(|it| !it.provider_id.is_empty());
        let (id, uid) = match &reported {
            Some(record) => (&record.provider_id, record.machine_uid.as_str()),
            None => (machine.provider_id()?, ""),
        };
        self.stores.other_holder(machine, id, uid)
    }

    /// Removes the Node from a driver's report if it belongs to another machine: a report about one instance never
    /// drains or deletes the Node of another machine.
    fn not_of_another(&self, machine: &Machine, operation: &mut OperationView) {
        let record = operation.reported().filter(|it| !it.node_name.is_empty());
        let Some(record) = record else { return };
        if let Some(other) = self.stores.other_with_node(machine, &record.node_name) {
            let (name, node) = (machine.name(), record.node_name.escape_debug());
            warn!(machine = name, %node, other, "the driver names the node of another machine");
            record.node_name.clear();
        }
    }
}

/// The view of an object in a cluster that may not exist: the same for Node, pods and token.
fn nothing_there<T>(target: &TargetOf) -> Observed<T> {
    match target {
        TargetOf::None => Observed::Absent,
        TargetOf::Cluster(_) | TargetOf::Lacking { .. } => Observed::Unknown,
    }
}

/// The Node of a machine, as the caches show it.
pub(crate) fn node_view(machine: &Machine, target: &TargetOf, stores: &Stores) -> NodeView {
    compared_node_view(machine, target, stores, &mut stores.id_comparison(machine))
}

/// The same, with the known comparison of provider ids.
pub(crate) fn compared_node_view(
    machine: &Machine,
    target: &TargetOf,
    stores: &Stores,
    ids: &mut IdComparison,
) -> NodeView {
    let nodes = match target {
        TargetOf::None => return NodeView::Absent,
        TargetOf::Lacking { .. } => return NodeView::Unknown,
        TargetOf::Cluster(target) => &target.nodes,
    };
    let by = ids.by();
    let instance = machine.instance_id();
    let of_ending = instance.and_then(|id| ProviderId::ending(id.as_str()));
    let of_ending = of_ending.map(|ending| nodes.find(NodeIndex::Ending, &ending));
    let mut of_ending = of_ending.unwrap_or_default();
    of_ending.retain(|node| !stores.is_node_of_another(machine, node));
    let such = |is_such: &dyn Fn(&ProviderId, &str) -> bool| {
        let of_ending = of_ending.iter().filter(|node| {
            instance.zip(node::provider_id(node)).is_some_and(|(own, id)| is_such(own, id))
        });
        of_ending.cloned().collect::<Vec<_>>()
    };
    let named = |name: Option<&str>| name.and_then(|name| nodes.get(&ObjectName::cluster(name)));
    let mut found = node::Candidates {
        by,
        with_id: such(&|own, id| own.equals(id, by)),
        named: named(node::expected_name(machine)),
        labelled: nodes.find(NodeIndex::MachineName, machine.name()),
        spelled: Vec::new(),
    };
    // A user may have changed the Node's label since the joining.
    let joined = named(node::joined_name(machine)).filter(|node| node::joined_as(machine, node));
    found.labelled.extend(joined);
    // A cloud that spells the id of a Node in another way spells the ids of the instance's other Nodes in the same way.
    let spelled: BTreeSet<_> = found.spellings(machine).map(str::to_owned).collect();
    for id in spelled {
        found.with_id.extend(nodes.find(NodeIndex::ProviderId, &id));
    }
    if found.with_id.is_empty() {
        found.spelled = such(&ProviderId::is_spelled);
    }
    found.retain(|node| !stores.is_node_of_another(machine, node));
    let view = node::choose(machine, &found);
    if ids.said.is_some() {
        return view;
    }
    // No driver has said yet how ids are compared. A Node that may be the Machine's own is neither taken nor passed
    // over.
    let is_own = |node: &Node| node::is_ours(machine, instance, node, by);
    let own: Vec<_> = view.all().into_iter().filter(|node| is_own(node)).collect();
    let others = such(&ProviderId::may_equal);
    let undecided = others.into_iter().find(|node| !own.contains(&node));
    if undecided.is_none() || !own.is_empty() && !machine.is_deleting() {
        return view;
    }
    ids.undecided = undecided;
    NodeView::Unknown
}

/// A class must have its finalizer before anything is created with it: without the class, nothing that was created
/// could be deleted. The class controller adds the finalizer, and the write wakes the machines.
fn is_not_held(class: &MachineClass, machine: &Machine) -> bool {
    let going = class.metadata.deletion_timestamp.is_some() || machine.is_deleting();
    !class.has_finalizer() && !going
}

fn name_of(node: &Node) -> String {
    node.metadata.name.clone().unwrap_or_default()
}

fn attached_volumes(node: &NodeView) -> Observed<Vec<String>> {
    match node {
        NodeView::Unknown => Observed::Unknown,
        NodeView::Ambiguous(_) if node.all().is_empty() => Observed::Unknown,
        NodeView::Absent | NodeView::Known(_) | NodeView::Several(..) | NodeView::Ambiguous(_) => {
            let all = node.all();
            let status = all.iter().flat_map(|node| &node.status);
            let volumes = status.flat_map(|status| status.volumes_attached.iter().flatten());
            Observed::Known(volumes.map(|volume| volume.name.clone()).collect())
        }
    }
}

fn fresh() -> Fresh {
    Fresh { operation_id: uuid::Uuid::new_v4().to_string().into(), token_secret: tokens::fresh() }
}

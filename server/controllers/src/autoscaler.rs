//! Groups of machines for autoscalers: read from the caches, whether this process leads or not, and changed in the API.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, Resource};
use ostler_api::names::{MACHINE_DEPLOYMENT, MACHINE_POOL, MACHINE_SET};
use ostler_api::{Machine, MachineClass, MachineDeployment, MachinePool, ProviderId};
use ostler_lifecycle::autoscaler::group::{Group, GroupId, Placeholder};
use ostler_lifecycle::autoscaler::instance::GroupMember;
use ostler_lifecycle::autoscaler::limits::limits;
use ostler_lifecycle::autoscaler::scale::{Named, NamedNode, ScaleChange, ScaleRefusal};
use ostler_lifecycle::autoscaler::shape::NodeShape;
use ostler_lifecycle::machine::has_own_instance;
use ostler_lifecycle::node::provider_id;
use ostler_lifecycle::owner::controller;
use ostler_lifecycle::plan::{Event, EventAction, EventReason};
use serde_json::Value;

use crate::REPORTER;
use crate::client::{Typed, WriteError, WriteMetrics, Writer};
use crate::clock::{Clock, DebugClock};
use crate::events::{EventMetrics, Recorder};
use crate::machine::node_view;
use crate::settings::Settings;
use crate::stores::{DeploymentIndex, MachineIndex, PoolIndex, SetIndex, Stores};
use crate::telling::tell;
use crate::watch::{Author, Cache, CacheIndex, ObjectName};

/// The author of these writes for the triggers: no controller.
const AUTOSCALER: &str = "autoscaler";

/// How often a wish is decided anew because the group changed meanwhile.
const ATTEMPTS: usize = 5;

/// Why a wish was not followed.
#[derive(Debug)]
pub enum ScaleError {
    /// The change is impossible.
    Refused(ScaleRefusal),
    /// The API server did not make the change, for this reason.
    Api(String),
}

/// A Node as an autoscaler names it.
#[derive(Debug, Clone, Copy)]
pub struct NodeName<'a> {
    /// Its name.
    pub name: &'a str,
    /// The provider id, or the core's placeholder for a missing Node.
    pub provider_id: &'a str,
}

/// Answers autoscalers.
#[derive(Clone)]
pub struct Scaler {
    stores: Stores,
    writer: Writer,
    recorder: Recorder,
    clock: DebugClock,
    runs_sets: bool,
}

impl fmt::Debug for Scaler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scaler").finish_non_exhaustive()
    }
}

impl Scaler {
    pub(crate) fn new(
        (stores, writer, recorder): (Stores, Writer, Recorder),
        settings: &Settings,
        clock: &Clock,
    ) -> Self {
        let clock = DebugClock(Arc::clone(clock));
        Self { stores, writer, recorder, clock, runs_sets: settings.controllers.run_sets() }
    }

    /// Over caches that others fill, for a benchmark: events are not written.
    pub fn over(stores: Stores, client: Client, settings: &Settings, clock: &Clock) -> Self {
        let writer = Writer::new(client.clone(), WriteMetrics::default());
        let metrics = EventMetrics::default();
        let named = (REPORTER, settings.identity.as_str());
        let (recorder, _unwritten) = Recorder::new(client, named, Arc::clone(clock), metrics);
        Self::new((stores, writer, recorder), settings, clock)
    }

    /// Whether the caches are complete. Until they do, a group would seem to be gone.
    pub fn is_synced(&self) -> bool {
        let Stores { machines, classes, sets, deployments, targets, .. } = &self.stores;
        let fleet = !self.runs_sets || sets.is_synced() && deployments.is_synced();
        let nodes = targets.all().iter().all(|target| target.nodes.is_synced());
        machines.is_synced() && classes.is_synced() && fleet && nodes
    }

    /// Every deployment and pool that autoscalers may scale, in the order of their ids.
    pub fn groups(&self) -> Vec<Group> {
        let deployments = self.stores.deployments.all().into_iter().map(Group::Deployment);
        let pools = self.stores.pools.all().into_iter().map(Group::Pool);
        let scaled = |group: &Group| group.limits().is_some();
        let mut groups: Vec<_> = deployments.chain(pools).filter(scaled).collect();
        groups.sort_by_cached_key(|group| group.id().to_string());
        groups
    }

    /// The group with this id.
    ///
    /// # Errors
    /// There is none, or no autoscaler may scale it.
    pub fn group(&self, id: &str) -> Result<Group, ScaleRefusal> {
        let none = || ScaleRefusal::NoGroup(id.to_owned());
        let known = GroupId::read(id).ok_or_else(none)?;
        let name = ObjectName::new(&known.namespace, &known.name);
        let group = match known.kind {
            MACHINE_POOL => self.stores.pools.get(&name).map(Group::Pool),
            _ => self.stores.deployments.get(&name).map(Group::Deployment),
        };
        group.filter(|group| group.limits().is_some()).ok_or_else(none)
    }

    /// The Machines of a group, by name.
    pub fn members(&self, group: &Group) -> Vec<GroupMember> {
        let Stores { machines, sets, targets, .. } = &self.stores;
        let of = |uid: &str| machines.find(MachineIndex::Controller, uid);
        let found: Vec<_> = match group {
            Group::Pool(pool) => of(pool.uid()),
            Group::Deployment(it) => {
                let sets = sets.find(SetIndex::Controller, it.uid());
                sets.iter().flat_map(|set| of(set.uid())).collect()
            }
        };
        let member = |machine: Arc<Machine>| {
            let view = node_view(&machine, &targets.of(&machine), &self.stores);
            let node_id = view.serving().and_then(|node| provider_id(node)).map(str::to_owned);
            // A kubelet may be faster than the driver's answer: by this id the Machine would not be found.
            let is_known = machine.instance_id().is_some() || machine.node_name().is_some();
            let node_id = node_id.filter(|_| is_known);
            GroupMember { machine, node_id }
        };
        found.into_iter().map(member).collect()
    }

    /// The shape of a future Node of a group; `None`: not in its class.
    pub fn shape(&self, group: &Group) -> Option<NodeShape> {
        let class = ObjectName::new(group.id().namespace, &group.template().class.name);
        NodeShape::of(&*self.stores.classes.get(&class)?, group.template())
    }

    /// The group of a Node, even of a future Node. `None`: in no group, like a Machine in reserve.
    pub fn group_of(&self, node: NodeName<'_>) -> Option<Group> {
        let group = match [node.provider_id, node.name].into_iter().find_map(Placeholder::read) {
            Some(Placeholder::Missing(namespace, pool, _)) => {
                Group::Pool(self.stores.pools.get(&ObjectName::new(namespace, pool))?)
            }
            _ => self.group_of_machine(&*self.machine_of(node)?)?,
        };
        group.limits().is_some().then_some(group)
    }

    fn group_of_machine(&self, machine: &Machine) -> Option<Group> {
        let Stores { sets, deployments, pools, .. } = &self.stores;
        let owner = controller(&machine.metadata)?;
        match owner.kind.as_str() {
            MACHINE_POOL => pools.find(PoolIndex::Uid, &owner.uid).pop().map(Group::Pool),
            MACHINE_SET => {
                let set = sets.find(SetIndex::Uid, &owner.uid).pop()?;
                let owner = controller(&set.metadata).filter(|it| it.kind == MACHINE_DEPLOYMENT)?;
                deployments.find(DeploymentIndex::Uid, &owner.uid).pop().map(Group::Deployment)
            }
            _ => None,
        }
    }

    /// The Machine of a Node: by the provider id, as compared by the driver, else by the name, unless the named Node
    /// has another id. Of several Machines, the oldest with an instance from a driver: any writer of Machines may write
    /// an id or a label.
    fn machine_of(&self, node: NodeName<'_>) -> Option<Arc<Machine>> {
        let placeholder = [node.provider_id, node.name].into_iter().find_map(Placeholder::read);
        if let Some(Placeholder::Machine(namespace, name)) = placeholder {
            return self.stores.machines.get(&ObjectName::new(namespace, name));
        }
        let machines = &self.stores.machines;
        let id = Some(node.provider_id).filter(|id| !id.is_empty());
        let exact = id.map(|id| machines.find(MachineIndex::ProviderId, id)).unwrap_or_default();
        let fits = |machine: &Arc<Machine>| {
            let by = || self.stores.id_comparison(machine).by();
            let own = machine.instance_id();
            id.is_none_or(|id| own.is_none_or(|own| own.equals(id, by())))
        };
        let alike = || {
            let ending = id.and_then(ProviderId::ending);
            ending.map(|ending| machines.find(MachineIndex::Ending, &ending)).unwrap_or_default()
        };
        let named = || machines.find(MachineIndex::Node, node.name);
        let first = |mut found: Vec<Arc<Machine>>| {
            found.retain(fits);
            found.into_iter().min_by_key(|machine| {
                let born = machine.metadata.creation_timestamp.as_ref().map(|born| born.0);
                (!has_own_instance(machine), born, machine.uid().to_owned())
            })
        };
        first(exact).or_else(|| first(alike())).or_else(|| first(named()))
    }

    /// The meaning of a Node in a group.
    fn named(&self, node: NodeName<'_>, group: &GroupId) -> Named {
        let ids = || [node.provider_id, node.name].into_iter();
        let missing = || ids().find_map(|id| NamedNode::missing(id, group));
        let gone = || ids().find_map(|id| NamedNode::gone(id, group));
        let known =
            self.machine_of(node).map(|machine| NamedNode::Machine(machine.uid().to_owned()));
        let name = if node.name.is_empty() { node.provider_id } else { node.name };
        let what = missing().or(known).or_else(gone).unwrap_or(NamedNode::Unknown);
        Named { name: name.to_owned(), what }
    }

    /// Decides a wish about the group with this id, and writes the changes.
    ///
    /// # Errors
    /// The change is refused, or the API server did not make it.
    pub async fn change(
        &self,
        id: &str,
        decide: impl Fn(&Group, &Decided<'_>) -> Result<Option<ScaleChange>, ScaleRefusal>,
    ) -> Result<(), ScaleError> {
        let mut group = self.group(id).map_err(ScaleError::Refused)?;
        for _ in 0..ATTEMPTS {
            let decided = Decided { scaler: self, id: group.id(), now: (self.clock.0)() };
            let change = decide(&group, &decided).map_err(ScaleError::Refused)?;
            let Some(change) = change else { return Ok(()) };
            match self.write(&group, &change).await {
                Ok(()) => return Ok(()),
                Err(WriteError::Conflict) => {}
                Err(WriteError::NotFound) => {
                    return Err(ScaleError::Refused(ScaleRefusal::NoGroup(id.to_owned())));
                }
                Err(error) => return Err(ScaleError::Api(error.to_string())),
            }
            group = self.read(&group).await?;
        }
        Err(ScaleError::Api(format!("{id} changed {ATTEMPTS} times meanwhile")))
    }

    async fn write(&self, group: &Group, change: &ScaleChange) -> Result<(), WriteError> {
        let Stores { deployments, pools, .. } = &self.stores;
        match group {
            Group::Deployment(it) => self.patch(deployments, it.as_ref(), &change.patch).await?,
            Group::Pool(it) => self.patch(pools, it.as_ref(), &change.patch).await?,
        }
        let regarding = match group {
            Group::Deployment(it) => it.object_ref(&()),
            Group::Pool(it) => it.object_ref(&()),
        };
        let note = format!("an autoscaler: {}", change.note);
        let event = Event::normal(EventReason::ScaledByAutoscaler, note);
        tell(&self.recorder, regarding, event.doing(EventAction::Scale));
        Ok(())
    }

    async fn patch<I>(
        &self,
        cache: &Cache<I>,
        seen: &I::Object,
        patch: &Value,
    ) -> Result<(), WriteError>
    where
        I: CacheIndex,
        I::Object: Typed + Resource<Scope = kube::core::NamespaceResourceScope>,
    {
        let ObjectName { namespace, name } = ObjectName::of(seen);
        let api = self.writer.api::<I::Object>(&namespace);
        let written = self.writer.patch(&api, &name, patch).await?;
        // The next question may come before the watch tells.
        cache.update(written, Author::new(AUTOSCALER, seen));
        Ok(())
    }

    /// The group as the API server has it.
    async fn read(&self, group: &Group) -> Result<Group, ScaleError> {
        let GroupId { namespace, name, .. } = group.id();
        let read = match group {
            Group::Deployment(_) => {
                let api = self.writer.api::<MachineDeployment>(&namespace);
                let read = self.writer.get(&api, &name).await;
                read.map(|it| it.map(|it| Group::Deployment(Arc::new(it))))
            }
            Group::Pool(_) => {
                let api = self.writer.api::<MachinePool>(&namespace);
                let read = self.writer.get(&api, &name).await;
                read.map(|it| it.map(|it| Group::Pool(Arc::new(it))))
            }
        };
        let read = read.map_err(|error| ScaleError::Api(error.to_string()))?;
        read.ok_or_else(|| ScaleError::Refused(ScaleRefusal::NoGroup(group.id().to_string())))
    }
}

/// The class, if autoscalers are to read a change in it.
pub(crate) fn shown_otherwise(
    change: &crate::watch::Change<MachineClass>,
) -> Option<&Arc<MachineClass>> {
    let shown = |class: &MachineClass| class.spec.node_template.clone();
    let before = change.old.as_ref().and_then(|old| shown(old));
    change.new.as_ref().filter(|new| shown(new) != before)
}

/// Whether an autoscaler may scale an object.
pub(crate) fn is_scaled(metadata: &ObjectMeta) -> bool {
    limits(metadata).is_ok_and(|limits| limits.is_some())
}

/// The facts for a wish, beside the group.
#[derive(Debug)]
pub struct Decided<'a> {
    scaler: &'a Scaler,
    id: GroupId,
    /// The time.
    pub now: jiff::Timestamp,
}

impl Decided<'_> {
    /// The Machines of the group.
    pub fn members(&self, group: &Group) -> Vec<GroupMember> {
        self.scaler.members(group)
    }

    /// The meaning of a Node in the group.
    pub fn named(&self, node: NodeName<'_>) -> Named {
        self.scaler.named(node, &self.id)
    }
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use kube::runtime::watcher::Event;
    use ostler_api::names::annotation::{AUTOSCALER_MAX, AUTOSCALER_MIN};
    use ostler_api::names::label;
    use serde_json::json;
    use tower::service_fn;

    use super::*;
    use crate::target::{Target, Targets};

    /// The scaler, over the deployment `d` with the set `s`, and these Machines: name, provider id, Node, kind and UID
    /// of the controller.
    fn scaler(machines: &[(&str, &str, &str, &str, &str)]) -> Scaler {
        scaler_over(Stores::default(), machines)
    }

    fn client() -> Client {
        let never = service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, std::convert::Infallible>>()
        });
        Client::new(never, "default")
    }

    fn scaler_over(stores: Stores, machines: &[(&str, &str, &str, &str, &str)]) -> Scaler {
        let named = |name: &str| json!({ "name": name, "namespace": "default", "uid": name });
        let mut meta = named("d");
        meta["annotations"] = json!({ AUTOSCALER_MIN: "0", AUTOSCALER_MAX: "9" });
        let deployment = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "metadata": meta,
            "spec": { "template": {} }
        });
        stores.deployments.apply(Event::Apply(serde_json::from_value(deployment).unwrap()));
        let owner = |kind: &str, uid: &str| json!([{ "apiVersion": "x/v1", "kind": kind, "name": uid, "uid": uid, "controller": true }]);
        let mut meta = named("s");
        meta["ownerReferences"] = owner("MachineDeployment", "d");
        let set = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet", "metadata": meta,
            "spec": { "template": {} }
        });
        stores.sets.apply(Event::Apply(serde_json::from_value(set).unwrap()));
        for (name, id, node, kind, uid) in machines {
            let mut meta = named(name);
            meta["labels"] = json!({ "node": node });
            meta["ownerReferences"] = owner(kind, uid);
            let machine = json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": meta,
                "spec": { "providerID": id }
            });
            stores.machines.apply(Event::Apply(serde_json::from_value(machine).unwrap()));
        }
        Scaler::over(stores, client(), &Settings::default(), &crate::system_clock())
    }

    fn group_of(scaler: &Scaler, provider_id: &str, name: &str) -> Option<String> {
        let group = scaler.group_of(NodeName { name, provider_id });
        group.map(|group| group.id().to_string())
    }

    #[tokio::test]
    async fn a_node_is_in_the_group_of_its_machine_and_one_in_reserve_is_in_none() {
        let scaler = scaler(&[
            ("used", "a:///1", "node-1", "MachineSet", "s"),
            ("spare", "a:///2", "node-2", "MachineReserve", "r"),
        ]);
        let ours = Some("MachineDeployment/default/d".to_owned());
        assert_eq!(group_of(&scaler, "a:///1", "node-1"), ours);
        assert_eq!(group_of(&scaler, "", "node-1"), ours, "a kubelet without an id");
        assert_eq!(
            group_of(&scaler, "ostler://default/used", "x"),
            ours,
            "as it was called before"
        );
        for (id, name) in [("a:///2", "node-2"), ("", "node-2"), ("ostler://default/spare", "x")] {
            assert_eq!(group_of(&scaler, id, name), None, "{id} {name}");
        }
        let group = scaler.group("MachineDeployment/default/d").unwrap();
        let members: Vec<_> = scaler.members(&group).iter().map(GroupMember::id).collect();
        assert_eq!(members, ["a:///1"]);
    }

    #[tokio::test]
    async fn the_name_of_a_node_counts_only_while_its_id_is_not_that_of_another() {
        let scaler = scaler(&[("m", "a:///1", "node-1", "MachineSet", "s")]);
        assert_eq!(group_of(&scaler, "a:///9", "node-1"), None);
        assert_eq!(
            group_of(&scaler, "a:///1", "another-name").as_deref(),
            Some("MachineDeployment/default/d")
        );
    }

    #[tokio::test]
    async fn a_node_that_is_faster_than_the_answer_of_the_driver_gives_no_id_that_finds_no_group() {
        let target = Arc::new(Target::new(client()));
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "spec": { "providerID": "a:///1" },
            "metadata": { "name": "m", "labels": { label::MACHINE_NAME: "m" } }
        });
        target.nodes.apply(Event::Apply(serde_json::from_value(node).unwrap()));
        let scaler =
            scaler_over(Stores::new(Targets::One(target)), &[("m", "", "", "MachineSet", "s")]);
        let name = ObjectName::new("default", "m");
        let mut machine = (*scaler.stores.machines.get(&name).unwrap()).clone();
        machine.metadata.labels = None;
        machine.spec.provider_id = None;
        machine.status = Some(
            serde_json::from_value(json!({ "creationStartedAt": "2026-12-01T00:00:00Z" })).unwrap(),
        );
        scaler.stores.machines.apply(Event::Apply(machine));
        let group = scaler.group("MachineDeployment/default/d").unwrap();
        let ids: Vec<_> = scaler.members(&group).iter().map(GroupMember::id).collect();
        assert_eq!(ids, ["ostler://default/m"]);
        assert!(group_of(&scaler, &ids[0], &ids[0]).is_some());
    }
}

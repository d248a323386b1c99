//! What the judge is told of pools, of their groups and the instances of those.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Node, Pod};
use ostler_api::MachinePool;
use ostler_api::machine::Machine;
use ostler_driver_fake::cloud::{Group, Instance, State};
use ostler_lifecycle::pool::is_begun;
use tokio::time::Instant;

use super::groups::is_gone;
use super::{Books, Change, Life, Oracle};
use crate::sim::pools::ELSEWHERE;
use crate::sim::pools::rules::Resized;

/// Operations that change a group.
pub(super) const MUTATIONS: [&str; 5] =
    ["CreatePool", "UpdatePool", "DeletePool", "DeletePoolMachines", "UpdatePoolMachine"];

/// Whether an instance is that of a Machine: by its tags, or of a group by its id.
pub fn is_of(instance: &Instance, machine: &Machine) -> bool {
    if instance.member.is_some() {
        return machine.provider_id().is_some_and(|id| id.as_str() == instance.provider_id);
    }
    instance.identity.machine_uid == machine.uid()
}

impl Oracle {
    pub(super) fn pool(&self, change: &Change) {
        let Ok(pool) = serde_json::from_value::<MachinePool>(change.object.clone()) else { return };
        let mut books = self.lock();
        let status = pool.status.as_ref();
        let operation = status.and_then(|status| status.operation.as_ref());
        books.intents.extend(operation.map(|it| it.intent.id.to_string()));
        let gone = is_gone(change, &pool.metadata);
        let wrong = gone.then(|| books.pools.released(&pool)).flatten();
        books.pools.pool(&pool, gone);
        drop(books);
        if let Some(wrong) = wrong.filter(|_| change.by.starts_with("core")) {
            self.broken(wrong);
        }
    }

    /// An instance of a group was made, or changed: it may be on its way out from now on.
    pub(super) fn member(&self, cloud: &str, instance: &Instance, before: &State) {
        let mut books = self.lock();
        let (id, known) = (&instance.provider_id, before.instance(&instance.provider_id));
        if known.is_none() {
            self.trace.note(cloud, format_args!("makes {id} of a group"));
        }
        books.instances.insert(id.clone(), instance.clone());
        if !instance.deleting || known.is_some_and(|it| it.deleting) {
            return;
        }
        self.trace.note(cloud, format_args!("stops {id} of a group"));
        if books.foreign.contains_key(id) {
            self.trace.violation(format_args!("INV-5: {id} of a group is deleted"));
        }
        let Some(member) = &instance.member else { return };
        books.pools.goes(&member.group);
        if books.pools.others {
            return;
        }
        let group = before.group(&member.group);
        let ends = group.is_none_or(|group| books.pools.ends(&group.identity.pool_uid));
        let life = books.lives.values().find(|life| is_of(instance, &life.machine));
        match life {
            None if ends || books.late => {}
            None => self.broken(format_args!("POOL-3: {id} is deleted, and has no Machine")),
            Some(life) if !life.machine.is_deleting() && !books.late => {
                self.broken(format_args!("POOL-3: nobody deleted {}, whose {id} goes", life.name));
            }
            Some(life) => self.check_empty(&books, instance, life),
        }
    }

    /// A Machine was written that may be one of a pool.
    pub(super) fn pooled(
        &self,
        books: &mut Books,
        before: Option<&Machine>,
        machine: &Machine,
        change: &Change,
    ) {
        let lives = |it: &Instance| is_of(it, machine) && !it.deleting;
        let lives = machine.has_pool() && books.instances.values().any(lives);
        let ours = change.by.starts_with("core");
        if is_begun(machine) && before.is_some_and(|it| !is_begun(it)) {
            self.trace.count("update in place begun".to_owned());
        }
        let wrong = books.pools.machine(before, machine, &change.method, (ours, lives));
        if let Some(wrong) = wrong {
            self.broken(wrong);
        }
    }

    /// An instance is gone.
    pub(super) fn removed(&self, id: &str, before: &State) {
        let mut books = self.lock();
        books.instances.remove(id);
        let Some(instance) = before.instance(id) else { return };
        let group = instance.member.as_ref().and_then(|it| before.group(&it.group));
        let Some(uid) = group.map(|it| &it.identity.pool_uid) else { return };
        // What another system made and took away between two reads had no Machine, and left a Node all the same.
        let unseen = books.pools.is_scaled_by_others(uid)
            && !books.lives.values().any(|life| is_of(instance, &life.machine));
        if unseen || books.pools.is_forsaken(uid) {
            books.left.insert(id.to_owned());
        }
    }

    /// A group is gone.
    pub(super) fn ungrouped(&self, id: &str, before: &State) {
        self.trace.note("cloud", format_args!("removes group {id}"));
        let mut books = self.lock();
        books.pools.ungrouped(id);
        if before.group(id).is_some_and(|it| books.pools.is_forsaken(&it.identity.pool_uid)) {
            self.trace.count("orphan group collected".to_owned());
        }
        drop(books);
        if before.group(id).is_some_and(|it| it.identity.cluster_id == ELSEWHERE) {
            self.trace.violation(format_args!("INV-5: group {id} is deleted"));
        }
    }

    /// Another system scales a group, and answers for lost instances itself.
    pub fn others_scale(&self, scale: impl FnOnce()) {
        self.lock().pools.others = true;
        scale();
        self.lock().pools.others = false;
    }

    /// A user leaves the group of this pool behind, or it never had a pool.
    pub fn forsakes(&self, uid: &str) {
        self.lock().pools.forsakes(uid);
    }

    /// Instances of forsaken groups that are gone with their Machines.
    pub fn forsaken(&self) -> BTreeSet<String> {
        let books = self.lock();
        let has = |id: &str| {
            let of = |life: &Life| life.machine.provider_id().is_some_and(|it| it.as_str() == id);
            books.lives.values().any(of)
        };
        books.left.iter().filter(|id| !has(id)).cloned().collect()
    }

    /// A list of groups that began then shows these pools.
    pub fn groups_shown<'a>(&self, uids: impl Iterator<Item = &'a str>, began: Instant) {
        let mut books = self.lock();
        uids.for_each(|uid| books.pools.shown(uid, began));
    }

    /// POOL-7: the driver is asked to change this instance as it likes.
    pub fn remade(&self, id: &str) {
        self.trace.count("instance changed in place".to_owned());
        let books = self.lock();
        let Some(instance) = books.instances.get(id) else { return };
        let Some(life) = books.lives.values().find(|life| is_of(instance, &life.machine)) else {
            return;
        };
        let name = &life.name;
        if life.machine.is_deleting() {
            return;
        }
        if books.pools.updated_since(life.machine.uid()).is_none() {
            self.broken(format_args!(
                "POOL-7: {name} is changed, and no update in place of it began"
            ));
        }
        self.check_empty(&books, instance, life);
    }

    /// A group was made, or its size or model was written.
    pub(super) fn grouped(&self, cloud: &str, group: &Group, before: &State) {
        if before.group(&group.provider_id).is_some() && group.identity.cluster_id == ELSEWHERE {
            self.trace.violation(format_args!("INV-5: {} is changed", group.provider_id));
        }
        let size = before.group(&group.provider_id).map_or(0, |it| it.desired);
        if size != group.desired {
            self.trace.note(
                cloud,
                format_args!("{} has size {} in place of {size}", group.provider_id, group.desired),
            );
        }
        let live = before.members(&group.provider_id).filter(|it| !it.deleting).count();
        let new = before.group(&group.provider_id).is_none();
        let size = Resized { before: size, after: group.desired, live, new };
        let mut books = self.lock();
        let late = books.late;
        books.pools.grouped(&group.provider_id, &group.identity.pool_uid, late);
        let wrong = books.pools.resized(&group.provider_id, &group.identity.pool_uid, size);
        drop(books);
        if let Some(wrong) = wrong {
            self.broken(wrong);
        }
    }

    /// INV-4: no pod is on the Node of an instance that goes, unless that is excused.
    pub(super) fn check_empty(&self, books: &Books, instance: &Instance, life: &Life) {
        let name = &life.name;
        // The Node of another instance keeps its pods.
        let own = |node: &Node| {
            let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_ref());
            id.is_none_or(|id| *id == instance.provider_id)
        };
        if self.excused(books, life) || !books.nodes.get(name).is_some_and(own) {
            return;
        }
        let on_node =
            |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()) == Some(name);
        let on_node = books.pods.values().filter(on_node);
        let pods: Vec<&String> = on_node.filter_map(|pod| pod.metadata.name.as_ref()).collect();
        if !pods.is_empty() {
            self.trace.violation(format_args!("INV-4: {name} goes with {pods:?} on it"));
        }
    }
}

//! Wakes classes, and secrets of classes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use ostler_api::machine::WaitReason;
use ostler_api::{Machine, MachineClass, MachinePool, ProviderName};

use super::{Classes, Secrets};
use crate::stores::kept_in;
use crate::target::{cluster_of, secret_of};
use crate::triggers::{DriverChange, Triggers, Woken};
use crate::watch::{Change, ObjectName};

impl Triggers for Woken<Classes> {
    /// The classes before and after the change of a Machine. A class that another machine uses does not change; but all
    /// machines of a list are cached before the first is reported.
    fn machine(&self, change: &Change<Machine>) {
        let (old, new) = (change.old.as_deref(), change.new.as_deref());
        if let (Some(old), Some(new)) = (old, new)
            && old.spec.class == new.spec.class
        {
            return;
        }
        let is_another =
            |user: &Machine| change.latest().is_none_or(|machine| machine.uid() != user.uid());
        for machine in [old, new].into_iter().flatten() {
            let namespace = machine.namespace();
            let class = ObjectName::new(namespace, &machine.spec.class.name);
            if change.listed || !self.stores.is_used(&class, is_another) {
                self.queue.add(class, change.priority());
            }
        }
    }

    /// The pool's class, when the pool was added or deleted or names another class.
    fn pool(&self, change: &Change<MachinePool>) {
        let class = |pool: &MachinePool| {
            let namespace = pool.namespace();
            ObjectName::new(namespace, &pool.spec.template.spec.class.name)
        };
        let (old, new) = (change.old.as_deref().map(class), change.new.as_deref().map(class));
        if old != new {
            self.add_all(old.into_iter().chain(new), change.priority());
        }
    }

    fn class(&self, change: &Change<MachineClass>) {
        if let Some(class) = change.latest() {
            self.queue.add(ObjectName::of(class.as_ref()), change.priority());
        }
    }

    /// Classes with this secret, and the class whose copy the secret is.
    fn secret(&self, change: &Change<Secret>) {
        let Some(secret) = change.latest() else { return };
        let kept = kept_in(secret).map(|kept| ObjectName::of(&kept.class));
        let namers = self.stores.namers(&ObjectName::of(secret.as_ref()));
        self.add_all(namers.into_iter().chain(kept), change.priority());
    }

    /// Classes of this provider, and classes whose condition lists the connected providers.
    fn driver(&self, provider: &ProviderName, change: DriverChange) {
        let unserved = WaitReason::DriverUnavailable.as_str();
        let says_so = |it: &MachineClass| it.valid().is_some_and(|it| it.reason == unserved);
        for class in self.stores.classes.all() {
            if self.settings.driver_name(class.provider()) == *provider || says_so(&class) {
                self.queue.add(ObjectName::of(class.as_ref()), change.priority());
            }
        }
    }
}

impl Triggers for Woken<Secrets> {
    /// The kubeconfigs of the Machine's former and new cluster.
    fn machine(&self, change: &Change<Machine>) {
        let cluster = |machine: &Arc<Machine>| cluster_of(machine);
        let (left, joined) =
            (change.old.as_ref().and_then(cluster), change.new.as_ref().and_then(cluster));
        if left != joined {
            let both = [left, joined].into_iter().flatten();
            self.add_all(both.map(|cluster| secret_of(&cluster)), change.priority());
        }
    }

    /// The secrets named now and before.
    fn class(&self, change: &Change<MachineClass>) {
        let both = [&change.old, &change.new].into_iter().flatten();
        let named = both.flat_map(|class| class.secret_refs());
        let named = named.map(|(namespace, secret)| ObjectName::new(namespace, secret));
        self.add_all(named, change.priority());
    }

    fn secret(&self, change: &Change<Secret>) {
        self.add_all(change.latest().map(|it| ObjectName::of(it.as_ref())), change.priority());
    }
}

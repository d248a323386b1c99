//! The snapshot of a pass over a pool.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ostler_api::driver::OperationKind;
use ostler_api::names::MACHINE_CLASS;
use ostler_api::names::bootstrap::DATA_KEY;
use ostler_api::{Machine, MachineClass, MachinePool, ProviderId, ProviderName};
use ostler_lifecycle::bootstrap::DataSecretView;
use ostler_lifecycle::operation::OperationView;
use ostler_lifecycle::pool::{
    CALM, ConfigsView, DataSecret, Known, Others, SLOTS, Slot, Snapshot, TokenView, data_secret,
    holder, machine, needs_tokens, of_template, token_ids,
};
use ostler_lifecycle::snapshot::{ClassFacts, ClassView, DriverFacts, DriverView, SecretView};
use tokio::time::Instant;
use tracing::warn;

use super::Pools;
use super::groups::Group;
use crate::bootstrap::data_of;
use crate::client::WriteError;
use crate::cluster_id::ids_of;
use crate::hot_update::driver_of;
use crate::kind::PassError;
use crate::machine::HOLD_PATIENCE;
use crate::stores::MachineIndex;
use crate::target::TargetOf;
use crate::tokens;
use crate::unseen::Effect;
use crate::watch::{Found, ObjectName};

/// How often bootstrap tokens are read: a user may delete one.
const READ_TOKENS_AGAIN: Duration = Duration::from_mins(5);

impl Pools {
    pub(super) async fn gather(&self, name: &ObjectName) -> Result<Option<Snapshot>, PassError> {
        let Some(pool) = self.tools.stores.pools.get(name) else { return Ok(None) };
        let pool = self.first_live(pool).await?;
        let machines = self.machines_of(&pool).await?;
        let class = self.class_of(&pool)?;
        let around = self.around(&pool);
        if around.shows_group() && self.groups.look(&pool, Group::is_unread) {
            // Nothing is decided before a read, which wakes the pool.
            return Err(PassError::NotYet(CALM));
        }
        let (known, refused_machines) =
            self.groups.look(&pool, |group| (group.known.clone(), group.refused_machines));
        let (deleted, created) = self.unseen(&pool, &machines);
        let Around { driver, facts: _, secret, elsewhere, operation } = around;
        let configs = self.configs.of_pool(&pool);
        let data = self.data_of(&pool, &configs);
        Ok(Some(Snapshot {
            class,
            tokens: self.tokens_of(&pool, &secret, (&configs, &data)).await,
            token_secret: tokens::fresh(),
            settings: self.tools.settings.lifecycle.clone(),
            configs,
            data,
            others: self.others(&pool, &known, &machines),
            known,
            operation_id: uuid::Uuid::new_v4().to_string().into(),
            term: self.term.0.into(),
            now: self.tools.now(),
            cluster: ids_of(&self.tools.sessions),
            secret,
            operation,
            machines,
            deleted,
            created,
            refused_machines,
            driver,
            elsewhere,
            pool,
        }))
    }

    /// The facts for a read of a group and for decisions.
    pub(super) fn around(&self, pool: &MachinePool) -> Around {
        let live = self.tools.stores.classes.get(&class_name(pool)).filter(|_| names_class(pool));
        let content = live.or_else(|| self.kept(pool));
        let driver = match content.as_deref() {
            Some(class) => driver_of(&self.tools.sessions, &self.tools.settings, class.provider()),
            None => DriverView::Unavailable,
        };
        let facts = content.as_deref().map(ClassFacts::of);
        Around {
            driver,
            secret: self.tools.stores.secret_view(content.as_deref()),
            elsewhere: facts.as_ref().and_then(|facts| self.elsewhere(pool, facts)),
            operation: self.operation_of(pool),
            facts,
        }
    }

    /// Claims of others' Machines on instances without a Machine.
    fn others(&self, pool: &MachinePool, known: &Known, machines: &[Arc<Machine>]) -> Others {
        let mut others = Others::default();
        let Some(reading) = known.view.known() else { return others };
        let own: BTreeSet<_> = machines.iter().filter_map(|it| it.instance_id()).collect();
        let is_held = |index, value: &str| self.tools.stores.machines.count(index, value) > 0;
        for one in reading.instances.iter().filter(|it| !own.contains(&it.provider_id)) {
            let (id, node) = (&one.provider_id, one.node_name.as_str());
            let is_node = is_held(MachineIndex::Node, node) || is_held(MachineIndex::Name, node);
            if !is_node && !is_held(MachineIndex::ProviderId, id.as_str()) {
                continue;
            }
            let wanted = machine(pool, one);
            if let Some(holder) = self.tools.stores.holder_of(&wanted, id) {
                let holder = ObjectName::of(holder.as_ref()).to_string();
                others.instances.insert(id.clone(), holder);
            }
            let other =
                wanted.node_name().and_then(|it| self.tools.stores.other_with_node(&wanted, it));
            if let Some(other) = other {
                let (machine, node) = (wanted.name(), node.escape_debug());
                warn!(machine, %node, other, "the driver names the node of another machine");
                others.nodes.insert(one.node_name.clone());
            }
        }
        others
    }

    /// A provider with another name in MCM is the same provider.
    pub(super) fn elsewhere(&self, pool: &MachinePool, class: &ClassFacts) -> Option<ProviderName> {
        let holder = holder(pool)?;
        let driver = |provider| self.tools.settings.driver_name(provider);
        (driver(holder) != driver(class.provider.as_str())).then(|| holder.into())
    }

    /// The first time, the pool as the API server has it: the cache may not show the intent that the process that led
    /// before wrote last.
    pub(super) async fn first_live(
        &self,
        pool: Arc<MachinePool>,
    ) -> Result<Arc<MachinePool>, PassError> {
        if self.groups.look(&pool, |group| group.listed) {
            return Ok(pool);
        }
        let api = self.tools.writer.api::<MachinePool>(pool.namespace());
        let live = self.tools.writer.get(&api, pool.name()).await;
        let live = live.map_err(|source| PassError::Api { what: "cannot read a pool", source })?;
        let live = live.filter(|live| live.uid() == pool.uid()).ok_or(PassError::Gone)?;
        Ok(Arc::new(live))
    }

    /// The Machines of a pool. The Machines of all pools are listed once: the cache may not show the last writes of the
    /// former leader.
    pub(super) async fn machines_of(
        &self,
        pool: &MachinePool,
    ) -> Result<Vec<Arc<Machine>>, PassError> {
        if !self.groups.look(pool, |group| group.listed) {
            let parts = self.tools.settings.namespaces.parts();
            let seen = |found: &Found<Machine>| {
                found.objects.iter().for_each(|it| self.tools.stores.await_listed(it));
            };
            let failed =
                |source| PassError::Api { what: "cannot list the machines of pools", source };
            let wait =
                self.handover.wait(&self.tools.writer, &parts, seen).await.map_err(failed)?;
            if let Some(left) = wait {
                return Err(PassError::NotYet(left));
            }
            if let Some(broken) = self.tools.stores.machines.unreadable_in(pool.namespace()) {
                return Err(failed(WriteError::Other(broken)));
            }
        }
        Ok(self.tools.stores.machines.find(MachineIndex::Controller, pool.uid()))
    }

    /// Deletions of Machines, and instances with a new Machine, that the cache does not show yet. A deletion without an
    /// answer may not have happened, and a Machine that is never seen was deleted meanwhile.
    pub(super) fn unseen(
        &self,
        pool: &MachinePool,
        machines: &[Arc<Machine>],
    ) -> (BTreeSet<String>, BTreeSet<ProviderId>) {
        let unseen = &self.tools.stores.unseen;
        if unseen.open(pool.uid()).is_none() {
            return Default::default();
        }
        let live = machines.iter().filter(|it| !it.is_deleting()).map(|it| it.uid());
        let live: BTreeSet<_> = live.collect();
        let seen: BTreeSet<_> =
            machines.iter().filter_map(|it| it.instance_id()).map(ProviderId::as_str).collect();
        let open = unseen.compare(pool.uid(), |of, key, sent| {
            let waits = !sent.left().is_zero();
            waits && if of == Effect::Deleted { live.contains(key) } else { !seen.contains(key) }
        });
        let Some(open) = open else { return Default::default() };
        let created =
            open.sent.iter().filter(|((of, _), it)| *of == Effect::Created && it.answered);
        let created = created.map(|((_, id), _)| id.as_str().into()).collect();
        (open.keys(Effect::Deleted).cloned().collect(), created)
    }

    /// The moment until the finalizer of a class is written is not worth a condition.
    pub(super) fn class_of(&self, pool: &MachinePool) -> Result<ClassView, PassError> {
        if !names_class(pool) {
            return Ok(ClassView::Missing);
        }
        let name = class_name(pool);
        Ok(match (self.tools.stores.classes.get(&name), self.kept(pool)) {
            (Some(class), _) if !class.has_finalizer() && !pool.is_deleting() => {
                let why =
                    self.tools.stores.unheld.why(&name).ok_or(PassError::NotYet(HOLD_PATIENCE))?;
                ClassView::NotHeld(why)
            }
            (Some(class), _) => ClassView::Known(ClassFacts::of(&class)),
            (None, Some(kept)) => ClassView::LastKnown(ClassFacts::of(&kept)),
            (None, None) => ClassView::Missing,
        })
    }

    /// The kept copy of the class, if the class is gone.
    fn kept(&self, pool: &MachinePool) -> Option<Arc<MachineClass>> {
        self.tools.stores.last_known(&class_name(pool)).map(|kept| Arc::new(kept.class))
    }

    fn data_of(&self, pool: &MachinePool, configs: &ConfigsView) -> DataSecret {
        let Some(name) = data_secret(pool, configs) else { return DataSecret::NotNamed };
        let name = ObjectName::new(pool.namespace(), name);
        match self.tools.stores.secrets.get(&name).map(|secret| data_of(&secret)) {
            Some(DataSecretView::Known { data, .. }) => DataSecret::Known(data),
            Some(DataSecretView::WithoutValue) => {
                DataSecret::Missing(format!("secret {name} has no key {DATA_KEY}"))
            }
            Some(DataSecretView::Unknown | DataSecretView::Missing) | None => {
                DataSecret::Missing(format!("secret {name} does not exist"))
            }
        }
    }

    /// The bootstrap tokens. A read token is believed for a while: others do not write tokens.
    async fn tokens_of(
        &self,
        pool: &MachinePool,
        secret: &SecretView,
        data: (&ConfigsView, &DataSecret),
    ) -> TokenView {
        if !needs_tokens(pool, secret, data) {
            return TokenView::NotNeeded;
        }
        let target = match self.tools.stores.targets.of(&of_template(pool)) {
            TargetOf::None => return TokenView::NoCluster,
            TargetOf::Lacking { message, .. } => return TokenView::Unknown(message),
            TargetOf::Cluster(target) => target,
        };
        let kept = self.groups.look(pool, |group| group.tokens.clone());
        if let Some((_, slots)) = kept.filter(|(at, _)| at.elapsed() < READ_TOKENS_AGAIN) {
            return TokenView::Known(slots);
        }
        let writer = self.tools.writer.to(&target.client);
        let mut slots = Vec::new();
        for id in token_ids(pool) {
            let token = match tokens::look_up(&writer, &id).await {
                Ok(None) => None,
                Ok(Some(secret)) if tokens::is_of(&secret, pool.uid()) => {
                    Some(tokens::read(&secret))
                }
                Ok(Some(_)) => continue,
                Err(error) => return TokenView::Unknown(error.to_string()),
            };
            slots.push(Slot { id, token });
            if slots.len() == SLOTS {
                break;
            }
        }
        self.groups.with(pool, |group| group.tokens = Some((Instant::now(), slots.clone())));
        TokenView::Known(slots)
    }

    /// The operation, as the sessions know it. A driver may still come back with an operation of an earlier core.
    fn operation_of(&self, pool: &MachinePool) -> OperationView {
        let view = self.tools.sessions.view(pool.uid());
        let intent = pool.status.as_ref().and_then(|status| status.operation.as_ref());
        let foreign = intent.filter(|it| it.intent.term != i64::from(self.term.0));
        match (view, foreign, self.tools.sessions.adoption_left()) {
            (OperationView::Idle, Some(_), Some(left)) => OperationView::Expected(left),
            (view, _, _) => view,
        }
    }
}

/// The facts for a read of a group and for decisions.
pub(super) struct Around {
    /// The pool's class, or its kept copy.
    pub(super) facts: Option<ClassFacts>,
    pub(super) secret: SecretView,
    driver: DriverView,
    elsewhere: Option<ProviderName>,
    operation: OperationView,
}

impl Around {
    /// Whether a driver can be asked for the group. Without the secret the driver can look at nothing: the pool waits
    /// for the secret, and nothing failed. An operation that ended is recorded first.
    pub(super) fn shows_group(&self) -> bool {
        let can = |driver: &DriverFacts| driver.has(OperationKind::GetPoolStatus);
        self.facts.is_some()
            && matches!(&self.driver, DriverView::Ready(driver) if can(driver))
            && self.elsewhere.is_none()
            && !matches!(self.secret, SecretView::Missing(_))
            && !matches!(self.operation, OperationView::Finished(_))
    }
}

pub(super) fn class_name(pool: &MachinePool) -> ObjectName {
    ObjectName::new(pool.namespace(), &pool.spec.template.spec.class.name)
}

fn names_class(pool: &MachinePool) -> bool {
    pool.spec.template.spec.class.kind == MACHINE_CLASS
}

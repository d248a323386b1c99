//! The Machine that claims an instance, by the caches and by the API itself.

use ostler_api::ProviderId;
use ostler_api::ProviderName;
use std::collections::HashSet;
use std::sync::Arc;

use ostler_api::{Machine, MachinePool};
use ostler_lifecycle::operation::OperationView;
use ostler_lifecycle::orphans::{
    Claims, KeepReason, Listed, Namesake, Orphan, Owner, judge, namesake, pool_namesake,
};
use ostler_lifecycle::pool::has_drained;

use super::Orphans;
use crate::client::WriteError;
use crate::stores::MachineIndex;

/// The Machines of all namespaces.
#[derive(Debug, Default)]
pub(super) struct Everywhere {
    names: HashSet<String>,
    ids: HashSet<ProviderId>,
}

impl Everywhere {
    /// Why an instance without a UID is kept, if any of these Machines may own the instance.
    pub(super) fn keep(&self, orphan: &Orphan) -> Option<KeepReason> {
        if orphan.provider_ids.iter().any(|id| self.ids.contains(id)) {
            return Some(KeepReason::ProviderIdInUse);
        }
        self.names.contains(&orphan.machine_name).then_some(KeepReason::MayBeAdopted)
    }
}

impl Orphans {
    /// Why an instance is kept, by the caches; `None`: no Machine claims it.
    pub(super) fn keep(
        &self,
        provider: &ProviderName,
        listed: &Listed,
        paused: bool,
    ) -> Option<KeepReason> {
        if listed.owner == Owner::Pool {
            return self.keep_group(listed, paused, &self.stores.pools.all());
        }
        // An instance does not carry the namespace of its machine: every machine of that name counts.
        let named = self.stores.machines.find(MachineIndex::Name, &listed.machine_name);
        let namesakes = named.iter().map(|machine| Some(namesake(machine)));
        namesakes
            .chain([None])
            .find_map(|namesake| judge(listed, &self.claims(provider, listed, namesake, paused)))
    }

    /// The same for a group, by these pools.
    fn keep_group(
        &self,
        listed: &Listed,
        paused: bool,
        pools: &[Arc<MachinePool>],
    ) -> Option<KeepReason> {
        let uid = listed.machine_uid.as_str();
        let namesakes = pools.iter().map(|pool| pool_namesake(pool));
        let id = |one: &Namesake| one.provider_id.as_ref() == Some(&listed.provider_id);
        let machines = self.stores.machines.find(MachineIndex::Controller, uid);
        let claims = |namesake| Claims {
            // The pods on the Nodes leave first.
            same_uid: pools.iter().any(|pool| pool.uid() == uid)
                || machines.iter().any(|machine| !has_drained(machine)),
            same_provider_id: namesakes.clone().any(|one| id(&one)),
            namesake,
            busy: self.sessions.view(uid) != OperationView::Idle,
            paused,
        };
        let named = pools.iter().filter(|pool| pool.name() == listed.machine_name);
        let named = named.map(|pool| Some(pool_namesake(pool)));
        named.chain([None]).find_map(|namesake| judge(listed, &claims(namesake)))
    }

    /// Every pool of the served namespaces, read from the API itself. A list and no single reads: without the
    /// definition of pools it fails, where a pool would just not be found.
    async fn live_pools(&self) -> Result<Vec<Arc<MachinePool>>, WriteError> {
        let mut found = Vec::new();
        for part in self.settings.namespaces.parts() {
            found.extend(self.writer.all::<MachinePool>(part.as_deref()).await?.complete()?);
        }
        Ok(found)
    }

    fn claims(
        &self,
        provider: &ProviderName,
        listed: &Listed,
        namesake: Option<Namesake>,
        paused: bool,
    ) -> Claims {
        let machines = &self.stores.machines;
        let has =
            |index, value: &str| !value.is_empty() && !machines.find_names(index, value).is_empty();
        Claims {
            same_uid: has(MachineIndex::Uid, listed.machine_uid.as_str()),
            same_provider_id: has(MachineIndex::ProviderId, listed.provider_id.as_str()),
            namesake,
            busy: self.sessions.view(listed.identity().target_uid(provider).as_str())
                != OperationView::Idle,
            paused,
        }
    }

    /// Every Machine of that name in the served namespaces, read from the API itself.
    async fn live_namesakes(&self, name: &str) -> Result<Vec<Arc<Machine>>, WriteError> {
        let mut found = Vec::new();
        for part in self.settings.namespaces.parts() {
            match part {
                Some(namespace) => {
                    let api = self.writer.api::<Machine>(&namespace);
                    found.extend(self.writer.get(&api, name).await?.map(Arc::new));
                }
                None => found.extend(self.writer.find_everywhere(name).await?),
            }
        }
        Ok(found)
    }

    /// The claims of the Machines of all namespaces, even unserved ones: an instance without a UID does not carry its
    /// namespace.
    pub(super) async fn everywhere(&self) -> Result<Everywhere, WriteError> {
        let (mut all, mut from) = (Everywhere::default(), None);
        loop {
            let (machines, next) = self.writer.page_everywhere::<Machine>(from).await?;
            for machine in machines {
                all.ids.extend(machine.provider_id().cloned());
                all.names.insert(machine.name().to_owned());
            }
            if next.is_none() {
                return Ok(all);
            }
            from = next;
        }
    }

    /// Why an instance that two scans have shown to be an orphan is kept, read from the API itself, because the
    /// caches may lag.
    pub(super) async fn claimed_live(
        &self,
        provider: &ProviderName,
        orphan: &Orphan,
    ) -> Result<Option<KeepReason>, WriteError> {
        let listed = |provider_id: &ProviderId| Listed {
            owner: orphan.owner,
            provider_id: provider_id.clone(),
            machine_name: orphan.machine_name.clone(),
            machine_uid: orphan.machine_uid().into(),
            ..Listed::default()
        };
        if orphan.owner == Owner::Pool {
            let live = self.live_pools().await?;
            let keeps = orphan.provider_ids.iter().map(|id| {
                let listed = listed(id);
                let cached = self.keep(provider, &listed, false);
                cached.or_else(|| self.keep_group(&listed, false, &live))
            });
            return Ok(keeps.flatten().next());
        }
        let live = self.live_namesakes(&orphan.machine_name).await?;
        // An orphan with only parts left has no id, and is claimed by its UID all the same.
        let none = [ProviderId::default()];
        let ids = if orphan.provider_ids.is_empty() { &none[..] } else { &orphan.provider_ids };
        let keeps = ids.iter().map(|provider_id| {
            let listed = listed(provider_id);
            let claims =
                |machine| Claims { namesake: Some(namesake(machine)), ..Claims::default() };
            self.keep(provider, &listed, false)
                .or_else(|| live.iter().find_map(|machine| judge(&listed, &claims(machine))))
        });
        Ok(keeps.flatten().next())
    }
}

//! Which Machine claims an instance, by the caches and by the API itself.

use ostler_api::ProviderId;
use ostler_api::ProviderName;
use std::collections::HashSet;

use ostler_api::Machine;
use ostler_lifecycle::operation::OperationView;
use ostler_lifecycle::orphans::{Claims, Keep, Listed, Namesake, Orphan, judge, namesake};

use super::Orphans;
use crate::stores::MachineIndex;
use crate::writes::WriteError;

/// The Machines of all namespaces.
#[derive(Debug, Default)]
pub(super) struct Everywhere {
    names: HashSet<String>,
    ids: HashSet<ProviderId>,
}

impl Everywhere {
    /// Why an instance without a UID is kept, if one of these Machines may own it.
    pub(super) fn keep(&self, orphan: &Orphan) -> Option<Keep> {
        if orphan.provider_ids.iter().any(|id| self.ids.contains(id)) {
            return Some(Keep::ProviderIdInUse);
        }
        self.names.contains(&orphan.machine_name).then_some(Keep::MayBeAdopted)
    }
}

impl Orphans {
    /// Why an instance is kept, by the caches; `None`: no Machine claims it.
    pub(super) fn keep(
        &self,
        provider: &ProviderName,
        listed: &Listed,
        paused: bool,
    ) -> Option<Keep> {
        // An instance does not carry the namespace of its machine: every machine of that name counts.
        let named = self.stores.machines.find(MachineIndex::Name, &listed.machine_name);
        let namesakes = named.iter().map(|machine| Some(namesake(machine)));
        namesakes
            .chain([None])
            .find_map(|namesake| judge(listed, &self.claims(provider, listed, namesake, paused)))
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
    async fn live_namesakes(&self, name: &str) -> Result<Vec<Machine>, WriteError> {
        let mut found = Vec::new();
        for part in self.settings.namespaces.parts() {
            match part {
                Some(namespace) => {
                    let api = self.writer.api::<Machine>(&namespace);
                    found.extend(self.writer.get(&api, name).await?);
                }
                None => found.extend(self.writer.find_everywhere(name).await?),
            }
        }
        Ok(found)
    }

    /// The claims of the Machines of all namespaces, also of those that are not served: an instance without a UID
    /// does not carry its namespace.
    pub(super) async fn everywhere(&self) -> Result<Everywhere, WriteError> {
        let (mut all, mut from) = (Everywhere::default(), None);
        loop {
            let (machines, next) = self.writer.machines_everywhere(from).await?;
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
    ) -> Result<Option<Keep>, WriteError> {
        let live = self.live_namesakes(&orphan.machine_name).await?;
        let keeps = orphan.provider_ids.iter().map(|provider_id| {
            let listed = Listed {
                provider_id: provider_id.clone(),
                machine_name: orphan.machine_name.clone(),
                machine_uid: orphan.machine_uid().into(),
                ..Listed::default()
            };
            let claims =
                |machine| Claims { namesake: Some(namesake(machine)), ..Claims::default() };
            self.keep(provider, &listed, false)
                .or_else(|| live.iter().find_map(|machine| judge(&listed, &claims(machine))))
        });
        Ok(keeps.flatten().next())
    }
}

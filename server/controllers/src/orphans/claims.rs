//! Who has a claim on an instance: from the mirrors, and from the API itself.

use ostler_api::Machine;
use ostler_lifecycle::orphans::{Claims, Keep, Listed, Namesake, Orphan, judge, namesake};
use ostler_sessions::TargetView;

use super::Orphans;
use crate::stores::MachineIndex;
use crate::writes::WriteError;

impl Orphans {
    /// Why an instance is kept, as far as the mirrors know; `None`: nobody claims it.
    pub(super) fn keep(&self, listed: &Listed, paused: bool) -> Option<Keep> {
        // An instance does not say of which namespace its machine is: each of that name counts.
        let named = self.stores.machines.find(MachineIndex::Name, &listed.machine_name);
        let namesakes = named.iter().map(|machine| Some(namesake(machine)));
        namesakes
            .chain([None])
            .find_map(|namesake| judge(listed, &self.claims(listed, namesake, paused)))
    }

    fn claims(&self, listed: &Listed, namesake: Option<Namesake>, paused: bool) -> Claims {
        let machines = &self.stores.machines;
        let has =
            |index, value: &str| !value.is_empty() && !machines.find_names(index, value).is_empty();
        Claims {
            same_uid: has(MachineIndex::Uid, &listed.machine_uid),
            same_provider_id: has(MachineIndex::ProviderId, &listed.provider_id),
            namesake,
            busy: self.sessions.view(&listed.machine_uid) != TargetView::Idle,
            paused,
        }
    }

    /// Every Machine of that name in a namespace that is served, from the API itself.
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

    /// The same for what two looks have shown to be an orphan, asking the API itself: the mirrors
    /// may be behind.
    pub(super) async fn claimed_live(&self, orphan: &Orphan) -> Result<Option<Keep>, WriteError> {
        let live = self.live_namesakes(&orphan.machine_name).await?;
        let keeps = orphan.provider_ids.iter().map(|provider_id| {
            let listed = Listed {
                provider_id: provider_id.clone(),
                machine_name: orphan.machine_name.clone(),
                machine_uid: orphan.machine_uid.clone(),
            };
            let claims =
                |machine| Claims { namesake: Some(namesake(machine)), ..Claims::default() };
            self.keep(&listed, false)
                .or_else(|| live.iter().find_map(|machine| judge(&listed, &claims(machine))))
        });
        Ok(keeps.flatten().next())
    }
}

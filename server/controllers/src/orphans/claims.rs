//! Who has a claim on an instance: from the mirrors, and from the API itself.

use ostler_api::Machine;
use ostler_lifecycle::orphans::{Claims, Keep, Listed, Namesake, Orphan, judge, namesake};
use ostler_sessions::TargetView;

use super::Orphans;
use crate::stores::MachineIndex;
use crate::watch::ObjectName;
use crate::writes::WriteError;

impl Orphans {
    /// Why an instance is kept, as far as the mirrors know; `None`: nobody claims it.
    pub(super) fn keep(&self, listed: &Listed, paused: bool) -> Option<Keep> {
        judge(listed, &self.claims(listed, paused))
    }

    fn claims(&self, listed: &Listed, paused: bool) -> Claims {
        let machines = &self.stores.machines;
        let has =
            |index, value: &str| !value.is_empty() && !machines.find_names(index, value).is_empty();
        Claims {
            same_uid: has(MachineIndex::Uid, &listed.machine_uid),
            same_provider_id: has(MachineIndex::ProviderId, &listed.provider_id),
            namesake: self.mirrored_namesake(&listed.machine_name),
            busy: self.sessions.view(&listed.machine_uid) != TargetView::Idle,
            paused,
        }
    }

    fn mirrored_namesake(&self, name: &str) -> Option<Namesake> {
        let name = ObjectName::new(&self.settings.namespace, name);
        self.stores.machines.get(&name).map(|machine| namesake(&machine))
    }

    /// The same for what two looks have shown to be an orphan, asking the API itself: the mirrors
    /// may be behind.
    pub(super) async fn claimed_live(&self, orphan: &Orphan) -> Result<Option<Keep>, WriteError> {
        let api = self.writer.api::<Machine>(&self.settings.namespace);
        let live = self.writer.get(&api, &orphan.machine_name).await?;
        let keeps = orphan.provider_ids.iter().map(|provider_id| {
            let listed = Listed {
                provider_id: provider_id.clone(),
                machine_name: orphan.machine_name.clone(),
                machine_uid: orphan.machine_uid.clone(),
            };
            let here = Claims { namesake: live.as_ref().map(namesake), ..Claims::default() };
            self.keep(&listed, false).or_else(|| judge(&listed, &here))
        });
        Ok(keeps.flatten().next())
    }
}

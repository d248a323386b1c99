//! Events from the driver to the core: lost instances, and ends that the control file orders.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use ostler_driver_sdk::{Event, Events};

use super::FakeDriver;
use crate::cloud::{Changes, Cloud, Identity, JournalError};
use crate::control::SpotLoss;

/// How often the control file is read, and the journal that other processes write.
const LOOK_EVERY: Duration = Duration::from_millis(200);

type Known = BTreeMap<String, Identity>;

impl FakeDriver {
    /// Watches the cloud and tells the core what happens there. Ends never.
    pub async fn watch(self) {
        let mut revision = self.cloud.subscribe();
        let others = self.control.is_some() || self.cloud.state_file().is_some();
        let mut seen = Seen::default();
        let mut losses = Losses::default();
        loop {
            // An unreadable cloud does not mean lost instances.
            let gone = seen.look(&self.cloud).unwrap_or_default();
            for (provider_id, identity) in gone {
                self.events.send(Event::gone(provider_id).of(&identity));
            }
            tokio::select! {
                changed = revision.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(LOOK_EVERY), if others => {}
            }
            self.lose(&mut losses, &seen.known);
        }
    }

    /// Announces the end of instances, as the control file has it, and ends them.
    fn lose(&self, losses: &mut Losses, known: &Known) {
        let Some(control) = &self.control else { return };
        let Ok(control) = control.read() else { return };
        let now = self.cloud.clock().now();
        for (provider_id, left) in losses.begin(&control.spot_losses, known, now) {
            let mut event = Event::termination_notice(&provider_id).within(left);
            if let Some(identity) = known.get(&provider_id) {
                event = event.of(identity);
            }
            self.events.send(event.message("the price is above the bid"));
        }
        let due = losses.due(now);
        if !due.is_empty()
            && let Err(error) = self.cloud.remove(&due)
        {
            tracing::warn!(%error, "an instance cannot be ended");
        }
    }

    /// Where the driver tells the core what happens.
    pub fn told(&self) -> &Events {
        &self.events
    }
}

/// The instances as they were when the cloud was last looked at.
#[derive(Debug, Default)]
struct Seen {
    known: Known,
    revision: u64,
}

impl Seen {
    /// Looks at what has changed since; returns the instances that are gone.
    fn look(&mut self, cloud: &Cloud) -> Result<Known, JournalError> {
        let (revision, changed) = cloud.with(|state| {
            let ids: Vec<String> = match state.changes_since(self.revision) {
                Changes::These(ids) => ids,
                Changes::All => {
                    let present = state.instances().map(|it| it.provider_id.clone());
                    self.known.keys().cloned().chain(present).collect()
                }
            };
            let identity = |id: &str| state.instance(id).map(|it| it.identity.clone());
            let changed: Vec<_> = ids.into_iter().map(|id| (identity(&id), id)).collect();
            (state.revision(), changed)
        })?;
        self.revision = revision;
        let mut gone = Known::new();
        for (identity, id) in changed {
            match identity {
                Some(identity) => drop(self.known.insert(id, identity)),
                None => gone.extend(self.known.remove_entry(&id)),
            }
        }
        Ok(gone)
    }
}

/// Instances that will end, and when; an instance ends once.
#[derive(Debug, Default)]
struct Losses {
    ends: BTreeMap<String, Timestamp>,
    begun: BTreeSet<String>,
}

impl Losses {
    /// Instances that begin to end, and how long they have.
    fn begin(
        &mut self,
        wanted: &[SpotLoss],
        known: &Known,
        now: Timestamp,
    ) -> Vec<(String, Duration)> {
        let mut begun = Vec::new();
        for loss in wanted {
            let named = known.iter().filter(|(_, identity)| identity.machine_name == loss.machine);
            for (provider_id, _) in named {
                if self.begun.insert(provider_id.clone()) {
                    self.ends.insert(provider_id.clone(), now + loss.notice.0);
                    begun.push((provider_id.clone(), loss.notice.0));
                }
            }
        }
        self.begun.retain(|id| known.contains_key(id));
        begun
    }

    /// Instances whose time is over.
    fn due(&mut self, now: Timestamp) -> Vec<String> {
        let due: Vec<_> =
            self.ends.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone()).collect();
        for id in &due {
            self.ends.remove(id);
        }
        due
    }
}

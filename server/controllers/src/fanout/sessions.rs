//! What happens to drivers and their operations: which objects it is about.

use std::collections::BTreeMap;
use std::sync::Arc;

use ostler_sessions::SessionEvent;
use tokio::sync::broadcast::{self, error::RecvError};
use tracing::{debug, warn};

use super::Fanout;
use crate::clock::Clock;
use crate::queue::Priority;
use crate::stores::{MachineIndex, PoolIndex};
use crate::watching::guarded;

impl Fanout {
    /// Turns session events into work. After missed events, reconciles everything.
    pub(crate) async fn follow_sessions(
        self: Arc<Self>,
        clock: Clock,
        mut events: broadcast::Receiver<SessionEvent>,
    ) {
        self.everything(Priority::Background);
        loop {
            // Each costs a look at all Machines of its provider: of those that wait here, the last one counts.
            let mut turned = BTreeMap::new();
            for _ in 0..events.len().max(1) {
                match events.recv().await {
                    Ok(SessionEvent::Hint { provider, hint }) => {
                        guarded(|| self.hint(clock(), provider.as_str(), *hint));
                    }
                    Ok(event) => match event.turned() {
                        Some(provider) => drop(turned.insert(provider.clone(), event)),
                        None => guarded(|| self.session(event)),
                    },
                    Err(RecvError::Lagged(missed)) => {
                        warn!(missed, "session events were missed; reconciling everything");
                        // What one driver makes too many of must not delay the changes of others.
                        self.everything(Priority::Background);
                        // So many do not wait any more.
                        break;
                    }
                    Err(RecvError::Closed) => return,
                }
            }
            for event in turned.into_values() {
                guarded(|| self.session(event));
            }
        }
    }

    /// A session event.
    pub(crate) fn session(&self, event: SessionEvent) {
        match event {
            SessionEvent::OutcomeReady { target_uid, .. }
            | SessionEvent::Adopted { target_uid, .. }
            | SessionEvent::Sent { target_uid, .. }
            | SessionEvent::Stalled { target_uid, .. }
            | SessionEvent::Lost { target_uid, .. }
            | SessionEvent::Checkpoint { target_uid, .. } => {
                let names = self.stores.machines.find_names(MachineIndex::Uid, target_uid.as_str());
                self.add_all(names, Priority::Change);
                let pools = self.stores.pools.find_names(PoolIndex::Uid, target_uid.as_str());
                self.add_pools(pools, Priority::Change);
            }
            SessionEvent::ProviderReady { provider } => {
                debug!(%provider, "driver ready");
                self.queues.scans.note(&provider);
                self.served_by(&provider, Priority::Change);
            }
            SessionEvent::ProviderGone { provider } => {
                debug!(%provider, "driver disconnected");
                self.served_by(&provider, Priority::Background);
            }
            // It needs the sessions and the time: see `Fanout::hint`.
            SessionEvent::Hint { .. } => {}
            SessionEvent::ForeignProvider { principal, provider, serves } => {
                let note = format!("{principal} serves {serves}, and may not serve {provider}");
                self.warn_of_foreign_provider(&provider, &note);
            }
        }
    }
}

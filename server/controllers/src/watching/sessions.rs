//! Events about drivers and their operations.

use std::collections::BTreeMap;

use kube::Resource;
use ostler_api::ProviderName;
use ostler_sessions::SessionEvent;
use tokio::sync::broadcast::{self, error::RecvError};
use tracing::{debug, warn};

use super::guarded;
use crate::clock::Clock;
use crate::events::Recorder;
use crate::hints::Listener;
use crate::telling::tell;
use crate::triggers::{AllTriggers, DriverChange};
use ostler_lifecycle::plan::{Event, EventAction, EventReason};

/// Turns session events into news.
pub(crate) struct SessionFollower {
    pub(crate) all: AllTriggers,
    pub(crate) hints: Listener,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Clock,
}

impl SessionFollower {
    /// Follows events for ever. After missed events, everything may have changed.
    pub(crate) async fn follow(self, mut events: broadcast::Receiver<SessionEvent>) {
        self.all.tell(|it| it.everything());
        loop {
            // Each event costs a look at all Machines of its provider: of several waiting events, the last one counts.
            let mut turned = BTreeMap::new();
            for _ in 0..events.len().max(1) {
                match events.recv().await {
                    Ok(event) => match event.turned() {
                        Some(provider) => drop(turned.insert(provider.clone(), event)),
                        None => guarded(|| self.heard(event)),
                    },
                    Err(RecvError::Lagged(missed)) => {
                        warn!(missed, "session events were missed; reconciling everything");
                        // A driver with too many events must not delay the changes of others.
                        self.all.tell(|it| it.everything());
                        // So many do not wait any more.
                        break;
                    }
                    Err(RecvError::Closed) => return,
                }
            }
            for event in turned.into_values() {
                guarded(|| self.heard(event));
            }
        }
    }

    /// A session event.
    pub(crate) fn heard(&self, event: SessionEvent) {
        match event {
            SessionEvent::OutcomeReady { target_uid, .. }
            | SessionEvent::Adopted { target_uid, .. }
            | SessionEvent::Sent { target_uid, .. }
            | SessionEvent::Stalled { target_uid, .. }
            | SessionEvent::Lost { target_uid, .. }
            | SessionEvent::Checkpoint { target_uid, .. } => {
                self.all.tell(|it| it.operation(&target_uid));
            }
            SessionEvent::ProviderReady { provider } => {
                debug!(%provider, "driver ready");
                self.all.tell(|it| it.driver(&provider, DriverChange::Came));
            }
            SessionEvent::ProviderGone { provider } => {
                debug!(%provider, "driver disconnected");
                self.all.tell(|it| it.driver(&provider, DriverChange::Went));
            }
            SessionEvent::Hint { provider, hint } => {
                let heard = self.hints.hear((self.clock)(), provider.as_str(), *hint);
                if let Some(machine) = heard {
                    self.all.tell(|it| it.instance(&machine));
                }
            }
            SessionEvent::ForeignProvider { principal, provider, serves } => {
                let note = format!("{principal} serves {serves}, and may not serve {provider}");
                self.warn_of_foreign_provider(&provider, &note);
            }
        }
    }

    fn warn_of_foreign_provider(&self, provider: &ProviderName, note: &str) {
        let Listener { stores, settings, .. } = &self.hints;
        for class in settings.served_by(provider, stores.classes.all()) {
            let event = Event::warning(EventReason::ForeignProvider, note.to_owned());
            tell(&self.recorder, class.object_ref(&()), event.doing(EventAction::Register));
        }
    }
}

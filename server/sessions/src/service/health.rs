//! Health, for every caller: the service, and `driver/<provider>` for every provider seen.

use ostler_api::ProviderName;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use ostler_proto::v1alpha1::driver_service_server::SERVICE_NAME;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::SessionEvent;
use crate::shell::Shell;

/// The health service; clones are the same.
#[derive(Debug, Clone)]
pub(crate) struct Health {
    reporter: HealthReporter,
}

impl Health {
    /// Follows the providers for as long as the shell lives.
    pub(crate) fn start(shell: &Arc<Shell>) -> Self {
        let reporter = HealthReporter::new();
        tokio::spawn(follow(reporter.clone(), Arc::downgrade(shell), shell.events.subscribe()));
        tokio::spawn(lead(reporter.clone(), shell.leading.subscribe()));
        Self { reporter }
    }

    /// The gRPC service.
    pub(crate) fn service(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }
}

/// The service is there for drivers while this core leads. The process as a whole (``) is healthy
/// all along: a rollout that waited for leadership would never end.
async fn lead(reporter: HealthReporter, mut leading: watch::Receiver<bool>) {
    loop {
        let leads = *leading.borrow_and_update();
        let status = if leads { ServingStatus::Serving } else { ServingStatus::NotServing };
        reporter.set_service_status(SERVICE_NAME, status).await;
        if leading.changed().await.is_err() {
            return;
        }
    }
}

async fn follow(reporter: HealthReporter, shell: Weak<Shell>, mut events: Receiver<SessionEvent>) {
    let mut ready = BTreeSet::new();
    loop {
        match events.recv().await {
            Ok(SessionEvent::ProviderReady { .. } | SessionEvent::ProviderGone { .. })
            | Err(RecvError::Lagged(_)) => {}
            Ok(
                SessionEvent::Adopted { .. }
                | SessionEvent::OutcomeReady { .. }
                | SessionEvent::Sent { .. }
                | SessionEvent::Stalled { .. }
                | SessionEvent::Lost { .. }
                | SessionEvent::Checkpoint { .. }
                | SessionEvent::Hint { .. }
                | SessionEvent::ForeignProvider { .. },
            ) => continue,
            Err(RecvError::Closed) => return,
        }
        // Whatever else happened meanwhile is seen in the same look.
        while events.try_recv().is_ok() {}
        let Some(shell) = shell.upgrade() else { return };
        let states = shell.with(|hub, now| hub.provider_states(now));
        drop(shell);
        let now: BTreeSet<ProviderName> =
            states.into_iter().filter(|it| it.ready).map(|it| it.provider).collect();
        for gone in ready.difference(&now) {
            set(&reporter, gone, ServingStatus::NotServing).await;
        }
        for new in now.difference(&ready) {
            set(&reporter, new, ServingStatus::Serving).await;
        }
        ready = now;
    }
}

async fn set(reporter: &HealthReporter, provider: &ProviderName, status: ServingStatus) {
    reporter.set_service_status(format!("driver/{provider}"), status).await;
}

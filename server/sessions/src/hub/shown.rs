//! The debug service's view of sessions and operations.

use ostler_api::ProviderName;

use ostler_proto::v1alpha1::{
    ListOperationsRequest, OperationInfo, OperationKind, OperationState, Readiness, RoleKind,
    SessionInfo, SessionSelector,
};
use tokio::time::Instant;

use super::operations::{Op, Place};
use super::session::Session;
use super::{Hub, OperationId, SessionKey};
use crate::session::frames::duration;

/// A session that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selected {
    pub(crate) key: SessionKey,
    pub(crate) id: String,
    pub(crate) provider: ProviderName,
    /// Whether operations of the provider are sent to it.
    pub(crate) serves: bool,
}

impl Hub {
    /// Every live session, by provider, the active one first.
    pub(crate) fn session_infos(&self, now: Instant, provider: &ProviderName) -> Vec<SessionInfo> {
        let provider = self.options.canonical(provider.as_str());
        let mut shown: Vec<&Session> = self.sessions.values().collect();
        shown.retain(|it| provider.is_empty() || it.driver.provider == provider);
        let standby = |it: &Session| it.role != RoleKind::Active;
        shown.sort_by_key(|it| (&it.driver.provider, standby(it)));
        shown.into_iter().map(|session| self.session_info(now, session)).collect()
    }

    fn session_info(&self, now: Instant, session: &Session) -> SessionInfo {
        let driver = &session.driver;
        let record = self.providers.get(&driver.provider);
        let queue = record.map(|record| record.queue.len());
        let active = session.role == RoleKind::Active;
        let paused = record.filter(|_| active).and_then(|it| it.pace.paused_until(now));
        SessionInfo {
            provider: driver.provider.clone().into(),
            session_id: session.id.clone(),
            instance_id: driver.instance_id.clone(),
            instance_name: driver.instance_name.clone(),
            driver_name: driver.name.clone(),
            driver_version: driver.version.clone(),
            principal: session.principal.clone(),
            peer: session.peer.clone(),
            role: session.role.into(),
            readiness: readiness(session).into(),
            age: Some(duration(now - session.since)),
            credit: count(session.credit),
            in_flight: count(session.in_flight.len()),
            queued: count(queue.unwrap_or_default()),
            capabilities: driver.capabilities.clone(),
            operation_kinds: driver.kinds.iter().map(|kind| kind.number()).collect(),
            heartbeat_age: Some(duration(now - session.last_seen)),
            clock_skew: session.clock_ahead.map(skew),
            paused: paused.map(|until| duration(until - now)),
            slow: active && record.is_some_and(|record| self.is_slow(now, record, session)),
        }
    }

    /// The operations that fit `wanted`, the oldest first and `limit` of them at most, and how many
    /// more there are.
    pub(crate) fn operation_infos(
        &self,
        now: Instant,
        wanted: &ListOperationsRequest,
        limit: usize,
    ) -> (Vec<OperationInfo>, usize) {
        let provider = self.options.canonical(wanted.provider.as_str());
        let fits = |it: &Op| {
            let target = &wanted.target;
            (provider.is_empty() || it.provider == provider)
                && (target.is_empty() || it.target().uid == *target || it.target().name == *target)
                && (wanted.session_id.is_empty() || self.holder_of(it) == wanted.session_id)
        };
        let mut found: Vec<_> = self.operations.iter().filter(|(_, it)| fits(it)).collect();
        found.sort_by_key(|(id, it)| (it.since, *id));
        let left_out = found.len().saturating_sub(limit);
        let shown = found.into_iter().take(limit);
        (shown.map(|(id, it)| self.operation_info(now, id, it)).collect(), left_out)
    }

    fn operation_info(&self, now: Instant, id: &OperationId, it: &Op) -> OperationInfo {
        let progress = it.progress.clone();
        let left = it.ends.saturating_duration_since(now);
        OperationInfo {
            operation_id: id.to_string(),
            idempotency_key: it.request.idempotency_key.clone(),
            kind: OperationKind::try_from(it.kind.number()).unwrap_or_default().into(),
            target: Some(it.target().clone()),
            provider: it.provider.clone().into(),
            session_id: self.holder_of(it).to_owned(),
            state: state(it).into(),
            age: Some(duration(now - it.since)),
            timeout_left: Some(duration(left)),
            stage: progress.as_ref().map(|it| it.stage.clone()).unwrap_or_default(),
            percent: progress.as_ref().map(|it| it.percent).unwrap_or_default(),
            delivery: it.request.delivery,
            cancelled: it.cancelled,
            message: progress.map(|it| it.message).unwrap_or_default(),
            machine_class: it.request.machine_class.clone(),
            stalled: it.stalled,
        }
    }

    /// The id of the session that has an operation; empty if none has.
    fn holder_of(&self, operation: &Op) -> &str {
        match operation.place {
            Place::Sent(key) => self.sessions.get(&key).map(|it| it.id.as_str()),
            Place::Queued(_) | Place::Away(_) | Place::Finished { .. } => None,
        }
        .unwrap_or_default()
    }

    /// The session named by `wanted`: by id, or the active session of a provider.
    pub(crate) fn select(&self, wanted: &SessionSelector) -> Option<Selected> {
        let provider = self.options.canonical(wanted.provider.as_str());
        let active = self.providers.get(&provider).and_then(|record| record.active);
        let key = if wanted.session_id.is_empty() {
            active?
        } else {
            let mut all = self.sessions.iter();
            *all.find(|(_, it)| it.id == wanted.session_id)?.0
        };
        let session = self.sessions.get(&key)?;
        let its = &session.driver.provider;
        (provider.is_empty() || *its == provider).then(|| Selected {
            key,
            id: session.id.clone(),
            provider: its.clone(),
            serves: session.role == RoleKind::Active && session.is_ready(),
        })
    }
}

/// A session that was asked to dial again drains, whatever its driver's report.
fn readiness(session: &Session) -> Readiness {
    if session.is_draining() { Readiness::Draining } else { session.readiness }
}

fn state(operation: &Op) -> OperationState {
    match operation.place {
        Place::Queued(_) => OperationState::Queued,
        Place::Sent(_) if operation.accepted() => OperationState::Accepted,
        Place::Sent(_) => OperationState::Sent,
        Place::Away(_) => OperationState::Away,
        Place::Finished { .. } => OperationState::Finished,
    }
}

fn skew(ahead: i64) -> prost_types::Duration {
    let nanos = i32::try_from(ahead % 1000).unwrap_or_default() * 1_000_000;
    prost_types::Duration { seconds: ahead / 1000, nanos }
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}

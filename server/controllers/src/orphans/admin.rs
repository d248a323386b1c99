//! The mark in the ConfigMap that limits orphan collection to reports, and the orphan list for people.

use ostler_api::ProviderName;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use ostler_api::driver::OperationKind;
use ostler_api::names::CLUSTER_ID_CONFIG_MAP;
use ostler_lifecycle::orphans::hold::{Data, led_by};
use ostler_lifecycle::orphans::{Mode, Owner, ReportOnly, Rules, Suspected, kept};
use ostler_lifecycle::plan::{Event, EventAction, EventReason};
use ostler_sessions::{
    OrphanDesk, OrphanFate, OrphanReport, ProviderState, Refused, ReportedHold, ReportedOrphan,
    Sessions,
};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::OrphanScans;
use crate::EVENT_LOG;
use crate::client::{WriteError, Writer};
use crate::clock::{Clock, DebugClock};
use crate::events::Recorder;
use crate::home_namespace::HomeNamespace;
use crate::settings::Settings;
use crate::stores::Stores;
use crate::telling::tell;

/// Attempts to write the mark while other clients write it, too.
const ATTEMPTS: usize = 5;

/// Reads and writes the mark, and keeps the orphans for display. Cheap to clone; every clone is the same.
#[derive(Clone)]
pub(crate) struct OrphanAdmin {
    writer: Writer,
    home: Arc<HomeNamespace>,
    stores: Stores,
    sessions: Sessions,
    settings: Arc<Settings>,
    clock: DebugClock,
    recorder: Recorder,
    scans: OrphanScans,
    held: Gauge,
    started: Instant,
    /// By provider; bounded by the providers that classes name, and by the size of a watchlist.
    seen: Arc<Mutex<BTreeMap<ProviderName, Seen>>>,
}

/// The results of a provider's scans so far.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) suspected: Vec<Suspected>,
    /// The last scan listed every class.
    pub(super) complete: bool,
    /// The driver reads no tags.
    pub(super) by_name: bool,
}

/// The parts of an [`OrphanAdmin`].
pub(crate) struct OrphanAdminParts {
    pub(crate) home: Arc<HomeNamespace>,
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) sessions: Sessions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) clock: Clock,
    pub(crate) recorder: Recorder,
    pub(crate) scans: OrphanScans,
}

impl OrphanAdmin {
    pub(crate) fn new(parts: OrphanAdminParts, registry: &mut Registry) -> Self {
        let OrphanAdminParts { home, writer, stores, sessions, settings, clock, recorder, scans } =
            parts;
        let held = Gauge::default();
        registry.register(
            "ostler_orphans_held",
            "1 while orphans are only reported, until `ostler drivers orphans --accept`",
            held.clone(),
        );
        let (clock, started, seen) = (DebugClock(clock), Instant::now(), Arc::default());
        Self {
            writer,
            home,
            stores,
            sessions,
            settings,
            clock,
            recorder,
            scans,
            held,
            started,
            seen,
        }
    }

    /// The uptime of this process, as the clock of the scans.
    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// A scan has ended.
    pub(super) fn show(&self, provider: &ProviderName, seen: Seen) {
        self.seen.lock().insert(provider.clone(), seen);
    }

    /// No class names this provider any more.
    pub(super) fn forget(&self, provider: &ProviderName) {
        self.seen.lock().remove(provider);
    }

    /// Sets the mark if the leader of the Lease with this UID has to, and returns the current mark. Reads and writes
    /// the API itself.
    pub(super) async fn hold(&self, lease: &str) -> Result<Option<ReportOnly>, WriteError> {
        let now = (self.clock.0)();
        let before = self.held.get();
        let data = self.change(|data| led_by(lease, data, now)).await?;
        let hold = ReportOnly::of(&data);
        self.held.set(i64::from(hold.is_some()));
        if let Some(hold) = hold.as_ref().filter(|_| before == 0) {
            let since = since_text(hold);
            let note = format!("orphans are only reported{since}: {}", hold.reason);
            self.record_event(Event::warning(EventReason::OrphansHeld, note));
        }
        Ok(hold)
    }

    /// The API knows nothing of the instances made since its backup. The next core could delete such instances before
    /// an operator has seen them, so this core sets the mark while it still knows.
    pub(crate) async fn api_was_restored(&self) {
        let now = (self.clock.0)();
        let mark = |data: &mut Data| {
            ReportOnly::new(now, "the API was restored from a backup while the core ran").set(data);
            true
        };
        if let Err(error) = self.change(mark).await {
            tracing::warn!(%error, "cannot set the mark by which orphans are only reported; see docs/backup.md");
        }
    }

    /// Writes the ConfigMap if `edit` returns true for a change. Returns the current data.
    async fn change(&self, edit: impl Fn(&mut Data) -> bool) -> Result<Data, WriteError> {
        let mut last = WriteError::Conflict;
        let maps = self.home.maps(&self.home.current());
        for _ in 0..ATTEMPTS {
            let Some(mut map) = self.writer.get(&maps, CLUSTER_ID_CONFIG_MAP).await? else {
                return Err(WriteError::NotFound);
            };
            let data = map.data.get_or_insert_default();
            if !edit(data) {
                return Ok(data.clone());
            }
            let written = data.clone();
            match self.writer.replace(&maps, CLUSTER_ID_CONFIG_MAP, &map).await {
                Ok(_) => return Ok(written),
                Err(WriteError::Conflict) => last = WriteError::Conflict,
                Err(failure) => return Err(failure),
            }
        }
        Err(last)
    }

    fn record_event(&self, event: Event) {
        tracing::warn!(target: EVENT_LOG, reason = event.reason.name(), "{}", event.message);
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(CLUSTER_ID_CONFIG_MAP.to_owned()),
                namespace: Some(self.home.current()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        tell(&self.recorder, map.object_ref(&()), event.doing(EventAction::CollectOrphans));
    }

    /// The providers that classes name.
    fn providers(&self) -> BTreeSet<ProviderName> {
        let classes = self.stores.classes.all();
        classes.iter().map(|it| self.settings.driver_name(it.provider())).collect()
    }

    async fn listed(&self, provider: &ProviderName) -> Result<OrphanReport, Refused> {
        let data = self.change(|_| false).await.map_err(unavailable)?;
        let (hold, rules) = (ReportOnly::of(&data), &self.settings.orphans);
        let wanted = |name: &ProviderName| provider.is_empty() || provider == name;
        let (uptime, seen) = (self.uptime(), self.seen.lock());
        let not_listed = to_be_listed(self.providers(), self.sessions.providers(), hold.is_some())
            .into_iter()
            .filter(|name| wanted(name) && !seen.get(name).is_some_and(|it| it.complete))
            .map(String::from)
            .collect();
        let mut all: Vec<(Duration, ReportedOrphan)> = Vec::new();
        for (name, seen) in seen.iter().filter(|(name, _)| wanted(name)) {
            let fate = |one: &Suspected| fate(one, rules, hold.as_ref(), seen.by_name);
            let info = |one: &Suspected| (one.since, info(name, one, uptime, fate(one)));
            all.extend(seen.suspected.iter().map(info));
        }
        all.sort_by_key(|(since, _)| *since);
        let orphans = all.into_iter().map(|(_, info)| info).collect();
        Ok(OrphanReport {
            orphans,
            hold: hold.map(|ReportOnly { since, reason }| ReportedHold { since, reason }),
            report_only: rules.mode == Mode::Report,
            not_listed,
        })
    }

    async fn accepted(&self, since: &str) -> Result<usize, Refused> {
        let refused = Mutex::new(None);
        let lift = |data: &mut Data| {
            let found = ReportOnly::of(data);
            if found.as_ref().is_some_and(|hold| hold.since == since) {
                ReportOnly::lift(data);
                return true;
            }
            *refused.lock() = Some(found);
            false
        };
        self.change(lift).await.map_err(unavailable)?;
        match refused.into_inner() {
            None => {}
            Some(None) => {
                return Err(Refused::NoSuchHold(
                    "the deletion of orphans is not on hold".to_owned(),
                ));
            }
            Some(Some(hold)) => {
                let what = format!(
                    "another mark was set{}: {}; list the orphans again",
                    since_text(&hold),
                    hold.reason
                );
                return Err(Refused::NoSuchHold(what));
            }
        }
        self.held.set(0);
        let note = "orphans are deleted again, by hand".to_owned();
        self.record_event(Event::normal(EventReason::OrphansAccepted, note));
        for provider in self.providers() {
            self.scans.ask(&provider);
        }
        let rules = &self.settings.orphans;
        let goes =
            |one: &&Suspected, by_name| kept(one.orphan.kind, rules, None, by_name).is_none();
        let count =
            |seen: &Seen| seen.suspected.iter().filter(|one| goes(one, seen.by_name)).count();
        Ok(self.seen.lock().values().map(count).sum())
    }
}

/// Of the providers in classes, those whose driver can list. While orphans are held, also providers without a class: an
/// instance made after the backup may have a class that is gone.
fn to_be_listed(
    mut named: BTreeSet<ProviderName>,
    served: Vec<ProviderState>,
    held: bool,
) -> BTreeSet<ProviderName> {
    for state in served.into_iter().filter(|it| it.ready) {
        if !state.kinds.contains(&OperationKind::ListMachines) {
            named.remove(&state.provider);
        } else if held {
            named.insert(state.provider);
        }
    }
    named
}

/// The fate of the suspect, and why it is kept.
fn fate(
    one: &Suspected,
    rules: &Rules,
    hold: Option<&ReportOnly>,
    by_name: bool,
) -> (OrphanFate, String) {
    match kept(one.orphan.kind, rules, hold, by_name) {
        Some(kept) => (OrphanFate::Reported, kept.to_string()),
        None if !one.confirmed => (OrphanFate::ToBeConfirmed, String::new()),
        None if !one.kept.is_empty() => (OrphanFate::Reported, one.kept.clone()),
        None => (OrphanFate::ToBeDeleted, String::new()),
    }
}

fn info(
    provider: &ProviderName,
    one: &Suspected,
    uptime: Duration,
    (fate, kept): (OrphanFate, String),
) -> ReportedOrphan {
    ReportedOrphan {
        provider: provider.to_string(),
        provider_ids: one.orphan.provider_ids.iter().map(ToString::to_string).collect(),
        parts: one.orphan.parts.clone(),
        // A name has no slash, so it differs from a machine's.
        machine_name: match one.orphan.owner {
            Owner::Machine => one.orphan.machine_name.clone(),
            owner @ Owner::Pool => format!("{}/{}", owner.word(), one.orphan.machine_name),
        },
        machine_uid: one.orphan.machine_uid().to_owned(),
        machine_class: one.orphan.class.clone(),
        known_for: uptime.saturating_sub(one.since),
        fate,
        failures: one.failures,
        kept,
    }
}

/// ` since <time>`, if the mark has one.
fn since_text(hold: &ReportOnly) -> String {
    if hold.since.is_empty() { String::new() } else { format!(" since {}", hold.since) }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unavailable(failure: WriteError) -> Refused {
    Refused::Unavailable(format!("ConfigMap {CLUSTER_ID_CONFIG_MAP}: {failure}"))
}

impl OrphanDesk for OrphanAdmin {
    fn list(&self, provider: String) -> BoxFuture<'_, Result<OrphanReport, Refused>> {
        Box::pin(async move { self.listed(&provider.into()).await })
    }

    fn accept(&self, since: String) -> BoxFuture<'_, Result<usize, Refused>> {
        Box::pin(async move { self.accepted(&since).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(provider: &str, ready: bool, lists: bool) -> ProviderState {
        let kinds = lists.then_some(OperationKind::ListMachines).into_iter().collect();
        ProviderState { provider: provider.into(), ready, kinds, ..ProviderState::default() }
    }

    #[test]
    fn while_orphans_are_held_a_provider_that_no_class_names_is_listed_first_too() {
        let named: BTreeSet<ProviderName> = ["of-a-class", "lists-nothing"].map(Into::into).into();
        let served = vec![
            served("without-class", true, true),
            served("lists-nothing", true, false),
            served("gone", false, true),
        ];
        let listed = |held| {
            let all = to_be_listed(named.clone(), served.clone(), held);
            all.into_iter().map(String::from).collect::<Vec<_>>()
        };
        assert_eq!(listed(true), ["of-a-class", "without-class"]);
        assert_eq!(listed(false), ["of-a-class"]);
    }
}

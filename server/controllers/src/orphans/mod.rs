//! Looks for instances that no Machine stands for, provider by provider: lists, compares, looks
//! again, deletes or reports. Decisions are made by [`ostler_lifecycle::orphans`].
//!
//! A class or provider that cannot be listed holds up nobody else. What the looks have shown is kept
//! in memory alone: after a restart, and in a new leader, they begin anew.

mod ask;
mod claims;
mod desk;
mod looks;
mod metrics;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::Resource;
use ostler_api::driver::{ErrorCode, OperationKind};
use ostler_api::{Machine, MachineClass};
use ostler_lifecycle::operation::Failure;
use ostler_lifecycle::orphans::{
    Duplicate, Hold, Keep, Kept, Kind, Listed, Look, MOST_AT_ONCE, Orphan, OrphanEvent, Watchlist,
    duplicates, kept,
};
use ostler_sessions::Sessions;
use tracing::{info, warn};

pub(crate) use desk::{Desk, DeskParts};
pub(crate) use looks::Looks;
pub(crate) use metrics::OrphanMetrics;

use self::claims::Everywhere;
use self::desk::Seen;
use crate::audit;
use crate::events::{Occurrence, Recorder, Severity};
use crate::queue::Outcome;
use crate::settings::Settings;
use crate::stores::{MachineIndex, Stores};
use crate::writes::{WriteError, Writer};

/// How soon to see whether drivers may still come back with operations of an earlier core.
const ADOPTION: Duration = Duration::from_secs(5);
/// Classes of one provider that are listed at the same time.
const LISTS_AT_ONCE: usize = 2;
/// Orphans of one provider that are deleted at the same time.
const DELETIONS_AT_ONCE: usize = 4;
/// Records that are compared before others may run.
const COMPARED_AT_ONCE: usize = 1000;

/// Finds orphans.
pub(crate) struct Orphans {
    writer: Writer,
    stores: Stores,
    sessions: Sessions,
    settings: Arc<Settings>,
    recorder: Recorder,
    metrics: OrphanMetrics,
    looks: Looks,
    desk: Desk,
    /// UID of the Lease by which this process leads.
    lease: String,
    /// By provider; bounded by the providers that classes name.
    ledgers: Mutex<HashMap<String, Ledger>>,
}

/// What Orphans are found with.
pub(crate) struct Parts {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) sessions: Sessions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: OrphanMetrics,
    pub(crate) looks: Looks,
    pub(crate) desk: Desk,
    pub(crate) lease: String,
}

/// What the looks at one provider have shown.
#[derive(Debug, Default)]
struct Ledger {
    watchlist: Watchlist,
    /// When the last look began, and whether it left something to do.
    last: Option<(Duration, bool)>,
}

/// The lists of one look.
struct Lists {
    /// Each is complete.
    listed: Vec<(Arc<MachineClass>, Vec<Listed>)>,
    failed: Vec<(Arc<MachineClass>, Failure)>,
}

/// Who lists the instances of a provider.
#[derive(Debug, PartialEq, Eq)]
struct Lister {
    process: String,
    /// It reads no tags.
    names_only: bool,
}

/// What is known before any of the orphans of a look is acted on.
struct Terms<'a> {
    provider: &'a str,
    classes: &'a [Arc<MachineClass>],
    held: Option<Hold>,
    names_only: bool,
    /// Asked only where something without a UID may be deleted.
    everywhere: Option<Result<Everywhere, WriteError>>,
}

/// What became of an orphan.
enum Acted {
    /// Somebody claims it after all.
    Claimed(Keep),
    /// It was reported, and that is all; why.
    Reported(String),
    /// It is gone.
    Deleted,
    /// The driver could not delete it.
    Failed,
    /// The API could not be asked, or drivers may still come back.
    NotNow,
}

impl Orphans {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { writer, stores, sessions, settings, recorder, metrics, looks, desk, lease } =
            parts;
        let ledgers = Mutex::default();
        Self { writer, stores, sessions, settings, recorder, metrics, looks, desk, lease, ledgers }
    }

    /// Looks at the instances of a provider if it is time to.
    pub(crate) async fn reconcile(&self, provider: String) -> Outcome {
        let period = self.settings.orphans.period;
        if self.sessions.adoption_open() {
            return Outcome::Again(ADOPTION);
        }
        let classes = self.classes_of(&provider);
        if classes.is_empty() {
            self.ledgers().remove(&provider);
            self.metrics.forget(&provider);
            self.desk.forget(&provider);
            return Outcome::Done;
        }
        // Any instance may be that of a machine that cannot be read.
        if self.stores.machines.has_unreadable() {
            warn!(provider, "no orphans are looked for: there are machines that cannot be read");
            return Outcome::Again(period);
        }
        let Some(driver) = self.lister(&provider) else { return Outcome::Again(period) };
        let mut ledger = self.ledgers().remove(&provider).unwrap_or_default();
        let wait = self.wait(&provider, &ledger);
        if wait.is_zero() {
            self.looks.begun(&provider);
            self.look(&provider, &driver, &classes, &mut ledger).await;
        }
        let next = self.wait(&provider, &ledger);
        self.ledgers().insert(provider, ledger);
        Outcome::Again(next)
    }

    fn ledgers(&self) -> MutexGuard<'_, HashMap<String, Ledger>> {
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uptime(&self) -> Duration {
        self.desk.uptime()
    }

    /// How long until the next look.
    fn wait(&self, provider: &str, ledger: &Ledger) -> Duration {
        let Some((last, left)) = ledger.last else { return Duration::ZERO };
        let regular = ledger.watchlist.next_look(&self.settings.orphans, last, left);
        let asked = self.looks.is_asked_for(provider);
        let due =
            if asked { last.saturating_add(self.settings.orphans.soonest()) } else { regular };
        due.saturating_sub(self.uptime())
    }

    fn classes_of(&self, provider: &str) -> Vec<Arc<MachineClass>> {
        let mut classes = self.stores.classes.all();
        classes.retain(|class| self.settings.driver_name(class.provider()) == provider);
        classes.sort_by_key(|class| class.metadata.name.clone());
        classes
    }

    /// The driver process that can list the instances of a provider, if there is one. A list counts
    /// only if the same one was ready before and after it.
    fn lister(&self, provider: &str) -> Option<Lister> {
        let states = self.sessions.providers();
        let state = states.into_iter().find(|state| state.ready && state.provider == provider)?;
        let lists = state.kinds.contains(&OperationKind::ListMachines);
        lists.then_some(Lister { process: state.instance_id, names_only: state.names_only })
    }

    async fn look(
        &self,
        provider: &str,
        driver: &Lister,
        classes: &[Arc<MachineClass>],
        ledger: &mut Ledger,
    ) {
        let began = self.uptime();
        let lists = self.list_all(classes).await;
        let ended = self.uptime();
        ledger.last = Some((began, false));
        for (class, failure) in &lists.failed {
            self.list_failed(provider, class, failure);
        }
        if self.lister(provider).as_ref() != Some(driver) {
            info!(provider, "the driver changed meanwhile; its lists are not used");
            return;
        }
        self.report_duplicates(provider, &lists);
        let (unclaimed, counts) = self.compare(provider, &lists).await;
        let name = |class: &MachineClass| class.metadata.name.clone().unwrap_or_default();
        let listed = lists.listed.iter().map(|(class, _)| name(class)).collect::<BTreeSet<_>>();
        let look = Look { began, ended, listed: &listed, unclaimed: &unclaimed };
        let due = ledger.watchlist.take(&look, &self.settings.orphans);
        self.metrics.seen(provider, &counts, ledger.watchlist.confirmed());
        let names_only = driver.names_only;
        let terms = Terms { provider, classes, held: None, names_only, everywhere: None };
        let left = self.act_on_due(terms, due, &mut ledger.watchlist).await;
        ledger.last = Some((began, left));
        let suspected = ledger.watchlist.suspected();
        let complete = lists.failed.is_empty();
        self.desk.show(provider, Seen { suspected, complete, names_only });
    }

    /// Acts on the oldest of those that are due. Returns whether there is more to do.
    async fn act_on_due(
        &self,
        mut terms: Terms<'_>,
        mut due: Vec<Orphan>,
        watchlist: &mut Watchlist,
    ) -> bool {
        // After the lists, which may have taken long, and before anything is done.
        match self.desk.hold(&self.lease).await {
            Ok(held) => terms.held = held,
            Err(failure) => {
                let provider = terms.provider;
                warn!(provider, error = %failure, "cannot read whether orphans may be deleted");
                return !due.is_empty();
            }
        }
        due.retain(|orphan| orphan.new || self.kept(&terms, orphan).is_none());
        let asks =
            |orphan: &Orphan| orphan.kind == Kind::Untagged && self.kept(&terms, orphan).is_none();
        if due.iter().any(asks) {
            let read = self.everywhere().await;
            terms.everywhere = Some(read.inspect_err(cannot_read_all));
        }
        // What cannot be done is not to keep what can be from its turn.
        if matches!(terms.everywhere, Some(Err(_))) {
            due.retain(|orphan| orphan.new || orphan.kind != Kind::Untagged);
        }
        let left = due.len() > MOST_AT_ONCE;
        due.truncate(MOST_AT_ONCE);
        self.act_on_all(&terms, due, watchlist).await;
        left
    }

    /// Why an orphan is only reported.
    fn kept(&self, terms: &Terms<'_>, orphan: &Orphan) -> Option<Kept> {
        kept(orphan.kind, &self.settings.orphans, terms.held.as_ref(), terms.names_only)
    }

    async fn list_all(&self, classes: &[Arc<MachineClass>]) -> Lists {
        let list = |class: Arc<MachineClass>| async move {
            let answer = ask::list(&self.sessions, &class).await;
            (class, answer)
        };
        let asked = stream::iter(classes.to_vec()).map(list).buffer_unordered(LISTS_AT_ONCE);
        let mut lists = Lists { listed: Vec::new(), failed: Vec::new() };
        for (class, answer) in asked.collect::<Vec<_>>().await {
            match answer {
                Ok(records) => lists.listed.push((class, records)),
                Err(failure) => lists.failed.push((class, failure)),
            }
        }
        lists
    }

    /// Those whom nobody claims, and how many instances there are by claim.
    async fn compare(
        &self,
        provider: &str,
        lists: &Lists,
    ) -> (Vec<(String, Listed)>, BTreeMap<Option<Keep>, usize>) {
        let paused: HashSet<&str> = lists
            .listed
            .iter()
            .filter(|(class, _)| class.is_paused())
            .flat_map(|(_, records)| records.iter().map(|one| one.provider_id.as_str()))
            .collect();
        let (mut unclaimed, mut counts) = (Vec::new(), BTreeMap::new());
        let mut counted: HashSet<&str> = HashSet::new();
        for (class, records) in &lists.listed {
            for some in records.chunks(COMPARED_AT_ONCE) {
                for one in some {
                    let paused = paused.contains(one.provider_id.as_str());
                    let keep = self.keep(provider, one, paused);
                    if counted.insert(one.provider_id.as_str()) {
                        *counts.entry(keep).or_default() += 1;
                    }
                    if keep.is_none() {
                        let class = class.metadata.name.clone().unwrap_or_default();
                        unclaimed.push((class, one.clone()));
                    }
                }
                tokio::task::yield_now().await;
            }
        }
        (unclaimed, counts)
    }

    async fn act_on_all(&self, terms: &Terms<'_>, due: Vec<Orphan>, watchlist: &mut Watchlist) {
        let act = |orphan: Orphan| async move {
            let named = |class: &&Arc<MachineClass>| {
                class.metadata.name.as_deref() == Some(orphan.class.as_str())
            };
            let acted = match terms.classes.iter().find(named) {
                Some(class) => self.act(terms, class, &orphan).await,
                None => Acted::NotNow,
            };
            (orphan, acted)
        };
        let acted = stream::iter(due).map(act).buffer_unordered(DELETIONS_AT_ONCE);
        for (orphan, acted) in acted.collect::<Vec<_>>().await {
            let identity = &orphan.identity;
            match acted {
                Acted::Claimed(keep) => {
                    info!(machine = orphan.machine_name, ?identity, ?keep, "no orphan after all");
                    watchlist.forget(identity);
                }
                Acted::Deleted => watchlist.forget(identity),
                Acted::Reported(kept) => watchlist.told(identity, kept),
                Acted::Failed => {
                    watchlist.told(identity, String::new());
                    watchlist.failed(identity, self.uptime());
                }
                Acted::NotNow => watchlist.failed(identity, self.uptime()),
            }
        }
    }

    /// Looks once more, this time at the API itself, and then does it.
    async fn act(&self, terms: &Terms<'_>, class: &MachineClass, orphan: &Orphan) -> Acted {
        let provider = terms.provider;
        let claimed = match self.claimed_live(provider, orphan).await {
            Ok(claimed) => claimed,
            Err(failure) => {
                warn!(machine = orphan.machine_name, error = %failure, "cannot read the machine");
                return Acted::NotNow;
            }
        };
        let elsewhere = terms.everywhere.as_ref().filter(|_| orphan.kind == Kind::Untagged);
        let listed = elsewhere.and_then(|all| all.as_ref().ok());
        if let Some(keep) = claimed.or_else(|| listed.and_then(|all| all.keep(orphan))) {
            return Acted::Claimed(keep);
        }
        if self.sessions.adoption_open() || self.stores.machines.has_unreadable() {
            return Acted::NotNow;
        }
        let Ok(kept) = self.kept_after_all(terms, orphan) else { return Acted::NotNow };
        if orphan.new {
            self.report(provider, class, orphan, kept.as_deref());
        }
        match kept {
            Some(kept) => Acted::Reported(kept),
            None => self.delete(provider, class, orphan).await,
        }
    }

    /// Why an orphan is only reported, also for want of a right.
    fn kept_after_all<'a>(
        &self,
        terms: &'a Terms<'_>,
        orphan: &Orphan,
    ) -> Result<Option<String>, &'a WriteError> {
        let elsewhere = terms.everywhere.as_ref().filter(|_| orphan.kind == Kind::Untagged);
        match (self.kept(terms, orphan), elsewhere) {
            (Some(kept), _) => Ok(Some(kept.to_string())),
            (None, Some(Err(WriteError::Forbidden(right)))) => Ok(Some(format!(
                "because it may be of a namespace that is not served, and the core may not look: {right}"
            ))),
            (None, Some(Err(failure))) => Err(failure),
            (None, Some(Ok(_)) | None) => Ok(None),
        }
    }

    fn report(&self, provider: &str, class: &MachineClass, orphan: &Orphan, kept: Option<&str>) {
        let (of, what) = (said(orphan), kept.map(|why| format!("it is kept {why}")));
        let what = what.as_deref().unwrap_or("it is deleted");
        self.metrics.found(provider);
        self.tell(class, OrphanEvent::Found, format!("no machine has instance {of}: {what}"));
    }

    async fn delete(&self, provider: &str, class: &MachineClass, orphan: &Orphan) -> Acted {
        let of = said(orphan);
        match ask::delete(&self.sessions, provider, class, orphan).await {
            Ok(()) => {
                audit::orphan_deleted(provider, orphan, "ok");
                self.metrics.deleted(provider);
                self.tell(class, OrphanEvent::Deleted, format!("instance {of} is gone"));
                Acted::Deleted
            }
            Err(failure) => {
                audit::orphan_deleted(provider, orphan, failure.code.name());
                self.metrics.delete_failed(provider);
                let note = format!("instance {of}: {}: {}", failure.code, failure.message);
                self.tell(class, OrphanEvent::DeleteFailed, note);
                Acted::Failed
            }
        }
    }

    fn list_failed(&self, provider: &str, class: &MachineClass, failure: &Failure) {
        if failure.code == ErrorCode::Unimplemented {
            return;
        }
        self.metrics.list_failed(provider);
        let note = format!("orphans are not looked for: {}: {}", failure.code, failure.message);
        self.tell(class, OrphanEvent::ListFailed, note);
    }

    /// Nobody but the driver's author knows which of them is the right one.
    fn report_duplicates(&self, provider: &str, lists: &Lists) {
        let all = lists.listed.iter().flat_map(|(_, records)| records);
        let found = duplicates(all);
        self.metrics.several(provider, found.len());
        for Duplicate { machine_uid, machine_name, provider_ids } in found {
            let ids = provider_ids.join(", ");
            let note = format!(
                "instances {ids} all have the tags of machine {machine_name} (UID {machine_uid})"
            );
            let machines = self.stores.machines.find(MachineIndex::Uid, &machine_uid);
            if let Some(machine) = machines.first() {
                self.tell::<Machine>(machine, OrphanEvent::SeveralInstances, note);
            } else {
                warn!(provider, "{note}");
            }
        }
    }

    fn tell<K: Resource<DynamicType = ()>>(&self, object: &K, event: OrphanEvent, note: String) {
        let severity = if event.is_warning() { Severity::Warning } else { Severity::Normal };
        info!(reason = event.as_str(), "{note}");
        self.recorder.record(Occurrence {
            regarding: object.object_ref(&()),
            severity,
            reason: event.as_str(),
            action: "CollectOrphans",
            note,
        });
    }
}

fn cannot_read_all(failure: &WriteError) {
    warn!(error = %failure, "cannot read the machines of all namespaces");
}

fn said(orphan: &Orphan) -> String {
    let (ids, name) = (orphan.provider_ids.join(", "), &orphan.machine_name);
    match orphan.machine_uid() {
        "" => format!("{ids} of machine {name} (no UID)"),
        uid => format!("{ids} of machine {name} (UID {uid})"),
    }
}

//! Orphan garbage collection, provider by provider: lists the instances, compares them with the Machines, and deletes
//! or reports an orphan after two scans have shown it. [`ostler_lifecycle::orphans`] makes the decisions.
//!
//! A class or provider that cannot be listed does not block the others. The results of scans are kept in memory only:
//! after a restart, and in a new leader, they start from nothing.

mod admin;
mod ask;
mod claims;
mod lists;
mod metrics;
mod scans;
mod triggers;

use ostler_api::ProviderName;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use kube::Resource;
use ostler_api::driver::{ErrorCode, OperationKind};
use ostler_api::{Machine, MachineClass};
use ostler_lifecycle::operation::Failure;
use ostler_lifecycle::orphans::{
    self, Duplicate, Elsewhere, Fate, KeepReason, Listed, Orphan, OrphanKind, Owner, Plan,
    ReportOnly, Scan, Scopes, Watchlist, duplicates, needs_elsewhere,
};
use ostler_sessions::Sessions;
use parking_lot::Mutex;
use tracing::{info, warn};

pub(crate) use admin::{OrphanAdmin, OrphanAdminParts};
pub(crate) use metrics::OrphanMetrics;
pub(crate) use scans::OrphanScans;

use self::admin::Seen;
use self::claims::Everywhere;
use self::lists::{ClassList, Lists, class_name};
use crate::audit;
use crate::client::{WriteError, Writer};
use crate::events::Recorder;
use crate::kind::{Kind, PassError, Passed};
use crate::queue::Outcome;
use crate::settings::Settings;
use crate::stores::{MachineIndex, Stores};
use crate::telling::tell;
use crate::watch::ObjectName;
use ostler_lifecycle::plan::{Event, EventAction, EventReason};

/// When to check again whether drivers may still reconnect with operations of an earlier core.
const ADOPTION: Duration = Duration::from_secs(5);
/// Concurrent deletions of one provider's orphans.
const DELETIONS_AT_ONCE: usize = 4;
/// Records that are compared before the task yields.
const COMPARED_AT_ONCE: usize = 1000;

/// The orphan collector.
pub(crate) struct Orphans {
    pub(crate) writer: Writer,
    pub(crate) stores: Stores,
    pub(crate) sessions: Sessions,
    pub(crate) settings: Arc<Settings>,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: OrphanMetrics,
    pub(crate) scans: OrphanScans,
    pub(crate) admin: OrphanAdmin,
    /// UID of the Lease of this leader.
    pub(crate) lease: String,
    /// By provider; bounded by the providers that classes name.
    pub(crate) ledgers: Mutex<HashMap<ProviderName, Ledger>>,
}

/// The results of a provider's scans.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    watchlist: Watchlist,
    /// When the last scan began, and whether it left work.
    last: Option<(Duration, bool)>,
    /// Classes that share a list.
    scopes: Scopes,
}

/// One scan of a provider.
pub(crate) struct Observed {
    provider: ProviderName,
    classes: Vec<Arc<MachineClass>>,
    began: Duration,
    by_name: bool,
    failed: Vec<(Arc<MachineClass>, Failure)>,
    /// `None`: the driver changed meanwhile, so its lists are not used.
    shown: Option<Shown>,
}

/// The contents of a scan's lists.
struct Shown {
    duplicates: Vec<Duplicate>,
    /// Number of instances by claim.
    counts: BTreeMap<Option<KeepReason>, usize>,
    due: Vec<Orphan>,
    hold: Result<Option<ReportOnly>, WriteError>,
    everywhere: Option<Result<Everywhere, WriteError>>,
    rules: orphans::Rules,
}

/// The driver that lists the instances of a provider.
#[derive(Debug, PartialEq, Eq)]
struct Lister {
    process: String,
    /// The driver reads no tags.
    by_name: bool,
    /// The driver has groups.
    pools: bool,
}

/// The action on an orphan.
pub(crate) enum Acted {
    /// Nothing: a Machine claims it.
    Claimed(KeepReason),
    /// The orphan was only reported, for this reason.
    Reported(String),
    /// The orphan was deleted.
    Deleted,
    /// The driver could not delete it.
    Failed,
    /// The API did not answer, or drivers may still reconnect.
    NotNow,
}

impl Kind for Orphans {
    const NAME: &'static str = "Orphans";
    type Key = ProviderName;
    type Snapshot = Observed;
    type Plan = Plan;
    type Done = Vec<(Orphan, Acted)>;

    async fn observe(&self, provider: &ProviderName) -> Result<Option<Observed>, PassError> {
        self.look(provider).await
    }

    fn plan(observed: &Observed) -> Plan {
        observed
            .shown
            .as_ref()
            .map_or_else(Plan::default, |shown| orphans::plan(&shown.facts(observed.by_name)))
    }

    fn describe(plan: &Plan) -> String {
        let goes = plan.fates.iter().filter(|(_, fate)| *fate == Fate::Delete).count();
        format!("{} orphans, {goes} to be deleted", plan.fates.len())
    }

    async fn execute(&self, observed: &Observed, plan: &Plan) -> Result<Self::Done, PassError> {
        let act = |orphan: Orphan, fate: Fate| async move {
            let acted = self.act(observed, &orphan, &fate).await;
            (orphan, acted)
        };
        let fates = plan.fates.iter().cloned().map(|(orphan, fate)| act(orphan, fate));
        Ok(stream::iter(fates.collect::<Vec<_>>())
            .buffer_unordered(DELETIONS_AT_ONCE)
            .collect()
            .await)
    }

    async fn record(
        &self,
        observed: Observed,
        plan: Plan,
        done: Self::Done,
    ) -> Result<Passed, PassError> {
        let provider = &observed.provider;
        for (class, failure) in &observed.failed {
            self.list_failed(provider, class, failure);
        }
        if let Some(shown) = &observed.shown {
            self.remember(&observed, shown, &plan, done);
        } else {
            info!(
                provider = provider.as_str(),
                "the driver changed during the scan; its lists are not used"
            );
            let mut ledgers = self.ledgers.lock();
            ledgers.entry(provider.clone()).or_default().last = Some((observed.began, false));
        }
        Ok(Passed::Settled(Outcome::Again(self.wait(provider))))
    }
}

impl Shown {
    fn facts(&self, by_name: bool) -> orphans::Snapshot<'_> {
        orphans::Snapshot {
            due: &self.due,
            rules: &self.rules,
            hold: self.hold.as_ref().map(Option::as_ref).map_err(|_| ()),
            by_name,
            elsewhere: match &self.everywhere {
                None => Elsewhere::NotRead,
                Some(Ok(_)) => Elsewhere::Read,
                Some(Err(WriteError::Forbidden(right))) => Elsewhere::Forbidden(right.clone()),
                Some(Err(_)) => Elsewhere::Failed,
            },
        }
    }
}

impl Orphans {
    /// Scans the instances of a provider if a scan is due.
    async fn look(&self, provider: &ProviderName) -> Result<Option<Observed>, PassError> {
        let period = self.settings.orphans.period;
        if self.sessions.adoption_open() {
            return Err(PassError::NotYet(ADOPTION));
        }
        let classes = self.classes_of(provider);
        if classes.is_empty() {
            self.scans.begun(provider);
            self.ledgers.lock().remove(provider);
            self.metrics.forget(provider);
            self.admin.forget(provider);
            return Ok(None);
        }
        // Any instance may belong to a machine that cannot be read.
        if self.has_unreadable() {
            warn!(
                provider = provider.as_str(),
                "no orphan scan: some machines or pools cannot be read"
            );
            return Err(PassError::NotYet(period));
        }
        let Some(driver) = self.lister(provider) else { return Err(PassError::NotYet(period)) };
        let wait = self.wait(provider);
        if !wait.is_zero() {
            return Err(PassError::NotYet(wait));
        }
        self.scans.begun(provider);
        let began = self.admin.uptime();
        let lists = self.list_all(provider, (&driver.process, driver.pools), &classes).await;
        let Lists { listed, failed, .. } = lists;
        let same = self.lister(provider).as_ref() == Some(&driver);
        let by_name = driver.by_name;
        let shown =
            if same { Some(self.shown(provider, by_name, began, &listed).await) } else { None };
        Ok(Some(Observed { provider: provider.clone(), classes, began, by_name, failed, shown }))
    }

    /// Time until the next scan.
    fn wait(&self, provider: &ProviderName) -> Duration {
        let rules = &self.settings.orphans;
        let ledgers = self.ledgers.lock();
        let Some(ledger) = ledgers.get(provider) else { return Duration::ZERO };
        let Some((last, left)) = ledger.last else { return Duration::ZERO };
        let due = if self.scans.is_asked_for(provider) {
            last.saturating_add(rules.soonest())
        } else {
            ledger.watchlist.next_scan(rules, last, left)
        };
        due.saturating_sub(self.admin.uptime())
    }

    fn classes_of(&self, provider: &ProviderName) -> Vec<Arc<MachineClass>> {
        let mut classes = self.stores.classes.all();
        classes.retain(|class| self.settings.driver_name(class.provider()) == *provider);
        classes.sort_by_key(|class| class_name(class));
        classes
    }

    /// The driver process that can list the instances of a provider, if there is one. A list counts only if the same
    /// process was ready before and after it.
    fn lister(&self, provider: &ProviderName) -> Option<Lister> {
        let states = self.sessions.providers();
        let state = states.into_iter().find(|state| state.ready && state.provider == *provider)?;
        let lists = state.kinds.contains(&OperationKind::ListMachines);
        let pools = state.kinds.contains(&OperationKind::ListPools);
        lists.then_some(Lister { process: state.instance_id, by_name: state.by_name, pools })
    }

    /// Whether an object that cannot be read may claim anything.
    fn has_unreadable(&self) -> bool {
        self.stores.machines.has_unreadable() || self.stores.pools.has_unreadable()
    }

    /// Compares the lists, and reads what the decisions about due orphans need.
    async fn shown(
        &self,
        provider: &ProviderName,
        by_name: bool,
        began: Duration,
        listed: &[ClassList],
    ) -> Shown {
        let ended = self.admin.uptime();
        let (unclaimed, counts) = self.compare(provider, listed).await;
        let classes = listed.iter().map(|(class, _)| class_name(class)).collect::<BTreeSet<_>>();
        let scan = Scan { began, ended, listed: &classes, unclaimed: &unclaimed };
        let rules = self.settings.orphans;
        let due = {
            let mut ledgers = self.ledgers.lock();
            ledgers.entry(provider.clone()).or_default().watchlist.take(&scan, &rules)
        };
        // Read after the lists, which may have taken long, and before any deletion.
        let hold = self.admin.hold(&self.lease).await.inspect_err(|error| {
            warn!(provider = provider.as_str(), %error, "cannot read whether orphans may be deleted");
        });
        let all = listed.iter().flat_map(|(_, records)| records.iter());
        let duplicates = duplicates(all);
        let mut shown = Shown { duplicates, counts, due, hold, everywhere: None, rules };
        if needs_elsewhere(&shown.facts(by_name)) {
            let read = self.everywhere().await.inspect_err(|error| {
                warn!(%error, "cannot read the machines of all namespaces");
            });
            shown.everywhere = Some(read);
        }
        shown
    }

    /// The instances that no Machine claims, and the number of instances by claim.
    async fn compare(
        &self,
        provider: &ProviderName,
        listed: &[ClassList],
    ) -> (Vec<(String, Listed)>, BTreeMap<Option<KeepReason>, usize>) {
        let paused: HashSet<&str> = listed
            .iter()
            .filter(|(class, _)| class.is_paused())
            .flat_map(|(_, records)| records.iter().map(|one| one.provider_id.as_str()))
            .collect();
        let (mut unclaimed, mut counts) = (Vec::new(), BTreeMap::new());
        let mut counted: HashSet<&str> = HashSet::new();
        for (class, records) in listed {
            for some in records.chunks(COMPARED_AT_ONCE) {
                for one in some {
                    let paused = paused.contains(one.provider_id.as_str());
                    let keep = self.keep(provider, one, paused);
                    let instance = one.owner == Owner::Machine && one.part.is_empty();
                    if instance && counted.insert(one.provider_id.as_str()) {
                        *counts.entry(keep).or_default() += 1;
                    }
                    if keep.is_none() {
                        unclaimed.push((class_name(class), one.clone()));
                    }
                }
                tokio::task::yield_now().await;
            }
        }
        (unclaimed, counts)
    }

    /// Checks the claims once more, in the API itself, and then acts.
    async fn act(&self, observed: &Observed, orphan: &Orphan, fate: &Fate) -> Acted {
        let (provider, classes) = (&observed.provider, &observed.classes);
        let listed_it = |class: &&Arc<MachineClass>| class_name(class) == orphan.class;
        let Some(class) = classes.iter().find(listed_it) else { return Acted::NotNow };
        let claimed = match self.claimed_live(provider, orphan).await {
            Ok(claimed) => claimed,
            Err(failure) => {
                warn!(machine = orphan.machine_name, error = %failure, "cannot read the machine");
                return Acted::NotNow;
            }
        };
        let everywhere =
            observed.shown.as_ref().and_then(|shown| shown.everywhere.as_ref()?.as_ref().ok());
        let elsewhere = everywhere.filter(|_| orphan.kind == OrphanKind::Untagged);
        if let Some(keep) = claimed.or_else(|| elsewhere.and_then(|all| all.keep(orphan))) {
            return Acted::Claimed(keep);
        }
        if self.sessions.adoption_open() || self.has_unreadable() {
            return Acted::NotNow;
        }
        if *fate == Fate::Delete && self.is_called_off(classes).await {
            return Acted::NotNow;
        }
        let (what, kept) = match fate {
            Fate::Later => return Acted::NotNow,
            Fate::KeepReason(why) => (format!("it is kept {why}"), Some(why)),
            Fate::Delete => ("it is deleted".to_owned(), None),
        };
        if orphan.new {
            self.metrics.found(provider);
            let note = format!("no {} has {}: {what}", orphan.owner.word(), describe(orphan));
            self.record_event(class.as_ref(), Event::warning(EventReason::OrphanFound, note));
        }
        match kept {
            Some(why) => Acted::Reported(why.clone()),
            None => self.delete(provider, class, orphan).await,
        }
    }

    /// Whether orphans are only reported by now, or a class was paused since it was listed: the deletions of a pass may
    /// take long.
    async fn is_called_off(&self, listed: &[Arc<MachineClass>]) -> bool {
        let is_paused = |was: &Arc<MachineClass>| {
            let class = self.stores.classes.get(&ObjectName::of(was.as_ref()));
            !was.is_paused() && class.is_none_or(|class| class.is_paused())
        };
        listed.iter().any(is_paused) || !matches!(self.admin.hold(&self.lease).await, Ok(None))
    }

    async fn delete(
        &self,
        provider: &ProviderName,
        class: &MachineClass,
        orphan: &Orphan,
    ) -> Acted {
        let it = describe(orphan);
        match ask::delete(&self.sessions, provider, class, orphan).await {
            Ok(()) => {
                audit::orphan_deleted(provider, orphan, "ok");
                self.metrics.deleted(provider);
                let note = format!("{it} is deleted");
                self.record_event(class, Event::normal(EventReason::OrphanDeleted, note));
                Acted::Deleted
            }
            Err(failure) => {
                audit::orphan_deleted(provider, orphan, failure.code.name());
                self.metrics.delete_failed(provider);
                let note = format!("{it}: {}: {}", failure.code, failure.message);
                self.record_event(class, Event::warning(EventReason::OrphanDeleteFailed, note));
                Acted::Failed
            }
        }
    }

    fn list_failed(&self, provider: &ProviderName, class: &MachineClass, failure: &Failure) {
        if failure.code == ErrorCode::Unimplemented {
            return;
        }
        self.metrics.list_failed(provider);
        let note = format!("no orphan scan: {}: {}", failure.code, failure.message);
        self.record_event(class, Event::warning(EventReason::InstancesNotListed, note));
    }

    /// Keeps the results of the scan and of the actions, for the next scan and for display.
    fn remember(
        &self,
        observed: &Observed,
        shown: &Shown,
        plan: &Plan,
        done: Vec<(Orphan, Acted)>,
    ) {
        let Observed { provider, began, by_name, failed, .. } = observed;
        self.report_duplicates(provider, &shown.duplicates);
        let mut ledgers = self.ledgers.lock();
        let Ledger { watchlist, last, .. } = ledgers.entry(provider.clone()).or_default();
        for (orphan, acted) in done {
            let identity = &orphan.identity;
            match acted {
                Acted::Claimed(keep) => {
                    info!(
                        machine = orphan.machine_name,
                        ?identity,
                        ?keep,
                        "not an orphan: a machine claims it"
                    );
                    watchlist.forget(identity);
                }
                Acted::Deleted => watchlist.forget(identity),
                Acted::Reported(kept) => watchlist.told(identity, kept),
                Acted::Failed => {
                    watchlist.told(identity, String::new());
                    watchlist.failed(identity, self.admin.uptime());
                }
                Acted::NotNow => watchlist.failed(identity, self.admin.uptime()),
            }
        }
        *last = Some((*began, plan.left));
        let known = (watchlist.confirmed(), watchlist.parts());
        self.metrics.seen(provider, &shown.counts, known);
        let (suspected, complete) = (watchlist.suspected(), failed.is_empty());
        drop(ledgers);
        self.admin.show(provider, Seen { suspected, complete, by_name: *by_name });
    }

    /// Only the driver's author knows which of the instances is the right one.
    fn report_duplicates(&self, provider: &ProviderName, found: &[Duplicate]) {
        self.metrics.several(provider, found.len());
        for Duplicate { machine_uid, machine_name, provider_ids } in found {
            let ids = audit::joined(provider_ids, ", ");
            let note = format!(
                "instances {ids} all have the tags of machine {machine_name} (UID {machine_uid})"
            );
            let machines = self.stores.machines.find(MachineIndex::Uid, machine_uid.as_str());
            if let Some(machine) = machines.first() {
                let event = Event::warning(EventReason::SeveralInstances, note);
                self.record_event::<Machine>(machine, event);
            } else {
                warn!(provider = provider.as_str(), "{note}");
            }
        }
    }

    fn record_event<K: Resource<DynamicType = ()>>(&self, object: &K, event: Event) {
        info!(reason = event.reason.name(), "{}", event.message);
        tell(&self.recorder, object.object_ref(&()), event.doing(EventAction::CollectOrphans));
    }
}

fn describe(orphan: &Orphan) -> String {
    let (ids, name) = (audit::joined(&orphan.provider_ids, ", "), &orphan.machine_name);
    let thing = match orphan.owner {
        _ if ids.is_empty() => orphan.parts.join(", "),
        Owner::Machine if !orphan.parts.is_empty() => {
            format!("instance {ids} and {}", orphan.parts.join(", "))
        }
        Owner::Machine => format!("instance {ids}"),
        Owner::Pool => format!("group {ids}"),
    };
    let owner = orphan.owner.word();
    match orphan.machine_uid() {
        "" => format!("{thing} of {owner} {name} (no UID)"),
        uid => format!("{thing} of {owner} {name} (UID {uid})"),
    }
}

#[cfg(test)]
mod tests;

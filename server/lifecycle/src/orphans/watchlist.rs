//! The results of a provider's scans so far.

use ostler_api::ProviderId;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Listed, OrphanIdentity, OrphanKind, Owner, Rules};

/// Suspects that are remembered at a time. More are taken in once these are done with.
const MOST_SUSPECTS: usize = 10_000;
/// Waits after a deletion that failed: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_mins(2), Duration::from_mins(30));

/// One scan: lists of some classes of a provider, each complete. Times are this process's, counted
/// from its start: no wall clock can shorten a grace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scan<'a> {
    /// Before the first list was asked for.
    pub began: Duration,
    /// When the last list was complete.
    pub ended: Duration,
    /// The classes that were listed as a whole, by namespace and name.
    pub listed: &'a BTreeSet<String>,
    /// Every unclaimed instance in these lists, with the class of its listing.
    pub unclaimed: &'a [(String, Listed)],
}

#[derive(Debug, Clone)]
struct Suspect {
    owner: Owner,
    kind: OrphanKind,
    machine_name: String,
    provider_ids: BTreeSet<ProviderId>,
    parts: BTreeSet<String>,
    classes: BTreeSet<String>,
    first_scan_ended: Duration,
    confirmed: bool,
    told: bool,
    kept: String,
    failures: u32,
    not_before: Duration,
}

impl Suspect {
    fn orphan(&self, identity: &OrphanIdentity) -> Orphan {
        Orphan {
            identity: identity.clone(),
            owner: self.owner,
            kind: self.kind,
            machine_name: self.machine_name.clone(),
            provider_ids: self.provider_ids.iter().cloned().collect(),
            parts: self.parts.iter().cloned().collect(),
            class: self.classes.first().cloned().unwrap_or_default(),
            new: !self.told,
        }
    }
}

/// An instance, or several of the same identity, without a Machine in two scans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orphan {
    /// The identity on the watchlist.
    pub identity: OrphanIdentity,
    /// The kind of the missing owner.
    pub owner: Owner,
    /// Where it comes from; if some of several instances have a previous cluster id, that.
    pub kind: OrphanKind,
    /// The name in its tags.
    pub machine_name: String,
    /// Its ids.
    pub provider_ids: Vec<ProviderId>,
    /// Parts that belong to no instance: kind and id of each.
    pub parts: Vec<String>,
    /// A class of the orphan's listing: namespace and name.
    pub class: String,
    /// Whether no event has named it yet.
    pub new: bool,
}

impl Orphan {
    /// The UID in the tags; may be empty.
    pub fn machine_uid(&self) -> &str {
        match &self.identity {
            OrphanIdentity::Uid(uid) => uid.as_str(),
            OrphanIdentity::Instance(_) => "",
        }
    }
}

/// A possible orphan, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspected {
    /// The confirmed or suspected orphan.
    pub orphan: Orphan,
    /// When the first scan with the suspect had ended.
    pub since: Duration,
    /// A second scan has shown it.
    pub confirmed: bool,
    /// Why the orphan was kept when due, for people.
    pub kept: String,
    /// Deletions that failed.
    pub failures: u32,
}

/// Possible orphans of a provider.
#[derive(Debug, Default)]
pub struct Watchlist {
    suspects: BTreeMap<OrphanIdentity, Suspect>,
}

impl Watchlist {
    /// Takes a scan in. Returns the newly confirmed orphans that are due, the oldest first.
    ///
    /// An instance that is claimed again, or is not in the list of a class any more that showed it,
    /// is no suspect any more and would begin anew. A class that could not be listed changes
    /// nothing.
    pub fn take(&mut self, scan: &Scan<'_>, rules: &Rules) -> Vec<Orphan> {
        let mut seen: BTreeMap<OrphanIdentity, Vec<&(String, Listed)>> = BTreeMap::new();
        for one in scan.unclaimed {
            seen.entry(one.1.identity()).or_default().push(one);
        }
        self.suspects.retain(|identity, suspect| {
            seen.contains_key(identity) || suspect.classes.is_disjoint(scan.listed)
        });
        for (identity, records) in seen {
            self.see(identity, &records, scan, rules);
        }
        self.due(scan.began)
    }

    fn see(
        &mut self,
        identity: OrphanIdentity,
        records: &[&(String, Listed)],
        scan: &Scan<'_>,
        rules: &Rules,
    ) {
        let Some((_, first)) = records.first() else { return };
        if !self.suspects.contains_key(&identity) && self.suspects.len() >= MOST_SUSPECTS {
            return;
        }
        let suspect = self.suspects.entry(identity).or_insert_with(|| Suspect {
            owner: first.owner,
            kind: OrphanKind::Ours,
            machine_name: first.machine_name.clone(),
            provider_ids: BTreeSet::new(),
            parts: BTreeSet::new(),
            classes: BTreeSet::new(),
            first_scan_ended: scan.ended,
            confirmed: false,
            told: false,
            kept: String::new(),
            failures: 0,
            not_before: Duration::ZERO,
        });
        suspect.classes = records.iter().map(|(class, _)| class.clone()).collect();
        let (whole, parts): (Vec<_>, Vec<_>) =
            records.iter().map(|(_, one)| one).partition(|one| one.part.is_empty());
        suspect.provider_ids = whole.iter().map(|one| one.provider_id.clone()).collect();
        let part = |one: &&Listed| format!("{} {}", one.part, one.provider_id);
        suspect.parts = parts.iter().map(part).collect();
        suspect.kind = records.iter().map(|(_, one)| one.kind()).max().unwrap_or_default();
        let confirmed = scan.began >= suspect.first_scan_ended.saturating_add(rules.grace);
        suspect.confirmed = suspect.confirmed || confirmed;
    }

    fn due(&self, now: Duration) -> Vec<Orphan> {
        let due = |suspect: &&Suspect| suspect.confirmed && now >= suspect.not_before;
        let mut found: Vec<_> = self.suspects.iter().filter(|(_, one)| due(one)).collect();
        found.sort_by_key(|(_, suspect)| suspect.first_scan_ended);
        found.into_iter().map(|(identity, suspect)| suspect.orphan(identity)).collect()
    }

    /// All of them, confirmed or not, for people.
    pub fn suspected(&self) -> Vec<Suspected> {
        let shown = |(identity, suspect): (&OrphanIdentity, &Suspect)| Suspected {
            orphan: suspect.orphan(identity),
            since: suspect.first_scan_ended,
            confirmed: suspect.confirmed,
            kept: suspect.kept.clone(),
            failures: suspect.failures,
        };
        self.suspects.iter().map(shown).collect()
    }

    /// Records the event about the orphan, and why the orphan is kept; empty: not kept.
    pub fn told(&mut self, identity: &OrphanIdentity, kept: String) {
        if let Some(suspect) = self.suspects.get_mut(identity) {
            (suspect.told, suspect.kept) = (true, kept);
        }
    }

    /// The orphan is gone, or is none.
    pub fn forget(&mut self, identity: &OrphanIdentity) {
        self.suspects.remove(identity);
    }

    /// The deletion failed: later again.
    pub fn failed(&mut self, identity: &OrphanIdentity, now: Duration) {
        let Some(suspect) = self.suspects.get_mut(identity) else { return };
        let (first, longest) = RETRY;
        let wait = first.saturating_mul(1 << suspect.failures.min(8)).min(longest);
        suspect.failures = suspect.failures.saturating_add(1);
        suspect.not_before = now.saturating_add(wait);
    }

    /// How many orphans are known now.
    pub fn confirmed(&self) -> usize {
        self.suspects.values().filter(|suspect| suspect.confirmed).count()
    }

    /// How many parts without an instance they have.
    pub fn parts(&self) -> usize {
        let confirmed = self.suspects.values().filter(|suspect| suspect.confirmed);
        confirmed.map(|suspect| suspect.parts.len()).sum()
    }

    /// When to scan again, after a scan that began at `last`: after the period, or as soon as a
    /// suspect can be confirmed or tried again. `left`: the last scan had more to do than it did.
    pub fn next_scan(&self, rules: &Rules, last: Duration, left: bool) -> Duration {
        let wanted = self.suspects.values().filter_map(|suspect| match suspect.confirmed {
            false => Some(suspect.first_scan_ended.saturating_add(rules.grace)),
            true if suspect.failures > 0 => Some(suspect.not_before),
            true => None,
        });
        let soonest = last.saturating_add(rules.soonest());
        let regular = last.saturating_add(rules.period);
        let more = left.then_some(soonest);
        wanted.chain(more).fold(regular, Duration::min).max(soonest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn minute(count: u64) -> Duration {
        Duration::from_mins(count)
    }

    fn instance(uid: &str) -> Listed {
        Listed {
            provider_id: format!("fake:///{uid}").into(),
            machine_name: format!("m-{uid}"),
            machine_uid: uid.into(),
            ..Listed::default()
        }
    }

    fn uid(uid: &str) -> OrphanIdentity {
        OrphanIdentity::Uid(uid.into())
    }

    /// A scan at minute `at`, of classes that were listed, with instances that no Machine claims.
    fn scan(list: &mut Watchlist, at: u64, listed: &[&str], seen: &[(&str, &str)]) -> Vec<String> {
        let listed = listed.iter().map(|class| (*class).to_owned()).collect();
        let seen: Vec<_> =
            seen.iter().map(|(class, uid)| ((*class).to_owned(), instance(uid))).collect();
        let scan = Scan {
            began: minute(at),
            ended: minute(at) + Duration::from_secs(1),
            listed: &listed,
            unclaimed: &seen,
        };
        list.take(&scan, &Rules::default()).iter().map(|one| one.machine_uid().to_owned()).collect()
    }

    #[test]
    fn inv_2_an_orphan_is_confirmed_by_a_second_look_after_the_grace_and_not_before() {
        let mut list = Watchlist::default();
        let none: [&str; 0] = [];
        assert_eq!(scan(&mut list, 0, &["a"], &[("a", "1")]), none);
        assert_eq!(scan(&mut list, 9, &["a"], &[("a", "1")]), none);
        assert_eq!(scan(&mut list, 10, &["a"], &[("a", "1")]), none, "counted from the end");
        assert_eq!(scan(&mut list, 11, &["a"], &[("a", "1")]), ["1"]);
    }

    #[test]
    fn whoever_is_claimed_or_not_listed_meanwhile_begins_anew() {
        let mut list = Watchlist::default();
        scan(&mut list, 0, &["a"], &[("a", "1")]);
        scan(&mut list, 5, &["a"], &[]);
        assert!(scan(&mut list, 11, &["a"], &[("a", "1")]).is_empty());
        assert_eq!(scan(&mut list, 22, &["a"], &[("a", "1")]), ["1"]);
    }

    #[test]
    fn a_class_that_cannot_be_listed_neither_confirms_nor_forgets() {
        let mut list = Watchlist::default();
        scan(&mut list, 0, &["a", "b"], &[("a", "1"), ("b", "2")]);
        assert_eq!(scan(&mut list, 11, &["a"], &[("a", "1")]), ["1"], "the other one goes on");
        list.forget(&uid("1"));
        assert_eq!(scan(&mut list, 22, &["a", "b"], &[("b", "2")]), ["2"]);
    }

    #[test]
    fn what_is_gone_is_not_acted_on_a_second_time() {
        let mut list = Watchlist::default();
        scan(&mut list, 0, &["a"], &[("a", "1")]);
        assert_eq!(scan(&mut list, 11, &["a"], &[("a", "1")]), ["1"]);
        list.forget(&uid("1"));
        let late = scan(&mut list, 12, &["a"], &[("a", "1")]);
        assert!(late.is_empty(), "a list that comes late shows it as on a first scan");
    }

    #[test]
    fn a_deletion_that_failed_is_tried_again_later_and_later() {
        let (mut list, rules) = (Watchlist::default(), Rules::default());
        scan(&mut list, 0, &["a"], &[("a", "1")]);
        assert_eq!(scan(&mut list, 11, &["a"], &[("a", "1")]), ["1"]);
        list.failed(&uid("1"), minute(11));
        assert!(scan(&mut list, 12, &["a"], &[("a", "1")]).is_empty());
        assert_eq!(list.next_scan(&rules, minute(12), false), minute(13));
        assert_eq!(scan(&mut list, 13, &["a"], &[("a", "1")]), ["1"]);
        list.failed(&uid("1"), minute(13));
        assert_eq!(list.next_scan(&rules, minute(13), false), minute(17));
    }

    #[test]
    fn the_next_look_comes_with_the_period_or_when_a_suspect_can_be_confirmed() {
        let (mut list, rules) = (Watchlist::default(), Rules::default());
        assert_eq!(list.next_scan(&rules, minute(0), false), minute(15));
        assert_eq!(list.next_scan(&rules, minute(0), true), minute(1), "there was more to do");
        scan(&mut list, 0, &["a"], &[("a", "1")]);
        let after_grace = minute(10) + Duration::from_secs(1);
        assert_eq!(list.next_scan(&rules, minute(0), false), after_grace);
        assert_eq!(list.next_scan(&rules, minute(10), false), minute(11), "not again immediately");
    }

    #[test]
    fn the_floor_between_two_looks_gives_way_to_a_period_that_is_shorter() {
        let (list, second) = (Watchlist::default(), Duration::from_secs(1));
        let often = Rules { period: second, ..Rules::default() };
        assert_eq!(list.next_scan(&often, minute(1), true), minute(1) + second);
    }

    #[test]
    fn a_suspect_is_shown_before_and_after_it_is_confirmed() {
        let mut list = Watchlist::default();
        scan(&mut list, 0, &["a"], &[("a", "1")]);
        let seen = list.suspected();
        assert_eq!((seen.len(), seen[0].confirmed), (1, false));
        scan(&mut list, 11, &["a"], &[("a", "1")]);
        let seen = list.suspected();
        assert!(seen[0].confirmed && seen[0].since == Duration::from_secs(1), "{seen:?}");
        assert_eq!(seen[0].orphan.provider_ids, ["fake:///1"]);
    }

    /// The orphans confirmed by two scans of the same instances.
    fn confirmed(seen: &[Listed]) -> Vec<Orphan> {
        let (mut list, listed) = (Watchlist::default(), ["a".to_owned()].into());
        let unclaimed: Vec<_> = seen.iter().map(|one| ("a".to_owned(), one.clone())).collect();
        let scan = |at| Scan { began: at, ended: at, listed: &listed, unclaimed: &unclaimed };
        list.take(&scan(minute(0)), &Rules::default());
        list.take(&scan(minute(11)), &Rules::default())
    }

    #[test]
    fn instances_without_a_uid_are_remembered_one_by_one_and_their_target_never_changes() {
        let bare = |id: &str| Listed { provider_id: id.into(), ..instance("") };
        let found = confirmed(&[bare("x"), bare("y")]);
        let ids: Vec<_> = found.iter().map(|it| it.provider_ids.clone()).collect();
        assert_eq!(ids, [["x"], ["y"]]);
        assert!(
            found.iter().all(|it| it.kind == OrphanKind::Untagged && it.machine_uid().is_empty())
        );
        let target = |at: usize, provider: &str| found[at].identity.target_uid(&provider.into());
        assert_eq!(target(0, "p"), target(0, "p"));
        assert!(target(0, "p") != target(1, "p") && target(0, "p") != target(0, "q"));
        assert!(target(0, "p").as_str().len() <= 36, "as long as a UID");
    }

    #[test]
    fn an_identity_with_an_instance_of_a_previous_cluster_id_is_of_that_kind() {
        let moved = Listed { cluster_id: "before".to_owned(), ..instance("1") };
        let found = confirmed(&[moved, instance("1")]);
        assert_eq!((found.len(), found[0].kind), (1, OrphanKind::Previous));
    }

    #[test]
    fn parts_without_an_instance_are_an_orphan_that_has_no_provider_id() {
        let disk =
            |id: &str| Listed { part: "disk".to_owned(), provider_id: id.into(), ..instance("1") };
        let found = confirmed(&[disk("d-1"), disk("d-2")]);
        assert_eq!(
            (found.len(), found[0].kind, found[0].machine_uid()),
            (1, OrphanKind::Ours, "1")
        );
        assert!(found[0].provider_ids.is_empty(), "DeleteMachine finds them by the UID");
        assert_eq!(found[0].parts, ["disk d-1", "disk d-2"]);
        let found = confirmed(&[disk("d-1"), instance("1")]);
        assert_eq!(found[0].provider_ids, ["fake:///1"], "a disk is no instance");
    }

    #[test]
    fn the_list_of_suspects_is_bounded() {
        let mut list = Watchlist::default();
        let many: Vec<_> =
            (0..=MOST_SUSPECTS).map(|n| ("a".to_owned(), instance(&n.to_string()))).collect();
        let listed = ["a".to_owned()].into();
        let scan = Scan { began: minute(0), ended: minute(0), listed: &listed, unclaimed: &many };
        list.take(&scan, &Rules::default());
        assert_eq!(list.suspects.len(), MOST_SUSPECTS);
    }
}

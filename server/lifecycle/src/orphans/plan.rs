//! The result of a scan of a provider's instances.

use super::{MOST_AT_ONCE, Orphan, OrphanKind, ReportOnly, ReportReason, Rules, kept};

/// Knowledge of the Machines of all namespaces. An instance without tags of ours may belong to any of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elsewhere {
    /// Not read: no due orphan [needs](needs_elsewhere) the read.
    NotRead,
    /// The Machines were read.
    Read,
    /// The missing right for the read.
    Forbidden(String),
    /// The Machines could not be read.
    Failed,
}

/// The input of a decision about a provider's orphans.
#[derive(Debug, Clone)]
pub struct Snapshot<'a> {
    /// Orphans that the scans confirmed, the oldest first.
    pub due: &'a [Orphan],
    /// How orphans are looked for.
    pub rules: &'a Rules,
    /// The mark by which they are only reported; `Err`: it could not be read, so nothing is done.
    pub hold: Result<Option<&'a ReportOnly>, ()>,
    /// Whether the driver knows instances by their names alone.
    pub by_name: bool,
    /// The Machines of all namespaces.
    pub elsewhere: Elsewhere,
}

/// The fate of an orphan, unless a last read of the API shows its Machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The orphan is deleted.
    Delete,
    /// The orphan is reported and kept; why, for people.
    KeepReason(String),
    /// Nothing, until the next scan.
    Later,
}

/// The decision about a provider's orphans.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Orphans with their fates; at most [`MOST_AT_ONCE`].
    pub fates: Vec<(Orphan, Fate)>,
    /// Whether there is more to do.
    pub left: bool,
}

/// Whether the Machines of all namespaces have to be read before a decision.
pub fn needs_elsewhere(snapshot: &Snapshot<'_>) -> bool {
    let Ok(hold) = snapshot.hold else { return false };
    let goes =
        |one: &Orphan| one.kind == OrphanKind::Untagged && reason(snapshot, hold, one).is_none();
    snapshot.due.iter().any(goes)
}

/// Decides. An orphan that is kept is acted on once: when it is reported.
pub fn plan(snapshot: &Snapshot<'_>) -> Plan {
    let Ok(hold) = snapshot.hold else {
        return Plan { fates: Vec::new(), left: !snapshot.due.is_empty() };
    };
    let fates = snapshot.due.iter().map(|orphan| (orphan, fate(snapshot, hold, orphan)));
    // An impossible deletion does not keep the others from their turn.
    let mut fates = fates.filter(|(one, fate)| one.new || *fate == Fate::Delete);
    let now = fates.by_ref().take(MOST_AT_ONCE);
    let now = now.map(|(orphan, fate)| (orphan.clone(), fate)).collect();
    Plan { fates: now, left: fates.next().is_some() }
}

fn fate(snapshot: &Snapshot<'_>, hold: Option<&ReportOnly>, orphan: &Orphan) -> Fate {
    if let Some(why) = reason(snapshot, hold, orphan) {
        return Fate::KeepReason(why.to_string());
    }
    match &snapshot.elsewhere {
        _ if orphan.kind != OrphanKind::Untagged => Fate::Delete,
        Elsewhere::Read => Fate::Delete,
        Elsewhere::Forbidden(right) => Fate::KeepReason(format!(
            "because it may be of a namespace that is not served, and the core may not look: {right}"
        )),
        Elsewhere::Failed | Elsewhere::NotRead => Fate::Later,
    }
}

fn reason(
    snapshot: &Snapshot<'_>,
    hold: Option<&ReportOnly>,
    orphan: &Orphan,
) -> Option<ReportReason> {
    kept(orphan.kind, snapshot.rules, hold, snapshot.by_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orphans::OrphanIdentity;

    fn orphan(index: usize, kind: OrphanKind, new: bool) -> Orphan {
        Orphan {
            identity: OrphanIdentity::Uid(index.to_string().into()),
            owner: crate::orphans::Owner::Machine,
            kind,
            machine_name: format!("m-{index}"),
            provider_ids: vec![format!("a:///{index}").into()],
            parts: Vec::new(),
            class: "c".to_owned(),
            new,
        }
    }

    const RULES: Rules = Rules {
        mode: crate::orphans::Mode::Delete,
        period: std::time::Duration::from_mins(15),
        grace: std::time::Duration::from_mins(10),
        delete_untagged: true,
    };

    fn snapshot(due: &[Orphan], elsewhere: Elsewhere) -> Snapshot<'_> {
        Snapshot { due, rules: &RULES, hold: Ok(None), by_name: false, elsewhere }
    }

    fn fates(snapshot: &Snapshot<'_>) -> Vec<Fate> {
        plan(snapshot).fates.into_iter().map(|(_, fate)| fate).collect()
    }

    #[test]
    fn an_orphan_of_ours_is_deleted_and_an_untagged_one_only_after_all_machines_were_read() {
        let due = [orphan(1, OrphanKind::Ours, true), orphan(2, OrphanKind::Untagged, true)];
        let with = |elsewhere| fates(&snapshot(&due, elsewhere));
        assert_eq!(with(Elsewhere::Read), [Fate::Delete, Fate::Delete]);
        assert_eq!(with(Elsewhere::Failed), [Fate::Delete, Fate::Later]);
        let forbidden = with(Elsewhere::Forbidden("list machines".to_owned()));
        assert!(matches!(&forbidden[1], Fate::KeepReason(why) if why.ends_with("list machines")));
        assert!(needs_elsewhere(&snapshot(&due, Elsewhere::NotRead)));
        assert!(!needs_elsewhere(&snapshot(&due[..1], Elsewhere::NotRead)));
    }

    #[test]
    fn while_the_mark_stands_orphans_are_reported_once_and_all_machines_are_not_read() {
        let due = [orphan(1, OrphanKind::Ours, false), orphan(2, OrphanKind::Untagged, true)];
        let hold = ReportOnly { since: String::new(), reason: String::new() };
        let held = Snapshot { hold: Ok(Some(&hold)), ..snapshot(&due, Elsewhere::NotRead) };
        let plan = plan(&held);
        assert_eq!(plan.fates.len(), 1, "the first one was reported before");
        assert!(matches!(plan.fates[0].1, Fate::KeepReason(_)));
        assert!(!needs_elsewhere(&held));
    }

    #[test]
    fn without_the_mark_known_nothing_is_done_and_the_next_look_is_soon() {
        let due = [orphan(1, OrphanKind::Ours, true)];
        let unknown = Snapshot { hold: Err(()), ..snapshot(&due, Elsewhere::Read) };
        assert_eq!(plan(&unknown), Plan { fates: Vec::new(), left: true });
    }

    #[test]
    fn one_look_acts_on_so_many_and_what_cannot_be_done_takes_no_ones_turn() {
        let mut due: Vec<_> =
            (0..30).map(|index| orphan(index, OrphanKind::Untagged, false)).collect();
        due.extend((30..60).map(|index| orphan(index, OrphanKind::Ours, false)));
        let plan = plan(&snapshot(&due, Elsewhere::Failed));
        assert_eq!((plan.fates.len(), plan.left), (MOST_AT_ONCE, true));
        assert!(plan.fates.iter().all(|(one, _)| one.kind == OrphanKind::Ours));
    }
}

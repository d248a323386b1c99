//! Whether an orphan is deleted or only reported.

use std::fmt;

use super::{Mode, OrphanKind, ReportOnly, Rules};

/// Why an orphan is only reported. The text ends a sentence about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportReason {
    /// The mark stands, see [`ReportOnly`].
    Held,
    /// The core was told to.
    Mode,
    /// The instance has the tags of a previous cluster id.
    PreviousId,
    /// The driver knows instances by name only.
    IdentityByName,
    /// The instance has no tags of ours.
    Untagged,
}

impl fmt::Display for ReportReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Held => "until `ostler drivers orphans --accept`",
            Self::Mode => "because --machine-safety-orphan-vms-mode is report",
            Self::PreviousId => {
                "because it has a previous cluster id: it may be a machine of the core that had that id"
            }
            Self::IdentityByName => {
                "because its driver knows instances by their names alone: another system may have made it"
            }
            Self::Untagged => {
                "because it has no tags of ours, and may be of a namespace that is not served; \
                 --delete-untagged-orphans has it deleted"
            }
        })
    }
}

/// Why an orphan of this kind is only reported; `None`: it is deleted. `by_name`: its driver reads no
/// tags.
pub fn kept(
    kind: OrphanKind,
    rules: &Rules,
    hold: Option<&ReportOnly>,
    by_name: bool,
) -> Option<ReportReason> {
    let reasons = [
        (hold.is_some(), ReportReason::Held),
        (rules.mode == Mode::Report, ReportReason::Mode),
        (kind == OrphanKind::Previous, ReportReason::PreviousId),
        (by_name, ReportReason::IdentityByName),
        (kind == OrphanKind::Untagged && !rules.delete_untagged, ReportReason::Untagged),
    ];
    reasons.into_iter().find_map(|(holds, kept)| holds.then_some(kept))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: Rules = Rules {
        mode: Mode::Delete,
        period: std::time::Duration::from_mins(15),
        grace: std::time::Duration::from_mins(10),
        delete_untagged: false,
    };

    #[test]
    fn an_orphan_is_deleted_only_if_it_is_ours_or_the_flag_says_that_untagged_ones_are() {
        let flag = Rules { delete_untagged: true, ..USUAL };
        let report = Rules { mode: Mode::Report, ..flag };
        for (kind, rules, by_name, expected) in [
            (OrphanKind::Ours, USUAL, false, None),
            (OrphanKind::Ours, USUAL, true, Some(ReportReason::IdentityByName)),
            (OrphanKind::Ours, report, false, Some(ReportReason::Mode)),
            (OrphanKind::Previous, flag, false, Some(ReportReason::PreviousId)),
            (OrphanKind::Untagged, USUAL, false, Some(ReportReason::Untagged)),
            (OrphanKind::Untagged, flag, false, None),
            (OrphanKind::Untagged, flag, true, Some(ReportReason::IdentityByName)),
            (OrphanKind::Untagged, report, false, Some(ReportReason::Mode)),
        ] {
            assert_eq!(kept(kind, &rules, None, by_name), expected, "{kind:?} {by_name}");
            let hold = ReportOnly { since: String::new(), reason: String::new() };
            assert_eq!(
                kept(kind, &rules, Some(&hold), by_name),
                Some(ReportReason::Held),
                "{kind:?}"
            );
        }
    }
}

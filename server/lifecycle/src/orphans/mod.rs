//! Orphans: instances of this cluster without a Machine (INV-2), and groups without a MachinePool, and the decisions
//! about them.
//!
//! Everything follows from the contents of lists, nothing from gaps: a list that failed, came in part or came late may
//! make an orphan be found later, and never does any harm. An instance is an orphan when [no Machine claims it](judge).
//! It is acted on when two scans at least [`Rules::grace`] apart have shown it so, and a live read of the API says the
//! same. The scans are remembered by one process: a new leader starts from zero.

mod fate;
pub mod hold;
mod kind;
mod plan;
mod scope;
mod verdict;
mod watchlist;

use ostler_api::ProviderId;
use ostler_api::Uid;
use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use ostler_api::{Machine, MachinePool, driver::ErrorCode, machine::MachinePhase};

pub use fate::{ReportReason, kept};
pub use hold::ReportOnly;
pub use kind::{OrphanIdentity, OrphanKind};
pub use plan::{Elsewhere, Fate, Plan, Snapshot, needs_elsewhere, plan};
pub use scope::{Basis, Scopes};
pub use verdict::{Claims, KeepReason, Namesake, judge};
pub use watchlist::{Orphan, Scan, Suspected, Watchlist};

/// The action on an orphan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The orphan is deleted.
    #[default]
    Delete,
    /// The orphan is reported and left alone.
    Report,
}

/// A word that is no [`Mode`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoMode(String);

impl fmt::Display for NoMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is neither `delete` nor `report`", self.0)
    }
}

impl std::error::Error for NoMode {}

impl FromStr for Mode {
    type Err = NoMode;

    fn from_str(word: &str) -> Result<Self, NoMode> {
        match word {
            "delete" => Ok(Self::Delete),
            "report" => Ok(Self::Report),
            other => Err(NoMode(other.to_owned())),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Delete => "delete",
            Self::Report => "report",
        })
    }
}

/// How orphans are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// The action on orphans.
    pub mode: Mode,
    /// How often all instances are listed, if nothing gives a reason to do it earlier.
    pub period: Duration,
    /// From the end of the first scan with an orphan to the beginning of the confirming scan.
    pub grace: Duration,
    /// Whether orphans without tags of ours are deleted, too.
    pub delete_untagged: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            mode: Mode::Delete,
            period: Duration::from_mins(15),
            grace: Duration::from_mins(10),
            delete_untagged: false,
        }
    }
}

impl Rules {
    /// Not more often than this are instances listed, whatever happens; unless the period that was
    /// asked for is shorter still.
    pub fn soonest(&self) -> Duration {
        SHORTEST_PERIOD.min(self.period)
    }
}

/// The usual value of [`Rules::soonest`].
pub const SHORTEST_PERIOD: Duration = Duration::from_mins(1);

/// The most orphans of a provider in one scan's actions. Should ever a whole cluster look orphaned, because a user
/// deleted the definition of Machines, there is time to stop us.
pub const MOST_AT_ONCE: usize = 20;

/// The kind of object that owns a listed item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Owner {
    /// A Machine: the item is an instance.
    #[default]
    Machine,
    /// A MachinePool: the item is a group.
    Pool,
}

impl Owner {
    /// The kind of owner, for people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Pool => "machinepool",
        }
    }
}

/// An instance, a part without an instance, or a group, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// Machine or pool.
    pub owner: Owner,
    /// Its id.
    pub provider_id: ProviderId,
    /// The kind of the part, if the item is a part that belongs to no instance; empty: an instance or a group.
    pub part: String,
    /// The Machine or pool in the tags.
    pub machine_name: String,
    /// The UID in the tags; may be empty.
    pub machine_uid: Uid,
    /// The previous id of this cluster in the tags; empty if none.
    pub cluster_id: String,
}

/// Whether an answer to an operation on a Machine is a reason to list all instances: the driver
/// sees more than one.
pub fn calls_for_a_scan(code: ErrorCode) -> bool {
    code == ErrorCode::OutOfRange
}

/// The facts of a pool of the same name for a group: only these decide.
pub fn pool_namesake(pool: &MachinePool) -> Namesake {
    Namesake {
        uid: pool.uid().into(),
        provider_id: pool.status.as_ref().and_then(|status| status.provider_id.clone()),
        failed: false,
    }
}

/// The facts of a Machine of the same name for an instance: only these decide.
pub fn namesake(machine: &Machine) -> Namesake {
    Namesake {
        uid: machine.uid().into(),
        provider_id: machine.provider_id().cloned(),
        failed: machine.phase() == MachinePhase::Failed,
    }
}

/// One identity with several instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Duplicate {
    /// The UID that all instances name.
    pub machine_uid: Uid,
    /// The Machine named by one of the instances.
    pub machine_name: String,
    /// Their ids, in order.
    pub provider_ids: Vec<ProviderId>,
}

/// The identities in a list that have several instances. Duplicates break the contract, and only the driver's author
/// can tell the right instance: the core reports them.
pub fn duplicates<'a>(listed: impl IntoIterator<Item = &'a Listed>) -> Vec<Duplicate> {
    let mut found: BTreeMap<&str, Duplicate> = BTreeMap::new();
    let instances =
        listed.into_iter().filter(|one| one.owner == Owner::Machine && one.part.is_empty());
    for one in instances.filter(|one| !one.machine_uid.is_empty()) {
        let entry = found.entry(one.machine_uid.as_str()).or_insert_with(|| Duplicate {
            machine_uid: one.machine_uid.clone(),
            machine_name: one.machine_name.clone(),
            provider_ids: Vec::new(),
        });
        entry.provider_ids.push(one.provider_id.clone());
    }
    let mut several: Vec<Duplicate> = found.into_values().collect();
    for one in &mut several {
        one.provider_ids.sort();
        one.provider_ids.dedup();
    }
    several.retain(|one| one.provider_ids.len() > 1);
    several
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(id: &str, uid: &str) -> Listed {
        Listed {
            provider_id: id.into(),
            machine_name: "m".to_owned(),
            machine_uid: uid.into(),
            ..Listed::default()
        }
    }

    #[test]
    fn one_identity_with_two_instances_is_a_duplicate_and_one_listed_twice_is_not() {
        let list = [listed("b", "1"), listed("a", "1"), listed("c", "2"), listed("c", "2")];
        let found = duplicates(&list);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].provider_ids, ["a", "b"]);
        assert!(duplicates(&[listed("a", ""), listed("b", "")]).is_empty(), "no identity at all");
    }

    #[test]
    fn a_mode_reads_as_it_is_written() {
        for mode in [Mode::Delete, Mode::Report] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        let refused = "maybe".parse::<Mode>().unwrap_err();
        assert_eq!(refused.to_string(), "`maybe` is neither `delete` nor `report`");
    }
}

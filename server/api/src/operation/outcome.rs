//! The outcome from a driver.

use crate::ProviderId;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Failure, InstanceRecord, Part, PoolInstance, PoolRecord};

/// How an operation ended.
pub type Outcome = Result<Success, Failure>;

/// The result of a successful operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Success {
    /// The instance exists.
    Created(InstanceRecord),
    /// The instance is initialized.
    Initialized(Option<InstanceRecord>),
    /// The running instance has the spec of the class.
    Updated {
        /// Paths in the provider spec that were changed.
        applied_paths: Vec<String>,
    },
    /// The instance or the group, and everything made for it, are gone.
    Deleted {
        /// There was nothing to delete.
        was_absent: bool,
    },
    /// The instance exists and looks like this.
    Read(InstanceRecord),
    /// The infrastructure's name of each requested PersistentVolume, by the volume's name; empty if unknown.
    VolumeIds(BTreeMap<String, String>),
    /// Every instance that the credentials of the class show.
    Listed {
        /// The instances.
        instances: Vec<InstanceRecord>,
        /// Parts that belong to no instance.
        parts: Vec<Part>,
        /// The driver's name of this list: two classes with the same name have the same list. Empty: no name.
        scope: String,
    },
    /// The driver's review of a spec.
    Reviewed(ClassReview),
    /// The group exists, with the size and the model that were asked for or, after CreatePool, with the size it had.
    PoolChanged(PoolRecord),
    /// The group exists and looks like this.
    PoolRead {
        /// The group.
        pool: PoolRecord,
        /// All instances of the group, if requested.
        instances: Vec<PoolInstance>,
    },
    /// Every group that the credentials of the class show.
    PoolsListed {
        /// The groups.
        pools: Vec<PoolRecord>,
        /// As of a list of instances.
        scope: String,
    },
    /// Nothing brings the instances back, but for these.
    PoolMachinesDeleted {
        /// The group as it is now.
        pool: PoolRecord,
        /// Instances that could not be deleted, and why.
        not_deleted: Vec<(ProviderId, Failure)>,
    },
    /// The instance has the model named in the record.
    PoolMachineUpdated(PoolInstance),
}

/// A driver's review of the spec of a class, or of a change of the spec.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassReview {
    /// The faults of the class: paths, and why.
    pub violations: Vec<(String, String)>,
    /// Whether the change can reach a running instance. Of no meaning without an old spec.
    pub hot: bool,
    /// Paths that prevent a hot update.
    pub fixed_paths: Vec<String>,
    /// Allowed, but worth a word.
    pub warnings: Vec<String>,
}

/// How many paths a message names.
const MOST_PATHS: usize = 10;

impl ClassReview {
    /// The faults, for people; empty if there are none.
    pub fn complaint(&self) -> String {
        let all = self.violations.iter().map(|(path, why)| format!("{path}: {why}"));
        listed(all, self.violations.len())
    }

    /// Why the change cannot reach a running instance, for people.
    pub fn refusal(&self) -> String {
        if self.fixed_paths.is_empty() {
            return "the driver does not change this on a running instance".to_owned();
        }
        let paths = listed(self.fixed_paths.iter().cloned(), self.fixed_paths.len());
        format!("{paths} cannot be changed on a running instance")
    }
}

fn listed(items: impl Iterator<Item = String>, count: usize) -> String {
    let mut text = items.take(MOST_PATHS).collect::<Vec<_>>().join("; ");
    if count > MOST_PATHS {
        let _infallible = write!(text, "; and {} more", count - MOST_PATHS);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_paths_and_not_endlessly_many() {
        let paths = |count: usize| ClassReview {
            fixed_paths: (0..count).map(|index| format!("p{index}")).collect(),
            ..ClassReview::default()
        };
        assert_eq!(paths(2).refusal(), "p0; p1 cannot be changed on a running instance");
        assert!(paths(15).refusal().contains("p9; and 5 more"), "{}", paths(15).refusal());
        assert!(!paths(0).refusal().is_empty());
    }
}

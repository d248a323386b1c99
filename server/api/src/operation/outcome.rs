//! What came back from a driver.

use crate::ProviderId;
use crate::Uid;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::{PoolInstance, PoolRecord, Reason};
use crate::driver::{Certainty, ErrorCode};
use crate::machine::MachineAddress;

/// How an operation ended.
pub type Outcome = Result<Success, Failure>;

/// What a successful operation returned.
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
    /// What the infrastructure calls each PersistentVolume that was asked for, by its name; empty
    /// where it does not know it.
    VolumeIds(BTreeMap<String, String>),
    /// Every instance that the credentials of the class show.
    Listed {
        /// The instances.
        instances: Vec<InstanceRecord>,
        /// What the driver calls this list: the same word for two classes says that they have the same list.
        /// Empty: it says nothing.
        scope: String,
    },
    /// What the driver says of a spec.
    Reviewed(ClassReview),
    /// The group exists, with the size and the model that were asked for or, after CreatePool, with the size it had.
    PoolChanged(PoolRecord),
    /// The group exists and looks like this.
    PoolRead {
        /// The group.
        pool: PoolRecord,
        /// Its instances, all of them, if they were asked for.
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
        /// Those that could not be deleted, and why.
        not_deleted: Vec<(ProviderId, Failure)>,
    },
    /// The instance has the model that it names.
    PoolMachineUpdated(PoolInstance),
}

/// What the infrastructure knows of one instance.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstanceRecord {
    /// Equal to `Node.spec.providerID`.
    pub provider_id: ProviderId,
    /// Name of the Machine that its tags name; empty if they name none.
    pub machine_name: String,
    /// UID of the Machine that its tags name; empty if they name none.
    pub machine_uid: Uid,
    /// The id of this cluster that its tags name, if that is a previous one; else empty.
    pub cluster_id: String,
    /// Name of the Node it becomes; may be empty.
    pub node_name: String,
    /// `None`: the driver has no such notion.
    pub initialized: Option<bool>,
    /// Addresses.
    pub addresses: Vec<MachineAddress>,
    /// Set when the infrastructure reports the instance as broken.
    pub fault: Option<Box<Failure>>,
}

/// Why an operation failed, and what it left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The code.
    pub code: ErrorCode,
    /// What it left behind; unset on the wire is `Unknown`.
    pub certainty: Certainty,
    /// Stable word; those that the core acts on are [`Reason`]s.
    pub reason: String,
    /// For people. Nothing decides by it.
    pub message: String,
    /// Not before this much time has passed.
    pub retry_after: Option<Duration>,
    /// Paths in the provider spec that are wrong, and why.
    pub violations: Vec<(String, String)>,
    /// With [`Reason::NotOurs`]: the instance that is there.
    pub stranger: Option<Box<Stranger>>,
    /// The infrastructure's own words, if the driver has them.
    pub infrastructure: Option<Box<InfrastructureError>>,
}

/// What the infrastructure said, verbatim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InfrastructureError {
    /// Its own code.
    pub code: String,
    /// Its own request id.
    pub request_id: String,
}

/// An instance that is there, and that is not the Machine's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stranger {
    /// Its id; empty: the one that the driver was asked for.
    pub provider_id: ProviderId,
    /// The cluster that its tags name; empty if they name none.
    pub cluster_id: String,
}

impl Stranger {
    /// As a driver names it.
    pub fn new(provider_id: &str, cluster_id: &str) -> Option<Box<Self>> {
        let stranger = Self { provider_id: provider_id.into(), cluster_id: cluster_id.to_owned() };
        (stranger != Self::default()).then(|| Box::new(stranger))
    }
}

impl Failure {
    /// A failure with nothing but code, certainty and text.
    pub fn new(code: ErrorCode, certainty: Certainty, message: &str) -> Self {
        Self {
            code,
            certainty,
            reason: String::new(),
            message: message.to_owned(),
            retry_after: None,
            violations: Vec::new(),
            stranger: None,
            infrastructure: None,
        }
    }

    /// A failure that the core itself speaks of.
    pub fn by_core(code: ErrorCode, reason: Reason, message: &str, certainty: Certainty) -> Self {
        Self { reason: reason.into(), ..Self::new(code, certainty, message) }
    }

    /// There is an instance, and it is not the Machine's: it is neither absent nor touched.
    /// `cluster_id`: the cluster that its tags name, if they name one.
    pub fn not_ours(provider_id: &str, cluster_id: &str) -> Self {
        let text = format!("instance {provider_id} has other tags than this machine's");
        let code = ErrorCode::FailedPrecondition;
        Self {
            stranger: Stranger::new(provider_id, cluster_id),
            ..Self::by_core(code, Reason::NotOurs, &text, Certainty::NotApplied)
        }
    }

    /// Whether it says that the instance is not the Machine's.
    pub fn is_not_ours(&self) -> bool {
        let word = Reason::from_word(&self.reason);
        self.code == ErrorCode::FailedPrecondition
            && matches!(word, Some(Reason::NotOurs | Reason::CoreClusterIdChanged))
    }

    /// Whether it says so of the very instance that the Machine had, under another cluster id.
    pub fn is_cluster_id_changed(&self) -> bool {
        self.is_not_ours() && self.reason == Reason::CoreClusterIdChanged
    }

    /// Text for people: the message, then the violations.
    pub fn text(&self) -> String {
        let mut text = self.message.clone();
        for (path, description) in &self.violations {
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(path);
            text.push_str(": ");
            text.push_str(description);
        }
        text
    }
}

/// What a driver says of the spec of a class, or of a change of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassReview {
    /// What is wrong with the class: paths, and why.
    pub violations: Vec<(String, String)>,
    /// Whether the change can reach a running instance. Of no meaning without an old spec.
    pub hot: bool,
    /// Paths that stand in the way of it.
    pub fixed_paths: Vec<String>,
    /// Allowed, but worth a word.
    pub warnings: Vec<String>,
}

/// How many paths a message names.
const MOST_PATHS: usize = 10;

impl ClassReview {
    /// What is wrong, for people; empty if nothing is.
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

//! The snapshot for decisions about a class.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use ostler_api::{MachineClass, Revision};

use crate::{
    class_facts::SecretView, driver::DriverView, hot_update::ReviewView, last_known::LastKnown,
    settings::Settings,
};

/// What there is where a class is kept.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredCopy {
    /// This.
    Ours(BTreeMap<String, Vec<u8>>),
    /// A Secret of another type, which is left alone.
    Foreign,
}

impl std::fmt::Debug for StoredCopy {
    /// Never what is kept: there are credentials in it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::Foreign { "Foreign" } else { "Ours" })
    }
}

/// What a decision about a class is made from.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The class; `None`: it is gone.
    pub class: Option<Arc<MachineClass>>,
    /// Whether a Machine uses it.
    pub used: bool,
    /// The class with its credentials; `None` while a part is missing.
    pub known: Option<LastKnown>,
    /// The copy in the Secret of the class.
    pub kept: Option<StoredCopy>,
    /// The revisions that creations without a known outcome were begun with.
    pub open: BTreeSet<Revision>,
    /// Its secrets.
    pub secret: SecretView,
    /// The driver of its provider.
    pub driver: DriverView,
    /// The providers whose drivers are connected.
    pub connected: Vec<String>,
    /// The driver's review of the class.
    pub review: ReviewView,
    /// What an operator sets.
    pub settings: Settings,
    /// The time.
    pub now: Timestamp,
}

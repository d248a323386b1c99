//! The observed state of a driver.

use std::{collections::BTreeSet, time::Duration};

use ostler_api::{ProviderName, driver::OperationKind};

/// The driver that serves the provider of the class.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DriverView {
    /// No driver can take an operation now: no session, or operations of an earlier core are still
    /// being taken over.
    #[default]
    Unavailable,
    /// A driver is connected and cannot work now: the driver's message for people.
    NotReady(String),
    /// Ready.
    Ready(DriverFacts),
}

impl DriverView {
    /// Why no driver for this provider is ready, for people; `None`: a driver is ready.
    pub fn lack(&self, provider: &ProviderName) -> Option<String> {
        match self {
            Self::Ready(_) => None,
            Self::NotReady(why) => Some(format!(
                "the driver for provider {provider:?} is connected and not ready: {why}"
            )),
            Self::Unavailable => {
                Some(format!("no driver for provider {provider:?} is connected and ready"))
            }
        }
    }

    /// The same for a Machine of a pool: no driver is asked for its instance alone.
    #[must_use]
    pub fn of_pooled(mut self) -> Self {
        if let Self::Ready(driver) = &mut self {
            driver.kinds.retain(|kind| kind.is_of_pools() || *kind == OperationKind::GetVolumeIds);
        }
        self
    }
}

/// The facts about a driver for decisions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DriverFacts {
    /// Name and version. A driver that refused is asked again after a change.
    pub identity: String,
    /// New for every start of its process. A failure from a fault of another process is tried again at once.
    pub process: String,
    /// The driver's verbs.
    pub kinds: BTreeSet<OperationKind>,
    /// Whether the driver knows instances by name only, and cannot tell to which Machine they
    /// belong.
    pub by_name: bool,
    /// For how long the infrastructure may not show a new instance; `None`: no lag.
    pub list_lag: Option<Duration>,
    /// Whether its groups replace outdated instances by themselves.
    pub pool_surge: bool,
    /// Whether its groups may delete instances that the core did not name.
    pub pool_scales_in: bool,
}

impl DriverFacts {
    /// [`DriverFacts::list_lag`] of a driver that does not say.
    pub const USUAL_LIST_LAG: Duration = Duration::from_mins(1);

    /// For how long "there is none" proves nothing after a create whose outcome is not known.
    pub fn list_lag_of(driver: Option<&Self>) -> Duration {
        driver.and_then(|it| it.list_lag).unwrap_or(Self::USUAL_LIST_LAG)
    }

    /// Whether it has a verb.
    pub fn has(&self, kind: OperationKind) -> bool {
        self.kinds.contains(&kind)
    }
}

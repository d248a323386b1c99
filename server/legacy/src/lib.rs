//! The driver protocol of the first proposal, for drivers that are not rebuilt any more.
//!
//! Each of their streams becomes a session of the hub like any other: `session` speaks to the hub
//! as a driver does, through a [`LocalSession`](ostler_sessions::LocalSession), and to the driver
//! as the first core did. The core makes up for gaps of the old protocol here: `job` turns one
//! operation into several questions, `window` waits while an infrastructure may not list a new
//! instance, and `context` has all data readable for a driver: the class and the secret of its
//! operation. `docs/mcm-providers.md` has the rules.

mod connection;
mod context;
mod fault;
#[cfg(any(feature = "fuzz", test))]
pub mod fuzz;
mod job;
mod metrics;
mod render;
mod serve;
mod service;
mod session;
mod window;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use self::metrics::LegacyMetrics;
pub use self::serve::serve;

/// How drivers of the first proposal are served.
#[derive(Debug, Clone)]
pub struct LegacyOptions {
    /// The provider of a driver, by the kind of its registration. Others are turned away.
    pub drivers: BTreeMap<LegacyKind, String>,
    /// For how long an infrastructure may not list a new instance. After a create of unknown
    /// outcome no other create is sent before, and a machine that is not listed counts as gone only
    /// after two lists without it, that far apart.
    pub settle: Duration,
    /// From the first word of the core to the driver's registration.
    pub register: Duration,
}

impl LegacyOptions {
    /// Serves these drivers, with production timers.
    pub fn new(drivers: BTreeMap<LegacyKind, String>) -> Self {
        Self { drivers, settle: Duration::from_mins(1), register: Duration::from_secs(10) }
    }
}

/// The kind of a legacy driver's registration: the type of the machine classes it reads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LegacyKind {
    /// API group, e.g. `machine.sapcloud.io`.
    pub group: String,
    /// API version, e.g. `v1alpha1`.
    pub version: String,
    /// Kind, e.g. `AWSMachineClass`.
    pub kind: String,
}

/// The text is not the type of a machine class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not GROUP/VERSION/KIND, e.g. machine.sapcloud.io/v1alpha1/AWSMachineClass")]
pub struct NotALegacyKind(String);

impl FromStr for LegacyKind {
    type Err = NotALegacyKind;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            [group, version, kind] if parts.iter().all(|part| !part.is_empty()) => Ok(Self {
                group: (*group).to_owned(),
                version: (*version).to_owned(),
                kind: (*kind).to_owned(),
            }),
            _ => Err(NotALegacyKind(text.to_owned())),
        }
    }
}

impl fmt::Display for LegacyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.group, self.version, self.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_as_it_is_written_and_nothing_else_is_one() {
        let text = "machine.sapcloud.io/v1alpha1/AWSMachineClass";
        assert_eq!(text.parse::<LegacyKind>().unwrap().to_string(), text);
        for broken in ["", "AWSMachineClass", "v1/AWS", "a//b", "/v1/AWS", "a/b/c/d"] {
            assert!(broken.parse::<LegacyKind>().is_err(), "{broken}");
        }
    }
}

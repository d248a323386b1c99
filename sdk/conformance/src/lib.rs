//! Plays the core against any driver, and says where the driver breaks the contract.
//!
//! `ostler sanity` is this library with flags. A driver in Rust can also call it from its own tests:
//!
//! ```no_run
//! use std::sync::Arc;
//! use ostler_conformance::{ClassManifest, Options, Target, run};
//!
//! # async fn my_driver(_: ostler_conformance::Invitation) {}
//! # async fn test() -> Result<(), ostler_conformance::RunError> {
//! let target = Target::InProcess(Arc::new(|invitation| Box::pin(my_driver(invitation))));
//! let class = ClassManifest::of_spec(r#"{"size": "small"}"#);
//! let report = run(target, Options::new(class)).await?;
//! assert!(report.passes(), "{}", report.summary());
//! # Ok(())
//! # }
//! ```
//!
//! The suite is a core of its own: its server, its sessions, a TCP proxy that breaks links, a
//! supervisor that kills processes. It knows the contract (`ostler-proto`) and nothing else of ours,
//! so that it cannot share a misunderstanding with the core or the SDK.

mod adapters;
mod answer;
mod bench;
mod by_name;
mod check;
mod checks;
mod cloud;
mod core;
mod driver;
mod harness;
mod listed;
mod machine;
mod manifest;
mod observation;
mod options;
mod outcome;
mod pool;
mod probe;
mod process;
mod proxy;
mod registry;
mod report;
mod retry;
mod review;
mod run;
mod steps;
mod verdict;

pub use self::cloud::{Case, CloudAddress, Faults};
pub use self::manifest::{ClassManifest, ManifestError, SecretManifest};
pub use self::options::{Factory, Invitation, Observer, Options, Target, Unary};
pub use self::outcome::Tier;
pub use self::registry::{Entry, catalogue, markdown};
pub use self::report::{Counts, DriverName, Report};
pub use self::review::{ClassReview, review};
pub use self::run::{RunError, run};
pub use self::verdict::{CheckResult, Finding, Verdict};

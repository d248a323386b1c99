//! The whole system in one deterministic process, broken in every way that a seed names.
//!
//! A seed makes a [`Plan`]: what users do, and what goes wrong, each at its time. A plan runs in a
//! [`world`]: embedded API, cores, drivers with their clouds, kubelets, all in one thread on a paused
//! clock. The [`oracle`] sees every request, every change of a cloud and every call of a driver in the
//! moment it happens, and says what must not be. `docs/simulation.md` tells the whole of it.

pub mod api;
pub mod checks;
pub mod dice;
pub mod driver;
pub mod fleet;
pub mod groups;
pub mod liar;
pub mod life;
pub mod mutation;
pub mod network;
pub mod oracle;
pub mod parts;
pub mod plan;
pub mod pools;
pub mod reserves;
pub mod run;
pub mod search;
pub mod settled;
pub mod shrink;
pub mod trace;
pub mod users;
pub mod weather;
pub mod world;

pub use mutation::Mutation;
pub use plan::Plan;
pub use run::Report;

//! Every decision of the machine lifecycle, as pure functions.
//!
//! A reconcile is observe → plan → execute → record. *Observe* fills a [`Snapshot`](snapshot::Snapshot);
//! [`plan`](machine::plan) turns it into a [`Plan`](plan::Plan); *execute* carries the plan out and
//! holds no policy; [`record`](record::record) says what to write about it. Nothing here does I/O,
//! knows the time, or makes random values: all of that comes in with the snapshot.

pub mod autoscaler;
pub mod bootstrap;
pub mod budget;
pub mod class;
mod class_facts;
pub mod class_rules;
mod class_snapshot;
mod class_status;
pub mod cluster;
pub mod copies;
mod deferral;
pub mod deployment;
mod difference;
pub mod digest;
mod driver;
mod event;
pub mod foreign;
pub mod freeze;
pub mod health_check;
pub mod hint;
mod hold;
pub mod home;
pub mod hot_update;
pub mod last_known;
pub mod machine;
pub mod max_parallel;
pub mod node;
mod numbered;
pub mod operation;
pub mod orphans;
pub mod outage;
pub mod owner;
pub mod plan;
pub mod pod;
pub mod pool;
mod push_down;
pub mod record;
pub mod replacement;
pub mod replicas;
pub mod reserve;
pub mod retry;
pub mod selector;
pub mod set;
mod settings;
mod share;
pub mod snapshot;
pub mod streak;
pub mod template_identity;
pub mod time;
pub mod unmanaged_nodes;
pub mod unwritten;
pub mod user_data;
pub mod volume;
mod well_formed;
pub mod write;

pub use numbered::numbered;

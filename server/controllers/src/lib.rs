//! The imperative shell: observe, execute and record over the Kubernetes API and driver sessions.
//!
//! [`Controllers`] is the entry point. `watch` keeps caches of API objects; the `triggers` of each kind map a
//! change to keys of its work `queue`, and the workers of the leader (`election`) process them. `run::kinds` lists the kinds;
//! each has a folder. `ostler-lifecycle` makes the decisions.

mod api_health;
mod audit;
mod autoscaler;
#[cfg(test)]
mod bench;
mod bootstrap;
mod by_machine;
mod class;
mod cluster_id;
mod controllers;
mod deployment;
mod election;
mod fleet;
mod freeze;
mod hand;
mod health_check;
mod hints;
mod home;
mod home_namespace;
mod hot_update;
mod indexes;
mod left_groups;
mod machine;
mod metrics;
mod orphans;
mod pool;
mod reserve;
mod run;
mod schema_check;
mod schemas;
mod set;
mod settings;
mod start;
mod stores;
mod target;
mod telling;
mod tokens;
mod triggers;
mod unmanaged_nodes;
mod watching;

use ostler_runtime::{client, clock, events, handover, kind, namespaces, queue, unseen, watch};

pub use api_health::ApiCheck;
pub use autoscaler::{Decided, NodeName, ScaleError, Scaler};
pub use cluster_id::{
    ClusterIdError, GivenIds, check_home, cluster_ids, find_home, known_cluster_ids,
};
pub use controllers::{Controller, ControllersError, EnabledControllers};
pub use election::ElectionError;
pub use ostler_runtime::clock::{Clock, system as system_clock};
pub use ostler_runtime::namespaces::{Namespaces, NamespacesError};
pub use ostler_runtime::watch::{Cache, CacheIndex, Change, ObjectName, message_of, status_of};
pub use run::Controllers;
pub use schema_check::{PrunedField, SchemaError, check_schemas};
pub use settings::{FleetSettings, Settings};
pub use start::until_answered;
pub use stores::{
    AttachmentIndex, BudgetIndex, CheckIndex, ClaimIndex, ClassIndex, DeploymentIndex,
    MachineIndex, NodeIndex, PodIndex, PoolIndex, ReserveIndex, SecretIndex, SetIndex,
    StoreClassSource, Stores, VolumeIndex,
};
pub use target::{Clusters, Connect, MAX_TARGETS, Target, Targets, Unusable, configure, connect};

/// Target of diagnostics that only repeat an event, so that a program with events can leave them out.
pub const EVENT_LOG: &str = "ostler_controllers::events";

/// The name under which events are recorded.
pub(crate) const REPORTER: &str = "ostler.dev/machine-controller";

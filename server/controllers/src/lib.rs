//! The imperative shell: observe, execute and record over the Kubernetes API and driver sessions.
//!
//! [`Controllers`] is the entry point. `watch` keeps caches of API objects, `fanout` maps every change to keys of a
//! work `queue`, and the workers of the leader (`election`) process them: the Machine controller, and smaller ones that put
//! finalizers on classes and secrets in use. `ostler-lifecycle` makes the decisions.

mod api_health;
mod audit;
#[cfg(test)]
mod bench;
mod bootstrap;
mod by_machine;
mod class;
mod clock;
mod cluster_id;
mod controllers;
mod deployment;
mod election;
mod events;
mod fanout;
mod freeze;
mod health_check;
mod hints;
mod home;
mod hot_update;
mod machine;
mod metrics;
mod namespaces;
mod orphans;
mod pool;
mod queue;
mod reconcile;
mod run;
mod schema_check;
mod schemas;
mod set;
mod settings;
mod start;
mod stores;
mod target;
mod unmanaged_nodes;
mod watch;
mod watching;
mod writes;

pub use api_health::ApiCheck;
pub use clock::{Clock, system as system_clock};
pub use cluster_id::{ClusterIdError, GivenIds, check_home, cluster_ids, known_cluster_ids};
pub use controllers::{Controller, ControllersError, EnabledControllers};
pub use election::ElectionError;
pub use events::EVENT_LOG;
pub use namespaces::{Namespaces, NamespacesError};
pub use run::Controllers;
pub use schema_check::{PrunedField, SchemaError, check_schemas};
pub use settings::{FleetSettings, Settings};
pub use start::until_answered;
pub use stores::{
    AttachmentIndex, BudgetIndex, CheckIndex, ClassIndex, DeploymentIndex, MachineIndex, NodeIndex,
    PodIndex, PoolIndex, SetIndex, StoreClassSource, Stores,
};
pub use target::{Clusters, Connect, MAX_TARGETS, Target, Targets, Unusable, configure, connect};
pub use watch::{Cache, Cached, Change, ObjectName, status_of};

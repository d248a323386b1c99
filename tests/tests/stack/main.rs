//! The whole stack in one process: API server, core and driver, nearly always on a paused clock.
//!
//! One binary for all of it, because each binary compiles and links the whole product once more. The tests share a process
//! and nothing else: each builds a stack of its own.

mod autoscaler;
mod autoscaler_fields;
mod claims;
mod classes;
mod cluster_id;
mod clusters;
mod creation;
mod deployment;
mod drain;
mod economy;
mod events;
mod faults;
mod freeze;
mod health;
mod health_checks;
mod home;
mod hot_update;
mod in_place;
mod late_lists;
mod legacy;
mod links;
mod lists;
mod lost_nodes;
mod machine_deaths;
mod metrics;
mod namespaces;
mod orphan_groups;
mod pool_configs;
mod pool_drains;
mod pool_drivers;
mod pool_safety;
mod pool_updates;
mod pools;
mod preboot;
mod recorded;
mod refused;
mod renamed;
mod replicas;
mod reserves;
mod rolling;
mod rollouts;
mod safety;
mod security;
mod sets;
mod spelling;
mod storm;
mod switches;
mod taken_over;
mod templates;
mod traces;
mod unreadable;
mod whole_stack;

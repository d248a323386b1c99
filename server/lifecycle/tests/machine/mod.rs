//! Decisions about machines, against a tiny pure world: an API, a driver and a clock without I/O.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::expect_used,
    clippy::wildcard_enum_match_arm,
    unreachable_pub,
    reason = "tests"
)]

mod absence;
mod adoption;
mod bad_input;
mod bootstrap;
mod by_name;
mod chaos;
mod checked;
mod closed;
mod copies;
mod crashes;
mod creation;
mod deadlines;
mod deletion;
mod drain;
mod drain_volumes;
mod erased;
mod health;
mod hints;
mod hooks;
mod hot_budget;
mod hot_update;
mod in_place;
mod in_place_resumed;
mod initialization;
mod life;
mod losses;
mod node_template;
mod not_ours;
mod objects;
mod paused;
mod pods;
mod pooled;
mod preservation;
mod record;
mod replaced;
mod replacement;
mod retry;
mod several_nodes;
mod stale_node;
mod takeover;
mod target;
mod tokens;
mod torn_class;
mod whose_node;
mod world;
mod world_actions;
mod world_machine;
mod world_node;

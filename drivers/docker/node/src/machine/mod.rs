//! What the machine has and how much of it is left: the limits of its container, else the host's.

mod cgroup;
mod facts;
mod resources;

pub(crate) use facts::{Facts, facts};
#[cfg(test)]
pub(crate) use resources::Pressure;
pub(crate) use resources::{PODS, Resources, resources};

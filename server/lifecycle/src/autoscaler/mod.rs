//! Deployments and pools as groups of a cluster-autoscaler: how large each may be, which instances it has, what a Node of
//! it would look like, and what becomes of a wish to scale it. The annotations are those of Cluster API's provider, so
//! that one object serves every autoscaler.

pub mod capacity;
pub mod chosen;
pub mod group;
pub mod instance;
pub mod limits;
pub mod options;
pub mod scale;
pub mod shape;

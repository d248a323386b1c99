//! Deployments and pools as groups of a cluster-autoscaler: the size limits, the instances, the shape of a future Node,
//! and the handling of scaling requests. The annotations are Cluster API's, so that an object serves every autoscaler.

pub mod capacity;
pub mod chosen;
pub mod group;
pub mod instance;
pub mod limits;
pub mod options;
pub mod scale;
pub mod shape;

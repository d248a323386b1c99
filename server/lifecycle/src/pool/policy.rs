//! The deletion order of a pool's equal Machines.

use ostler_api::machine_pool::PoolDeletePolicy;

/// Which of equal Machines goes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// The oldest.
    #[default]
    Oldest,
    /// The newest.
    Newest,
    /// Any, and the same one in each pass.
    Random,
}

impl Policy {
    /// The policy of a pool.
    pub fn of(policy: Option<&PoolDeletePolicy>) -> Self {
        match policy {
            Some(PoolDeletePolicy::Newest) => Self::Newest,
            Some(PoolDeletePolicy::Random) => Self::Random,
            Some(PoolDeletePolicy::Oldest | PoolDeletePolicy::Other(_)) | None => Self::Oldest,
        }
    }
}

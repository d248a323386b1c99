//! File descriptors: as many as the system gives, and shared out so that no listener can take
//! another's, nor the store's.

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// For everything that is no accepted connection: the store, logs, connections to API servers and
/// to a Docker Engine, the pipes of drivers, TLS handshakes and drivers of the first proposal.
const RESERVE: u64 = 512;
/// Most connections of a listener. More cost memory, and no cluster has so many nodes and drivers.
const MOST: u64 = 4096;
/// Most connections of each listener that a few people and programs use: admin, metrics.
const MOST_PEOPLE: u64 = 64;

/// How many concurrent connections each listener may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// The API server on its main address.
    pub api: usize,
    /// The API server at the gateway of Docker's bridge.
    pub gateway: usize,
    /// All listeners for drivers together.
    pub drivers: usize,
    /// Each of the listeners for admins and for metrics.
    pub people: usize,
}

/// Shares out so many descriptors: half of them, and at most 512, stay for other things.
pub fn shares(descriptors: u64) -> Shares {
    let rest = descriptors - (descriptors / 2).min(RESERVE);
    let share = |sixteenths: u64, most: u64| {
        let share = (rest / 16).saturating_mul(sixteenths).min(most);
        usize::try_from(share.max(1)).unwrap_or(1)
    };
    Shares {
        api: share(6, MOST),
        gateway: share(4, MOST),
        drivers: share(4, MOST),
        people: share(1, MOST_PEOPLE),
    }
}

/// Asks the system for as many descriptors as this process may have, logs the number, and shares them out. After a
/// failure the process goes on with the current limit.
pub fn raise() -> Shares {
    let descriptors = raised().unwrap_or_else(|error| {
        tracing::warn!(error = format!("{error:#}"), "the limit of open files stays as it is");
        getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft)
    });
    let shares = shares(descriptors);
    let Shares { api, gateway, drivers, people } = shares;
    tracing::info!(descriptors, api, gateway, drivers, people, "connections that are possible");
    if descriptors < 2 * RESERVE {
        tracing::warn!(
            descriptors,
            "the limit of open files is low, so few clients can connect; raise the hard limit (`ulimit -Hn`)"
        );
    }
    shares
}

fn raised() -> anyhow::Result<u64> {
    let (soft, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).context("the limit of open files cannot be read")?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
            .with_context(|| format!("the limit of open files cannot be raised to {hard}"))?;
    }
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_shared_out() {
        let cases = [
            // (limit, api, gateway, drivers, people)
            (20, 1, 1, 1, 1),
            (256, 48, 32, 32, 8),
            (1024, 192, 128, 128, 32),
            (4096, 1344, 896, 896, 64),
            (65_536, 4096, 4096, 4096, 64),
            (u64::MAX, 4096, 4096, 4096, 64),
        ];
        for (limit, api, gateway, drivers, people) in cases {
            assert_eq!(shares(limit), Shares { api, gateway, drivers, people }, "{limit}");
        }
    }

    #[test]
    fn all_listeners_together_leave_what_the_rest_needs() {
        for limit in 64..70_000_u32 {
            let Shares { api, gateway, drivers, people } = shares(limit.into());
            let taken = api + gateway + drivers + 2 * people;
            let limit = usize::try_from(limit).unwrap();
            let left = limit.checked_sub(taken);
            assert!(left.is_some_and(|left| left >= 512.min(limit / 2)), "{limit}");
        }
    }

    #[test]
    fn the_limit_is_raised_to_the_hard_one() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        raise();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, hard);
    }
}

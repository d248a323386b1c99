//! How many Machines may be unhealthy before none is replaced: then something else is broken than they.

use ostler_api::MachineHealthCheck;

use crate::share::share;

/// The Machines of a check in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// All.
    pub(super) expected: usize,
    /// The healthy ones.
    pub(super) healthy: usize,
}

impl Counts {
    /// Unhealthy Machines, including Machines without a Node and Machines in deletion.
    pub(super) const fn unhealthy(self) -> usize {
        self.expected.saturating_sub(self.healthy)
    }
}

/// Whether Machines are replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Gate {
    /// Within the limit: so many more Machines may become unhealthy.
    Open(usize),
    /// Too many are unhealthy, or with a range, too few.
    Outside {
        /// The allowed range.
        allowed: (usize, usize),
    },
    /// A user paused the check.
    Paused,
    /// The spec of the check is refused.
    Refused,
}

impl Gate {
    pub(super) const fn is_open(&self) -> bool {
        matches!(self, Self::Open(_))
    }
}

pub(super) fn gate(check: &MachineHealthCheck, counts: Counts, refused: bool) -> Gate {
    let Some((least, most)) = bounds(check, counts.expected).filter(|_| !refused) else {
        return Gate::Refused;
    };
    if check.is_paused() {
        return Gate::Paused;
    }
    let unhealthy = counts.unhealthy();
    if unhealthy < least || unhealthy > most {
        return Gate::Outside { allowed: (least, most) };
    }
    Gate::Open(most - unhealthy)
}

/// The least and the most that may be unhealthy; `None`: they cannot be read.
pub(super) fn bounds(check: &MachineHealthCheck, expected: usize) -> Option<(usize, usize)> {
    let spec = &check.spec;
    if let Some(range) = spec.range_of_unhealthy() {
        let (least, most) = range.strip_prefix('[')?.strip_suffix(']')?.split_once('-')?;
        let range = (least.parse().ok()?, most.parse().ok()?);
        return (range.0 <= range.1).then_some(range);
    }
    let most = match spec.most_unhealthy() {
        None => expected,
        Some(most) => share(most, expected, false)?,
    };
    Some((0, most))
}

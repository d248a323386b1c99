//! How many instances of a class are updated at the same time.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// A tenth: an edit reaches a large class in ten rounds, and a mistake in it a tenth first.
const DEFAULT_PERCENT: u32 = 10;

/// `hotUpdate.maxParallel` of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MaxParallel {
    /// So many.
    Count(usize),
    /// So many in a hundred Machines of the class, rounded down.
    Percent(u32),
}

impl Default for MaxParallel {
    fn default() -> Self {
        Self::Percent(DEFAULT_PERCENT)
    }
}

impl MaxParallel {
    /// The limit in the class. An unreadable value counts as absent: the schema refuses such a
    /// value, and a class from before the schema must not stand still.
    pub fn of(value: Option<&IntOrString>) -> Self {
        let read = match value {
            None => None,
            Some(IntOrString::Int(count)) => usize::try_from(*count).ok().map(Self::Count),
            Some(IntOrString::String(text)) => match text.strip_suffix('%') {
                Some(percent) => percent.parse().ok().map(Self::Percent),
                None => text.parse().ok().map(Self::Count),
            },
        };
        read.unwrap_or_default()
    }

    /// The limit for a class of so many Machines; at least one, so that an update always gets on.
    pub fn limit(self, machines: usize) -> usize {
        let limit = match self {
            Self::Count(count) => count,
            Self::Percent(percent) => {
                let percent = usize::try_from(percent).unwrap_or(usize::MAX);
                machines.saturating_mul(percent) / 100
            }
        };
        limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_a_share_of_the_machines_and_never_none() {
        let text = |text: &str| Some(IntOrString::String(text.to_owned()));
        let table = [
            (None, 5_000, 500),
            (None, 9, 1),
            (Some(IntOrString::Int(7)), 5_000, 7),
            (Some(IntOrString::Int(0)), 5_000, 1),
            (Some(IntOrString::Int(-3)), 5_000, 500),
            (text("25%"), 10, 2),
            (text("0%"), 10, 1),
            (text("200%"), 10, 20),
            (text("12"), 5_000, 12),
            (text("many"), 5_000, 500),
            (text("99999999999999999999%"), 50, 5),
        ];
        for (value, machines, expected) in table {
            let limit = MaxParallel::of(value.as_ref()).limit(machines);
            assert_eq!(limit, expected, "{value:?} of {machines}");
        }
    }
}

//! Checks that say nothing about a unary driver, since its adapter does the work.

/// What the adapter does for a unary driver, and its own tests check. The pages of `list/pages` are its work, too; that none
/// of many machines is left out is for the driver.
pub(crate) const ADAPTERS: &[&str] = &[
    "create/same-id-twice",
    "resilience/ack-loss",
    "resilience/core-not-reading",
    "resilience/core-restart",
    "resilience/duplicate-frames",
    "resilience/half-open",
    "resilience/pages-resent",
    "resilience/result-resent",
    "secret/class-cache",
    "secret/scope",
    "secret/stale-revision",
];

/// Whether a check is about the session, so that of a unary driver it says nothing.
pub(crate) fn is_of_the_stream(name: &str) -> bool {
    // The driver itself declares its operations, and ends on SIGTERM.
    let own = ["session/kinds-honest", "session/drain-driver"].contains(&name);
    (name.starts_with("session/") && !own) || ADAPTERS.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unary_driver_is_asked_for_a_long_list() {
        assert!(!is_of_the_stream("list/pages"));
        let unknown = |name: &&str| !crate::checks::all().iter().any(|it| it.name == *name);
        assert!(!ADAPTERS.iter().any(unknown));
    }
}

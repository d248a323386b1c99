//! All checks, a file for each group.

mod adopt;
mod create;
mod delete;
mod duplicates;
mod events;
mod initialize;
mod interrupted;
mod list;
mod not_ours;
mod pages;
mod previous;
mod resilience;
mod secret;
mod session;
mod status;
mod unanswered;
mod unary;
mod update;
mod validate;
mod volumes;

pub(crate) use self::validate::review;

use crate::check::Check;

/// What the adapter does for a unary driver, and its own tests check.
const ADAPTERS: &[&str] = &[
    "create/same-id-twice",
    "list/pages",
    "resilience/ack-loss",
    "resilience/core-not-reading",
    "resilience/core-restart",
    "resilience/duplicate-frames",
    "resilience/half-open",
    "resilience/pages-resent",
    "resilience/result-resent",
    "secret/class-cache",
    "secret/refresh",
    "secret/scope",
    "secret/stale-revision",
];

/// Whether a check is about the session, so that of a unary driver it says nothing.
pub(crate) fn is_of_the_stream(name: &str) -> bool {
    // Which operations it has, and that it ends on SIGTERM, is for the driver itself to say.
    let own = ["session/kinds-honest", "session/drain-driver"].contains(&name);
    (name.starts_with("session/") && !own) || ADAPTERS.contains(&name)
}

/// All checks, in the order in which they run.
pub(crate) fn all() -> Vec<Check> {
    [
        &session::checks(),
        create::CHECKS,
        status::CHECKS,
        initialize::CHECKS,
        delete::CHECKS,
        list::CHECKS,
        update::CHECKS,
        volumes::CHECKS,
        validate::CHECKS,
        events::CHECKS,
        resilience::CHECKS,
        secret::CHECKS,
        unary::CHECKS,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ADAPTERS, all};

    #[test]
    fn what_the_adapter_does_is_a_check() {
        let names: BTreeSet<&str> = all().iter().map(|check| check.name).collect();
        let unknown: Vec<_> = ADAPTERS.iter().filter(|name| !names.contains(*name)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }

    #[test]
    fn every_check_has_a_name_of_its_own_and_says_what_and_why() {
        let mut names = BTreeSet::new();
        for check in all() {
            assert!(names.insert(check.name), "{} is there twice", check.name);
            let (group, name) = check.name.split_once('/').expect("group/name");
            assert!(!group.is_empty() && !name.is_empty());
            for text in [check.sentence, check.why, check.manual] {
                assert!(text.len() > 10 && !text.ends_with('.'), "{}: {text:?}", check.name);
                assert!(!text.contains('|') && !text.contains('\n'), "{}: {text:?}", check.name);
            }
        }
    }
}

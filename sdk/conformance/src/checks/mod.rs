//! All checks, a file for each group.

mod adopt;
mod create;
mod delete;
mod duplicates;
mod events;
mod faults;
mod initialize;
mod interrupted;
mod list;
mod not_ours;
mod pages;
mod pool;
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

pub(crate) use self::interrupted::untagged_parts;
pub(crate) use self::validate::review;

use crate::check::Check;

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
        pool::CHECKS,
        events::CHECKS,
        faults::CHECKS,
        resilience::CHECKS,
        secret::CHECKS,
        unary::CHECKS,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::all;
    use crate::adapters::ADAPTERS;

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

//! What a check is.

use futures::future::BoxFuture;
use ostler_proto::v1alpha1::{DriverCapability, Hello, OperationKind};

use crate::bench::Bench;
use crate::by_name;
use crate::options::{Options, Target};
pub(crate) use crate::outcome::Tier;
use crate::outcome::{NotPassed, Outcome, not_offered, skipped};

/// A list of more records goes in pages.
pub(crate) const PAGE: usize = 500;

/// The needs of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A session, shared with other checks.
    Session,
    /// Core, link and process to break and restart; a process that the suite did not start will do.
    Link,
    /// A process that the suite starts and ends.
    Process,
    /// A unary driver and its adapter as two processes, of which the second is started and ended.
    Adapter,
    /// A session, and the cloud for itself: the check takes it away.
    Cloud,
    /// The same, and the suite between driver and cloud.
    Faults,
}

impl Needs {
    /// Nothing else works while such a check runs.
    pub(crate) fn is_alone(self) -> bool {
        matches!(self, Self::Cloud | Self::Faults)
    }
}

/// Without it the check is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Instances may be made.
    Creates,
    /// The driver declares the ability.
    Capability(DriverCapability),
    /// The driver says that it has the operation.
    Kind(OperationKind),
    /// The driver knows more of an instance than its name.
    Tags,
    /// `--secret`.
    Secret,
    /// `--alt-class`.
    AltClass,
    /// `--bad-class`.
    BadClass,
    /// `--bad-secret`.
    BadSecret,
    /// `--hot-class`.
    HotClass,
    /// `--mcm-class`.
    McmClass,
    /// `--many`, above the length of a page.
    Many,
    /// `--probe-cmd`.
    Probe,
}

/// A rule, and its check.
#[derive(Clone, Copy)]
pub(crate) struct Check {
    /// `group/name`.
    pub(crate) name: &'static str,
    pub(crate) tier: Tier,
    pub(crate) needs: Needs,
    pub(crate) gates: &'static [Gate],
    /// What is checked, as a sentence about the driver.
    pub(crate) sentence: &'static str,
    /// What goes wrong when it does not hold.
    pub(crate) why: &'static str,
    /// Where the contract says so.
    pub(crate) manual: &'static str,
    pub(crate) run: for<'a> fn(&'a Bench) -> BoxFuture<'a, Outcome>,
}

impl Check {
    /// Why the check has nothing to say about this driver, if so.
    pub(crate) fn skip(
        &self,
        options: &Options,
        target: &Target,
        hello: &Hello,
    ) -> Option<NotPassed> {
        let closed: Vec<_> =
            self.gates.iter().filter_map(|gate| gate.closed(options, hello)).collect();
        // A flag that is missing as well changes nothing.
        let not_offered = closed.iter().find(|why| matches!(why, NotPassed::NotOffered(_)));
        if let Some(why) = not_offered {
            return Some(why.clone());
        }
        let controlled = !matches!(target, Target::Listen { .. });
        if self.needs == Needs::Process && !controlled {
            return Some(skipped("the suite did not start the driver"));
        }
        closed.into_iter().next()
    }
}

impl Gate {
    fn closed(self, options: &Options, hello: &Hello) -> Option<NotPassed> {
        let flag = |given: bool, name: &str| {
            (!given).then(|| skipped(format_args!("{name} is not given")))
        };
        match self {
            Self::Creates => options.no_create.then(|| skipped("--no-create")),
            Self::Capability(wanted) => {
                let offered = hello.capabilities.contains(&wanted.into());
                (!offered).then(|| {
                    not_offered(format_args!("the driver does not offer {}", wanted.as_str_name()))
                })
            }
            Self::Kind(wanted) => {
                let offered = hello.operation_kinds.contains(&wanted.into());
                (!offered).then(|| {
                    not_offered(format_args!("the driver does not offer {}", wanted.as_str_name()))
                })
            }
            Self::Tags => by_name::declared(hello)
                .then(|| not_offered("the driver says IDENTITY_BY_NAME: it reads no tags")),
            Self::Secret => flag(options.secret.is_some(), "--secret"),
            Self::AltClass => flag(options.alt_class.is_some(), "--alt-class"),
            Self::BadClass => flag(options.bad_class.is_some(), "--bad-class"),
            Self::BadSecret => flag(options.bad_secret.is_some(), "--bad-secret"),
            Self::HotClass => flag(options.hot_class.is_some(), "--hot-class"),
            Self::McmClass => flag(options.mcm_class.is_some(), "--mcm-class"),
            Self::Many => {
                (options.many <= PAGE).then(|| skipped(format_args!("--many is not above {PAGE}")))
            }
            Self::Probe => flag(options.probe_cmd.is_some(), "--probe-cmd"),
        }
    }
}

/// The checks of a file: what runs it, how binding the rule is, what it needs, its gates, and where the contract says so;
/// then the rule and its reason.
macro_rules! checks {
    ($($name:literal => $run:path, $tier:ident, $needs:ident, [$($gate:expr),*], $manual:expr;
        does: $sentence:literal,
        why: $why:literal;)*) => {
        pub(super) const CHECKS: &[crate::check::Check] = &[$(crate::check::Check {
            name: $name,
            tier: crate::check::Tier::$tier,
            needs: crate::check::Needs::$needs,
            gates: &[$($gate),*],
            sentence: $sentence,
            why: $why,
            manual: $manual,
            run: |bench| Box::pin($run(bench)),
        }),*];
    };
}
pub(crate) use checks;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::ClassManifest;

    #[test]
    fn what_a_driver_does_not_offer_is_not_missing_for_want_of_a_flag() {
        let class =
            ClassManifest::parse("kind: MachineClass\nmetadata: {name: a}\nproviderSpec: {}");
        let options = Options { no_create: true, ..Options::new(class.unwrap()) };
        let target = Target::Command(String::new());
        let check = crate::checks::all().into_iter().find(|it| it.name == "create/cancel").unwrap();
        let why = |hello: &Hello| check.skip(&options, &target, hello);
        assert!(matches!(why(&Hello::default()), Some(NotPassed::NotOffered(_))));
        let capabilities = vec![DriverCapability::Cancel.into()];
        let offers = Hello { capabilities, ..Hello::default() };
        assert!(matches!(why(&offers), Some(NotPassed::Skipped(_))));
    }
}

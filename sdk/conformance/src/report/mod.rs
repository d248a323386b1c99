//! What came out, for people and for programs.

mod human;
mod junit;

use std::time::Duration;

use serde::Serialize;

use crate::adapters::is_of_the_stream;
use crate::outcome::Tier;
use crate::registry::{Entry, catalogue};
use crate::verdict::{CheckResult, Verdict, seconds};

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Who was checked.
    pub driver: DriverName,
    /// One for each check that was wanted, in the order of the README.
    pub results: Vec<CheckResult>,
    /// Checks that were not wanted, and are about what the driver has.
    pub left_out: Vec<&'static str>,
    /// In seconds.
    #[serde(serialize_with = "seconds")]
    pub took: Duration,
}

/// The driver, as named in its Hello.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DriverName {
    /// The provider.
    pub provider: String,
    /// Name of the program.
    pub name: String,
    /// Its version.
    pub version: String,
    /// It serves unary calls to an adapter; false: it speaks the stream itself.
    pub unary: bool,
    /// It says IDENTITY_BY_NAME: the checks of tags and of NOT_OURS do not apply.
    pub by_name: bool,
}

/// How many checks came out how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The rule holds.
    pub passed: usize,
    /// A rule of tier MUST, or of a capability that is offered, does not hold.
    pub failed: usize,
    /// A rule of tier SHOULD does not hold.
    pub warned: usize,
    /// Nothing to check.
    pub skipped: usize,
}

impl Report {
    /// How many checks came out how.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for result in &self.results {
            match (&result.verdict, result.tier) {
                (Verdict::Passed, _) => counts.passed += 1,
                (Verdict::Skipped { .. }, _) => counts.skipped += 1,
                (Verdict::Failed(_), Tier::Should) => counts.warned += 1,
                (Verdict::Failed(_), Tier::Must | Tier::Capability) => counts.failed += 1,
            }
        }
        counts
    }

    /// Whether every MUST that was checked holds, and every capability that the driver offers.
    pub fn passes(&self) -> bool {
        self.counts().failed == 0
    }

    /// The checks that apply to the driver and were not done: those of tier MUST, and of what it offers.
    pub fn not_checked(&self) -> Vec<&'static str> {
        // What the adapter of a unary driver does is for the adapter's own tests.
        let unary = self.driver.unary;
        let of_its_kind = |it: &Entry| if unary { !is_of_the_stream(it.name) } else { !it.unary };
        let all = catalogue().into_iter();
        let all = all.filter(|check| check.tier != Tier::Should && of_its_kind(check));
        let missing = |name: &str| match self.result(name).map(|it| &it.verdict) {
            None => self.left_out.contains(&name),
            Some(Verdict::Skipped { applies, .. }) => *applies,
            Some(Verdict::Passed | Verdict::Failed(_)) => false,
        };
        all.map(|check| check.name).filter(|name| missing(name)).collect()
    }

    /// Whether the driver may call itself conformant: every MUST was checked and holds, and every capability that
    /// it offers.
    pub fn is_conformant(&self) -> bool {
        self.passes() && self.not_checked().is_empty()
    }

    /// The result of a check.
    pub fn result(&self, name: &str) -> Option<&CheckResult> {
        self.results.iter().find(|result| result.name == name)
    }

    /// The report as JSON.
    pub fn json(&self) -> String {
        let report = serde_json::json!({
            "driver": self.driver,
            "conformant": self.is_conformant(),
            "notChecked": self.not_checked(),
            "counts": self.counts(),
            "seconds": self.took.as_secs_f64(),
            "checks": self.results,
        });
        format!("{report:#}\n")
    }

    /// The report as JUnit XML.
    pub fn junit(&self) -> String {
        junit::render(self)
    }

    /// The last lines for people.
    pub fn summary(&self) -> String {
        human::summary(self)
    }
}

impl CheckResult {
    /// The result for people: one line, and more if the check failed.
    pub fn text(&self) -> String {
        human::result(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_conformant_only_if_what_it_offers_was_checked() {
        let passed = |entry: Entry| CheckResult {
            name: entry.name.to_owned(),
            tier: entry.tier,
            sentence: String::new(),
            verdict: Verdict::Passed,
            took: Duration::ZERO,
        };
        let results = catalogue().into_iter().filter(|it| !it.unary).map(passed).collect();
        let (driver, left_out, took) = (DriverName::default(), Vec::new(), Duration::ZERO);
        let mut report = Report { driver, results, left_out, took };
        assert!(report.is_conformant());
        for (applies, not_checked) in [(false, vec![]), (true, vec!["update/hot"])] {
            let found = report.results.iter_mut().find(|it| it.name == "update/hot").unwrap();
            found.verdict = Verdict::Skipped { reason: String::new(), applies };
            assert_eq!(report.not_checked(), not_checked);
            assert!(report.passes());
        }
        report.results.retain(|it| it.name != "update/hot");
        assert!(report.is_conformant(), "it has no UpdateMachine");
        report.left_out.push("update/hot");
        assert!(!report.is_conformant() && report.summary().contains("not checked: update/hot"));
    }
}

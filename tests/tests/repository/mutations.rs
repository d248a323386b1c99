//! Every measure that `tests/mutations` takes away is in `tests/ledger/mutations.yaml`, with the rule or test that notices.

use std::collections::BTreeSet;
use std::process::Command;

use ostler_tests::repository::{SourceFile, files};
use ostler_tests::tools::root;
use serde::Deserialize;

use crate::named::{exists, text};

const LEDGER: &str = "tests/ledger/mutations.yaml";

/// The mutations that the simulation makes itself, and the patches.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ledger {
    simulated: Vec<Row>,
    patches: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    #[serde(default)]
    takes: Option<String>,
    /// How many lives it took; `not …`: none of these found it, or none were lived.
    lives: String,
    #[serde(default)]
    plan: Option<String>,
    found: String,
    #[serde(default)]
    tests: Vec<String>,
    /// The tests were seen to fail with the mutation.
    #[serde(default)]
    ran: bool,
}

impl Row {
    /// The missing or superfluous parts of the row.
    fn wrong(&self, files: &[SourceFile]) -> Vec<String> {
        let mut wrong = Vec::new();
        if self.found.is_empty() {
            wrong.push("says which rule broke, or why none did".to_owned());
        }
        if self.tests.is_empty() && (self.ran || self.lives.starts_with("not ")) {
            wrong.push("names no test that fails with it".to_owned());
        }
        let missing = self.tests.iter().filter(|name| !exists(files, name));
        wrong.extend(missing.map(|name| format!("there is no test {name}")));
        let plan = self.plan.iter().map(|plan| format!("tests/plans/{plan}.json"));
        let mut plan = plan.filter(|plan| !files.iter().any(|file| file.path.ends_with(plan)));
        wrong.extend(plan.next().map(|plan| format!("there is no {plan}")));
        wrong
    }
}

fn ledger(files: &[SourceFile]) -> Ledger {
    serde_saphyr::from_str(text(files, LEDGER)).expect(LEDGER)
}

#[test]
fn every_mutation_applies_says_what_it_takes_away_and_is_in_the_ledger() {
    let files = files().unwrap();
    let ledger = ledger(&files);
    let mut rows: BTreeSet<&str> = ledger.patches.iter().map(|row| row.name.as_str()).collect();
    let is_patch = |file: &&SourceFile| file.path.extension().is_some_and(|kind| kind == "patch");
    let mut wrong = Vec::new();
    for SourceFile { path, text } in files.iter().filter(is_patch) {
        let mut lines = text.lines();
        let said = lines.next().is_some_and(|measure| measure.ends_with('.'))
            && lines.next().is_some_and(|rule| rule.starts_with("Should notice: "));
        if !said {
            wrong.push(format!("{}: says which measure, then which rule", path.display()));
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if !rows.remove(name.as_ref()) {
            wrong.push(format!("{LEDGER} has no row for {name}"));
        }
        let mut check = Command::new("git");
        let checked = check.args(["apply", "--check"]).arg(path).current_dir(root()).output();
        let checked = checked.unwrap();
        if !checked.status.success() {
            let why = String::from_utf8_lossy(&checked.stderr);
            wrong.push(format!("{}: make it anew: {why}", path.display()));
        }
    }
    wrong.extend(rows.iter().map(|name| format!("{LEDGER}: there is no patch {name}")));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_no_life_finds_names_a_test_that_does() {
    let files = files().unwrap();
    let Ledger { simulated, patches } = ledger(&files);
    let unsaid = simulated.iter().filter(|row| row.takes.is_none());
    let mut wrong: Vec<String> =
        unsaid.map(|row| format!("{}: says what it takes away", row.name)).collect();
    for row in simulated.iter().chain(&patches) {
        wrong.extend(row.wrong(&files).iter().map(|lack| format!("{}: {lack}", row.name)));
    }
    assert!(wrong.is_empty(), "{LEDGER}: {wrong:#?}");
}

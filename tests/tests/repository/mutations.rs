//! Every measure that `tests/mutations` takes away is in the table of `docs/simulation.md`, with what fails without it.

use std::process::Command;

use ostler_tests::repository::{SourceFile, files};
use ostler_tests::tools::root;

use crate::named::{exists, tests_in, text};

#[test]
fn every_mutation_applies_says_what_it_takes_away_and_is_in_the_table() {
    let files = files().unwrap();
    let page = text(&files, "docs/simulation.md");
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
        if !page.contains(&format!("| `{name}` |")) {
            wrong.push(format!("docs/simulation.md, Can it fail?, has no row for `{name}`"));
        }
        let mut check = Command::new("git");
        let checked = check.args(["apply", "--check"]).arg(path).current_dir(root()).output();
        let checked = checked.unwrap();
        if !checked.status.success() {
            let why = String::from_utf8_lossy(&checked.stderr);
            wrong.push(format!("{}: make it anew: {why}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Says that a measure has no test, in place of one.
const NONE: &str = "none yet";

/// How many lives it took: none of these found it, or none were lived.
const UNSEEN: [&str; 2] = ["| not in 1000 |", "| not measured |"];

/// Rows of what no life of the simulation was seen to find: the name of the mutation, and what fails with it.
fn not_found(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_row =
        |line: &&str| line.starts_with("| `") && UNSEEN.iter().any(|word| line.contains(word));
    page.lines().filter(is_row).map(|row| {
        let name = row.split('`').nth(1).unwrap_or_default();
        (name, row.rsplit('|').nth(1).unwrap_or_default().trim())
    })
}

#[test]
fn what_no_life_finds_names_a_test_that_does() {
    let files = files().unwrap();
    let page = text(&files, "docs/simulation.md");
    let mut wrong = Vec::new();
    for (mutation, fails) in not_found(page) {
        let tests: Vec<_> = tests_in(fails).collect();
        if tests.is_empty() && !fails.starts_with(NONE) {
            wrong.push(format!("{mutation}: names no test that fails with it"));
        }
        let missing = tests.into_iter().filter(|name| !exists(&files, name));
        wrong.extend(missing.map(|name| format!("{mutation}: there is no test {name}")));
    }
    assert!(not_found(page).count() > 0 && wrong.is_empty(), "docs/simulation.md: {wrong:#?}");
}

//! `tests/ledger` names only tests that exist. Pages name none.

use std::collections::BTreeSet;

use ostler_tests::repository::{SourceFile, files};
use ostler_tests::upstream::Comparison;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::named::{exists, rust_sources, text};

fn ledger<T: DeserializeOwned>(files: &[SourceFile], name: &str) -> T {
    serde_saphyr::from_str(text(files, &format!("tests/ledger/{name}.yaml"))).expect(name)
}

/// A fault of `docs/protocol.md`, with the names of its tests alone.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fault {
    fault: String,
    tests: Vec<String>,
}

/// Whether this is the name of a test of a fault: `f07_…`.
fn is_fault(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next() == Some('f')
        && chars.by_ref().take(2).all(|it| it.is_ascii_digit())
        && chars.next() == Some('_')
}

#[test]
fn every_fault_names_its_tests_and_they_exist() {
    let files = files().unwrap();
    let faults: Vec<Fault> = ledger(&files, "faults");
    let named: BTreeSet<&str> =
        faults.iter().flat_map(|fault| &fault.tests).map(String::as_str).collect();
    let names = rust_sources(&files)
        .flat_map(|file| file.text.lines())
        .filter_map(|line| line.trim_start().strip_prefix("async fn "))
        .filter_map(|line| line.split('(').next());
    let written: BTreeSet<&str> = names.filter(|name| is_fault(name)).collect();
    let missing: Vec<_> = named.difference(&written).collect();
    assert!(
        missing.is_empty(),
        "tests/ledger/faults.yaml names tests that do not exist: {missing:?}"
    );
    let forgotten: Vec<_> = written.difference(&named).collect();
    assert!(forgotten.is_empty(), "tests/ledger/faults.yaml does not name {forgotten:?}");
    let page = text(&files, "docs/protocol.md");
    for number in 1..=20 {
        let (name, prefix) = (format!("F{number}"), format!("f{number:02}_"));
        let fault = faults.iter().find(|fault| fault.fault == name).expect(&name);
        let tested = fault.tests.iter().all(|test| test.starts_with(&prefix));
        assert!(tested && !fault.tests.is_empty(), "{name} has no test, or one of another fault");
        let told = page.lines().any(|line| line.starts_with(&format!("| {name} ")));
        assert!(told, "docs/protocol.md, Faults, has no row for {name}");
    }
}

/// A row of any ledger: its tests.
#[derive(Deserialize)]
struct Row {
    #[serde(default)]
    tests: Vec<String>,
}

#[test]
fn every_row_of_what_goes_wrong_elsewhere_names_tests_that_exist() {
    let files = files().unwrap();
    let rows: Vec<Row> = ledger(&files, "pools");
    let tests: Vec<&String> = rows.iter().flat_map(|row| &row.tests).collect();
    let missing: Vec<_> = tests.iter().filter(|name| !exists(&files, name)).collect();
    let all = rows.len() >= 24 && rows.iter().all(|row| !row.tests.is_empty());
    assert!(all && missing.is_empty(), "tests/ledger/pools.yaml: {missing:#?}");
}

#[test]
fn every_condition_of_the_preboot_proposal_names_tests_that_exist() {
    let files = files().unwrap();
    let rows: Vec<Row> = ledger(&files, "preboot");
    let tests: Vec<&String> = rows.iter().flat_map(|row| &row.tests).collect();
    let missing: Vec<_> = tests.iter().filter(|name| !exists(&files, name)).collect();
    assert!(tests.len() > 30 && missing.is_empty(), "tests/ledger/preboot.yaml: {missing:#?}");
}

/// A rule of the oracle of the simulation.
#[derive(Deserialize)]
struct Rule {
    name: String,
}

#[test]
fn every_rule_of_the_oracle_is_in_the_simulation() {
    let files = files().unwrap();
    let rules: Vec<Rule> = ledger(&files, "rules");
    let oracle: String = rust_sources(&files)
        .filter(|file| file.path.starts_with("tests/src/sim"))
        .map(|file| file.text.as_str())
        .collect();
    // INV-2 is what liveness finds in the end.
    let named = rules.iter().map(|rule| &rule.name).filter(|name| name.contains('-'));
    let unchecked = named.filter(|name| *name != "INV-2" && !oracle.contains(*name));
    let unchecked: Vec<_> = unchecked.collect();
    assert!(rules.len() > 20 && unchecked.is_empty(), "no rule of the simulation: {unchecked:?}");
}

#[test]
fn every_ledger_can_be_read() {
    for file in files().unwrap().iter().filter(|file| file.path.starts_with("tests/ledger")) {
        let read = serde_saphyr::from_str::<serde_json::Value>(&file.text);
        assert!(read.is_ok(), "{}: {read:?}", file.path.display());
    }
}

#[test]
fn every_row_beside_upstream_says_where_and_names_tests_that_exist() {
    let files = files().unwrap();
    let mut wrong = Vec::new();
    for row in ledger::<Comparison>(&files, "upstream").rows() {
        if let Some(lack) = row.lacks() {
            wrong.push(format!("{}: lacks {lack}", row.mcm));
        }
        for name in &row.tests {
            if !exists(&files, name) {
                wrong.push(format!("{}: there is no test {name}", row.mcm));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

//! The plans in `tests/plans` and `tests/ledger/plans.yaml`, which names the finding of each plan.

use std::collections::BTreeSet;
use std::path::Path;

use ostler_tests::repository::files;
use serde::Deserialize;

use crate::named::text;

/// A defect that the simulation found.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    plans: Vec<String>,
    broke: String,
    fix: String,
}

#[test]
fn every_plan_of_the_ledger_has_a_file_and_every_file_has_its_row() {
    let files = files().unwrap();
    let rows: Vec<Row> = serde_saphyr::from_str(text(&files, "tests/ledger/plans.yaml")).unwrap();
    assert!(rows.iter().all(|row| !row.broke.is_empty() && !row.fix.is_empty()), "each says both");
    let told: BTreeSet<&str> = rows.iter().flat_map(|row| &row.plans).map(String::as_str).collect();
    let plans = files.iter().filter(|file| file.path.parent() == Some(Path::new("tests/plans")));
    let there: BTreeSet<&str> = plans.filter_map(|file| file.path.file_stem()?.to_str()).collect();
    let without_file: Vec<_> = told.difference(&there).collect();
    let without_row: Vec<_> = there.difference(&told).collect();
    assert!(
        without_file.is_empty() && without_row.is_empty(),
        "rows without a file: {without_file:?}, files without a row: {without_row:?}"
    );
}

//! The plans in `tests/plans` and the table of `docs/simulation.md` that tells what each of them found.

use std::collections::BTreeSet;
use std::path::Path;

use ostler_tests::repository::files;

use crate::named::text;

#[test]
fn every_plan_of_the_table_has_a_file_and_every_file_has_its_row() {
    let files = files().unwrap();
    let page = text(&files, "docs/simulation.md");
    let table = page.split("\n## ").find(|part| part.starts_with("What it found\n"));
    let rows = table.expect("What it found").lines().filter(|line| line.starts_with("| `"));
    let first_cells = rows.filter_map(|row| row.split('|').nth(1));
    let told: BTreeSet<&str> =
        first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let plans = files.iter().filter(|file| file.path.parent() == Some(Path::new("tests/plans")));
    let there: BTreeSet<&str> = plans.filter_map(|file| file.path.file_stem()?.to_str()).collect();
    let without_file: Vec<_> = told.difference(&there).collect();
    let without_row: Vec<_> = there.difference(&told).collect();
    assert!(
        without_file.is_empty() && without_row.is_empty(),
        "rows without a file: {without_file:?}, files without a row: {without_row:?}"
    );
}

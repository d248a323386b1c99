//! The README lists the checks as they are.

use std::path::Path;

const MARK: &str = "<!-- generated from the code: OSTLER_BLESS=1 cargo test -p ostler-conformance --test readme -->\n";

#[test]
fn the_readme_lists_every_check() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, _) = text.split_once(MARK).expect("the mark of the table");
    let fresh = format!("{head}{MARK}\n{}", ostler_conformance::markdown());
    if std::env::var_os("OSTLER_BLESS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    assert!(
        text == fresh || std::env::var_os("OSTLER_BLESS").is_some(),
        "the table of checks is old; write it anew: OSTLER_BLESS=1 cargo test -p ostler-conformance --test readme"
    );
}

#[test]
fn there_are_at_least_fifty_checks() {
    assert!(ostler_conformance::catalogue().len() >= 50);
}

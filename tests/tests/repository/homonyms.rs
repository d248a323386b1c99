//! Each public type has a name of its own: `tests/homonyms.txt` lists the exceptions, and no exception is added.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ostler_tests::repository::{SourceFile, files};

const LIST: &str = include_str!("../../homonyms.txt");

/// The public type that a line defines.
fn defined(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub ")?;
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    // In a macro, `struct $name` names no type.
    rest.split(|letter: char| !letter.is_alphanumeric()).next().filter(|name| !name.is_empty())
}

fn is_product(file: &SourceFile) -> bool {
    let path = file.path.to_string_lossy();
    path.ends_with(".rs") && path.contains("/src/") && !path.starts_with("tests/")
}

#[test]
fn a_public_type_has_a_name_of_its_own() {
    let mut types: BTreeMap<String, usize> = BTreeMap::new();
    for file in files().unwrap().iter().filter(|file| is_product(file)) {
        for name in file.text.lines().filter_map(defined) {
            *types.entry(name.to_owned()).or_default() += 1;
        }
    }
    let lines = LIST.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let listed: BTreeMap<String, usize> = lines
        .flat_map(str::split_whitespace)
        .map(|entry| entry.split_once(':').unwrap())
        .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
        .collect();
    let mut wrong = String::new();
    for name in types.keys().chain(listed.keys()).collect::<BTreeSet<_>>() {
        let (is, may) = (types.get(name).unwrap_or(&0), listed.get(name).unwrap_or(&1));
        if is != may {
            writeln!(wrong, "{name}: {is} public types, {may} in tests/homonyms.txt").unwrap();
        }
    }
    assert!(wrong.is_empty(), "give a type a name of its own, or lower the number:\n{wrong}");
}

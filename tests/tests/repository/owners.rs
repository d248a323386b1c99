//! Each part of a Machine's status is set in one place: where the table in `machine/mod.rs` of ostler-lifecycle says.

use std::collections::BTreeSet;

use ostler_tests::repository::files;
use regex::Regex;

use crate::named::{rust_sources, text};

const FOLDER: &str = "server/lifecycle/src/machine/";

/// A field of a status that is changed: assigned, taken, or borrowed for it.
const CHANGE: &str = r"(?x)
    (?: &mut\ (?:pass|self)\.status\.(\w+)
      | \bstatus\s*\.(\w+)(?:\.\w+)*
        (?: \s(?:\||&)?=\s | \.(?:take|insert|get_or_insert\w*|as_mut|push|replace)\( ) )";

/// `hotUpdate` of `hot_update`, as the table and the CRD call it.
fn json_name(field: &str) -> String {
    let mut words = field.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| match word {
        "id" | "uid" => name + &word.to_uppercase(),
        _ => name + &word[..1].to_uppercase() + &word[1..],
    })
}

#[test]
fn each_part_of_the_status_is_set_in_the_place_that_the_table_names() {
    let files = files().unwrap();
    let table: BTreeSet<(String, String)> = text(&files, "server/lifecycle/src/machine/mod.rs")
        .lines()
        .filter_map(|line| line.strip_prefix("//! | ")?.strip_suffix("` |")?.split_once(" | `"))
        .flat_map(|(parts, place)| {
            let parts = parts.split('`').skip(1).step_by(2);
            parts.map(move |part| (part.to_owned(), place.to_owned()))
        })
        .collect();
    let change = Regex::new(CHANGE).unwrap();
    let mut wrong = BTreeSet::new();
    for file in rust_sources(&files) {
        let path = file.path.to_string_lossy();
        let Some(path) = path.strip_prefix(FOLDER) else { continue };
        let code = file.text.split("#[cfg(test)]").next().unwrap_or_default();
        for found in change.captures_iter(code) {
            let field = found.get(1).or_else(|| found.get(2)).map_or("", |it| it.as_str());
            let name = json_name(field);
            let place = path.split_inclusive('/').next().unwrap_or_default();
            // The owners of conditions call its functions.
            let is_owner =
                name == "conditions" || table.contains(&(name.clone(), place.to_owned()));
            if !is_owner {
                wrong.insert(format!("{path} sets {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "call the owner instead (see {FOLDER}mod.rs): {wrong:#?}");
}

//! The figures of all attacks as a table of Markdown.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Keeps tests that end at the same time from writing over each other.
static FILE: Mutex<()> = Mutex::new(());

const HEAD: &str = "| attack | by | memory above idle | slowest `/readyz` of another | slowest Lease renewal of a node | unanswered | outcome |
|---|---|---|---|---|---|---|
";

/// Whether figures are taken.
pub(crate) fn wanted() -> bool {
    std::env::var_os("OSTLER_ATTACKS_TABLE").is_some()
}

/// Adds a row to the file that `OSTLER_ATTACKS_TABLE` names; one of the same attack is replaced.
pub(crate) fn add(attack: &str, row: &[String]) {
    let Some(path) = std::env::var_os("OSTLER_ATTACKS_TABLE") else { return };
    let _alone = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let now = std::fs::read_to_string(&path).unwrap_or_default();
    let attack_of = |line: &str| line.split(" | ").next().map(str::to_owned);
    let mut rows: BTreeMap<String, String> =
        now.lines().skip(2).filter_map(|line| Some((attack_of(line)?, line.to_owned()))).collect();
    let line = format!("| {attack} | {} |", row.join(" | "));
    rows.insert(format!("| {attack}"), line);
    let lines: Vec<_> = rows.values().map(ToString::to_string).collect();
    let text = lines.join("\n") + "\n";
    std::fs::write(&path, format!("{HEAD}{text}")).unwrap();
}

/// A row of an attack that is not about load.
pub(crate) fn verdict(attack: &str, by: &str, outcome: &str) {
    let none = "–".to_owned();
    add(
        attack,
        &[by.to_owned(), none.clone(), none.clone(), none.clone(), none, outcome.to_owned()],
    );
}

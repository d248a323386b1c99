//! The table of waits in `docs/operations.md`: the reasons as the API says them, and the hints of `ostler describe`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ostler_api::machine::WaitReason;

use super::hints;

const REASONS: &str = "../server/api/src/reasons.rs";
const PAGE: &str = "../docs/operations.md";
const BEGIN: &str = "<!-- waits -->\n";
const END: &str = "<!-- end of waits -->";

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Each reason with its documentation.
fn reasons(source: &str) -> Vec<(WaitReason, String)> {
    let (_, all) = source.split_once("pub enum WaitReason {").expect("the enum");
    let (all, _) = all.split_once("\n    }\n").expect("its end");
    let (mut found, mut said) = (Vec::new(), String::new());
    for line in all.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            said.push_str(text);
        } else if let Some(word) = line.split('"').nth(1) {
            found.push((word.into(), std::mem::take(&mut said).trim().to_owned()));
        }
    }
    found
}

fn table(source: &str) -> String {
    let mut text = "| reason | meaning | what to do |\n|---|---|---|\n".to_owned();
    for (reason, meaning) in reasons(source) {
        let hint = hints::hint(&reason).unwrap_or("–");
        let cells = format!("| `{reason}` | {meaning} | {} |", hint.replace('|', "\\|"));
        let _infallible = writeln!(text, "{cells}");
    }
    text
}

#[test]
fn the_table_of_waits_has_every_reason_with_the_hint_of_describe() {
    let source = std::fs::read_to_string(file(REASONS)).unwrap();
    let stored = std::fs::read_to_string(file(PAGE)).unwrap();
    let (before, rest) = stored.split_once(BEGIN).expect("where the table begins");
    let (_, after) = rest.split_once(END).expect("where it ends");
    let page = format!("{before}{BEGIN}{}{END}{after}", table(&source));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(file(PAGE), &page).unwrap();
        return;
    }
    assert!(stored == page, "stale: UPDATE_DOCS=1 cargo test -p ostler --lib");
}

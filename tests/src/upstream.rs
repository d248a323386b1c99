//! Behaviour of machine-controller-manager (MCM) and of Ostler: `tests/ledger/upstream.yaml`.

use std::path::Path;

use serde::Deserialize;

/// The whole comparison.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The tables.
    pub groups: Vec<Group>,
}

/// One table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its heading.
    pub title: String,
    /// The text above the table.
    #[serde(default)]
    pub about: String,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// One behaviour of MCM.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What MCM does.
    pub mcm: String,
    /// The place of the behaviour: `file::function`, or a document.
    pub r#where: Vec<String>,
    /// The consequence for a user who comes from MCM.
    pub verdict: Verdict,
    /// The behaviour of Ostler; not given: the same.
    #[serde(default)]
    pub ostler: Option<String>,
    /// Why it is not done.
    #[serde(default)]
    pub reason: Option<String>,
    /// Our tests that fail if the row is not true any more: `file::function`.
    #[serde(default)]
    pub tests: Vec<String>,
}

/// How the two compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Verdict {
    /// Other programs see no difference.
    #[serde(rename = "same")]
    Same,
    /// MCM's way is a defect or a limit there.
    #[serde(rename = "better")]
    Better,
    /// Ostler does not do it.
    #[serde(rename = "not done")]
    NotDone,
}

impl Row {
    /// The missing part of the row.
    pub fn lacks(&self) -> Option<&'static str> {
        let place = |place: &String| match place.split_once("::") {
            Some((file, function)) => has_extension(file, "go") && !function.is_empty(),
            None => has_extension(place, "md") || has_extension(place, "yaml"),
        };
        if self.r#where.is_empty() || !self.r#where.iter().all(place) {
            return Some("a place in MCM: file.go::function, or a document");
        }
        let tested = !self.tests.is_empty();
        match (self.verdict, &self.ostler, &self.reason) {
            (Verdict::NotDone, None, Some(_)) => None,
            (Verdict::NotDone, _, _) => Some("the reason, and nothing that Ostler does"),
            (Verdict::Same, _, None) | (Verdict::Better, Some(_), None) if tested => None,
            (Verdict::Same | Verdict::Better, _, _) => Some("what Ostler does, or a test"),
        }
    }
}

fn has_extension(file: &str, extension: &str) -> bool {
    Path::new(file).extension().is_some_and(|one| one == extension)
}

impl Comparison {
    /// All rows.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.groups.iter().flat_map(|group| &group.rows)
    }
}

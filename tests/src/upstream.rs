//! What machine-controller-manager (MCM) does and what Ostler does: `docs/upstream.yaml`, and the page made of it.

use std::fmt::{self, Write as _};
use std::path::Path;

use serde::Deserialize;

/// The whole comparison.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// What stands above the tables.
    pub about: String,
    /// The tables.
    pub groups: Vec<Group>,
}

/// One table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its heading.
    pub title: String,
    /// What stands above it.
    #[serde(default)]
    pub about: String,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// One thing that MCM does.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// What MCM does.
    pub mcm: String,
    /// Where it does that: `file::function`, or a document.
    pub r#where: Vec<String>,
    /// What a user who comes from MCM has to think of it.
    pub verdict: Verdict,
    /// What Ostler does; not given: the same.
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

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "same",
            Self::Better => "better",
            Self::NotDone => "not done",
        })
    }
}

impl Row {
    /// What the row lacks.
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

    fn ostler(&self) -> &str {
        self.reason.as_deref().or(self.ostler.as_deref()).unwrap_or("the same")
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

    /// The page in Markdown. Places and tests are footnotes, so that the tables stay legible.
    pub fn page(&self) -> String {
        let mut page = format!(
            "<!-- generated from upstream.yaml: UPDATE_DOCS=1 cargo test -p ostler-tests --test repository -->\n\n\
             # Beside machine-controller-manager\n\n{}\n",
            self.about.trim()
        );
        let count = |verdict| self.rows().filter(|row| row.verdict == verdict).count();
        let (same, better) = (count(Verdict::Same), count(Verdict::Better));
        let not_done = count(Verdict::NotDone);
        let _infallible = writeln!(
            page,
            "\n{} rows: {same} same, {better} better, {not_done} not done.",
            same + better + not_done
        );
        let mut notes = String::new();
        for group in &self.groups {
            let _infallible = writeln!(page, "\n## {}\n", group.title);
            if !group.about.is_empty() {
                let _infallible = writeln!(page, "{}\n", group.about.trim());
            }
            page.push_str("| MCM | Ostler | |\n|---|---|---|\n");
            for (index, row) in group.rows.iter().enumerate() {
                let note = format!("[^{}-{}]", slug(&group.title), index + 1);
                let (mcm, ostler) = (cell(&row.mcm), cell(row.ostler()));
                let _infallible = writeln!(page, "| {mcm} | {ostler} | {}{note} |", row.verdict);
                let _infallible = write!(notes, "{note}: MCM: {}.", by_file(&row.r#where));
                if !row.tests.is_empty() {
                    let _infallible = write!(notes, " Test: {}.", by_file(&row.tests));
                }
                notes.push('\n');
            }
        }
        page + "\n" + &notes
    }
}

/// The first word of a heading names its footnotes.
fn slug(title: &str) -> String {
    let mut words = title.split(|letter: char| !letter.is_ascii_alphanumeric());
    words.find(|word| !word.is_empty()).unwrap_or_default().to_ascii_lowercase()
}

fn cell(text: &str) -> String {
    text.trim().replace('\n', " ").replace('|', "\\|")
}

/// `file::a` and `file::b` in one.
fn by_file(names: &[String]) -> String {
    let mut text = String::new();
    let mut last = "";
    for name in names {
        let (file, function) = name.split_once("::").unwrap_or((name, ""));
        let separator = match () {
            () if text.is_empty() => "",
            () if file == last => ", ",
            () => "; ",
        };
        text.push_str(separator);
        if file != last || function.is_empty() {
            let _infallible = write!(text, "`{file}`");
            text.push_str(if function.is_empty() { "" } else { " " });
        }
        if !function.is_empty() {
            let _infallible = write!(text, "`{function}`");
        }
        last = file;
    }
    text
}

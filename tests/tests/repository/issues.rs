//! Each issue of other projects that has to have a test is named by one.

use ostler_tests::repository::files;

use crate::named::rust_sources;

/// Of machine-controller-manager.
const UPSTREAM: [u32; 24] = [
    75, 82, 86, 88, 197, 250, 346, 425, 754, 760, 802, 815, 816, 965, 984, 989, 1008, 1020, 1059,
    1078, 1087, 1092, 1118, 1153,
];
/// Issues of other projects, with the words around them.
const OTHERS: [&str; 6] = [
    "CAPI #13649",
    "CAPI #14216",
    "autoscaler#22",
    "autoscaler_29",
    "autoscaler#159",
    "gardener/gardener#11879",
];

/// Each test of a file, with the comment above it.
fn tests(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &str| line.starts_with("#[test]") || line.starts_with("#[tokio::test");
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| begins(line.trim_start())) {
        let (above, below) = lines.split_at(index);
        let comment = above.iter().rev().take_while(|line| line.trim_start().starts_with("///"));
        let indent = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(indent));
        let body = below.iter().take_while(|line| **line != end);
        found.push(comment.chain(body).copied().collect::<Vec<_>>().join("\n"));
    }
    found
}

/// Whether a text has a word that no digit follows.
fn names(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let next = text.get(at + word.len()..).and_then(|rest| rest.chars().next());
        !next.is_some_and(|next| next.is_ascii_digit())
    })
}

#[test]
fn every_issue_of_another_project_that_the_fleet_must_not_repeat_is_named_by_a_test() {
    let files = files().unwrap();
    let tests: Vec<String> = rust_sources(&files).flat_map(|file| tests(&file.text)).collect();
    let named = |word: &str| tests.iter().any(|test| names(test, word));
    let upstream = UPSTREAM.iter().filter(|number| {
        // A letter or digit before the sign is another project's.
        let forms = [" #", "(#", "\"#", "_"].map(|before| format!("{before}{number}"));
        !forms.iter().any(|form| named(form))
    });
    let mut missing: Vec<String> = upstream.map(|number| format!("#{number}")).collect();
    let others = OTHERS.iter().filter(|word| !named(word));
    missing.extend(others.map(ToString::to_string));
    assert!(missing.is_empty(), "no test names {missing:?}");
}

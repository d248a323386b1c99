//! Pages are few, name no test, and their links lead somewhere.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use ostler_tests::repository::{SourceFile, files};
use ostler_tests::tools::root;

/// More of them are not read.
const PAGES: usize = 14;

fn pages(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    files.iter().filter(|file| file.path.extension().is_some_and(|kind| kind == "md"))
}

/// The lines of a page that are no code.
fn prose(page: &SourceFile) -> impl Iterator<Item = &str> {
    let mut code = false;
    page.text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The anchor of a heading in links.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || ['-', '_', ' '].contains(letter);
    heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

fn anchors(page: &SourceFile) -> BTreeSet<String> {
    prose(page)
        .filter(|line| line.starts_with('#'))
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut so_far = PathBuf::new();
    for part in path.components() {
        if part == Component::ParentDir {
            so_far.pop();
        } else {
            so_far.push(part);
        }
    }
    so_far
}

/// Where the links of a line lead within the repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|to| !to.contains("://") && !to.contains(' ') && !to.is_empty())
}

#[test]
fn there_are_few_pages_and_none_names_a_test() {
    let files = files().unwrap();
    let docs: Vec<&SourceFile> =
        pages(&files).filter(|page| page.path.parent() == Some(Path::new("docs"))).collect();
    assert!(docs.len() <= PAGES, "{} pages: put it on one of those that are there", docs.len());
    let named: Vec<_> =
        docs.iter().filter(|page| page.text.contains(".rs::")).map(|page| &page.path).collect();
    assert!(named.is_empty(), "tests are named in tests/ledger, not by {named:?}");
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let files = files().unwrap();
    let mut wrong = Vec::new();
    for page in pages(&files) {
        for to in prose(page).flat_map(links) {
            let (path, heading) = to.split_once('#').unwrap_or((to, ""));
            let target = match path {
                "" => page.path.clone(),
                path => plain(&page.path.with_file_name(path)),
            };
            let text = files.iter().find(|file| file.path == target);
            let is_there = root().join(&target).exists();
            let has_heading = heading.is_empty()
                || text.is_none_or(|file| file.path.extension() != page.path.extension())
                || text.is_some_and(|file| anchors(file).contains(heading));
            if !is_there || !has_heading {
                wrong.push(format!("{}: {to}", page.path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

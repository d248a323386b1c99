//! Files and tests by their names.

use std::path::{Path, PathBuf};

use ostler_tests::repository::SourceFile;

pub(crate) fn rust_sources(files: &[SourceFile]) -> impl Iterator<Item = &SourceFile> {
    files.iter().filter(|file| file.path.extension().is_some_and(|kind| kind == "rs"))
}

pub(crate) fn text<'a>(files: &'a [SourceFile], path: &str) -> &'a str {
    files
        .iter()
        .find(|file| file.path == Path::new(path))
        .map(|file| file.text.as_str())
        .expect(path)
}

/// The name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let line = line.strip_prefix("async ").unwrap_or(line);
    line.strip_prefix("fn ")?.split('(').next()
}

fn is_rust(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "rs")
}

/// Whether a test that a ledger names as `file.rs::test` exists.
pub(crate) fn exists(files: &[SourceFile], name: &str) -> bool {
    let (path, test) = name.split_once("::").unwrap_or((name, ""));
    is_rust(path) && has_test(files, path, test)
}

/// Whether a file has a test; one in a module of its own may be in the file of that module.
fn has_test(files: &[SourceFile], path: &str, test: &str) -> bool {
    let (module, name) = test.rsplit_once("::").unwrap_or(("", test));
    let stem = path.trim_end_matches(".rs").trim_end_matches("/main");
    let nested = PathBuf::from(format!("{stem}/{module}.rs"));
    let inner = PathBuf::from(format!("{stem}_{module}.rs"));
    let places = [Path::new(path), nested.as_path(), inner.as_path()];
    let mut here = files.iter().filter(|file| places.contains(&file.path.as_path()));
    here.any(|file| {
        let mut is_test = false;
        file.text.lines().map(str::trim_start).any(|line| {
            if function(line) == Some(name) && is_test {
                return true;
            }
            // From the attribute of a test to its function there are attributes only.
            is_test = line.starts_with("#[") && (is_test || line.contains("test"));
            false
        })
    })
}

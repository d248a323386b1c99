//! What the repository holds: files and crates, for the tidy test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::root;

/// One text file of the repository.
#[derive(Debug)]
pub struct SourceFile {
    /// Relative to the root.
    pub path: PathBuf,
    /// The whole content.
    pub text: String,
}

/// One crate of the workspace.
#[derive(Debug)]
pub struct Crate {
    /// Package name.
    pub name: String,
    /// Directory, relative to the root.
    pub dir: PathBuf,
    /// Names under `[dependencies]` (not dev-dependencies).
    pub dependencies: Vec<String>,
}

/// Every text file that git tracks or would track.
///
/// # Errors
/// If git does not answer.
pub fn files() -> std::io::Result<Vec<SourceFile>> {
    let listing = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()?;
    let names = String::from_utf8_lossy(&listing.stdout).into_owned();
    Ok(names
        .lines()
        .filter_map(|name| {
            let text = fs::read_to_string(root().join(name)).ok()?;
            Some(SourceFile { path: PathBuf::from(name), text })
        })
        .collect())
}

/// The crates of the workspace, read from their manifests.
pub fn crates(files: &[SourceFile]) -> Vec<Crate> {
    files.iter().filter_map(manifest).collect()
}

fn manifest(file: &SourceFile) -> Option<Crate> {
    if file.path.file_name()? != "Cargo.toml" || file.path == Path::new("Cargo.toml") {
        return None;
    }
    let name = file.text.lines().find_map(|line| line.strip_prefix("name = "))?;
    let dependencies = file
        .text
        .lines()
        .skip_while(|line| *line != "[dependencies]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(str::to_owned)
        .collect();
    Some(Crate {
        name: name.trim_matches('"').to_owned(),
        dir: file.path.parent()?.to_owned(),
        dependencies,
    })
}

//! The files and crates of the repository, for the tidy test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

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
    /// Dependencies, except of tests and build scripts.
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

/// The workspace metadata of cargo, as JSON, without the network.
///
/// # Errors
/// If cargo does not answer.
pub fn metadata(arguments: &[&str]) -> std::io::Result<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(arguments)
        .current_dir(root())
        .output()?;
    if !output.status.success() {
        return Err(std::io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Our crates.
///
/// # Errors
/// If cargo does not answer.
pub fn crates() -> std::io::Result<Vec<Crate>> {
    let told = metadata(&["--no-deps"])?;
    Ok(told["packages"].as_array().into_iter().flatten().filter_map(package).collect())
}

fn package(told: &Value) -> Option<Crate> {
    let manifest = Path::new(told["manifest_path"].as_str()?);
    let dependencies = told["dependencies"].as_array()?.iter();
    Some(Crate {
        name: told["name"].as_str()?.to_owned(),
        dir: manifest.parent()?.strip_prefix(root()).ok()?.to_owned(),
        dependencies: dependencies
            // Without dependencies of tests and build scripts.
            .filter(|it| it["kind"].is_null())
            .filter_map(|it| it["name"].as_str().map(str::to_owned))
            .collect(),
    })
}

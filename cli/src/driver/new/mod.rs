//! `ostler driver new`: the examples of `sdk/` as a driver of one's own.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use ostler_driver_sdk::is_provider;

/// What to write, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The language
    #[arg(long)]
    lang: Language,
    /// The provider that classes name: a DNS name of yours, such as cloud.example.com
    #[arg(long, value_parser = provider)]
    provider: String,
    /// A directory that does not exist yet, or is empty
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Language {
    Go,
    Python,
}

fn provider(text: &str) -> Result<String, String> {
    if is_provider(text) {
        return Ok(text.to_owned());
    }
    Err("a provider is a DNS name such as cloud.example.com".to_owned())
}

/// A file of the repository: where it goes, and its text.
macro_rules! files {
    ($from:literal: $($name:literal => $to:literal),* $(,)?) => {
        &[$(($to, include_str!(concat!("../../../../", $from, $name)))),*]
    };
}

type Files = &'static [(&'static str, &'static str)];

const GO: [Files; 2] = [
    files!("sdk/go/example/":
        "driver.go" => "driver.go",
        "cloud.go" => "cloud.go",
        "probe.go" => "probe.go",
        "class.yaml" => "class.yaml",
        "secret.yaml" => "secret.yaml",
        "worker.yaml" => "worker.yaml",
        "../sanity/alt-class.yaml" => "sanity/alt-class.yaml",
        "../sanity/bad-class.yaml" => "sanity/bad-class.yaml",
        "../sanity/bad-secret.yaml" => "sanity/bad-secret.yaml",
        "../sanity/hot-class.yaml" => "sanity/hot-class.yaml",
        "../sanity/slow-class.yaml" => "sanity/slow-class.yaml",
        "../go.sum" => "go.sum",
    ),
    files!("sdk/go/":
        "go.mod" => "sdk/go.mod",
        "go.sum" => "sdk/go.sum",
        "driver/errors.go" => "sdk/driver/errors.go",
        "driver/pool.go" => "sdk/driver/pool.go",
        "driver/server.go" => "sdk/driver/server.go",
        "driver/spec.go" => "sdk/driver/spec.go",
        "gen/ostler/driver/v1alpha1/driver.pb.go" => "sdk/gen/ostler/driver/v1alpha1/driver.pb.go",
        "gen/ostler/driver/v1alpha1/event.pb.go" => "sdk/gen/ostler/driver/v1alpha1/event.pb.go",
        "gen/ostler/driver/v1alpha1/machine_driver.pb.go"
            => "sdk/gen/ostler/driver/v1alpha1/machine_driver.pb.go",
        "gen/ostler/driver/v1alpha1/machine_driver_grpc.pb.go"
            => "sdk/gen/ostler/driver/v1alpha1/machine_driver_grpc.pb.go",
        "gen/ostler/driver/v1alpha1/operation.pb.go"
            => "sdk/gen/ostler/driver/v1alpha1/operation.pb.go",
        "gen/ostler/driver/v1alpha1/session.pb.go"
            => "sdk/gen/ostler/driver/v1alpha1/session.pb.go",
    ),
];

const PYTHON: [Files; 2] = [
    files!("sdk/python/":
        "driver.py" => "driver.py",
        "cloud.py" => "cloud.py",
        "ostler_driver.py" => "ostler_driver.py",
        "probe.py" => "probe.py",
        "requirements.txt" => "requirements.txt",
        "python-driver" => "my-driver",
        "example/class.yaml" => "class.yaml",
        "example/secret.yaml" => "secret.yaml",
        "example/worker.yaml" => "worker.yaml",
        "sanity/alt-class.yaml" => "sanity/alt-class.yaml",
        "sanity/bad-class.yaml" => "sanity/bad-class.yaml",
        "sanity/bad-secret.yaml" => "sanity/bad-secret.yaml",
        "sanity/hot-class.yaml" => "sanity/hot-class.yaml",
        "sanity/slow-class.yaml" => "sanity/slow-class.yaml",
    ),
    files!("proto/ostler/driver/v1alpha1/":
        "driver.proto" => "proto/ostler/driver/v1alpha1/driver.proto",
        "event.proto" => "proto/ostler/driver/v1alpha1/event.proto",
        "machine_driver.proto" => "proto/ostler/driver/v1alpha1/machine_driver.proto",
        "operation.proto" => "proto/ostler/driver/v1alpha1/operation.proto",
        "session.proto" => "proto/ostler/driver/v1alpha1/session.proto",
    ),
];

impl Language {
    fn files(self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        let groups = match self {
            Self::Go => GO,
            Self::Python => PYTHON,
        };
        groups.into_iter().flatten()
    }

    /// As the example is called in its provider, ids and objects.
    fn example(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Python => "python",
        }
    }

    fn page(self) -> &'static str {
        match self {
            Self::Go => include_str!("go.md"),
            Self::Python => include_str!("python.md"),
        }
    }

    /// What only this language has: files without a model in `sdk/`.
    fn own(self, name: &str) -> Vec<(&'static str, String)> {
        match self {
            Self::Go => {
                let sdk = include_str!("../../../../sdk/go/go.mod");
                let needs = sdk.split_once("\ntool (").map_or(sdk, |(needs, _)| needs);
                let module = needs
                    .replace("module ostler.dev/sdk/go", &format!("module example.com/{name}"));
                let module = format!(
                    "{module}\nrequire ostler.dev/sdk/go v0.0.0\n\nreplace ostler.dev/sdk/go => ./sdk\n"
                );
                let ignored = "/my-driver\n/cloud.data*\n".to_owned();
                vec![("go.mod", module), (".gitignore", ignored)]
            }
            Self::Python => {
                let ignored = "/.venv\n/stubs\n__pycache__/\n*.sqlite3*\n".to_owned();
                vec![(".gitignore", ignored)]
            }
        }
    }
}

/// The text of an example with the names of the new driver.
fn renamed(path: &Path, text: &str, example: &str, provider: &str, name: &str) -> String {
    let text = text
        .replace(&format!("{example}.ostler.dev"), provider)
        .replace(&format!("{example}:///"), &format!("{name}:///"));
    if path.extension().is_none_or(|it| it != "yaml") {
        return text;
    }
    text.replace(&format!("name: {example}"), &format!("name: {name}"))
        .replace(&format!("\"{example}\""), &format!("\"{name}\""))
}

/// Writes the driver, no file over another; what to do next.
pub(super) fn write(args: &Args) -> anyhow::Result<String> {
    let Args { lang, provider, dir } = args;
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty: name a directory that does not exist yet", dir.display());
    }
    let name = provider.split('.').next().unwrap_or(provider);
    let mut files = lang.own(name);
    files.push(("README.md", lang.page().replace("PROVIDER", provider)));
    for (path, text) in lang.files() {
        files.push((path, renamed(Path::new(path), text, lang.example(), provider, name)));
    }
    for (path, text) in files {
        let path = dir.join(path);
        put(&path, &text).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(format!(
        "{} has a driver of {provider}: its README.md begins with the two commands that build and check it",
        dir.display()
    ))
}

fn put(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use ostler_conformance::{ClassManifest, SecretManifest};

    use super::*;

    #[test]
    fn a_new_driver_has_the_names_that_were_given_and_none_of_the_example() {
        for lang in [Language::Go, Language::Python] {
            let parent = tempfile::tempdir().unwrap();
            let dir = parent.path().join("mine");
            let args = Args { lang, provider: "metal.example.com".to_owned(), dir: dir.clone() };
            write(&args).unwrap();
            for class in ["class", "sanity/alt-class", "sanity/hot-class", "sanity/slow-class"] {
                let path = dir.join(format!("{class}.yaml"));
                ClassManifest::read(&path).unwrap();
                let text = fs::read_to_string(path).unwrap();
                assert!(
                    text.contains("name: metal") && text.contains("metal.example.com"),
                    "{text}"
                );
            }
            SecretManifest::read(&dir.join("secret.yaml")).unwrap();
            for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
                let Ok(text) = fs::read_to_string(entry.path()) else { continue };
                assert!(!text.contains(&format!("{}.ostler.dev", lang.example())), "{entry:?}");
            }
            let again = write(&args).unwrap_err().to_string();
            assert!(again.contains("is not empty"), "{again}");
        }
    }
}

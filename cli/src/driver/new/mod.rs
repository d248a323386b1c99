//! `ostler driver new`: the examples of `sdk/` as a driver of one's own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::ValueEnum;

use crate::driver_choice::provider;
use crate::output::new_file;

/// What to write, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The language
    #[arg(long)]
    lang: Language,
    /// The provider that classes name: a DNS name of yours, such as cloud.example.com
    #[arg(long, value_parser = provider)]
    provider: String,
    /// For --lang rust: the folder `sdk` of a clone of Ostler, on which the driver depends
    #[arg(long, value_name = "DIR", required_if_eq("lang", "rust"))]
    sdk: Option<PathBuf>,
    /// A directory that does not exist yet, or is empty
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Language {
    Go,
    Python,
    Rust,
    Typescript,
}

/// Files of a folder of the repository, by the folder that they go to: path and text.
macro_rules! files {
    ($from:literal => $to:literal: $($name:literal),*) => {
        &[$((concat!($to, $name), include_str!(concat!("../../../../", $from, $name)))),*]
    };
}

type Files = &'static [(&'static str, &'static str)];

const GO: [Files; 5] = [
    files!("sdk/go/example/" => "": "driver.go", "cloud.go", "probe.go", "class.yaml", "secret.yaml", "worker.yaml"),
    files!("sdk/go/" => "": "go.sum"),
    files!("sdk/go/sanity/" => "sanity/":
        "alt-class.yaml", "bad-class.yaml", "bad-secret.yaml", "hot-class.yaml", "slow-class.yaml"),
    files!("sdk/go/" => "sdk/":
        "go.mod", "go.sum", "driver/errors.go", "driver/pool.go", "driver/server.go", "driver/spec.go",
        "driver/trace.go"),
    files!("sdk/go/gen/ostler/driver/v1alpha1/" => "sdk/gen/ostler/driver/v1alpha1/":
        "driver.pb.go", "event.pb.go", "machine_driver.pb.go", "machine_driver_grpc.pb.go", "operation.pb.go",
        "session.pb.go"),
];

const PYTHON: [Files; 4] = [
    files!("sdk/python/" => "": "driver.py", "cloud.py", "ostler_driver.py", "ostler_trace.py", "probe.py", "requirements.txt"),
    files!("sdk/python/example/" => "": "class.yaml", "secret.yaml", "worker.yaml"),
    files!("sdk/python/sanity/" => "sanity/":
        "alt-class.yaml", "bad-class.yaml", "bad-secret.yaml", "hot-class.yaml", "slow-class.yaml"),
    PROTO,
];

const TYPESCRIPT: [Files; 4] = [
    files!("sdk/typescript/" => "": "cloud.ts", "driver.ts", "ostler.ts", "package.json", "package-lock.json", "reflection.ts", "tsconfig.json"),
    files!("sdk/typescript/example/" => "": "class.yaml", "secret.yaml", "worker.yaml"),
    files!("sdk/typescript/sanity/" => "sanity/":
        "alt-class.yaml", "bad-class.yaml", "bad-secret.yaml", "hot-class.yaml", "slow-class.yaml"),
    PROTO,
];

/// The contract of unary drivers.
const PROTO: Files = files!("proto/ostler/driver/v1alpha1/" => "proto/ostler/driver/v1alpha1/":
    "driver.proto", "event.proto", "machine_driver.proto", "operation.proto", "session.proto");

/// Its classes are those of the example in Python.
const RUST: [Files; 2] = [
    files!("sdk/python/example/" => "": "class.yaml", "secret.yaml", "worker.yaml"),
    files!("sdk/python/sanity/" => "sanity/":
        "alt-class.yaml", "bad-class.yaml", "bad-secret.yaml", "hot-class.yaml", "slow-class.yaml"),
];

/// Starts the cloud of the example, which is a process of its own.
const START: &str = "node build/cloud.js serve >build/cloud & trap \"kill $!\" EXIT
until [ -s build/cloud ]; do sleep 0.1; done
export CLOUD_URL=$(cat build/cloud)
";

impl Language {
    fn files(self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        let groups: &[Files] = match self {
            Self::Go => &GO,
            Self::Python => &PYTHON,
            Self::Rust => &RUST,
            Self::Typescript => &TYPESCRIPT,
        };
        groups.iter().copied().flatten()
    }

    /// As the example is called in its provider, ids and objects.
    fn example(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Python | Self::Rust => "python",
            Self::Typescript => "typescript",
        }
    }

    fn page(self) -> String {
        let (page, probe, start) = match self {
            Self::Go => (include_str!("go.md"), "./my-driver probe", ""),
            Self::Python => (include_str!("python.md"), "python3 probe.py", ""),
            Self::Rust => (include_str!("rust.md"), "target/debug/my-driver probe", ""),
            Self::Typescript => (include_str!("typescript.md"), "node build/cloud.js", START),
        };
        let check = include_str!("check.md").replace("PROBE", probe).replace("START\n", start);
        // The driver dials in without the adapter.
        let check = if self == Self::Rust { check.replace(" --unary", "") } else { check };
        page.replace("CHECK\n", &check)
    }

    /// What only this language has: files without a model in `sdk/`.
    fn own(self, provider: &str, name: &str, sdk: &Path) -> Vec<(&'static str, String)> {
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
                let start = include_str!("../../../../sdk/python/python-driver").to_owned();
                vec![("my-driver", start), (".gitignore", ignored)]
            }
            Self::Rust => {
                let manifest = include_str!("rust.toml").replace("SDK", &sdk.to_string_lossy());
                let start = "#!/bin/sh\nexec \"$(dirname \"$0\")/target/debug/my-driver\" \"$@\"\n";
                let ignored = "/target\n/cloud.*\n".to_owned();
                let code = |text: &str| {
                    text.replace("rust.ostler.dev", provider)
                        .replace("rust:///", &format!("{name}:///"))
                };
                vec![
                    ("Cargo.toml", manifest),
                    ("src/main.rs", code(include_str!("../../../../sdk/examples/driver/main.rs"))),
                    (
                        "src/cloud.rs",
                        code(include_str!("../../../../sdk/examples/driver/cloud.rs")),
                    ),
                    ("my-driver", start.to_owned()),
                    (".gitignore", ignored),
                ]
            }
            Self::Typescript => {
                let start = include_str!("../../../../sdk/typescript/typescript-driver").to_owned();
                vec![("my-driver", start), (".gitignore", "/build\n/node_modules\n".to_owned())]
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

/// The SDK in this folder, or in `sdk` of the clone that was named in its place.
fn found(sdk: &Path) -> anyhow::Result<PathBuf> {
    let is_sdk = |dir: &PathBuf| {
        let manifest = fs::read_to_string(dir.join("Cargo.toml")).unwrap_or_default();
        manifest.contains("name = \"ostler-driver-sdk\"")
    };
    let Some(dir) = [sdk.to_owned(), sdk.join("sdk")].into_iter().find(is_sdk) else {
        bail!(
            "--sdk {}: no SDK is there: name the folder `sdk` of a clone of Ostler",
            sdk.display()
        );
    };
    fs::canonicalize(&dir).with_context(|| format!("--sdk {} cannot be read", dir.display()))
}

/// Writes the driver, no file over another; what to do next.
pub(super) fn write(args: &Args) -> anyhow::Result<String> {
    let Args { lang, provider, sdk, dir } = args;
    if fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty: name a directory that does not exist yet", dir.display());
    }
    let name = provider.split('.').next().unwrap_or(provider);
    let sdk = sdk.as_deref().map(found);
    let mut files = lang.own(provider, name, &sdk.transpose()?.unwrap_or_default());
    files.push(("README.md", lang.page().replace("PROVIDER", provider)));
    for (path, text) in lang.files() {
        files.push((path, renamed(Path::new(path), text, lang.example(), provider, name)));
    }
    for (path, text) in files {
        let path = dir.join(path);
        let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
        new_file(&path, mode, &text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
    }
    Ok(format!(
        "{} has a driver of {provider}: its README.md begins with the two commands that build and check it",
        dir.display()
    ))
}

#[cfg(test)]
mod tests {
    use ostler_conformance::{ClassManifest, SecretManifest};

    use super::*;

    #[test]
    fn a_new_driver_has_the_names_that_were_given_and_none_of_the_example() {
        for lang in [Language::Go, Language::Python, Language::Rust, Language::Typescript] {
            let parent = tempfile::tempdir().unwrap();
            let dir = parent.path().join("mine");
            let clone = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            assert_eq!(found(&clone).unwrap(), found(&clone.join("sdk")).unwrap());
            let none = found(parent.path()).unwrap_err().to_string();
            assert!(none.contains("no SDK is there"), "{none}");
            let sdk = Some(clone);
            let args =
                Args { lang, provider: "metal.example.com".to_owned(), sdk, dir: dir.clone() };
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

//! The rules of the repository. Each failure says what to do instead.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ostler_tests::repository::{Crate, SourceFile, crates, files};
use ostler_tests::tools::{find, root};

use crate::named::{rust_sources, text};

/// Longest source file. A longer file hides more than one concern.
const FILE_LINES: usize = 600;
/// Half of the source files are shorter than this.
const MEDIAN_FILE_LINES: usize = 150;
// 20 of them are the table of a Machine's writes, 13 the steps of a pool that scales in.
const ARCHITECTURE_LINES: usize = 235;
const BANNED_MODULES: [&str; 4] = ["util", "common", "helpers", "misc"];

/// The allowed dependencies of each crate among ours. Arrows point inwards; no other dependency is allowed.
const LAYERS: [(&str, &[&str]); 28] = [
    ("ostler-quantity", &[]),
    ("ostler-rate", &[]),
    ("ostler-dial", &["ostler-local"]),
    ("ostler-trace", &["ostler-dial"]),
    ("ostler-proto", &[]),
    ("ostler-driver-sdk-derive", &[]),
    ("ostler-local", &[]),
    (
        "ostler-driver-sdk",
        &[
            "ostler-dial",
            "ostler-proto",
            "ostler-driver-sdk-derive",
            "ostler-local",
            "ostler-trace",
        ],
    ),
    ("ostler-adapter", &["ostler-driver-sdk", "ostler-local", "ostler-proto"]),
    ("ostler-kubelet", &[]),
    (
        "ostler-driver-fake",
        &["ostler-dial", "ostler-driver-sdk", "ostler-kubelet", "ostler-quantity"],
    ),
    ("ostler-driver-docker", &["ostler-driver-sdk", "ostler-quantity"]),
    ("ostler-node", &["ostler-dial", "ostler-kubelet"]),
    ("ostler-conformance", &["ostler-local", "ostler-proto"]),
    ("ostler-api", &[]),
    ("ostler-lifecycle", &["ostler-api", "ostler-quantity"]),
    (
        "ostler-sessions",
        &["ostler-api", "ostler-local", "ostler-proto", "ostler-rate", "ostler-trace"],
    ),
    ("ostler-legacy", &["ostler-api", "ostler-proto", "ostler-sessions"]),
    ("ostler-runtime", &["ostler-rate"]),
    (
        "ostler-controllers",
        &["ostler-api", "ostler-dial", "ostler-lifecycle", "ostler-runtime", "ostler-sessions"],
    ),
    ("ostler-apiserver", &["ostler-quantity"]),
    (
        "ostler-autoscaler",
        &["ostler-api", "ostler-controllers", "ostler-lifecycle", "ostler-sessions"],
    ),
    (
        "ostler-server",
        &[
            "ostler-api",
            "ostler-dial",
            "ostler-lifecycle",
            "ostler-sessions",
            "ostler-legacy",
            "ostler-autoscaler",
            "ostler-controllers",
            "ostler-trace",
        ],
    ),
    (
        "ostler",
        &[
            "ostler-api",
            "ostler-dial",
            "ostler-lifecycle",
            "ostler-proto",
            "ostler-server",
            "ostler-controllers",
            "ostler-sessions",
            "ostler-apiserver",
            "ostler-driver-fake",
            "ostler-driver-docker",
            "ostler-driver-sdk",
            "ostler-local",
            "ostler-adapter",
            "ostler-conformance",
            "ostler-trace",
        ],
    ),
    (
        "ostler-fuzz",
        &[
            "ostler-apiserver",
            "ostler-driver-sdk",
            "ostler-legacy",
            "ostler-lifecycle",
            "ostler-sessions",
        ],
    ),
    ("ostler-driver-broken", &["ostler-driver-fake", "ostler-driver-sdk", "ostler-proto"]),
    ("ostler-entropy", &[]),
    ("ostler-tests", &["*"]),
];

#[test]
fn no_source_file_is_too_long_and_half_of_them_are_short() {
    let files = files().unwrap();
    let mut lengths: Vec<usize> = Vec::new();
    for file in rust_sources(&files) {
        let lines = file.text.lines().count();
        assert!(
            lines <= FILE_LINES,
            "{} has {lines} lines; split it by noun (limit {FILE_LINES})",
            file.path.display()
        );
        lengths.push(lines);
    }
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    assert!(median <= MEDIAN_FILE_LINES, "the median source file has {median} lines");
}

/// What `.ci/sizes` says.
fn sizes() -> Option<String> {
    let python = find("python3", &["python3"])?;
    let counted =
        Command::new(python).arg(".ci/sizes").current_dir(root()).output().expect("python runs");
    assert!(counted.status.success(), "{}", String::from_utf8_lossy(&counted.stderr));
    Some(String::from_utf8_lossy(&counted.stdout).into_owned())
}

#[test]
fn no_files_or_folders_depend_on_each_other_in_a_circle_and_no_function_is_too_long() {
    let Some(said) = sizes() else { return };
    for wanted in [", 0 over 70", " 0  circles", " 0  knots"] {
        assert!(
            said.contains(wanted),
            "not \"{wanted}\": move what both name to a file or folder of its own\n{said}"
        );
    }
}

#[test]
fn modules_are_named_by_what_they_do() {
    for file in files().unwrap() {
        for part in &file.path {
            let name = Path::new(part).file_stem().unwrap_or(part).to_string_lossy();
            assert!(
                !BANNED_MODULES.contains(&name.as_ref()),
                "{}: name it by what it does, not `{name}`",
                file.path.display()
            );
        }
    }
}

#[test]
fn arrows_of_dependency_point_inwards() {
    for Crate { name, dependencies, .. } in crates().unwrap() {
        let allowed = LAYERS
            .iter()
            .find(|(layer, _)| *layer == name)
            .unwrap_or_else(|| {
                panic!("{name} has no place in the layers of tests/tests/repository/tidy.rs")
            })
            .1;
        for dependency in dependencies.iter().filter(|name| name.starts_with("ostler")) {
            assert!(
                allowed == ["*"] || allowed.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}"
            );
        }
    }
}

/// The rooms of the embedded API server, the lowest first, each with those that it may name.
const ROOMS: [(&str, &[&str]); 6] = [
    ("store", &["store"]),
    ("kinds", &["kinds"]),
    ("auth", &["auth", "clock", "context", "kinds", "store"]),
    ("rest", &["auth", "clock", "context", "kinds", "rest", "store"]),
    ("control", &["auth", "clock", "context", "control", "kinds", "rest", "store"]),
    (
        "serve",
        &["auth", "backup", "clock", "context", "control", "kinds", "rest", "serve", "store"],
    ),
];

/// The modules of its crate's root that a file names.
fn roots(text: &str) -> BTreeSet<&str> {
    let mut named = BTreeSet::new();
    for path in text.split("crate::").skip(1) {
        let Some(tree) = path.strip_prefix('{') else {
            named.extend(words(path).next());
            continue;
        };
        let mut depth = 1;
        for part in tree.split_inclusive(['{', ',', '}']) {
            if depth == 1 {
                named.extend(words(part).next());
            }
            match part.chars().next_back() {
                Some('{') => depth += 1,
                Some('}') => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    named
}

/// The words of a text of code.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.split(move |letter| !part(letter)).filter(|word| !word.is_empty())
}

#[test]
fn rooms_of_the_embedded_api_server_name_only_those_they_stand_on() {
    let files = files().unwrap();
    for (room, below) in ROOMS {
        let folder = format!("server/apiserver/src/{room}");
        let here: Vec<_> = rust_sources(&files).filter(|it| it.path.starts_with(&folder)).collect();
        assert!(!here.is_empty(), "there is no {folder}");
        for SourceFile { path, text } in here {
            let path = path.display();
            for named in roots(text) {
                assert!(below.contains(&named), "{path}: {room} must not name {named}");
            }
            let is_pure = room != "kinds" || !words(text).any(|word| word == "tokio");
            assert!(is_pure, "{path}: what a kind is takes no time and waits for nothing");
        }
    }
}

/// The crates that a selection of packages is built of, one a line.
fn cargo_tree(selection: &[&str]) -> String {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--offline", "--prefix", "none"])
        .args(selection)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8(tree.stdout).expect("cargo writes UTF-8")
}

#[test]
fn decisions_stay_pure() {
    let tree = cargo_tree(&["-p", "ostler-lifecycle", "--edges", "normal"]);
    for banned in ["tokio", "hyper", "tonic", "kube-client", "kube-runtime", "rand", "reqwest"] {
        assert!(
            !tree.lines().any(|line| line.split(' ').next() == Some(banned)),
            "ostler-lifecycle depends on {banned}; decisions get what they need in the snapshot"
        );
    }
}

#[test]
fn tests_and_binaries_share_their_dependencies_whichever_of_them_are_built() {
    let features = |selection: &[&str]| -> BTreeSet<String> {
        let tree = cargo_tree(&[selection, &["--format", "{p} [{f}]"]].concat());
        tree.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect()
    };
    let all = features(&["--workspace", "--edges", "normal,dev"]);
    assert!(all.len() > 100, "{all:?}");
    // The build of `cargo test -p ostler-tests`, and the binaries that the tests start.
    for selection in [
        ["--package=ostler-tests", "--edges=normal,dev"],
        ["--workspace", "--edges=normal"],
        ["--package=ostler*", "--edges=normal"],
    ] {
        let others: Vec<String> = features(&selection).difference(&all).cloned().collect();
        assert!(
            others.is_empty(),
            "with {selection:?} these are built once more, as their features differ; name the features in the root Cargo.toml: {others:#?}"
        );
    }
}

#[test]
fn a_nested_clippy_configuration_repeats_the_root_one() {
    let files = files().unwrap();
    let root = text(&files, "clippy.toml");
    for file in files.iter().filter(|file| file.path.ends_with("clippy.toml")) {
        for line in root.lines() {
            assert!(
                file.text.contains(line),
                "{} replaces the root clippy.toml and lacks `{line}`",
                file.path.display()
            );
        }
    }
}

#[test]
fn the_architecture_page_names_every_crate_and_invariant_and_stays_short() {
    let files = files().unwrap();
    let page = text(&files, "ARCHITECTURE.md");
    assert!(page.lines().count() <= ARCHITECTURE_LINES, "ARCHITECTURE.md is too long to be read");
    for Crate { name, dir, .. } in crates().unwrap() {
        assert!(page.contains(&format!("`{name}`")), "ARCHITECTURE.md lacks crate {name}");
        let dir = dir.display().to_string();
        assert!(
            page.contains(&format!("`{dir}/`")),
            "ARCHITECTURE.md lacks folder {dir}/ of {name}"
        );
    }
    let sources: String = rust_sources(&files).map(|file| file.text.as_str()).collect();
    for number in 1..=14 {
        let invariant = format!("INV-{number}");
        assert!(page.contains(&invariant), "ARCHITECTURE.md lacks {invariant}");
        assert!(sources.contains(&invariant), "no source file names {invariant}");
    }
}

#[test]
fn clients_connect_by_the_crate_that_decides_about_proxies() {
    // kube and tonic read the environment each in its own way. Of clippy's lints none sees conversions.
    let others = ["Client::try_from(", "ClientBuilder::try_from(", "endpoint.connect().await"];
    for file in rust_sources(&files().unwrap()) {
        let path = file.path.display().to_string();
        if path.starts_with("dial/") || path.contains("tests/") || path.contains("benches/") {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            let own = others.iter().find(|other| line.contains(*other));
            assert_eq!(own, None, "{path}:{}: connect by ostler_dial", number + 1);
        }
    }
}

#[test]
fn nothing_is_left_for_later_without_a_place_to_look() {
    let marks = ["TO".to_owned() + "DO", "FIX".to_owned() + "ME", "XX".to_owned() + "X"];
    for file in rust_sources(&files().unwrap()) {
        for (number, line) in file.text.lines().enumerate() {
            for mark in &marks {
                assert!(
                    !line.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == mark),
                    "{}:{}: do it now or file an issue",
                    file.path.display(),
                    number + 1
                );
            }
        }
    }
}

#[test]
fn the_readme_names_every_command() {
    let files = files().unwrap();
    let readme = text(&files, "README.md");
    for needed in [
        "cargo run --release -- up",
        "cargo test --workspace",
        "ostler reset",
        "ostler crds",
        "kubectl",
    ] {
        assert!(readme.contains(needed), "README.md lacks `{needed}`");
    }
    assert!(
        text(&files, ".ci/run").contains("cargo test --workspace"),
        ".ci/run must call the test command of the README"
    );
}

#[test]
fn every_recipe_for_what_ci_checks_is_what_ci_runs() {
    let files = files().unwrap();
    let recipes = text(&files, "justfile");
    let steps = text(&files, ".ci/run").lines().filter(|line| line.contains("cargo "));
    let missing: Vec<_> = steps.filter(|step| !recipes.contains(step.trim())).collect();
    assert!(missing.is_empty(), "justfile lacks what .ci/run runs: {missing:#?}");
}

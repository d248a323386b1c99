//! `fuzz/Cargo.lock` is of a workspace of its own, so no other build notices that it is stale.

use std::collections::{BTreeMap, BTreeSet};

use ostler_tests::repository::metadata;
use ostler_tests::tools::root;
use serde_json::Value;

/// What only fuzzing needs.
const OWN: [&str; 4] = ["arbitrary", "jobserver", "libfuzzer-sys", "ostler-fuzz"];
const CURE: &str = "run `cargo update --workspace --manifest-path fuzz/Cargo.toml`, with `-p NAME --precise VERSION` where it is older or newer";

/// The packages of a lock file by name and version, each with the names of what it needs.
fn locked(path: &str) -> BTreeMap<(String, String), BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join(path)).expect(path);
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let package = |block: &str| {
        let value = |key: &str| block.lines().find(|it| it.starts_with(key)).and_then(quoted);
        let needs = block.lines().filter(|line| line.starts_with(" \"")).filter_map(quoted);
        // A version follows the name where there are two.
        let needs = needs.filter_map(|it| it.split(' ').next().map(str::to_owned)).collect();
        Some(((value("name = ")?, value("version = ")?), needs))
    };
    text.split("[[package]]").filter_map(package).collect()
}

#[test]
fn the_lock_file_of_fuzzing_has_the_versions_that_are_shipped() {
    let shipped = locked("Cargo.lock");
    let fuzzed = locked("fuzz/Cargo.lock");
    let other =
        |id: &&(String, String)| !shipped.contains_key(*id) && !OWN.contains(&id.0.as_str());
    let wrong: Vec<_> = fuzzed.keys().filter(other).collect();
    assert!(
        wrong.is_empty(),
        "fuzz/Cargo.lock has other versions than Cargo.lock, {CURE}: {wrong:?}"
    );
}

#[test]
fn the_lock_file_of_fuzzing_has_what_our_crates_need() {
    let fuzzed = locked("fuzz/Cargo.lock");
    let told = metadata(&["--no-deps"]).expect("cargo answers");
    let mut seen = 0;
    for package in told["packages"].as_array().expect("packages") {
        let of = |it: &Value| it.as_str().expect("a text").to_owned();
        let Some(has) = fuzzed.get(&(of(&package["name"]), of(&package["version"]))) else {
            continue;
        };
        let all = package["dependencies"].as_array().expect("dependencies").iter();
        let built = all.filter(|it| it["kind"] != "dev");
        let (maybe, needed): (Vec<_>, Vec<_>) = built.partition(|it| it["optional"] == true);
        let names =
            |list: Vec<&Value>| list.iter().map(|it| of(&it["name"])).collect::<BTreeSet<_>>();
        let (maybe, needed) = (names(maybe), names(needed));
        let (lacks, surplus): (Vec<_>, Vec<_>) = (
            needed.difference(has).collect(),
            has.iter().filter(|it| !maybe.contains(*it) && !needed.contains(*it)).collect(),
        );
        assert!(
            lacks.is_empty() && surplus.is_empty(),
            "{}: fuzz/Cargo.lock lacks {lacks:?} and has {surplus:?} too much, {CURE}",
            package["name"]
        );
        seen += 1;
    }
    assert!(seen >= 5, "the crates that are fuzzed: {seen}");
}

//! Every conformance check can fail: with the rule of a check broken, this check fails, and no other
//! rule does in the same run.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::path::{Path, PathBuf};
use std::process::Command;

use futures::StreamExt;
use ostler_conformance::{
    ClassManifest, Entry, Options, Report, SecretManifest, Target, Verdict, catalogue, run,
};
use ostler_driver_broken::Breakage;
use regex::Regex;

/// Concurrent runs. Runs mostly wait.
const AT_ONCE: usize = 8;
/// Limits of time are made for slow clouds. A broken driver is waited for to their end, hence:
const IMPATIENT: f64 = 0.4;
/// Every check.
const ALL: &str = ".*";
/// The check at the end of every run.
const CLEANUP: &str = "cleanup/nothing-left";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../drivers/fake/conformance").join(name)
}

fn class(name: &str) -> ClassManifest {
    ClassManifest::read(&file(name)).unwrap()
}

fn secret(name: &str) -> SecretManifest {
    SecretManifest::read(&file(name)).unwrap()
}

fn options(probe: String) -> Options {
    let mut options = Options::new(class("class.yaml"));
    options.alt_class = Some(class("alt-class.yaml"));
    options.bad_class = Some(class("bad-class.yaml"));
    options.hot_class = Some(class("hot-class.yaml"));
    options.mcm_class = Some(class("mcm-class.yaml"));
    options.slow_class = Some(class("slow-class.yaml"));
    options.secret = Some(secret("secret.yaml"));
    options.bad_secret = Some(secret("bad-secret.yaml"));
    options.many = 1200;
    options.probe_cmd = Some(probe);
    options
}

/// The driver under test.
#[derive(Clone, Copy)]
struct Peer {
    broken: Option<Breakage>,
    /// The driver's answers to GetMachineStatus.
    reads: &'static str,
}

/// Runs the checks of this name against the fake, with a rule broken if so asked.
async fn sanity(check: &str, Peer { broken, reads }: Peer) -> Report {
    let dir = tempfile::tempdir().unwrap();
    let fake = env!("CARGO_BIN_EXE_ostler-driver-broken");
    let state = dir.path().join("cloud");
    let state = state.display();
    let mut options = options(format!("{fake} probe --state-file {state}"));
    options.focus = Some(Regex::new(&format!("^{check}$")).unwrap());
    options.parallel = if check == ALL { 4 } else { 1 };
    let mut command = format!("{fake} --drain-timeout 5s --state-file {state} --reads {reads}");
    if let Some(breakage) = broken {
        options.timeout_scale = IMPATIENT;
        command = format!("{command} --break {breakage}");
    }
    run(Target::Command(command), options)
        .await
        .unwrap_or_else(|error| panic!("{check}, broken: {broken:?}: {error:?}"))
}

/// The fault of a check, if any: a check must pass with a driver that keeps the rules, and fail with each driver that
/// breaks its rule.
async fn judged(check: Entry) -> Option<String> {
    let name = check.name;
    let whole = sanity(name, Peer { broken: None, reads: "all" }).await;
    let passes = matches!(whole.result(name).unwrap().verdict, Verdict::Passed);
    if !passes || !whole.passes() {
        return Some(format!("{name} does not pass with a driver that keeps it: {}", whole.json()));
    }
    for breakage in Breakage::ALL.iter().filter(|it| it.check() == name) {
        let wrong = unseen(&check, *breakage, "all").await;
        if wrong.is_some() {
            return wrong;
        }
    }
    None
}

/// The fault of a check that does not notice its broken rule.
async fn unseen(check: &Entry, breakage: Breakage, reads: &'static str) -> Option<String> {
    let name = check.name;
    let broken = sanity(name, Peer { broken: Some(breakage), reads }).await;
    let Verdict::Failed(finding) = &broken.result(name).unwrap().verdict else {
        return Some(format!("{name} passes with {breakage}: {}", broken.json()));
    };
    if finding.expected.is_empty() || finding.came.is_empty() || finding.why != check.why {
        return Some(format!("{name} does not say what is wrong: {finding:?}"));
    }
    let others = broken.results.iter().filter(|it| it.name != name && it.name != CLEANUP);
    let others: Vec<&str> = others
        .filter(|it| matches!(it.verdict, Verdict::Failed(_)))
        .map(|it| it.name.as_str())
        .collect();
    (!others.is_empty()).then(|| format!("{breakage} makes {others:?} fail, too"))
}

#[test]
fn every_check_has_its_breakage_and_every_breakage_its_check() {
    // Those of unary drivers are in tests/tests/processes/unary.rs, those of a cloud that fails in faults.rs there.
    let checks = catalogue().into_iter().filter(|check| !check.unary && !check.faults);
    let mut checks: Vec<&str> = checks.map(|check| check.name).collect();
    let mut breakages: Vec<&str> = Breakage::ALL.iter().map(|breakage| breakage.check()).collect();
    checks.sort_unstable();
    breakages.sort_unstable();
    breakages.dedup();
    assert_eq!(checks, breakages);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_check_passes_with_the_fake_and_fails_when_its_rule_is_broken() {
    // Narrows the run for the author of a check.
    let focus = std::env::var("OSTLER_TEST_FOCUS").ok().map(|it| Regex::new(&it).unwrap());
    let wanted = |check: &Entry| focus.as_ref().is_none_or(|it| it.is_match(check.name));
    let of_fake = catalogue().into_iter();
    let of_fake = of_fake.filter(|check| !check.unary && !check.faults && wanted(check));
    let wrong: Vec<String> = futures::stream::iter(of_fake)
        .map(judged)
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Lies that leak an instance or make a second one, which a driver without GetMachineStatus can tell as well.
const LEAKS: [Breakage; 10] = [
    Breakage::SameKeyNewId,
    Breakage::TagsAtomic,
    Breakage::KilledEarly,
    Breakage::Timeout,
    Breakage::DeleteBasic,
    Breakage::DeleteNotOurs,
    Breakage::DeleteCloudAway,
    Breakage::ListExact,
    Breakage::ListErrorNotEmpty,
    Breakage::ListCloudAway,
];

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_says_unimplemented_until_a_provider_id_is_known_keeps_the_rules() {
    let checks = "(session/kinds-honest|(create|delete|status)/.*)";
    let honest = sanity(checks, Peer { broken: None, reads: "by-id" }).await;
    assert!(honest.passes(), "{}", honest.json());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_without_a_status_is_conformant_and_each_of_its_lies_that_leaks_is_seen() {
    let honest = sanity(ALL, Peer { broken: None, reads: "nothing" }).await;
    assert!(honest.is_conformant(), "{}", honest.json());
    let entry = |leak: &Breakage| catalogue().into_iter().find(|it| it.name == leak.check());
    let lies = LEAKS.iter().map(|leak| (*leak, entry(leak).unwrap()));
    let wrong: Vec<String> = futures::stream::iter(lies)
        .map(async |(leak, check)| unseen(&check, leak, "nothing").await)
        .buffer_unordered(AT_ONCE)
        .filter_map(std::future::ready)
        .collect()
        .await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Here the driver reads by its list.
    let status = catalogue().into_iter().find(|it| it.name == "status/cloud-away").unwrap();
    let denied =
        sanity(status.name, Peer { broken: Some(Breakage::ListCloudAway), reads: "nothing" });
    assert!(matches!(denied.await.result(status.name).unwrap().verdict, Verdict::Failed(_)));
}

#[test]
fn the_breakages_are_listed_one_a_line() {
    let output = Command::new(env!("CARGO_BIN_EXE_ostler-driver-broken"))
        .args(["--break", "help"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().any(|line| line.starts_with("create/basic ")), "{text}");
    let wrong = Command::new(env!("CARGO_BIN_EXE_ostler-driver-broken"))
        .args(["--break", "create/nothing"])
        .output()
        .unwrap();
    assert!(!wrong.status.success());
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("--break help"));
}

//! The fake driver keeps the whole contract, and the suite sees when a driver does not come up.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use ostler_conformance::{
    ClassManifest, Options, Report, RunError, SecretManifest, Target, Unary, Verdict, run,
};
use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::{Clock, Cloud};
use ostler_driver_fake::control::ControlFile;
use ostler_driver_sdk::{Connector, DriverArgs};

/// What needs a command that looks into the cloud.
const PROBED: [&str; 29] = [
    "create/adopt-by-name",
    "create/cloud-away",
    "create/request-tags",
    "create/tags-atomic",
    "create/user-data-intact",
    "create/zone",
    "delete/cloud-away",
    "delete/dependents",
    "events/gone",
    "events/named",
    "initialize/cloud-away",
    "initialize/once",
    "list/cloud-away",
    "list/untagged",
    "pool/cloud-away",
    "pool/lost-instance",
    "pool/tags",
    "pool/update-tags",
    "pool/user-data",
    "secret/not-in-tags",
    "session/standby-tells-nothing",
    "status/cloud-away",
    "status/removed",
    "update/cloud-away",
    "update/foreign-tags-kept",
    "update/foreign-tags-of-parts",
    "update/parts",
    "validate/cloud-away",
    "volumes/cloud-away",
];

#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    driver: DriverArgs,
}

fn file(name: &str) -> PathBuf {
    let fake = concat!(env!("CARGO_MANIFEST_DIR"), "/../../drivers/fake/conformance");
    PathBuf::from(fake).join(name)
}

fn class(name: &str) -> ClassManifest {
    ClassManifest::read(&file(name)).unwrap()
}

fn secret(name: &str) -> SecretManifest {
    SecretManifest::read(&file(name)).unwrap()
}

/// Processes come and go, the cloud stays. `control`: the file with the faults of the cloud.
fn fake(control: Option<PathBuf>) -> Target {
    let cloud = Cloud::in_memory(Clock::system());
    Target::InProcess(Arc::new(move |invitation| {
        let driver = FakeDriver::new(cloud.clone());
        let driver = match &control {
            Some(file) => driver.control_file(ControlFile::new(file.clone())),
            None => driver,
        };
        let token = invitation.token_file.display().to_string();
        let flags =
            Flags::parse_from(["driver", "--endpoint", &invitation.url, "--token-file", &token]);
        let connector = Connector::from_args(&flags.driver).unwrap();
        let options = ostler_driver_sdk::Options::new(connector).shutdown(invitation.shutdown);
        Box::pin(async move { ostler_driver_sdk::run_with(driver, options).await.unwrap() })
    }))
}

fn options(parallel: usize) -> Options {
    Options {
        secret: Some(secret("secret.yaml")),
        alt_class: Some(class("alt-class.yaml")),
        bad_class: Some(class("bad-class.yaml")),
        hot_class: Some(class("hot-class.yaml")),
        slow_class: Some(class("slow-class.yaml")),
        bad_secret: Some(secret("bad-secret.yaml")),
        many: 501,
        parallel,
        ..Options::new(class("class.yaml"))
    }
}

/// Runs `checks` on a cloud with `faults`.
async fn with_faults(faults: serde_json::Value, options: Options) -> Report {
    let directory = tempfile::tempdir().unwrap();
    let control = directory.path().join("control");
    std::fs::write(&control, serde_json::json!({ "faults": faults }).to_string()).unwrap();
    Box::pin(run(fake(Some(control)), options)).await.unwrap()
}

fn nothing_failed(report: &Report) {
    let failed: Vec<String> = report
        .results
        .iter()
        .filter(|result| matches!(result.verdict, Verdict::Failed(_)))
        .map(ostler_conformance::CheckResult::text)
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cloud_that_answers_503_now_and_then_turns_nothing_red() {
    // Of each machine the first call, some of them after the work was done; of lists every seventh.
    let of_machine = |verb: &str, after: bool| {
        serde_json::json!({
            "operation": verb, "per": "machine", "call": 1, "code": "Unavailable", "afterEffect": after,
        })
    };
    let of_list = |call: usize| {
        let name = format!("list {call}");
        serde_json::json!({
            "operation": "ListMachines", "name": name, "call": call * 7, "code": "Unavailable",
        })
    };
    let faults: Vec<_> = [
        of_machine("CreateMachine", true),
        of_machine("DeleteMachine", true),
        of_machine("GetMachineStatus", false),
        of_machine("InitializeMachine", false),
        of_machine("UpdateMachine", true),
    ]
    .into_iter()
    .chain((1..60).map(of_list))
    .collect();
    let report = with_faults(faults.into(), Options { many: 0, ..options(8) }).await;
    nothing_failed(&report);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fake_driver_passes_every_check() {
    let report = Box::pin(run(fake(None), options(8))).await.unwrap();
    nothing_failed(&report);
    let skipped: BTreeSet<&str> = report
        .results
        .iter()
        .filter(|result| matches!(result.verdict, Verdict::Skipped { .. }))
        .map(|result| result.name.as_str())
        .collect();
    assert_eq!(skipped, BTreeSet::from(PROBED));
    assert!(report.passes());
}

#[tokio::test]
async fn a_driver_that_does_not_start_is_reported_with_what_it_printed() {
    let unary = Unary {
        driver: String::new(),
        adapter: String::new(),
        sockets: PathBuf::new(),
        with_adapter: false,
    };
    for (unary, first) in [(None, "sends Hello"), (Some(unary), "answers GetInfo")] {
        let target = Target::Command("echo no cloud today >&2; exit 3".to_owned());
        let options = Options { unary, ..Options::new(class("class.yaml")) };
        let error = Box::pin(run(target, options)).await.unwrap_err();
        let RunError::Driver { expected, came, printed } = &error else { panic!("{error}") };
        assert!(expected.contains(first), "{expected}");
        assert!(came.contains("exit status: 3"), "{came}");
        assert_eq!(printed, &["no cloud today"]);
    }
}

#[tokio::test]
async fn a_class_of_another_provider_is_told_with_both_names_before_anything_else() {
    let text =
        "kind: MachineClass\nmetadata: {name: a}\nprovider: other.example.com\nproviderSpec: {}";
    let options = Options {
        focus: Some("^session/hello-valid$".parse().unwrap()),
        no_create: true,
        ..Options::new(ClassManifest::parse(text).unwrap())
    };
    let report = Box::pin(run(fake(None), options)).await.unwrap();
    let first = report.results.first().unwrap();
    let said = first.text();
    assert_eq!(first.name, "class/provider", "{said}");
    assert!(said.contains("other.example.com") && said.contains("fake.ostler.dev"), "{said}");
    assert!(report.passes(), "a warning");
    let not_checked = report.not_checked();
    for name in ["create/basic", "update/hot", "pool/update-instance"] {
        assert!(not_checked.contains(&name), "{not_checked:?}");
    }
}

#[tokio::test]
async fn a_deletion_that_was_partial_at_first_may_find_nothing_later() {
    let faults = serde_json::json!([{
        "operation": "DeleteMachine", "per": "machine", "call": 1, "code": "Unavailable", "certainty": "Partial",
        "afterEffect": true,
    }]);
    let focus = Some("^delete/(says-which|previous)$".parse().unwrap());
    let report = with_faults(faults, Options { focus, ..options(1) }).await;
    nothing_failed(&report);
    assert_eq!(report.counts().passed, 3, "with cleanup/nothing-left");
}

#[tokio::test]
async fn an_instance_that_cannot_be_deleted_is_left_over_by_its_name_and_its_id() {
    let faults = serde_json::json!([{"operation": "DeleteMachine", "code": "Unavailable"}]);
    let focus = Some("^create/same-key-new-id$".parse().unwrap());
    let report = with_faults(faults, Options { focus, timeout_scale: 0.1, ..options(1) }).await;
    let left = report.results.iter().find(|it| it.name == "cleanup/nothing-left").unwrap();
    let said = left.text();
    assert!(matches!(left.verdict, Verdict::Failed(_)) && !report.passes(), "{said}");
    assert!(said.contains("create/same-key-new-id: conformance-"), "{said}");
    assert!(said.contains(" fake:///"), "{said}");
}

#[tokio::test]
async fn what_was_made_of_a_class_of_another_region_is_deleted_there() {
    let slow = std::fs::read_to_string(file("slow-class.yaml")).unwrap();
    let slow = ClassManifest::parse(&slow.replace("region: eu-1", "region: eu-2")).unwrap();
    let focus = Some("^session/accept-fast$".parse().unwrap());
    let options = Options { focus, slow_class: Some(slow), timeout_scale: 0.1, ..options(1) };
    let report = with_faults(serde_json::json!([]), options).await;
    nothing_failed(&report);
    assert_eq!(report.counts().passed, 2, "with cleanup/nothing-left");
}

#[tokio::test]
async fn many_groups_are_deleted_at_the_same_time() {
    let latency = Duration::from_millis(300);
    let faults = serde_json::json!([{"operation": "DeletePool", "latency": "300ms"}]);
    let focus = Some("^pool/list-pages$".parse().unwrap());
    let report = with_faults(faults, Options { focus, ..options(1) }).await;
    nothing_failed(&report);
    assert_eq!(report.counts().passed, 2, "with cleanup/nothing-left");
    assert!(report.took < latency * 501, "{:?}", report.took);
}

#[tokio::test]
async fn a_driver_whose_groups_keep_their_zones_and_whose_instances_are_never_made_anew_is_conformant()
 {
    let zones = serde_json::json!({"operation": "UpdatePool", "code": "InvalidArgument"});
    let anew = serde_json::json!({
        "operation": "UpdatePoolMachine", "code": "FailedPrecondition", "reason": "NOT_HOT_UPDATABLE",
    });
    // With cleanup/nothing-left: the zones of such a driver are not checked.
    for (check, fault, passed) in [("zones", zones, 1), ("update-undrained", anew, 2)] {
        let focus = Some(format!("^pool/{check}$").parse().unwrap());
        let report = with_faults(vec![fault].into(), Options { focus, ..options(1) }).await;
        nothing_failed(&report);
        assert_eq!(report.counts().passed, passed, "{check}");
    }
}

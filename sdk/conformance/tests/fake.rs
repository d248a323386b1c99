//! The fake driver keeps the whole contract, and the suite sees when a driver does not come up.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use ostler_conformance::{ClassManifest, Options, RunError, SecretManifest, Target, Verdict, run};
use ostler_driver_fake::FakeDriver;
use ostler_driver_fake::cloud::{Clock, Cloud};
use ostler_driver_sdk::{Connector, DriverArgs};

/// What needs a command that looks into the cloud, or an adapter.
const PROBED: [&str; 18] = [
    "create/adopt-by-name",
    "create/cloud-away",
    "create/request-tags",
    "create/tags-atomic",
    "create/user-data-intact",
    "delete/cloud-away",
    "delete/dependents",
    "initialize/cloud-away",
    "list/cloud-away",
    "list/untagged",
    "status/cloud-away",
    "unary/adapter-killed",
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

/// Processes come and go, the cloud stays.
fn fake() -> Target {
    let cloud = Cloud::in_memory(Clock::system());
    Target::InProcess(Arc::new(move |invitation| {
        let driver = FakeDriver::new(cloud.clone());
        let token = invitation.token_file.display().to_string();
        let flags =
            Flags::parse_from(["driver", "--endpoint", &invitation.url, "--token-file", &token]);
        let connector = Connector::from_args(&flags.driver).unwrap();
        let options = ostler_driver_sdk::Options::new(connector).shutdown(invitation.shutdown);
        Box::pin(async move { ostler_driver_sdk::run_with(driver, options).await.unwrap() })
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fake_driver_passes_every_check() {
    let options = Options {
        secret: Some(secret("secret.yaml")),
        alt_class: Some(class("alt-class.yaml")),
        bad_class: Some(class("bad-class.yaml")),
        hot_class: Some(class("hot-class.yaml")),
        slow_class: Some(class("slow-class.yaml")),
        bad_secret: Some(secret("bad-secret.yaml")),
        many: 501,
        parallel: 8,
        ..Options::new(class("class.yaml"))
    };
    let report = Box::pin(run(fake(), options)).await.unwrap();
    let failed: Vec<String> = report
        .results
        .iter()
        .filter(|result| matches!(result.verdict, Verdict::Failed(_)))
        .map(ostler_conformance::CheckResult::text)
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
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
    let target = Target::Command("echo no cloud today >&2; exit 3".to_owned());
    let error = Box::pin(run(target, Options::new(class("class.yaml")))).await.unwrap_err();
    let RunError::Driver { came, printed, .. } = &error else { panic!("{error}") };
    assert!(came.contains("exit status: 3"), "{came}");
    assert_eq!(printed, &["no cloud today"]);
}

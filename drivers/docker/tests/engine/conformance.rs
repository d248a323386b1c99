//! The whole contract, against the driver as a process and a real engine.

use std::collections::BTreeSet;
use std::path::Path;

use ostler_conformance::{CheckResult, ClassManifest, Options, Target, Verdict, run};
use regex::Regex;

use crate::docker::Docker;
use crate::outage::Proxy;

/// Checks that do not apply to Docker.
const SKIPPED: [&str; 20] = [
    // Docker has no credentials: the socket has an owner.
    "create/bad-secret",
    "delete/error-not-gone",
    "list/error-not-empty",
    "secret/refresh",
    "status/error-not-absent",
    "initialize/bad-secret",
    "update/bad-secret",
    "validate/bad-secret",
    "pool/bad-secret",
    // machine-controller-manager never made containers.
    "create/adopt-by-name",
    "list/untagged",
    // More than 500 containers are more than a test should make; the SDK sends the pages.
    "list/pages",
    "pool/pages",
    "pool/list-pages",
    "resilience/pages-resent",
    // An engine has no zones.
    "create/zone",
    "pool/zones",
    // GetVolumeIds is not offered: no persistent volume is Docker's.
    "volumes/bad-secret",
    "volumes/cloud-away",
    "volumes/ids",
];

fn class(name: &str) -> ClassManifest {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
    ClassManifest::read(&dir.join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_driver_keeps_the_whole_contract_on_a_real_engine() {
    let Some(docker) = Docker::here() else { return };
    let driver = env!("CARGO_BIN_EXE_ostler-driver-docker");
    let (host, proxy) = (docker.host(), Proxy::start(driver, docker.host()));
    let options = Options {
        alt_class: Some(class("alt-class.yaml")),
        bad_class: Some(class("bad-class.yaml")),
        hot_class: Some(class("hot-class.yaml")),
        probe_cmd: Some(format!("{driver} probe --docker-host {host} --outage {}", proxy.socket())),
        idempotent_count: 3,
        timeout_scale: 4.0,
        parallel: 6,
        focus: std::env::var("OSTLER_TEST_FOCUS").ok().map(|it| Regex::new(&it).unwrap()),
        ..Options::new(class("class.yaml"))
    };
    let command = format!("{driver} --docker-host unix://{} --drain-timeout 20s", proxy.socket());
    let report = Box::pin(run(Target::Command(command), options)).await.unwrap();
    let of = |wanted: fn(&Verdict) -> bool| {
        report.results.iter().filter(move |result| wanted(&result.verdict))
    };
    let failed: Vec<String> =
        of(|it| matches!(it, Verdict::Failed(_))).map(CheckResult::text).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(report.passes());
    if std::env::var_os("OSTLER_TEST_FOCUS").is_none() {
        let skipped = of(|it| matches!(it, Verdict::Skipped { .. }));
        let skipped: BTreeSet<&str> = skipped.map(|result| result.name.as_str()).collect();
        assert_eq!(skipped, BTreeSet::from(SKIPPED));
    }
}

//! A provider of machine-controller-manager that nobody here wrote, unmodified, behind `sdk/go/mcm`: that of ironcore-metal
//! claims servers in an API server, so it needs no cloud. The part of the operator that binds claims is kubectl's.
//!
//! Without Go, or without its modules, the test says `skipped`.

#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ostler_tests::process::{Process, binaries};
use ostler_tests::stack::{Part, Stack};
use ostler_tests::tools;

use crate::e2e::backup::until_orphans;

const CLASSES: &str = r#"
{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "provider": "ironcore-metal",
 "metadata": {"name": "metal", "annotations": {"ostler.dev/adopt-by-name": "true"}},
 "secretRef": {"name": "metal", "namespace": "default"},
 "providerSpec": {"image": "registry.example.com/os:1", "labels": {"cluster": "one"}, "serverLabels": {"size": "small"}}}
---
{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "provider": "ironcore-metal",
 "metadata": {"name": "wrong", "annotations": {"ostler.dev/adopt-by-name": "true"}},
 "secretRef": {"name": "metal", "namespace": "default"}, "providerSpec": {"image": 5}}
---
{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "provider": "ironcore-metal",
 "metadata": {"name": "undecided"},
 "secretRef": {"name": "metal", "namespace": "default"}, "providerSpec": {"image": "registry.example.com/os:1"}}
---
{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "metal"}, "stringData": {"userData": "I am <<MACHINE_NAME>>"}}
---
{"apiVersion": "metal.ironcore.dev/v1alpha1", "kind": "Server", "metadata": {"name": "server-1"},
 "spec": {"systemUUID": "38947555-7742-3448-3784-823347823834"}}
"#;

const MODULE: &str = "sdk/go/mcm/ironcore-metal";

/// Builds the driver; its path, and that of the definitions of what the provider makes.
fn build() -> Option<(PathBuf, PathBuf)> {
    let go = tools::find("go", &["go"])?;
    let module = tools::root().join(MODULE);
    let driver = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ironcore-metal-driver");
    let run = |args: &[&str]| {
        let output = Command::new(&go).args(args).current_dir(&module).output().unwrap();
        if !output.status.success() {
            tools::skip(&format!("{MODULE}: {}", String::from_utf8_lossy(&output.stderr)));
            return None;
        }
        Some(String::from_utf8(output.stdout).unwrap())
    };
    run(&["build", "-o", driver.to_str().unwrap(), "."])?;
    let operator =
        run(&["list", "-m", "-f", "{{.Dir}}", "github.com/ironcore-dev/metal-operator"])?;
    Some((driver, PathBuf::from(operator.trim()).join("config/crd/bases")))
}

fn machine(name: &str, class: &str) -> String {
    format!(
        r#"{{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {{"name": "{name}"}},
            "spec": {{"class": {{"kind": "MachineClass", "name": "{class}"}}}}}}"#
    )
}

/// A claim as the provider makes one, with a server bound to it.
fn claim(name: &str) -> String {
    format!(
        r#"{{"apiVersion": "metal.ironcore.dev/v1alpha1", "kind": "ServerClaim",
            "metadata": {{"name": "{name}", "labels": {{"cluster": "one"}}}},
            "spec": {{"power": "On", "image": "registry.example.com/os:1", "serverRef": {{"name": "server-1"}}}}}}"#
    )
}

fn claims(stack: &Stack) -> Vec<String> {
    let claims = stack.kubectl().list("serverclaims");
    claims.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn adapter(stack: &Stack, driver: &Path, kubeconfig: &Path) -> Process {
    let (endpoint, token) =
        (format!("http://127.0.0.1:{}", stack.core_port()), stack.file("driver-token"));
    // Its log, which goes to stderr, names the process of the provider.
    let ostler = binaries().join("ostler");
    let args = ["-c", "exec \"$@\" 2>&1", "sh", ostler.to_str().unwrap(), "driver", "adapt"]
        .into_iter()
        .chain(["--instance-name", "metal", "--", driver.to_str().unwrap()]);
    let env = [
        ("OSTLER_ENDPOINT", endpoint.as_str()),
        ("OSTLER_TOKEN_FILE", token.to_str().unwrap()),
        ("METAL_KUBECONFIG", kubeconfig.to_str().unwrap()),
        ("METAL_WITHOUT_APPLY", "true"),
        ("RUST_LOG", "ostler_adapter=info"),
    ];
    Process::start("/bin/sh", args, &env)
}

/// The process of the provider that the adapter starts next.
fn provider(adapter: &mut Process) -> Pid {
    const STARTED: &str = " started process=";
    let line = adapter.line("the start of the provider", |line| line.contains(STARTED));
    Pid::from_raw(line.split_once(STARTED).unwrap().1.parse().unwrap())
}

/// A deletion by a provider whose credentials are refused.
fn refused_credentials_lose_nothing(stack: &Stack, driver: &Path) {
    let refused = stack.file("refused");
    let kubeconfig = std::fs::read_to_string(stack.kubeconfig()).unwrap();
    let token = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    std::fs::write(&refused, kubeconfig.replace(token, "nobody")).unwrap();
    let mut running = adapter(stack, driver, &refused);
    stack.kubectl().run(["delete", "machine", "made", "--wait=false"]);
    // The provider's message does not say that credentials are the cause.
    stack.kubectl().wait("machine", "made", ".status.retry.code", "Unknown");
    assert_eq!(claims(stack), ["adopted", "made", "stray"]);
    running.kill();
}

#[test]
fn an_unmodified_provider_of_machine_controller_manager_runs_machines() {
    let Some((driver, definitions)) = build() else { return };
    let Some(mut stack) = Stack::with_own_api("it makes servers in it") else { return };
    let admin = format!("unix:{}", stack.file("admin.sock").display());
    let token = format!("ironcore-metal.ostler.dev={}", stack.file("driver-token").display());
    stack.core_args([
        "--provider-alias=ironcore-metal=ironcore-metal.ostler.dev",
        "--driver-token",
        &token,
        "--machine-safety-orphan-vms-period=1s",
        "--machine-safety-orphan-vms-grace=0s",
        "--admin-listen",
        &admin,
    ]);
    stack.replace_core();
    for kind in ["serverclaims", "servers"] {
        let file = definitions.join(format!("metal.ironcore.dev_{kind}.yaml"));
        stack.kubectl().run(["apply", "-f", file.to_str().unwrap()]);
    }
    stack.kubectl().apply(CLASSES);
    let mut running = adapter(&stack, &driver, stack.kubeconfig());

    // The instance of machine-controller-manager is adopted by its name.
    stack.kubectl().apply(&claim("adopted"));
    stack.kubectl().apply(&machine("adopted", "metal"));
    stack.kubectl().wait("machine", "adopted", ".status.phase", "Provisioned");

    // A new one waits for its server while every process is killed, and then the provider alone, which its adapter starts again.
    let waiting = ".status.waitingFor.reason";
    stack.kubectl().apply(&machine("made", "metal"));
    stack.kubectl().wait("machine", "made", waiting, "InstanceNotInitialized");
    running.kill();
    stack.kill(Part::Core);
    stack.restart(Part::Core);
    let mut running = adapter(&stack, &driver, stack.kubeconfig());
    kill(provider(&mut running), Signal::SIGKILL).unwrap();
    provider(&mut running);
    let bind = r#"{"spec": {"serverRef": {"name": "server-1"}}}"#;
    stack.kubectl().run(["patch", "serverclaim", "made", "--type=merge", "-p", bind]);
    stack.kubectl().wait("machine", "made", ".status.phase", "Provisioned");
    let secret =
        stack.kubectl().get("serverclaim", "made")["spec"]["ignitionSecretRef"]["name"].clone();
    let ignition = stack.kubectl().get("secret", secret.as_str().unwrap());
    let ignition = BASE64_STANDARD.decode(ignition["data"]["ignition"].as_str().unwrap()).unwrap();
    let user_data = BASE64_STANDARD.encode("I am made");
    let ignition = String::from_utf8(ignition).unwrap();
    assert!(ignition.contains(&user_data) || ignition.contains("I%20am%20made"), "{ignition}");

    // A wrong class makes nothing, and neither does a class without a decision on adoption by name.
    stack.kubectl().apply(&machine("wrong", "wrong"));
    stack.kubectl().wait("machine", "wrong", ".status.lastOperation.errorCode", "Internal");
    stack.kubectl().apply(&machine("undecided", "undecided"));
    stack.kubectl().wait("machine", "undecided", waiting, "AdoptionUndecided");

    // What has no machine is reported, and stays: who made it, a name cannot tell.
    stack.kubectl().apply(&claim("stray"));
    let reported = until_orphans(&admin, "the stray one reported", |now| {
        now["orphans"].as_array().is_some_and(|all| !all.is_empty())
    });
    let orphans = reported["orphans"].as_array().unwrap();
    assert_eq!(orphans.len(), 1, "{reported:#}");
    assert_eq!(orphans[0]["machineName"], "stray");
    assert_eq!(claims(&stack), ["adopted", "made", "stray"]);

    running.kill();
    refused_credentials_lose_nothing(&stack, &driver);
    let _running = adapter(&stack, &driver, stack.kubeconfig());

    // The provider reads nothing with a class that it cannot read, so that machine goes once its class is right.
    stack
        .kubectl()
        .apply(&CLASSES.replace(r#""image": 5"#, r#""image": "registry.example.com/os:1""#));
    // The deletion of the one that was made goes on.
    for name in ["adopted", "wrong", "undecided"] {
        stack.kubectl().run(["delete", "machine", name, "--wait=false"]);
    }
    for name in ["adopted", "made", "wrong", "undecided"] {
        stack.kubectl().wait_gone("machine", name);
    }
    assert_eq!(claims(&stack), ["stray"]);
}

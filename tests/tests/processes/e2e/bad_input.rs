//! Bad input gets a typed reason or a 422 that names the field, and recovers once fixed.

use std::process::Command;

use ostler_tests::process::binaries;
use ostler_tests::stack::{Part, Stack};

use crate::e2e::manifests::{apply_examples, class, machine};

const REASON: &str = ".status.waitingFor.reason";
const PHASE: &str = ".status.currentStatus.phase";
/// `kubectl create -f`.
fn create(stack: &Stack, name: &str, manifest: &str) {
    let file = stack.file(name);
    std::fs::write(&file, manifest).unwrap();
    stack.kubectl().run(["create", "-f", file.to_str().unwrap()]);
}

const GOOD: &str = r#"{"region":"local","image":"fake-1.0"}"#;

#[test]
fn a_machine_whose_class_is_missing_says_so_and_goes_on_when_it_appears() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.apply(&machine("early", "later"));
    kubectl.wait("machine", "early", REASON, "ClassMissing");
    kubectl.apply(&class("later", GOOD));
    kubectl.wait("machine", "early", PHASE, "Running");
}

#[test]
fn a_machine_whose_secret_is_missing_or_of_another_namespace_says_so_and_recovers() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    let missing =
        class("picky", GOOD).replace("secretRef: { name: fake,", "secretRef: { name: nowhere,");
    kubectl.apply(&missing);
    kubectl.apply(&machine("one", "picky"));
    kubectl.wait("machine", "one", REASON, "SecretMissing");
    let denied =
        class("picky", GOOD).replace("namespace: default }\n", "namespace: kube-system }\n");
    kubectl.apply(&denied.replacen("namespace: kube-system", "namespace: default", 1));
    kubectl.wait("machine", "one", REASON, "SecretNamespaceDenied");
    kubectl.apply(&class("picky", GOOD));
    kubectl.wait("machine", "one", PHASE, "Running");
}

#[test]
fn a_machine_without_a_driver_waits_and_goes_on_at_once_when_it_connects() {
    let Some(mut stack) = Stack::start() else { return };
    stack.kill(Part::Driver);
    apply_examples(stack.kubectl());
    stack.kubectl().wait("machine", "fake-1", REASON, "DriverUnavailable");
    stack.restart(Part::Driver);
    stack.kubectl().wait("machine", "fake-1", PHASE, "Running");
}

#[test]
fn a_provider_that_nobody_serves_is_named() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.apply(&class("other", GOOD).replace("fake.ostler.dev", "nobody.example.com"));
    kubectl.apply(&machine("one", "other"));
    kubectl.wait("machine", "one", REASON, "DriverUnavailable");
    let message = kubectl.get("machine", "one")["status"]["waitingFor"]["message"].clone();
    assert!(message.as_str().unwrap().contains("nobody.example.com"), "{message}");
}

#[test]
fn a_provider_spec_that_the_driver_refuses_is_shown_with_its_path_and_recovers() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.apply(&class("typo", r#"{"region":"local","image":"fake-1.0","tagz":{}}"#));
    kubectl.apply(&machine("one", "typo"));
    kubectl.wait("machine", "one", REASON, "InvalidSpec");
    let machine = kubectl.get("machine", "one");
    let shown = machine["status"].to_string();
    assert!(shown.contains("tagz"), "{shown}");
    kubectl.apply(&class("typo", GOOD));
    kubectl.wait("machine", "one", PHASE, "Running");
}

#[test]
fn user_data_and_provider_specs_over_their_limits_are_refused_by_name() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{ name: big, namespace: default }}\nstringData: {{ userData: {} }}\n",
        "x".repeat(257 * 1024)
    );
    // Not applied: kubectl would keep a copy in an annotation, which is too long for one.
    create(&stack, "secret.yaml", &secret);
    kubectl.apply(
        &class("big-data", GOOD).replace("secretRef: { name: fake,", "secretRef: { name: big,"),
    );
    kubectl.apply(&machine("data", "big-data"));
    kubectl.wait("machine", "data", REASON, "UserDataTooLarge");

    let spec = format!(r#"{{"region":"local","image":"{}"}}"#, "y".repeat(129 * 1024));
    create(&stack, "class.yaml", &class("big-spec", &spec));
    kubectl.apply(&machine("spec", "big-spec"));
    kubectl.wait("machine", "spec", REASON, "ProviderSpecTooLarge");
}

#[test]
fn an_invalid_machine_is_refused_with_its_field() {
    let Some(stack) = Stack::start() else { return };
    for (broken, field) in [
        (machine("m", "fake").replace("spec:", "spec:\n  drainTimeout: soon"), "spec.drainTimeout"),
        (
            machine("m", "fake").replace("spec:", "spec:\n  maxEvictRetries: many"),
            "spec.maxEvictRetries",
        ),
    ] {
        let output = stack.kubectl().output(["apply", "-f", "-"], Some(&broken));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(field), "{field}: {said}");
    }
}

#[test]
fn an_instance_without_a_provider_id_and_one_of_another_machine_are_said_and_recover() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    kubectl.wait("machine", "fake-1", PHASE, "Running");
    let taken = kubectl.get("machine", "fake-1")["spec"]["providerID"].clone();
    let answer = |id: &str| {
        let rule = |verb: &str| {
            format!(r#"{{"operation":"{verb}","machine":"odd","returnProviderId":"{id}"}}"#)
        };
        format!(r#"{{"faults":[{},{}]}}"#, rule("CreateMachine"), rule("GetMachineStatus"))
    };
    stack.control(&answer(""));
    kubectl.apply(&machine("odd", "fake"));
    kubectl.wait("machine", "odd", REASON, "EmptyProviderID");
    stack.control(&answer(taken.as_str().unwrap()));
    kubectl.wait("machine", "odd", REASON, "DuplicateProviderID");
    stack.control("{}");
    kubectl.wait("machine", "odd", PHASE, "Running");
    assert_eq!(stack.instances_of("odd").len(), 1);
}

#[test]
fn a_core_refuses_to_run_where_what_it_writes_would_be_dropped_and_says_what_to_do() {
    let Some(mut stack) = Stack::start() else { return };
    stack.kill(Part::Core);
    let old = r#"[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/operation"}]"#;
    let crd = "machines.machine.sapcloud.io";
    stack.kubectl().run(["patch", "crd", crd, "--type=json", "-p", old]);
    let output = Command::new(binaries().join("ostler-server"))
        .args(["--kubeconfig", stack.kubeconfig().to_str().unwrap()])
        .args(["--drivers-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    for needed in ["status.operation", "ostler crds | kubectl apply -f -"] {
        assert!(said.contains(needed), "{needed}: {said}");
    }

    let crds = Command::new(binaries().join("ostler")).arg("crds").output().unwrap();
    stack.kubectl().apply(&String::from_utf8(crds.stdout).unwrap());
    // It gets ready.
    stack.restart(Part::Core);
}

//! A bootstrap provider of a few lines of shell, as docs/preboot.md shows it.

use std::collections::BTreeSet;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ostler_tests::stack::Stack;
use ostler_tests::tools;

use crate::e2e::manifests::apply_examples;

/// Runs the provider once.
fn provide(stack: &Stack) {
    let provider = Command::new(tools::root().join("deploy/examples/preboot/provider.sh"))
        .arg(format!("--kubeconfig={}", stack.kubeconfig().display()))
        .env("KUBECTL", tools::kubectl().unwrap())
        .output()
        .unwrap();
    assert!(provider.status.success(), "{}", String::from_utf8_lossy(&provider.stderr));
}

#[test]
fn a_provider_made_of_shell_boots_a_machine() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    apply_examples(kubectl);
    let examples = tools::root().join("deploy/examples/preboot");
    let example = |name: &str| examples.join(name).to_str().unwrap().to_owned();
    kubectl.run(["apply", "-f", &example("kind.yaml")]);
    kubectl.run(["apply", "-f", &example("role.yaml")]);
    kubectl.run(["wait", "--for=condition=Established", "-f", &example("kind.yaml")]);
    kubectl.run(["apply", "-f", &example("machine.yaml")]);
    kubectl.wait("machine", "booted", ".status.waitingFor.reason", "BootstrapNotReady");
    let machine = kubectl.get("machine", "booted");
    assert_eq!(machine["status"]["phase"], "Pending");
    assert_eq!(stack.instances_of("booted").len(), 0, "no driver was asked");
    assert_eq!(
        kubectl.get("recipe", "booted")["metadata"]["ownerReferences"][0]["uid"],
        machine["metadata"]["uid"]
    );

    provide(&stack);
    kubectl.wait("machine", "booted", ".status.phase", "Running");
    let machine = kubectl.get("machine", "booted");
    assert_eq!(machine["spec"]["bootstrap"]["dataSecretName"], "booted-bootstrap");
    assert_eq!(machine["status"]["bootstrapPhase"], "Cooked");
    assert_eq!(machine["status"]["bootstrapReady"], true);
    assert_eq!(machine["status"]["infrastructureReady"], true);
    assert_eq!(machine["status"]["nodeRef"]["name"], "booted");
    let [instance] = stack.instances_of("booted").try_into().unwrap();
    let data = BASE64_STANDARD.decode(instance.bootstrap.user_data.unwrap().as_base64()).unwrap();
    let data = String::from_utf8(data).unwrap();
    assert!(data.contains("echo 'hello from a recipe'"), "{data}");
    assert!(data.contains("--hostname-override=booted --token="), "{data}");
    let wide = kubectl.run(["get", "machine", "booted", "-o", "wide"]);
    assert!(wide.contains("BOOTSTRAP") && wide.contains("Cooked"), "{wide}");

    kubectl.run(["delete", "machine", "booted", "fake-1", "--wait=false"]);
    kubectl.wait_gone("machine", "booted");
    kubectl.wait_gone("recipe", "booted");
    kubectl.wait_gone("secret", "booted-bootstrap");
    // Two of a deployment, each with a copy of the template.
    kubectl.run(["apply", "-f", &example("workers.yaml")]);
    kubectl.wait("machinedeployment", "booted-workers", ".status.replicas", "2");
    let named = |kind: &str| {
        let names = "jsonpath={.items[*].metadata.name}";
        let found = kubectl.run(["get", kind, "-l", "example=booted-workers", "-o", names]);
        found.split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let recipes = named("recipes");
    assert_eq!((recipes.len(), &recipes), (2, &named("machines")));
    provide(&stack);
    kubectl.wait("machinedeployment", "booted-workers", ".status.readyReplicas", "2");
    kubectl.run(["delete", "machinedeployment", "booted-workers", "--wait=false"]);
    kubectl.wait_gone("machinedeployment", "booted-workers");
    for name in &recipes {
        kubectl.wait_gone("recipe", name);
    }
    let template = kubectl.get("recipetemplate", "workers");
    assert_eq!(template["spec"]["template"]["spec"]["greeting"], "hello from a template");

    kubectl.run(["delete", "-f", &example("kind.yaml"), "-f", &example("role.yaml")]);
}

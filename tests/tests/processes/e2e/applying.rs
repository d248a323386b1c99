//! `kubectl apply --server-side` and `kubectl diff --server-side`.

use ostler_tests::kubectl::Kubectl;
use ostler_tests::stack::Stack;

/// A built-in kind whose containers are merged by name.
fn manifest(image: &str, replicas: &str) -> String {
    format!(
        "apiVersion: apps/v1
kind: Deployment
metadata: {{ name: applied, namespace: default }}
spec:
  {replicas}
  selector: {{ matchLabels: {{ app: applied }} }}
  template:
    metadata: {{ labels: {{ app: applied }} }}
    spec: {{ containers: [{{ name: web, image: '{image}' }}] }}
"
    )
}

fn version(kubectl: &Kubectl) -> String {
    kubectl.run(["get", "deployment", "applied", "-o", "jsonpath={.metadata.resourceVersion}"])
}

#[test]
fn kubectl_applies_on_the_server_tells_conflicts_and_takes_fields_by_force() {
    let Some(stack) = Stack::start() else { return };
    let kubectl = stack.kubectl();
    let apply = |manager: &str, more: &[&str], manifest: &str| {
        let manager = format!("--field-manager={manager}");
        let args = ["apply", "--server-side", &manager, "-f", "-"];
        kubectl.output(args.iter().chain(more), Some(manifest))
    };
    let one = manifest("web:1", "replicas: 2");
    assert!(apply("one", &[], &one).status.success());
    let before = version(kubectl);
    assert!(apply("one", &[], &one).status.success());
    assert_eq!(version(kubectl), before, "the same again is no write");

    let diff = |manifest: &str| {
        let args = ["diff", "--server-side", "--field-manager=one", "-f", "-"];
        kubectl.output(args, Some(manifest))
    };
    assert_eq!(diff(&one).status.code(), Some(0));
    let other = diff(&manifest("web:2", "replicas: 2"));
    let text = String::from_utf8_lossy(&other.stdout).into_owned();
    assert!(other.status.code() == Some(1) && text.contains("web:2"), "{text}");
    assert_eq!(version(kubectl), before, "a diff is no write");

    let refused = apply("two", &[], &manifest("web:2", "paused: true"));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    let field = ".spec.template.spec.containers[name=\"web\"].image";
    assert!(text.contains("conflict with \"one\"") && text.contains(field), "{text}");
    assert!(
        apply("two", &["--force-conflicts"], &manifest("web:2", "paused: true")).status.success()
    );
    let shown =
        "jsonpath={.spec.replicas} {.spec.paused} {.spec.template.spec.containers[*].image}";
    assert_eq!(kubectl.run(["get", "deployment", "applied", "-o", shown]), "2 true web:2");

    // what was applied by the client is taken over
    kubectl.apply(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: applied }\ndata: { k: v, l: w }\n",
    );
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: applied }\ndata: { k: x }\n";
    let taken = kubectl.output(["apply", "--server-side", "-f", "-"], Some(map));
    assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
    assert_eq!(
        kubectl.run(["get", "configmap", "applied", "-o", "jsonpath={.data}"]),
        "{\"k\":\"x\"}"
    );
    kubectl.run(["delete", "deployment/applied", "configmap/applied"]);
}

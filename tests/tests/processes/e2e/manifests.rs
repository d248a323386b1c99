//! What the tests apply: the examples that the README shows, and variations of them.

use ostler_tests::kubectl::Kubectl;
use ostler_tests::tools;

/// Applies `deploy/examples/fake/`: a secret, the class `fake` and the machine `fake-1`.
pub(crate) fn apply_examples(kubectl: &Kubectl) {
    let examples = tools::root().join("deploy/examples/fake");
    kubectl.run(["apply", "-f", examples.to_str().unwrap()]);
}

/// A class that uses the secret of the examples. `provider_spec` is JSON.
pub(crate) fn class(name: &str, provider_spec: &str) -> String {
    format!(
        "apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: {{ name: {name}, namespace: default }}
provider: fake.ostler.dev
providerSpec: {provider_spec}
secretRef: {{ name: fake, namespace: default }}
"
    )
}

/// A machine of a class.
pub(crate) fn machine(name: &str, class: &str) -> String {
    format!(
        "apiVersion: machine.sapcloud.io/v1alpha1
kind: Machine
metadata: {{ name: {name}, namespace: default }}
spec:
  class: {{ kind: MachineClass, name: {class} }}
"
    )
}

/// A pod that is bound to a node, as there is no scheduler.
pub(crate) fn pod(name: &str, node: &str, grace_seconds: u32) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{ name: {name}, namespace: default, labels: {{ app: {name}, ostler.dev/test: \"\" }} }}
spec:
  nodeName: {node}
  terminationGracePeriodSeconds: {grace_seconds}
  tolerations: [{{ operator: Exists }}]
  containers: [{{ name: app, image: pause }}]
"
    )
}

/// A budget that allows no eviction of the pod of this name.
pub(crate) fn blocking_budget(pod: &str) -> String {
    format!(
        "apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{ name: {pod}, namespace: default, labels: {{ ostler.dev/test: \"\" }} }}
spec:
  minAvailable: 1
  selector: {{ matchLabels: {{ app: {pod} }} }}
"
    )
}

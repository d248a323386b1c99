//! Manifests that the tests apply: the examples of the README, and variations.

use ostler_tests::kubectl::Kubectl;
use ostler_tests::tools;

/// The files of one machine by itself: a secret, the class `fake` and the machine `fake-1`.
pub(crate) fn one_machine() -> [String; 3] {
    ["fake/secret.yaml", "fake/class.yaml", "machine/fake-1.yaml"]
        .map(|file| tools::root().join("deploy/examples").join(file).display().to_string())
}

/// Applies the secret and the class `fake` of the examples.
pub(crate) fn apply_class(kubectl: &Kubectl) {
    let [secret, class, _] = one_machine();
    kubectl.run(["apply", "-f", &secret, "-f", &class]);
}

/// Applies [`one_machine`].
pub(crate) fn apply_examples(kubectl: &Kubectl) {
    let files = one_machine();
    kubectl.run(["apply"].into_iter().chain(files.iter().flat_map(|file| ["-f", file])));
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

/// A deployment whose machines have the label `name: <its name>`. The strategy is YAML.
pub(crate) fn deployment(name: &str, class: &str, replicas: usize, strategy: &str) -> String {
    format!(
        "apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineDeployment
metadata: {{ name: {name}, namespace: default }}
spec:
  replicas: {replicas}
  selector: {{ matchLabels: {{ name: {name} }} }}
  strategy: {strategy}
  template:
    metadata: {{ labels: {{ name: {name} }} }}
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

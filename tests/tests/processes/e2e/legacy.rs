//! A driver of the first proposal as a process of its own, beside a core that listens for it.

use ostler_tests::legacy_driver::{KIND, PROVIDER};
use ostler_tests::ports::free_port;
use ostler_tests::process::Process;
use ostler_tests::stack::{Part, Stack};

use crate::e2e::manifests::machine;

const CLASS: &str = r#"
apiVersion: v1
kind: Secret
metadata: { name: old, namespace: default }
stringData: { userData: "name=<<MACHINE_NAME>>", accessKey: key }
---
apiVersion: machine.sapcloud.io/v1alpha1
kind: MachineClass
metadata: { name: old, namespace: default, annotations: { ostler.dev/adopt-by-name: "true" } }
provider: old.example.com
providerSpec:
  region: eu
  tags: { kubernetes.io/cluster/dev: "1", kubernetes.io/role/node: "1" }
secretRef: { name: old, namespace: default }
"#;

/// The Node that a kubelet of the instance would register.
const NODE: &str = r#"
apiVersion: v1
kind: Node
metadata: { name: ip-10-0-0-1 }
spec: { providerID: "old:///eu/i-1" }
status: { conditions: [{ type: Ready, status: "True", reason: KubeletReady }] }
"#;

#[test]
fn a_driver_of_the_first_proposal_makes_and_deletes_the_instance_of_a_machine() {
    let Some(mut stack) = Stack::start() else { return };
    let address = format!("127.0.0.1:{}", free_port());
    let driver = format!("{}={PROVIDER}", KIND.join("/"));
    stack.kill(Part::Core);
    stack.core_args(["--legacy-listen", &address, "--legacy-driver", &driver]);
    stack.restart(Part::Core);
    let mut process = Process::start("legacy-driver", [&address], &[]);
    stack.kubectl().apply(CLASS);
    stack.kubectl().apply(&machine("old-1", "old"));
    process.line("the new instance", |line| line == "instances: old-1");
    stack.kubectl().wait("machine", "old-1", ".spec.providerID", "old:///eu/i-1");
    stack.kubectl().apply(NODE);
    stack.kubectl().wait("machine", "old-1", ".status.currentStatus.phase", "Running");
    stack.kubectl().run(["delete", "machine", "old-1", "--wait=false"]);
    stack.kubectl().wait_gone("machine", "old-1");
    process.line("no instance", |line| line == "instances: ");
}

//! The example of a Deployment in which core, adapter and driver are three users: what kubectl makes of it, as processes of
//! these users, with directories as a kubelet gives them to a pod with an `fsGroup`.
//!
//! Only root can become other users, so for others the test says `skipped`.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use ostler_tests::ports::free_port;
use ostler_tests::process::{Process, binaries};
use ostler_tests::stack::{Part, Stack};
use ostler_tests::tools;
use serde_json::Value;
use tempfile::TempDir;

use crate::sdks::GO;

/// The pod of the example, on this computer.
struct Pod {
    spec: Value,
    /// The directory of the volumes.
    root: TempDir,
    setpriv: PathBuf,
    metrics_port: String,
}

impl Pod {
    fn new(stack: &Stack, setpriv: PathBuf) -> Self {
        let example = tools::root().join("deploy/examples/adapter");
        let made = stack.kubectl().run(["kustomize", example.to_str().unwrap()]);
        let all: Vec<Value> = serde_saphyr::from_multiple(&made).unwrap();
        let deployment = all.into_iter().find(|it| it["kind"] == "Deployment").unwrap();
        let spec = deployment["spec"]["template"]["spec"].clone();
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), Permissions::from_mode(0o755)).unwrap();
        let pod = Self { spec, root, setpriv, metrics_port: free_port().to_string() };
        for volume in ["run/ostler", "run/driver", "cloud"] {
            fs::create_dir_all(pod.at(volume)).unwrap();
            pod.share(volume, 0o2777);
        }
        for (from, to) in [
            (stack.kubeconfig().to_owned(), "kubeconfig"),
            (example.join("access.yaml"), "access.yaml"),
        ] {
            fs::copy(from, pod.at(to)).unwrap();
            pod.share(to, 0o640);
        }
        pod
    }

    fn at(&self, path: &str) -> String {
        self.root.path().join(path).display().to_string()
    }

    /// Gives a path to the group of the pod.
    fn share(&self, path: &str, mode: u32) {
        chown(self.at(path), None, Some(self.id(&self.spec, "fsGroup"))).unwrap();
        fs::set_permissions(self.at(path), Permissions::from_mode(mode)).unwrap();
    }

    /// An id of a container, which may be that of the pod.
    fn id(&self, container: &Value, name: &str) -> u32 {
        let own = container["securityContext"][name].as_u64();
        let id = own.or_else(|| self.spec["securityContext"][name].as_u64());
        u32::try_from(id.unwrap()).unwrap()
    }

    /// What a container is told, with the paths and the port that are its own here.
    fn told(&self, text: &Value) -> String {
        text.as_str()
            .unwrap()
            .replace("/run/ostler", &self.at("run/ostler"))
            .replace("/run/driver", &self.at("run/driver"))
            .replace("/etc/ostler", &self.at(""))
            .replace("$(NAMESPACE)", "default")
            .replace("10259", &self.metrics_port)
            .replace("0.0.0.0", "127.0.0.1")
    }

    /// Starts a container as its user.
    fn start(&self, name: &str, program: &Path, more: &[&str]) -> Process {
        let containers = self.spec["containers"].as_array().unwrap();
        let container = containers.iter().find(|it| it["name"] == name).unwrap();
        // Other users may not enter the directory of the build.
        fs::copy(program, self.at(name)).unwrap();
        let mut args = vec![
            format!("--reuid={}", self.id(container, "runAsUser")),
            format!("--regid={}", self.id(container, "runAsGroup")),
            format!("--groups={}", self.id(&self.spec, "fsGroup")),
            "--no-new-privs".to_owned(),
            "--bounding-set=-all".to_owned(),
            "--inh-caps=-all".to_owned(),
            self.at(name),
        ];
        args.extend(container["args"].as_array().unwrap().iter().map(|it| self.told(it)));
        args.extend(more.iter().map(|&it| it.to_owned()));
        let cloud = self.at("cloud/data");
        let socket = container["env"].as_array().into_iter().flatten();
        let socket = socket.filter(|it| it["value"].is_string());
        let socket: Vec<(&str, String)> =
            socket.map(|it| (it["name"].as_str().unwrap(), self.told(&it["value"]))).collect();
        let mut env = vec![("CLOUD_FILE", cloud.as_str())];
        env.extend(socket.iter().map(|(name, value)| (*name, value.as_str())));
        Process::start(self.setpriv.to_str().unwrap(), args, &env)
    }
}

#[test]
fn the_core_the_adapter_and_the_driver_of_the_example_are_three_users_and_run_a_machine() {
    if !nix::unistd::geteuid().is_root() {
        return tools::skip("root, who can become other users,");
    }
    let Some(setpriv) = tools::find("setpriv of util-linux", &["setpriv"]) else { return };
    let Some(clone) = GO.clone() else { return };
    let Some(mut stack) = Stack::with_own_api("it replaces the core") else { return };
    stack.kill(Part::Core);
    stack.kill(Part::Driver);
    stack.delete_leases();

    // In the worst order: each waits for what is not there yet.
    let pod = Pod::new(&stack, setpriv.clone());
    let kubeconfig = format!("--kubeconfig={}", pod.at("kubeconfig"));
    let _adapter = pod.start("adapter", &binaries().join("ostler-adapter"), &[]);
    let _driver = pod.start("driver", &clone.join("sdk/go/example/go-driver"), &[]);
    let more = [kubeconfig.as_str(), "--target-kubeconfig=none"];
    let _core = pod.start("core", &binaries().join("ostler-server"), &more);

    let example = tools::root().join("sdk/go/example");
    stack.kubectl().run(["apply", "-f", example.to_str().unwrap()]);
    stack.kubectl().wait("machine", "go-1", ".status.currentStatus.phase", "Available");
    for socket in ["run/ostler/core/core.sock", "run/driver/driver/driver.sock"] {
        let stranger = ["--reuid=60000", "--regid=60000", "--clear-groups", "test", "-e"];
        let mut enters = Command::new(&setpriv);
        assert!(!enters.args(stranger).arg(pod.at(socket)).status().unwrap().success(), "{socket}");
    }
    stack.kubectl().run(["delete", "machine", "go-1", "--wait=false"]);
    stack.kubectl().wait_gone("machine", "go-1");
}

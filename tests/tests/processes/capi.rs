//! `sdk/go/capi`, the driver whose cloud is Cluster API, against the real definitions of its Machines and Clusters, with
//! providers of the tests (`sdk/go/capi/example`) in the place of its core, an infrastructure and a bootstrap provider.
//!
//! Without Go, or without its modules, the tests say `skipped`.

#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value,
    clippy::too_many_lines,
    reason = "tests, of which one is a whole life"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use ostler_tests::process::{PATIENCE, Process, binaries, pause};
use ostler_tests::stack::{Part, Stack};
use ostler_tests::tools;
use serde_json::{Value, json};

const MODULE: &str = "sdk/go/capi";
/// As its README says.
const CLUSTER_API: &str = "sigs.k8s.io/cluster-api@v1.14.2";
const OURS: &str = "machines.machine.sapcloud.io";
const THEIRS: &str = "machines.cluster.x-k8s.io";
/// What is left of a machine nowhere, and once while it is there.
const MADE: [&str; 2] = [THEIRS, "examplemachines"];

/// Builds that all tests share.
struct Built {
    driver: PathBuf,
    providers: PathBuf,
    /// Definitions of Cluster API.
    kinds: PathBuf,
}

fn build() -> Option<&'static Built> {
    static BUILT: OnceLock<Option<Built>> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let go = tools::find("go", &["go"])?;
            let module = tools::root().join(MODULE);
            let run = |args: &[&str]| {
                let output = Command::new(&go).args(args).current_dir(&module).output().unwrap();
                if !output.status.success() {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    tools::skip(&format!("what {MODULE} needs ({said})"));
                    return None;
                }
                Some(String::from_utf8(output.stdout).unwrap())
            };
            let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
            let (driver, providers) = (target.join("capi-driver"), target.join("capi-providers"));
            run(&["build", "-o", driver.to_str().unwrap(), "."])?;
            run(&["build", "-o", providers.to_str().unwrap(), "./example"])?;
            let module: Value =
                serde_json::from_str(&run(&["mod", "download", "-json", CLUSTER_API])?).unwrap();
            let kinds = Path::new(module["Dir"].as_str().unwrap()).join("core/config/crd/bases");
            Some(Built { driver, providers, kinds })
        })
        .as_ref()
}

/// A stack with the kinds of Cluster API, providers that run, and the driver.
struct Capi {
    stack: Stack,
    built: &'static Built,
    driver: Option<Process>,
    providers: Option<Process>,
}

impl Capi {
    fn start() -> Option<Self> {
        let built = build()?;
        let mut stack = Stack::with_own_api("it makes the Machines of Cluster API in it")?;
        let token = format!("capi.ostler.dev={}", stack.file("driver-token").display());
        stack.core_args(["--driver-token", &token, "--machine-creation-timeout=20s"]);
        stack.replace_core();
        for kind in ["machines", "clusters"] {
            let file = built.kinds.join(format!("cluster.x-k8s.io_{kind}.yaml"));
            stack.kubectl().run(["apply", "-f", file.to_str().unwrap()]);
        }
        let example = tools::root().join(MODULE).join("example");
        for file in ["kinds.yaml", "templates.yaml"] {
            stack.kubectl().run(["apply", "-f", example.join(file).to_str().unwrap()]);
        }
        let mut it = Self { stack, built, driver: None, providers: None };
        it.start_providers();
        stack_secrets(&it.stack);
        for file in ["class.yaml", "alt-class.yaml"] {
            let file = example.join("sanity").join(file);
            it.stack.kubectl().run(["apply", "-f", file.to_str().unwrap()]);
        }
        it.start_driver();
        Some(it)
    }

    fn start_providers(&mut self) {
        let kubeconfig = self.stack.kubeconfig().to_str().unwrap().to_owned();
        let dir = self.stack.file("");
        let env = [("KUBECONFIG", kubeconfig.as_str())];
        let program = self.built.providers.to_str().unwrap();
        let mut providers = Process::start(program, ["run", dir.to_str().unwrap()], &env);
        providers.line("`ready`", |line| line == "ready");
        self.providers = Some(providers);
    }

    fn start_driver(&mut self) {
        let endpoint = format!("http://127.0.0.1:{}", self.stack.core_port());
        let token = self.stack.file("driver-token");
        let env = [
            ("OSTLER_ENDPOINT", endpoint.as_str()),
            ("OSTLER_TOKEN_FILE", token.to_str().unwrap()),
        ];
        let args = ["driver", "adapt", "--instance-name", "capi", "--"].into_iter().chain([self
            .built
            .driver
            .to_str()
            .unwrap()]);
        self.driver = Some(Process::start("ostler", args, &env));
    }

    fn kubectl(&self) -> &ostler_tests::kubectl::Kubectl {
        self.stack.kubectl()
    }

    /// The API takes so many changes of the driver more.
    fn break_after(&self, changes: u32) {
        fs::write(self.stack.file("outage"), changes.to_string()).unwrap();
    }

    fn until(&self, what: &str, is: impl Fn(&Self) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is(self) {
            let seen = || self.kubectl().list(OURS);
            assert!(Instant::now() < until, "{what}: {:#?}", seen());
            pause();
        }
    }

    fn names(&self, kind: &str) -> Vec<String> {
        let all = self.kubectl().list(kind);
        all.iter().map(|it| it["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn machine(&self, name: &str, class: &str) {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": { "name": name },
            "spec": { "class": { "kind": "MachineClass", "name": class } },
        });
        self.kubectl().apply(&machine.to_string());
    }

    fn delete(&self, name: &str) {
        self.kubectl().run(["delete", OURS, name, "--wait=false"]);
    }

    fn class(&self, name: &str, secret: &str, spec: Value) {
        let class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "metadata": { "name": name },
            "provider": "capi.ostler.dev", "secretRef": { "name": secret, "namespace": "default" }, "providerSpec": spec,
        });
        self.kubectl().apply(&class.to_string());
    }

    fn template(&self, name: &str, spec: Value) {
        let template = json!({
            "apiVersion": "infrastructure.example.com/v1", "kind": "ExampleMachineTemplate", "metadata": { "name": name },
            "spec": { "template": { "spec": spec } },
        });
        self.kubectl().apply(&template.to_string());
    }

    fn nothing_is_left(&self) {
        for kind in MADE.into_iter().chain(["exampleconfigs"]) {
            self.until(&format!("no {kind} are left"), |it| it.names(kind).is_empty());
        }
        self.until("no user data is left", |it| {
            it.names("secrets").iter().all(|name| !name.ends_with("-user-data"))
        });
    }
}

fn spec(template: &str) -> Value {
    json!({ "clusterName": "one", "infrastructureTemplateRef": {
        "apiGroup": "infrastructure.example.com", "kind": "ExampleMachineTemplate", "name": template } })
}

/// Secret `capi` as the providers wrote it, and `theirs` without user data: the bootstrap provider brings that.
fn stack_secrets(stack: &Stack) {
    let text = fs::read_to_string(stack.file("secret.yaml")).unwrap();
    stack.kubectl().apply(&text);
    let mut theirs: Value = serde_json::from_str(&text).unwrap();
    theirs["metadata"]["name"] = json!("theirs");
    theirs["data"].as_object_mut().unwrap().remove("userData");
    stack.kubectl().apply(&theirs.to_string());
}

#[test]
fn machines_of_cluster_api_live_a_whole_life() {
    let Some(mut it) = Capi::start() else { return };
    let kubectl = || it.stack.kubectl();
    let deployment = |class: &str| {
        json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineDeployment", "metadata": { "name": "five" },
            "spec": { "replicas": 5, "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 2, "maxUnavailable": 0 } }, "selector": { "matchLabels": { "of": "five" } }, "template": {
                "metadata": { "labels": { "of": "five" } },
                "spec": { "class": { "kind": "MachineClass", "name": class } } } },
        })
        .to_string()
    };
    let available = |count: &str| {
        kubectl().wait(
            "machinedeployments.machine.sapcloud.io",
            "five",
            ".status.availableReplicas",
            count,
        );
    };
    kubectl().apply(&deployment("capi-class"));
    available("5");
    for kind in MADE {
        assert_eq!(it.names(kind).len(), 5, "{kind}");
    }
    let made = kubectl().list(THEIRS);
    let first = &made[0];
    let notes = &first["metadata"]["annotations"];
    assert_eq!(notes["machine.cluster.x-k8s.io/exclude-node-draining"], "");
    let box_of = kubectl().get("examplemachines", first["metadata"]["name"].as_str().unwrap());
    assert_eq!(box_of["metadata"]["annotations"]["cluster.x-k8s.io/cloned-from-name"], "small");
    assert_eq!(box_of["metadata"]["ownerReferences"][0]["uid"], first["metadata"]["uid"]);
    assert_eq!(box_of["metadata"]["labels"]["size"], "small");

    // Labels of the class reach the Machine, its clone and, through Cluster API, the Node of every one that runs.
    let hot = tools::root().join(MODULE).join("example/sanity/hot-class.yaml");
    let hot = fs::read_to_string(hot).unwrap().replace("name: capi-hot", "name: capi-class");
    kubectl().apply(&hot);
    let is_mews = |it: &Value| it["metadata"]["labels"]["node.cluster.x-k8s.io/team"] == "mews";
    for kind in MADE {
        it.until(&format!("labels of {kind}"), |it| it.kubectl().list(kind).iter().all(is_mews));
    }
    assert_eq!(it.kubectl().list(THEIRS).len(), 5, "none was replaced");
    let uids = |it: &Capi| -> Vec<Value> {
        it.kubectl().list(THEIRS).iter().map(|it| it["metadata"]["uid"].clone()).collect()
    };

    // A user deletes the infrastructure of one machine. Its Node is as it was, but the driver tells, and a new machine
    // takes the place of the lost one.
    let (lost, before) = (first["metadata"]["name"].as_str().unwrap().to_owned(), uids(&it));
    kubectl().run(["delete", "examplemachines", &lost, "--wait=false"]);
    it.until("the lost one is replaced", |it| {
        let names = it.names(THEIRS);
        names.len() == 5 && !names.contains(&lost)
    });
    available("5");
    assert_eq!(uids(&it).iter().filter(|uid| before.contains(uid)).count(), 4);

    // Another template rolls them, while the driver, the core and the providers are killed.
    kubectl().apply(&deployment("capi-alt"));
    it.until("the rollout goes on", |it| {
        it.kubectl()
            .list("examplemachines")
            .iter()
            .any(|it| it["metadata"]["labels"]["size"] == "large")
    });
    it.driver.take().unwrap().kill();
    it.providers.take().unwrap().kill();
    it.stack.kill(Part::Core);
    it.stack.restart(Part::Core);
    it.start_providers();
    stack_secrets(&it.stack);
    it.start_driver();
    it.until("all are of the new template", |it| {
        let all = it.kubectl().list("examplemachines");
        all.len() == 5 && all.iter().all(|it| it["metadata"]["labels"]["size"] == "large")
    });
    it.stack.kubectl().wait(
        "machinedeployments.machine.sapcloud.io",
        "five",
        ".status.availableReplicas",
        "5",
    );
    it.kubectl().run(["delete", "machinedeployments.machine.sapcloud.io", "five", "--wait=false"]);
    it.until("all are gone", |it| it.names(OURS).is_empty());
    it.nothing_is_left();
}

#[test]
#[ignore = "takes minutes: cargo test -p ostler-tests --test processes capi:: -- --ignored"]
fn a_driver_that_is_killed_at_any_write_doubles_nothing_and_leaves_nothing() {
    let Some(mut it) = Capi::start() else { return };
    let theirs = |template: &str| {
        let mut spec = spec(template);
        spec["bootstrapTemplateRef"] = json!({ "apiGroup": "bootstrap.example.com", "kind": "ExampleConfigTemplate", "name": "workers" });
        spec
    };
    it.class("theirs", "theirs", theirs("small"));
    for (class, machine) in [("capi-class", "ours"), ("theirs", "theirs")] {
        for writes in 1..=3 {
            let name = format!("{machine}-{writes}");
            it.break_after(writes);
            it.machine(&name, class);
            it.until("so many writes", |it| {
                fs::read_to_string(it.stack.file("outage")).unwrap() == "0"
            });
            it.driver.take().unwrap().kill();
            fs::remove_file(it.stack.file("outage")).unwrap();
            it.start_driver();
            it.kubectl().wait(OURS, &name, ".status.phase", "Running");
            for kind in MADE {
                assert_eq!(it.names(kind), [name.as_str()], "after {writes} writes");
            }
            let secret =
                it.kubectl().get(THEIRS, &name)["spec"]["bootstrap"]["dataSecretName"].clone();
            let secret = it.kubectl().get("secret", secret.as_str().unwrap());
            assert_eq!(secret["data"]["value"], "SSBqb2lu", "I join");
            // The deletion is one write of the driver; Cluster API does the rest.
            it.break_after(1);
            it.delete(&name);
            it.until("the deletion", |it| {
                fs::read_to_string(it.stack.file("outage")).unwrap() == "0"
            });
            it.driver.take().unwrap().kill();
            fs::remove_file(it.stack.file("outage")).unwrap();
            it.start_driver();
            it.kubectl().wait_gone(OURS, &name);
            it.nothing_is_left();
        }
    }
}

#[test]
#[ignore = "takes minutes: cargo test -p ostler-tests --test processes capi:: -- --ignored"]
fn a_machine_of_cluster_api_that_cannot_be_says_why() {
    let Some(it) = Capi::start() else { return };
    let says = |name: &str, what: &str| {
        it.until(what, |it| {
            let machine = it.kubectl().get(OURS, name);
            machine["status"]["lastOperation"]["description"]
                .as_str()
                .is_some_and(|it| it.contains(what))
        });
    };
    let mut foreign = spec("small");
    foreign["infrastructureTemplateRef"]["namespace"] = json!("kube-system");
    it.class("foreign", "capi", foreign);
    it.machine("foreign", "foreign");
    says("foreign", "a template is cloned in its own namespace");

    let mut both = spec("small");
    both["bootstrapTemplateRef"] = json!({ "apiGroup": "bootstrap.example.com", "kind": "ExampleConfigTemplate", "name": "workers" });
    it.class("both", "capi", both);
    it.machine("both", "both");
    says("both", "one of the two starts the machine");

    it.class("absent", "capi", spec("absent"));
    it.machine("absent", "absent");
    says("absent", "there is no ExampleMachineTemplate absent");

    let mut later = spec("small");
    later["infrastructureTemplateRef"]["apiGroup"] = json!("later.example.com");
    it.class("later", "capi", later);
    it.machine("later", "later");
    says("later", "does not serve ExampleMachineTemplate.later.example.com");

    it.kubectl().run([
        "patch",
        "clusters.cluster.x-k8s.io",
        "one",
        "--type=merge",
        "-p",
        r#"{"spec": {"paused": true}}"#,
    ]);
    it.machine("paused", "capi-class");
    says("paused", "Cluster one is paused");
    it.kubectl().run([
        "patch",
        "clusters.cluster.x-k8s.io",
        "one",
        "--type=merge",
        "-p",
        r#"{"spec": {"paused": false}}"#,
    ]);
    for name in ["foreign", "both", "absent", "later", "paused"] {
        it.delete(name);
        it.kubectl().wait_gone(OURS, name);
    }
    it.nothing_is_left();

    // A machine that never gets ready fails in the end, and its deletion removes all of its objects.
    it.template("never", json!({ "never": true }));
    it.class("never", "capi", spec("never"));
    it.machine("never", "never");
    it.kubectl().wait(OURS, "never", ".status.currentStatus.phase", "Failed");
    assert_eq!(it.names(THEIRS), ["never"]);
    // Another controller holds the clone: it is named.
    let hold = r#"{"metadata": {"finalizers": ["example.com/backup", "examplemachine.infrastructure.example.com"]}}"#;
    it.kubectl().run(["patch", "examplemachines", "never", "--type=merge", "-p", hold]);
    it.delete("never");
    says("never", "example.com/backup");
    assert_eq!(it.names("examplemachines"), ["never"]);
    let release = r#"{"metadata": {"finalizers": []}}"#;
    it.kubectl().run(["patch", "examplemachines", "never", "--type=merge", "-p", release]);
    it.kubectl().wait_gone(OURS, "never");
    it.nothing_is_left();
}

#[test]
#[ignore = "takes minutes: cargo test -p ostler-tests --test processes capi:: -- --ignored"]
fn the_driver_of_cluster_api_passes_the_suite() {
    let Some(it) = Capi::start() else { return };
    let sanity = tools::root().join(MODULE).join("example/sanity");
    let file = |name: &str| sanity.join(name).display().to_string();
    let mut command = Command::new(binaries().join("ostler"));
    command.args(["sanity", "--unary", "--parallel", "4"]);
    command.args(["--driver-cmd", it.built.driver.to_str().unwrap()]);
    command.args(["--probe-cmd", &format!("{} probe", it.built.providers.display())]);
    for (flag, name) in [
        ("--class", "class.yaml"),
        ("--alt-class", "alt-class.yaml"),
        ("--hot-class", "hot-class.yaml"),
        ("--bad-class", "bad-class.yaml"),
        ("--slow-class", "slow-class.yaml"),
    ] {
        command.args([flag, &file(name)]);
    }
    for (flag, name) in [("--secret", "secret.yaml"), ("--bad-secret", "bad-secret.yaml")] {
        command.args([flag, it.stack.file(name).to_str().unwrap()]);
    }
    let output = command
        .env("KUBECONFIG", it.stack.kubeconfig())
        .env("CAPI_EXAMPLE", it.stack.file(""))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(" 0 failed"), "{said}");
}

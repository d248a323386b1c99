//! The unary drivers of `sdk/`, set up and started as their pages say: they pass the conformance suite behind the
//! adapter, and `ostler up` runs machines with them. And a peer in `tests/stream_peer` that speaks the stream itself, as
//! only an author without the adapter would: a second implementation of the session keeps the contract honest.
//!
//! Without the tools of a language, or without its packages, its tests say `skipped`.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

use ostler_lifecycle::digest;
use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::{PATIENCE, Process, binaries};
use ostler_tests::{repository, tools};
use serde_json::json;
use tempfile::TempDir;

/// The example of one language.
pub(crate) struct Sdk {
    /// As in `sdk/<name>`, the provider, the provider ids and the machine of the example.
    name: &'static str,
    /// A word of the page's block of commands that sets the SDK up.
    set_up: &'static str,
    /// In a clone, as the other paths.
    driver: &'static str,
    probe: &'static [&'static str],
    /// Folders that the page needs.
    needs: &'static [&'static str],
    clone: OnceLock<Option<PathBuf>>,
}

static PYTHON: Sdk = Sdk {
    name: "python",
    set_up: "-m venv",
    driver: "sdk/python/python-driver",
    probe: &["sdk/python/.venv/bin/python", "sdk/python/probe.py"],
    needs: &["proto", "sdk/python", "tests/stream_peer"],
    clone: OnceLock::new(),
};

pub(crate) static GO: Sdk = Sdk {
    name: "go",
    set_up: "go build",
    driver: "sdk/go/example/go-driver",
    probe: &["sdk/go/example/go-driver", "probe"],
    needs: &["sdk/go"],
    clone: OnceLock::new(),
};

static TYPESCRIPT: Sdk = Sdk {
    name: "typescript",
    set_up: "npm ci",
    driver: "sdk/typescript/typescript-driver",
    probe: &[],
    needs: &["proto", "sdk/typescript"],
    clone: OnceLock::new(),
};

/// The clone of the driver in Python, for tests that change it.
pub(crate) fn python() -> Option<&'static Path> {
    PYTHON.clone()
}

/// A process that is killed when the test ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _already_reaped = self.0.wait();
    }
}

impl Sdk {
    /// A fresh clone in which the page's set-up was done; `None` if this machine cannot.
    pub(crate) fn clone(&self) -> Option<&Path> {
        self.clone.get_or_init(|| self.set_up()).as_deref()
    }

    fn set_up(&self) -> Option<PathBuf> {
        match self.name {
            "python" => tools::python_with_venv()?,
            "typescript" => tools::find("npm", &["npm"])?,
            name => tools::find(name, &[name])?,
        };
        // All runs share a clone, whose content is replaced.
        let clone = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-driver", self.name));
        copy_of(&clone, self.needs);
        let (done, said) = shell(&clone, &self.page_commands(self.set_up));
        if !done {
            tools::skip(&format!("what sdk/{}/README.md needs ({})", self.name, said.trim()));
            return None;
        }
        Some(clone)
    }

    /// The first block of commands on the page that has `mark` in it.
    fn page_commands(&self, mark: &str) -> String {
        let blocks = commands(&format!("sdk/{}/README.md", self.name));
        blocks.into_iter().find(|block| block.contains(mark)).unwrap()
    }

    fn passes_the_suite(&self) {
        let Some(clone) = self.clone() else { return };
        let (green, said) = shell(clone, &self.page_commands("sanity --unary"));
        let verdict = said.lines().find_map(|line| line.rsplit_once(" in ").filter(is_conformant));
        let page = fs::read_to_string(clone.join("sdk").join(self.name).join("README.md")).unwrap();
        // Each MUST was checked, and the page shows what its reader sees.
        let shown = verdict.is_some_and(|(verdict, _)| page.contains(verdict));
        assert!(green && shown, "{said}");
    }

    /// Calls the driver on its socket, as an author does by hand.
    fn answers_by_hand(&self) {
        const SERVICE: &str = "ostler.driver.v1alpha1.MachineDriverService";
        const CREATE: &str = r#"{"context": {"operation_id": "ID", "cluster_id": "c", "target": {"uid": "u", "name": "m"},
            "timeout": "600s", "secret": {"apiKey": "a2V5"}, "machine_class": {"provider_spec_json":
            "{\"size\": \"small\", \"image\": \"linux\", \"bootSeconds\": 600}"}}}"#;
        let Some(grpcurl) = tools::find("grpcurl", &["grpcurl"]) else { return };
        let Some(clone) = self.clone() else { return };
        let dir = TempDir::new().unwrap();
        let socket = dir.path().join("s");
        let cloud = (self.name == "typescript").then(|| cloud(clone));
        let driver = Command::new(clone.join(self.driver))
            .env("CLOUD_URL", cloud.as_ref().map_or("", |(_, address)| address))
            .env("OSTLER_DRIVER_SOCKET", &socket)
            .env("CLOUD_FILE", dir.path().join("cloud"))
            .spawn();
        let _driver = Ended(driver.unwrap());
        let address = format!("unix:{}", socket.display());
        let command = |args: &[&str]| {
            let mut command = Command::new(&grpcurl);
            command.arg("-plaintext").args(args);
            command
        };
        let call =
            |data: &str, call: &str| command(&["-d", data, &address, &format!("{SERVICE}/{call}")]);
        let ask = |data: &str, name: &str| {
            let output = call(data, name).output().unwrap();
            let said = [output.stdout, output.stderr].concat();
            (output.status.success(), String::from_utf8(said).unwrap())
        };
        let info = |what: &str, fits: &dyn Fn(&str) -> bool| {
            let until = Instant::now() + PATIENCE;
            loop {
                let (done, said) = ask("{}", "GetInfo");
                if done && fits(&said) {
                    return;
                }
                assert!(Instant::now() < until, "{what}: {said}");
            }
        };
        // The client knows the messages only from the driver's reflection.
        info("it says who it is", &|said| said.contains(&format!("\"{}.ostler.dev\"", self.name)));
        let listed = command(&[&address, "list"]).output().unwrap();
        assert!(String::from_utf8(listed.stdout).unwrap().contains(SERVICE));

        let create = |id: &str| CREATE.replace("ID", id);
        let first = call(&create("first"), "CreateMachine")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        info("it lists what runs", &|said| said.contains("\"first\""));
        let (done, said) = ask(&create("second"), "CreateMachine");
        assert!(!done && said.contains("TARGET_BUSY"), "{said}");
        let (done, said) = ask(r#"{"operation_id": "first"}"#, "CancelOperation");
        assert!(done, "{said}");
        let first = first.wait_with_output().unwrap();
        let said = String::from_utf8(first.stderr).unwrap();
        assert!(!first.status.success() && said.contains("PARTIAL"), "{said}");
        info("it lists it no more", &|said| !said.contains("\"first\""));
    }

    /// The tags of each instance in the cloud, without the identity.
    fn tags(&self, clone: &Path, cloud: &str) -> Vec<serde_json::Value> {
        let [program, arguments @ ..] = self.probe else { return Vec::new() };
        let probe = Command::new(clone.join(program))
            .args(arguments)
            .arg("instances")
            .current_dir(clone)
            .env("CLOUD_FILE", cloud)
            .output()
            .unwrap();
        let instances: serde_json::Value = serde_json::from_slice(&probe.stdout).unwrap();
        let instances = instances.as_array().unwrap().iter();
        let mut tags: Vec<_> = instances.map(|it| it["tags"].clone()).collect();
        for tags in &mut tags {
            let identity = |key: &str| key.starts_with("ostler.dev/");
            tags.as_object_mut().unwrap().retain(|key, _| !identity(key));
        }
        tags
    }

    fn runs_a_machine(&self) {
        let (Some(clone), Some(program)) = (self.clone(), tools::kubectl()) else { return };
        let dir = TempDir::new().unwrap();
        let data = dir.path().join("data");
        let kubectl = Kubectl::new(program, data.join("kubeconfig"), dir.path());
        let cloud = dir.path().join("cloud").display().to_string();
        let up = [
            "up",
            "--data-dir",
            data.to_str().unwrap(),
            "--api-listen",
            "127.0.0.1:0",
            "--drivers-listen",
            "127.0.0.1:0",
            "--driver",
            &format!("{}.ostler.dev={}", self.name, clone.join(self.driver).display()),
            "--driver-env",
            "CLOUD_FILE",
            "--driver-env",
            "LOG_LEVEL",
        ];
        let mut process =
            Process::start("ostler", up, &[("CLOUD_FILE", &cloud), ("LOG_LEVEL", "ERROR")]);
        process.line("`ready`", |line| line.starts_with("ready"));
        let tags = || self.tags(clone, &cloud);

        let example = clone.join("sdk").join(self.name).join("example");
        let machine = format!("{}-1", self.name);
        kubectl.run(["apply", "-f", example.to_str().unwrap()]);
        kubectl.wait("machine", &machine, ".status.phase", "Provisioned");
        let id = kubectl.get("machine", &machine)["spec"]["providerID"].clone();
        assert!(id.as_str().unwrap().starts_with(&format!("{}:///", self.name)), "{id}");
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": &machine }, "spec": { "providerID": id },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
        });
        kubectl.output(["create", "-f", "-"], Some(&node.to_string()));
        kubectl.wait("machine", &machine, ".status.phase", "Running");
        assert_eq!(tags(), [json!({ "team": "stables" })]);

        let class = fs::read_to_string(example.join("class.yaml")).unwrap();
        kubectl.apply(&class.replace("team: stables", "team: mews"));
        let updated = r#".status.conditions[?(@.type=="HotUpdated")].status"#;
        kubectl.wait("machine", &machine, updated, "True");
        assert_eq!(tags(), [json!({ "team": "mews" })]);

        kubectl.run(["delete", "machine", &machine, "--wait=false"]);
        kubectl.wait_gone("machine", &machine);
        assert!(tags().is_empty());
        process.terminate();
        assert!(process.wait().success());
    }
}

/// The cloud of the example in TypeScript, and where it is.
fn cloud(clone: &Path) -> (Process, String) {
    let program = clone.join("sdk/typescript/build/cloud.js").display().to_string();
    let args = ["node".to_owned(), program, "serve".to_owned()];
    let mut cloud = Process::start("/usr/bin/env", args, &[]);
    let address = cloud.line("its address", |line| line.starts_with("http://"));
    (cloud, address)
}

fn is_conformant((line, _): &(&str, &str)) -> bool {
    line.contains(" is conformant: ")
}

/// Makes `clone` a copy of these folders of the repository, and of nothing else.
fn copy_of(clone: &Path, folders: &[&str]) {
    if clone.exists() {
        fs::remove_dir_all(clone).unwrap();
    }
    for file in repository::files().unwrap() {
        if folders.iter().any(|folder| file.path.starts_with(folder)) {
            let copy = clone.join(&file.path);
            fs::create_dir_all(copy.parent().unwrap()).unwrap();
            fs::copy(tools::root().join(&file.path), copy).unwrap();
        }
    }
}

/// The blocks of commands of a page.
fn commands(page: &str) -> Vec<String> {
    blocks(&fs::read_to_string(tools::root().join(page)).unwrap())
}

fn blocks(page: &str) -> Vec<String> {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

/// Runs commands of a page; returns whether they succeeded, and their output.
fn shell(clone: &Path, commands: &str) -> (bool, String) {
    let ostler = binaries().join("ostler");
    let commands = commands.replace("cargo run --release --", ostler.to_str().unwrap());
    let output = Command::new("sh").args(["-euc", &commands]).current_dir(clone).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Without blanks and comments.
fn lines_of(path: &str) -> usize {
    let text = fs::read_to_string(tools::root().join(path)).unwrap();
    let counts = |line: &&str| !line.is_empty() && !line.starts_with(['#', '/']);
    text.lines().map(str::trim).filter(counts).count()
}

#[test]
fn the_examples_are_as_short_as_they_are_to_be_and_their_pages_say_how_short() {
    let files = [
        ("sdk/go/README.md", "sdk/go/example/driver.go", 150),
        ("sdk/typescript/README.md", "sdk/typescript/driver.ts", 180),
        ("sdk/typescript/README.md", "sdk/typescript/ostler.ts", 150),
        ("sdk/python/README.md", "sdk/python/driver.py", 120),
        ("sdk/python/README.md", "sdk/python/ostler_driver.py", 150),
    ];
    for (page, file, limit) in files {
        let (lines, name) = (lines_of(file), file.rsplit('/').next().unwrap());
        let page = fs::read_to_string(tools::root().join(page)).unwrap();
        let row = page.lines().find(|row| row.starts_with('|') && row.contains(name)).unwrap();
        assert!(lines < limit && row.contains(&format!("{lines} lines")), "{lines}: {row}");
        let authors = fs::read_to_string(tools::root().join("docs/driver-authors.md")).unwrap();
        assert!(
            authors.contains(&format!("{lines} lines"))
                || authors.contains(&format!("{lines} around"))
        );
    }
}

#[test]
fn the_python_driver_passes_the_whole_suite() {
    PYTHON.passes_the_suite();
}

#[test]
fn the_python_driver_with_groups_keeps_all_rules_of_groups() {
    let Some(clone) = PYTHON.clone() else { return };
    let driver = "--driver-cmd 'sdk/python/.venv/bin/python sdk/python/groups.py'";
    let suite = PYTHON
        .page_commands("sanity --unary")
        .replace("--driver-cmd sdk/python/python-driver", driver)
        .replace("--unary", "--unary --focus '^pool/'");
    let cloud = clone.join("groups.sqlite3");
    let (green, said) = shell(clone, &format!("export CLOUD_FILE='{}'\n{suite}", cloud.display()));
    assert!(green, "{said}");
    for check in [
        "pool/cloud-away",
        "pool/bad-secret",
        "pool/delete-partial",
        "pool/update-undrained",
        "pool/pages",
    ] {
        assert!(said.contains(&format!("✓ {check}")), "{said}");
    }
}

/// Where the packages are that pip installs for the examples in Python: with what is built, so that the next run has them.
fn python_packages(clone: &Path) -> Option<PathBuf> {
    let wanted = "sdk/python/examples/requirements.txt";
    let text = fs::read(clone.join(wanted)).unwrap();
    let name = format!("python-{}", digest::of_bytes(&text));
    let (there, made) = (
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name),
        TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
    );
    if there.exists() {
        return Some(there);
    }
    let install = format!(
        "sdk/python/.venv/bin/pip install --quiet --target '{}' -r {wanted}",
        made.path().display()
    );
    let (done, said) = shell(clone, &install);
    if !done {
        tools::skip(&format!("what {wanted} names ({})", said.trim()));
        return None;
    }
    fs::rename(made.keep(), &there).unwrap();
    Some(there)
}

/// A queue has a notice of a spot instance behind messages of others. The driver makes the core's event of it.
const NOTICE: &str = r#"
import json, os, sys, threading, boto3
sys.path.insert(0, "sdk/python/examples")
import autoscaling
sqs = boto3.client("sqs", region_name=os.environ["AWS_REGION"])
url = sqs.create_queue(QueueName="notices")["QueueUrl"]
spot = {"detail-type": "EC2 Spot Instance Interruption Warning", "detail": {"instance-id": "i-1"}}
for text in ("no JSON", "[]", "{}", json.dumps(spot)):
    sqs.send_message(QueueUrl=url, MessageBody=text)
threading.Thread(target=autoscaling.watch, args=(url,), daemon=True).start()
event = autoscaling.events.get(timeout=60)
assert event.provider_id.endswith("/i-1") and event.effective_in.seconds == 120, event
"#;

/// A scaling group of a real cloud's API, as far as moto simulates that.
#[test]
fn the_driver_for_auto_scaling_groups_keeps_all_rules_of_groups() {
    let Some(clone) = PYTHON.clone() else { return };
    let Some(packages) = python_packages(clone) else { return };
    let cloud = TempDir::new().unwrap();
    let dir = cloud.path().to_str().unwrap();
    let of = [("MOTO_CLOUD", dir), ("PYTHONPATH", packages.to_str().unwrap())];
    let python = clone.join("sdk/python/.venv/bin/python");
    let server = clone.join("sdk/python/examples/moto_cloud.py");
    let mut moto =
        Process::start(python.to_str().unwrap(), [server.to_str().unwrap(), "serve", "0"], &of);
    let url = moto.line("its URL", |line| line.starts_with("http://"));
    let page = PYTHON.page_commands("autoscaling.py");
    let suite = &page[page.find("cargo run").unwrap()..];
    let [(_, dir), (_, packages)] = of;
    let with =
        format!("export MOTO_CLOUD='{dir}' PYTHONPATH='{packages}' AWS_ENDPOINT_URL='{url}'");
    let (green, said) = shell(clone, &format!("{with}\n{}", suite.replace("/tmp/moto", dir)));
    assert!(green, "{said}");
    let key = "AWS_ACCESS_KEY_ID=driver AWS_SECRET_ACCESS_KEY=x AWS_REGION=us-east-1";
    let noticed = format!("{with} {key}\nsdk/python/.venv/bin/python -c '{NOTICE}'");
    let (done, told) = shell(clone, &noticed);
    assert!(done, "{told}");
    for check in ["pool/cloud-away", "pool/bad-secret", "pool/delete-partial", "pool/delete-named"]
    {
        assert!(said.contains(&format!("✓ {check}")), "{said}");
    }
}

/// The rules of the session, which the suite leaves out for the author of a unary driver.
#[test]
fn the_adapter_keeps_the_session_for_a_unary_driver() {
    let Some(clone) = PYTHON.clone() else { return };
    let suite = PYTHON.page_commands("sanity --unary").replace(
        "--unary",
        "--unary --adapter --focus '^(session|secret|resilience|list)/|^create/same-id'",
    );
    let cloud = clone.join("adapter.sqlite3");
    let (green, said) = shell(clone, &format!("export CLOUD_FILE='{}'\n{suite}", cloud.display()));
    assert!(green, "{said}");
    for check in ["session/target-busy", "resilience/pages-resent", "secret/scope"] {
        assert!(said.contains(&format!("✓ {check}")), "{said}");
    }
}

#[test]
fn the_typescript_driver_passes_the_whole_suite() {
    TYPESCRIPT.passes_the_suite();
}

#[test]
fn the_typescript_driver_describes_itself_and_refuses_a_second_mutation_of_one_machine() {
    TYPESCRIPT.answers_by_hand();
}

/// A sample, since each lie costs half a minute: `python3 tests/lies/run.py --help` has the others.
#[test]
fn lies_of_a_driver_in_typescript_are_seen() {
    let Some(clone) = TYPESCRIPT.clone() else { return };
    let output = Command::new("python3")
        .arg(tools::root().join("tests/lies/run.py"))
        .args(["--ostler", &binaries().join("ostler").display().to_string(), "--every", "18"])
        .env("TYPESCRIPT", clone.join("sdk/typescript"))
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn the_go_driver_passes_the_whole_suite() {
    GO.passes_the_suite();
}

#[test]
fn a_machine_of_the_python_driver_lives_a_whole_life() {
    PYTHON.runs_a_machine();
}

#[test]
fn a_machine_of_the_go_driver_lives_a_whole_life() {
    GO.runs_a_machine();
}

#[test]
fn the_python_driver_describes_itself_and_refuses_a_second_mutation_of_one_machine() {
    PYTHON.answers_by_hand();
}

#[test]
fn the_go_driver_describes_itself_and_refuses_a_second_mutation_of_one_machine() {
    GO.answers_by_hand();
}

/// A driver that `ostler driver new` wrote: set up and checked as its page says.
fn is_new(sdk: &Sdk, set_up: impl FnOnce(&Path, &Path)) {
    let Some(clone) = sdk.clone() else { return };
    let parent = TempDir::new().unwrap();
    let new = "cargo run --release -- driver new --provider metal.example.com mine --lang ";
    let (made, said) = shell(parent.path(), &(new.to_owned() + sdk.name));
    assert!(made, "{said}");
    let dir = parent.path().join("mine");
    set_up(&dir, clone);
    for block in blocks(&fs::read_to_string(dir.join("README.md")).unwrap()) {
        let block = block
            .replace("ostler sanity", "cargo run --release -- sanity --focus '^(create|update)/'");
        let (done, said) = shell(&dir, &block);
        assert!(done, "{block}\n{said}");
    }
}

#[test]
fn a_new_driver_in_go_passes_the_suite() {
    is_new(&GO, |_, _| ());
}

#[test]
fn a_new_driver_in_typescript_passes_the_suite() {
    is_new(&TYPESCRIPT, |_, _| ());
}

#[test]
fn a_new_driver_in_python_passes_the_suite() {
    is_new(&PYTHON, |dir, clone| {
        // Packages that pip would install once more.
        let there = clone.join("sdk/python/.venv");
        std::os::unix::fs::symlink(there, dir.join(".venv")).unwrap();
    });
}

#[test]
fn what_generates_code_from_the_contract_does_so_as_its_page_says() {
    let found = (tools::find("buf", &["buf"]), tools::find("go", &["go"]));
    let (Some(_), Some(_), Some(_)) = (found.0, found.1, tools::python_with_venv()) else { return };
    let clone = Path::new(env!("CARGO_TARGET_TMPDIR")).join("generated");
    copy_of(&clone, &["proto", "sdk"]);
    let _not_there = fs::remove_dir_all(clone.join("../my-driver"));
    // The first makes what the others use.
    let pages =
        ["sdk/python/README.md", "sdk/go/README.md", "proto/README.md", "docs/driver-authors.md"];
    let generates =
        |block: &String| ["buf generate", "protoc", "go build"].iter().any(|it| block.contains(it));
    let blocks: Vec<String> = pages.into_iter().flat_map(commands).filter(generates).collect();
    assert!(blocks.len() >= 4, "{blocks:#?}");
    for block in blocks {
        let (done, said) = shell(&clone, &block);
        assert!(done, "{block}\n{said}");
    }
    for file in repository::files().unwrap() {
        if file.path.starts_with("sdk/go/gen") {
            let made = fs::read_to_string(clone.join(&file.path)).unwrap();
            assert!(made == file.text, "run `buf generate` in sdk/go: {}", file.path.display());
        }
    }
    assert!(clone.join("target/contract.binpb").is_file());
}

#[test]
fn a_driver_that_speaks_the_stream_itself_in_under_100_lines_passes_the_whole_suite() {
    let session =
        std::fs::read_to_string(ostler_tests::tools::root().join("tests/stream_peer/session.py"));
    assert!(session.unwrap().lines().count() < 100);
    let Some(clone) = PYTHON.clone() else { return };
    let peer =
        "env PYTHONPATH=sdk/python/stubs sdk/python/.venv/bin/python tests/stream_peer/driver.py";
    let suite = PYTHON.page_commands("sanity --unary").replace(
        "--unary --driver-cmd sdk/python/python-driver",
        &format!("--driver-cmd '{peer}'"),
    );
    let cloud = clone.join("stream-peer.sqlite3");
    let (green, said) = shell(clone, &format!("export CLOUD_FILE='{}'\n{suite}", cloud.display()));
    assert!(green, "{said}");
}

/// A provider of machine-controller-manager knows the names of its instances and no UID: the suite asks for what a name
/// can answer, and finds by it what a provider does wrong.
#[test]
fn a_provider_of_machine_controller_manager_passes_the_suite_as_one_that_knows_names_alone() {
    if tools::find("go", &["go"]).is_none() {
        return;
    }
    let clone = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcm-example");
    copy_of(&clone, &["sdk/go"]);
    let page = commands("docs/mcm-providers.md");
    let suite = page.iter().find(|block| block.contains("sanity --unary")).unwrap();
    let suite = suite.replace("ostler sanity", "cargo run --release -- sanity");
    let (green, said) = shell(&clone, &suite);
    if said.contains("https://proxy.golang.org") {
        return tools::skip(&format!("what sdk/go/mcm needs ({})", said.trim()));
    }
    assert!(green && said.contains("IDENTITY_BY_NAME) is conformant"), "{said}");

    let cloud = clone.join("sdk/go/mcm/example/cloud.go");
    let (text, away) = (fs::read_to_string(&cloud).unwrap(), "return errAway");
    assert!(text.contains(away), "{away}");
    // An outage looks like an empty cloud.
    fs::write(&cloud, text.replace(away, "return do(&cloud{})")).unwrap();
    let suite = suite.replace("sanity --unary", "sanity --unary --focus ^status/cloud-away");
    let (green, said) = shell(&clone, &suite);
    assert!(!green && said.contains("✗ status/cloud-away"), "{said}");
}

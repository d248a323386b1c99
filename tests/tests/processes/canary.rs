//! Secrets go through whole operations of real processes that log all they can, and are nowhere to be found after.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::runtime::wait::{Condition, await_condition, conditions};
use ostler_api::MachineClass;
use ostler_api::machine::Machine;
use ostler_dial::cluster;
use ostler_tests::ports::free_port;
use ostler_tests::process::{PATIENCE, binaries};
use ostler_tests::tools::root;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::sdks::GO;

const CREDENTIAL: &str = "canary-credential-8c1f0e";
const REFUSED_CREDENTIAL: &str = "invalid-canary-credential-2b";
const USER_DATA: &str = "canary-user-data-51b2aa0c";
const BOOT_DATA: &str = "canary-boot-data-90d3f1ce";
const INLINE_DATA: &str = "canary-inline-data-4e7705ba";
const BEARER: &str = "canary-bearer-77aa31d9";
const UNARY_BEARER: &str = "canary-bearer-of-an-adapter-c05d";

/// A process of ours with all it printed in files; killed when dropped.
struct Noisy(Child);

impl Noisy {
    fn start(
        directory: &Path,
        name: &str,
        binary: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Self {
        let file = |kind: &str| File::create(directory.join(format!("{name}.{kind}"))).unwrap();
        let child = Command::new(binaries().join(binary))
            .args(args)
            .env("RUST_LOG", "trace")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(file("stdout"))
            .stderr(file("stderr"))
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Noisy {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _already_reaped = self.0.wait();
    }
}

#[tokio::test]
async fn no_secret_is_left_in_anything_that_people_read() {
    let directory = TempDir::new().unwrap();
    let dir = directory.path();
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let key = write_files(dir);
    let (api, core, metrics) = (free_port(), free_port(), free_port());
    let (api, core) = (format!("127.0.0.1:{api}"), format!("127.0.0.1:{core}"));
    let metrics = format!("127.0.0.1:{metrics}");

    let up = [
        "up",
        "--core",
        "none",
        "--driver",
        "none",
        "--data-dir",
        &at("data"),
        "--api-listen",
        &api,
    ];
    let api_process = Noisy::start(dir, "api", "ostler", &up, &[]);
    let kubeconfig = PathBuf::from(at("data/kubeconfig"));
    let client = client(&kubeconfig).await;
    prepare(&client).await;
    let core_process = start_core(dir, &kubeconfig, &core, &metrics);
    let args = [
        "driver",
        "fake",
        "--control-file",
        &at("control.json"),
        "--call-log",
        &at("calls.jsonl"),
        "--node-kubeconfig",
        kubeconfig.to_str().unwrap(),
    ];
    let endpoint = format!("https://localhost:{}", core.rsplit_once(':').unwrap().1);
    let env = [
        ("OSTLER_ENDPOINT", endpoint.as_str()),
        ("OSTLER_CA_FILE", &at("tls.crt")),
        ("OSTLER_TOKEN_FILE", &at("token")),
    ];
    let driver_process = Noisy::start(dir, "driver", "ostler", &args, &env);

    let mut seen = live(&client).await;
    Box::pin(live_behind_an_adapter(&client, dir, &env, &mut seen)).await;
    let metrics = http_get(&metrics, "/metrics").await;
    drop((driver_process, core_process, api_process));

    let seen = seen.into_iter().chain([("metrics".to_owned(), metrics)]).chain(files(dir));
    assert_clean(
        seen,
        &[
            CREDENTIAL,
            REFUSED_CREDENTIAL,
            USER_DATA,
            BOOT_DATA,
            INLINE_DATA,
            BEARER,
            UNARY_BEARER,
            &key,
        ],
    );
}

/// A core for the fake driver and for one behind an adapter.
fn start_core(dir: &Path, kubeconfig: &Path, core: &str, metrics: &str) -> Noisy {
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let [token, unary] = [("fake", "token"), ("go", "go-token")]
        .map(|(name, file)| format!("{name}.ostler.dev={}", at(file)));
    let args = [
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--drivers-listen",
        core,
        "--metrics-listen",
        metrics,
        "--driver-token",
        &token,
        "--driver-token",
        &unary,
        "--drivers-tls-cert",
        &at("tls.crt"),
        "--drivers-tls-key",
        &at("tls.key"),
    ];
    Noisy::start(dir, "core", "ostler-server", &args, &[])
}

/// No text holds any canary in any form.
fn assert_clean(texts: impl Iterator<Item = (String, String)>, canaries: &[&str]) {
    let canaries: Vec<_> = canaries.iter().map(|canary| (canary, forms(canary))).collect();
    for (place, text) in texts {
        for (canary, forms) in &canaries {
            for form in forms {
                assert!(
                    !text.contains(form.as_str()),
                    "{place} holds {canary:?} as {form:?}: {}",
                    around(&text, form)
                );
            }
        }
    }
}

/// Token, certificate, and a driver that fails and tells all it should not. Returns a part of the private key.
fn write_files(dir: &Path) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    fs::write(dir.join("tls.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(dir.join("tls.key"), key.serialize_pem()).unwrap();
    fs::write(dir.join("token"), BEARER).unwrap();
    fs::write(dir.join("go-token"), UNARY_BEARER).unwrap();
    let encoded = STANDARD_NO_PAD.encode(CREDENTIAL);
    let message =
        format!("login with {CREDENTIAL} ({encoded}) refused, user data was: echo {USER_DATA}");
    let fault = json!({ "operation": "CreateMachine", "call": 1, "code": "Unavailable", "message": message });
    fs::write(dir.join("control.json"), json!({ "faults": [fault] }).to_string()).unwrap();
    key.serialize_pem().lines().nth(1).unwrap().to_owned()
}

async fn client(kubeconfig: &Path) -> Client {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if let Ok(read) = Kubeconfig::read_from(kubeconfig) {
            let config = cluster::config(read).await.unwrap();
            let client = cluster::client(config).unwrap();
            // The class is the last of the kinds that `up` installs that this test needs.
            let classes = Api::<MachineClass>::default_namespaced(client.clone());
            let machines = Api::<Machine>::default_namespaced(client.clone());
            let params = ListParams::default();
            if classes.list(&params).await.is_ok() && machines.list(&params).await.is_ok() {
                return client;
            }
        }
        assert!(tokio::time::Instant::now() < deadline, "the API server does not start");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn prepare(client: &Client) {
    let user_data = format!(
        "#!/bin/sh\necho {USER_DATA}\nexec kubelet --hostname-override=<<MACHINE_NAME>> --token=<<BOOTSTRAP_TOKEN>>\n"
    );
    let (fake, go) = ("deploy/examples/fake/class.yaml", "sdk/go/example/class.yaml");
    for (name, key, credential, class) in [
        ("good", "accessToken", CREDENTIAL, fake),
        ("refused", "accessToken", REFUSED_CREDENTIAL, fake),
        ("go", "apiKey", CREDENTIAL, go),
    ] {
        let data = [("userData", user_data.as_str()), (key, credential)];
        let data: BTreeMap<_, _> =
            data.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let mut secret = Secret { string_data: Some(data), ..Secret::default() };
        secret.metadata.name = Some(name.to_owned());
        let secrets = Api::<Secret>::default_namespaced(client.clone());
        secrets.create(&PostParams::default(), &secret).await.unwrap();
        let text = fs::read_to_string(root().join(class)).unwrap();
        let mut class: MachineClass = serde_saphyr::from_str(&text).unwrap();
        class.metadata.name = Some(name.to_owned());
        let mut class = serde_json::to_value(class).unwrap();
        let fields = class.as_object_mut().unwrap();
        fields.insert("secretRef".to_owned(), json!({ "name": name, "namespace": "default" }));
        let classes = Api::<MachineClass>::default_namespaced(client.clone());
        classes
            .create(&PostParams::default(), &serde_json::from_value(class).unwrap())
            .await
            .unwrap();
    }
}

/// Machines with user data of their own: from a Secret, and in the spec.
async fn boot(client: &Client, seen: &mut Vec<(String, String)>) {
    let user_data = |canary| format!("echo {canary}\nexec kubelet --token=<<BOOTSTRAP_TOKEN>>\n");
    let data = [("value".to_owned(), user_data(BOOT_DATA))].into();
    let mut secret = Secret { string_data: Some(data), ..Secret::default() };
    secret.metadata.name = Some("boot".to_owned());
    let secrets = Api::<Secret>::default_namespaced(client.clone());
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    let machines = Api::<Machine>::default_namespaced(client.clone());
    let bootstraps = [
        ("secret", json!({ "dataSecretName": "boot" })),
        ("inline", json!({ "data": user_data(INLINE_DATA) })),
    ];
    for (name, bootstrap) in bootstraps {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": { "name": name },
            "spec": { "class": { "kind": "MachineClass", "name": "good" }, "bootstrap": bootstrap }
        });
        let machine = serde_json::from_value(machine).unwrap();
        machines.create(&PostParams::default(), &machine).await.unwrap();
    }
    let runs =
        |machine: Option<&Machine>| field(machine, "/status/currentStatus/phase") == "Running";
    until(&machines, "secret", runs, seen).await;
    // The user data in the spec are not secret; the status is checked.
    let mut all = Vec::new();
    until(&machines, "inline", runs, &mut all).await;
    let status = machines.get("inline").await.unwrap().status;
    seen.push(("status of machine inline".to_owned(), serde_json::to_string(&status).unwrap()));
}

/// A machine that fails, is made, changed and deleted, and one whose credentials are refused; returns their objects and
/// events.
async fn live(client: &Client) -> Vec<(String, String)> {
    let machines = Api::<Machine>::default_namespaced(client.clone());
    for (name, class) in [("one", "good"), ("two", "refused")] {
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": { "name": name },
            "spec": { "class": { "kind": "MachineClass", "name": class } }
        });
        machines
            .create(&PostParams::default(), &serde_json::from_value(machine).unwrap())
            .await
            .unwrap();
    }
    let mut seen = Vec::new();
    let failed = |machine: Option<&Machine>| text_of(machine).contains("***");
    until(&machines, "one", failed, &mut seen).await;
    let refused =
        |machine: Option<&Machine>| text_of(machine).to_lowercase().contains("unauthenticated");
    until(&machines, "two", refused, &mut seen).await;
    let runs =
        |machine: Option<&Machine>| field(machine, "/status/currentStatus/phase") == "Running";
    until(&machines, "one", runs, &mut seen).await;
    boot(client, &mut seen).await;

    let classes = Api::<MachineClass>::default_namespaced(client.clone());
    let tags = json!({ "providerSpec": { "tags": { "vm": { "team": "canaries" } } } });
    classes.patch("good", &PatchParams::default(), &Patch::Merge(tags)).await.unwrap();
    let updated = |machine: Option<&Machine>| {
        field(machine, "/status/lastOperation/type") == "Update"
            && field(machine, "/status/lastOperation/state") == "Successful"
    };
    until(&machines, "one", updated, &mut seen).await;
    // Without credentials that count, no driver can say that there is no instance.
    let fixed = json!({ "stringData": { "accessToken": CREDENTIAL } });
    let secrets = Api::<Secret>::default_namespaced(client.clone());
    secrets.patch("refused", &PatchParams::default(), &Patch::Merge(fixed)).await.unwrap();
    for name in ["one", "two"] {
        let uid = machines.get(name).await.unwrap().metadata.uid.unwrap();
        machines.delete(name, &DeleteParams::default()).await.unwrap();
        until(&machines, name, conditions::is_deleted(&uid), &mut seen).await;
    }
    for name in ["secret", "inline"] {
        let uid = machines.get(name).await.unwrap().metadata.uid.unwrap();
        machines.delete(name, &DeleteParams::default()).await.unwrap();
        until(&machines, name, conditions::is_deleted(&uid), &mut Vec::new()).await;
    }
    let events =
        Api::<Event>::default_namespaced(client.clone()).list(&ListParams::default()).await;
    for event in events.unwrap() {
        seen.push(("an event".to_owned(), serde_json::to_string(&event).unwrap()));
    }
    seen
}

/// A machine whose driver gets its secrets from an adapter, with the call.
async fn live_behind_an_adapter(
    client: &Client,
    dir: &Path,
    env: &[(&str, &str)],
    seen: &mut Vec<(String, String)>,
) {
    let Some(clone) = GO.clone() else { return };
    let at = |name: &str| dir.join(name).display().to_string();
    let driver = clone.join("sdk/go/example/go-driver").display().to_string();
    let (cloud, token) = (at("cloud"), at("go-token"));
    let more =
        [("CLOUD_FILE", cloud.as_str()), ("OSTLER_TOKEN_FILE", &token), ("LOG_LEVEL", "DEBUG")];
    let args = ["driver", "adapt", "--", &driver];
    let _adapter = Noisy::start(dir, "adapter", "ostler", &args, &[env, &more].concat());
    let machines = Api::<Machine>::default_namespaced(client.clone());
    let machine = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": { "name": "go" },
        "spec": { "class": { "kind": "MachineClass", "name": "go" } }
    });
    let machine = serde_json::from_value(machine).unwrap();
    let uid = machines.create(&PostParams::default(), &machine).await.unwrap().metadata.uid;
    let made = |machine: Option<&Machine>| field(machine, "/status/phase") == "Provisioned";
    until(&machines, "go", made, seen).await;
    machines.delete("go", &DeleteParams::default()).await.unwrap();
    until(&machines, "go", conditions::is_deleted(&uid.unwrap()), seen).await;
}

async fn until(
    machines: &Api<Machine>,
    name: &str,
    condition: impl Condition<Machine>,
    seen: &mut Vec<(String, String)>,
) {
    let waited =
        tokio::time::timeout(PATIENCE, await_condition(machines.clone(), name, condition)).await;
    let machine = waited.ok().and_then(Result::ok);
    let now = machines.get_opt(name).await.unwrap();
    let Some(machine) = machine else { panic!("{name} stays {}", text_of(now.as_ref())) };
    seen.push((format!("machine {name}"), text_of(machine.as_ref())));
}

fn text_of(machine: Option<&Machine>) -> String {
    serde_json::to_string(&machine).unwrap()
}

fn field(machine: Option<&Machine>, pointer: &str) -> String {
    let value = serde_json::to_value(machine).unwrap();
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// A text as it may be found: as it is, in base64 at any offset, and as the numbers of a list of bytes.
fn forms(text: &str) -> Vec<String> {
    let mut forms = vec![text.to_owned()];
    for (padding, changed) in [("", 0), (" ", 2), ("  ", 3)] {
        let encoded = STANDARD_NO_PAD.encode(format!("{padding}{text}"));
        // Only what no neighbour can change.
        let inner = encoded.get(changed..encoded.len() - 3).unwrap();
        forms.push(inner.to_owned());
    }
    let numbers: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
    forms.push(numbers.join(", "));
    forms
}

/// Every file but those that are made to hold secrets: what the tests wrote, a cloud, and the API server's store.
fn files(dir: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if ["token", "go-token", "tls.key", "control.json", "cloud", "api"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let content = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            found.push((path.display().to_string(), content));
        }
    }
    found
}

fn around<'a>(text: &'a str, form: &str) -> &'a str {
    let at = text.find(form).unwrap_or_default();
    let start = text.floor_char_boundary(at.saturating_sub(400));
    text.get(start..text.floor_char_boundary(at + 200)).unwrap_or_default()
}

async fn http_get(address: &str, path: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.contains("ostler_driver_sessions"), "{answer}");
    answer
}

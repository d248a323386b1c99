//! What no change may take away in passing: who gets the core's token, what reaches a terminal, and
//! where crates come from.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use ostler_tests::repository::{self, files};
use ostler_tests::tools::{self, root};
use serde_json::{Value, json};

/// Where Kubernetes puts a ServiceAccount's token, and clients look for it.
const TOKEN_DIRECTORY: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The objects of a folder as kubectl would apply them; `None` without kubectl.
fn rendered(folder: &str) -> Option<Vec<Value>> {
    let kubectl = tools::kubectl()?;
    let output = Command::new(kubectl).arg("kustomize").arg(root().join(folder)).output();
    let output = output.expect("kubectl runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_saphyr::from_multiple(&String::from_utf8_lossy(&output.stdout)).expect("YAML"))
}

fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The names of the volumes of a pod that hold a token of the API server: one without an audience of its own.
fn token_volumes(pod: &Value) -> Vec<&Value> {
    let is_token = |source: &Value| {
        let token = &source["serviceAccountToken"];
        token.is_object() && token.get("audience").is_none()
    };
    let holds = |volume: &&Value| list(volume, "/projected/sources").iter().any(is_token);
    list(pod, "/volumes").iter().filter(holds).map(|volume| &volume["name"]).collect()
}

/// Names of the containers that mount any of `volumes`.
fn that_mount<'a>(pod: &'a Value, volumes: &[&Value]) -> Vec<&'a Value> {
    let mounts = |container: &&Value| {
        let mounted = list(container, "/volumeMounts").iter();
        mounted.map(|mount| &mount["name"]).any(|name| volumes.contains(&name))
    };
    list(pod, "/containers").iter().filter(mounts).map(|container| &container["name"]).collect()
}

/// A process that was taken over has nothing to climb with.
fn assert_restricted(pod: &Value) {
    assert_eq!(pod["automountServiceAccountToken"], json!(false));
    let shared = &pod["securityContext"];
    assert_eq!(shared["runAsNonRoot"], json!(true));
    assert!(shared["runAsUser"].as_u64().is_some_and(|user| user > 0), "{shared}");
    assert_eq!(shared["seccompProfile"], json!({"type": "RuntimeDefault"}));
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(pod.get(key).is_none(), "{key}");
    }
    let all = list(pod, "/containers").iter().chain(list(pod, "/initContainers"));
    for container in all {
        let own = &container["securityContext"];
        let name = &container["name"];
        assert_eq!(own["allowPrivilegeEscalation"], json!(false), "{name}");
        assert_eq!(own["readOnlyRootFilesystem"], json!(true), "{name}");
        assert_eq!(own["capabilities"], json!({"drop": ["ALL"]}), "{name}");
        assert_ne!(own.get("runAsUser"), Some(&json!(0)), "{name}");
        for key in ["privileged", "runAsNonRoot", "seccompProfile"] {
            assert!(own.get(key).is_none(), "{name} says {key}, which the pod has for all");
        }
    }
}

/// The user of each container, by name.
fn users(pod: &Value) -> BTreeMap<&str, u64> {
    let user = |it: &Value| it.pointer("/securityContext/runAsUser").and_then(Value::as_u64);
    let of = |container: &Value| user(container).or_else(|| user(pod)).unwrap_or_default();
    let containers = list(pod, "/containers").iter();
    containers.map(|it| (it["name"].as_str().unwrap_or_default(), of(it))).collect()
}

/// Each pair of neighbours shares a volume, nobody else does, and each is a user of its own.
fn assert_apart(pod: &Value, pairs: &[(&str, [&str; 2])]) {
    assert_restricted(pod);
    let users = users(pod);
    let different: BTreeSet<u64> = users.values().copied().collect();
    assert_eq!(different.len(), users.len(), "{users:?}");
    for (volume, pair) in pairs {
        assert_eq!(that_mount(pod, &[&json!(volume)]), pair, "{volume}");
    }
}

#[test]
fn in_the_examples_with_an_adapter_each_container_is_a_user_of_its_own_and_shares_with_its_neighbour_alone()
 {
    let read = std::fs::read_to_string(root().join("deploy/examples/driver-access/adapter.yaml"));
    let own: Value = serde_saphyr::from_str(&read.expect("adapter.yaml")).expect("YAML");
    let pod = &own["spec"]["template"]["spec"];
    assert_apart(pod, &[("driver-socket", ["adapter", "driver"])]);
    assert_eq!(that_mount(pod, &[&json!("token")]), ["adapter"]);
    let Some(objects) = rendered("deploy/examples/adapter") else { return };
    let three = objects.iter().find(|it| it["kind"] == "Deployment").expect("a Deployment");
    let pod = &three["spec"]["template"]["spec"];
    assert_apart(pod, &[("socket", ["core", "adapter"]), ("driver-socket", ["adapter", "driver"])]);
    assert_eq!(that_mount(pod, &token_volumes(pod)), ["core"]);
}

#[test]
fn in_the_deployment_only_the_core_has_its_token_and_no_container_can_climb() {
    let Some(objects) = rendered("deploy/base") else { return };
    let deployment = objects.iter().find(|it| it["kind"] == "Deployment").expect("a Deployment");
    let pod = &deployment["spec"]["template"]["spec"];
    assert_restricted(pod);
    assert_eq!(list(pod, "/containers").len(), 2);
    let volumes = token_volumes(pod);
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    assert_eq!(that_mount(pod, &volumes), ["core"]);
    let core = &list(pod, "/containers")[0];
    let at = list(core, "/volumeMounts").iter().find(|mount| mount["name"] == *volumes[0]);
    assert_eq!(at.expect("it is mounted")["mountPath"], TOKEN_DIRECTORY);
    let volume = list(pod, "/volumes").iter().find(|it| it["name"] == *volumes[0]);
    let text = volume.expect("it is there").to_string();
    for file in ["\"path\":\"token\"", "\"path\":\"ca.crt\"", "\"path\":\"namespace\""] {
        assert!(text.contains(file), "a client in the pod needs {file}: {text}");
    }
}

#[test]
fn the_component_for_gardeners_autoscaler_changes_the_name_of_the_deployment_and_nothing_else() {
    let Some(base) = rendered("deploy/base") else { return };
    let Some(mut named) = rendered("deploy/examples/gardener-autoscaler") else { return };
    let deployment = named.iter_mut().find(|it| it["kind"] == "Deployment").expect("a Deployment");
    assert_eq!(deployment["metadata"]["name"], "machine-controller-manager");
    deployment["metadata"]["name"] = json!("ostler");
    assert_eq!(named, base);
}

#[test]
fn nothing_but_the_metrics_of_the_deployment_is_reached_from_the_network() {
    let Some(objects) = rendered("deploy/base") else { return };
    let of_kind = |kind: &str| objects.iter().find(|it| it["kind"] == kind).expect("it is there");
    let (policy, deployment) = (of_kind("NetworkPolicy"), of_kind("Deployment"));
    let pods = &deployment["spec"]["template"];
    assert_eq!(policy["spec"]["podSelector"]["matchLabels"], pods["metadata"]["labels"]);
    assert_eq!(policy["metadata"]["namespace"], deployment["metadata"]["namespace"]);
    assert_eq!(policy["spec"]["policyTypes"], json!(["Ingress"]));
    let ingress = json!([{"ports": [{"protocol": "TCP", "port": "metrics"}]}]);
    assert_eq!(policy["spec"]["ingress"], ingress);
}

#[test]
fn the_example_of_a_driver_of_its_own_has_a_token_for_the_core_alone_and_the_label_that_lets_it_in()
{
    let Some(objects) = rendered("deploy/examples/driver-access") else { return };
    let find = |kind: &str, name: &str| {
        let found = objects.iter().find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
    };
    let driver = &find("Deployment", "driver-aws")["spec"]["template"];
    assert_restricted(&driver["spec"]);
    assert_eq!(token_volumes(&driver["spec"]), [&Value::Null; 0]);
    let policy = &find("NetworkPolicy", "ostler-drivers")["spec"];
    let asked = &policy["ingress"][0]["from"][0]["podSelector"]["matchLabels"];
    let labels = driver["metadata"]["labels"].as_object().expect("labels");
    for (key, value) in asked.as_object().expect("labels are asked for") {
        assert_eq!(labels.get(key), Some(value), "{key}");
    }
    let core = &find("Deployment", "ostler")["spec"]["template"];
    assert_restricted(&core["spec"]);
    assert_eq!(users(&core["spec"]).into_keys().collect::<Vec<_>>(), ["core"]);
    let service = &find("Service", "ostler")["spec"];
    for selector in [&service["selector"], &policy["podSelector"]["matchLabels"]] {
        assert_eq!(selector, &core["metadata"]["labels"]);
    }
}

#[test]
fn a_driver_in_the_pod_of_the_core_ends_before_another_core_repeats_what_it_does() {
    for folder in ["deploy/base", "deploy/examples/adapter"] {
        let Some(objects) = rendered(folder) else { return };
        let deployment = objects.iter().find(|it| it["kind"] == "Deployment").expect(folder);
        let spec = &deployment["spec"];
        assert_eq!(spec["strategy"], json!({"type": "Recreate"}), "{folder}");
        let grace = spec["template"]["spec"]["terminationGracePeriodSeconds"].as_u64();
        let window = ostler_sessions::Timing::default().adoption.as_secs();
        assert!(grace.is_some_and(|grace| grace <= window), "{folder}: {grace:?} s");
    }
}

#[test]
fn cores_of_two_namespaces_share_definitions_alone() {
    let Some(one) = rendered("deploy/base") else { return };
    let Some(other) = rendered("deploy/examples/namespace") else { return };
    let id = |it: &Value| {
        let meta = &it["metadata"];
        [&it["kind"], &meta["namespace"], &meta["name"]].map(ToString::to_string)
    };
    let known: BTreeSet<_> = one.iter().map(id).collect();
    let shared: BTreeSet<_> = other.iter().map(id).filter(|id| known.contains(id)).collect();
    assert!(!shared.is_empty());
    assert!(shared.iter().all(|id| id[0].contains("CustomResourceDefinition")), "{shared:?}");
    assert_eq!(one.len(), other.len());
    let bindings = other.iter().filter(|it| list(it, "/subjects").len() == 1);
    let account =
        json!([{"kind": "ServiceAccount", "name": "ostler-shoot-a", "namespace": "shoot-a"}]);
    assert_eq!(bindings.filter(|it| it["subjects"] == account).count(), 5);
    for namespace in ["kube-system", "default"] {
        let there = other.iter().filter(|it| it["metadata"]["namespace"] == namespace);
        assert_eq!(there.count(), 2, "a role and its binding in {namespace}");
    }
}

/// Ways to write to a terminal.
const PRINTS: [&str; 7] =
    ["print!", "println!", "eprint!", "eprintln!", "stdout()", "stderr()", "/dev/tty"];
/// The only ways of the command to a terminal: all that is said goes through `terminal::line` or `terminal::lines` there.
const DOORS: [&str; 2] = ["cli/src/log.rs", "cli/src/screen.rs"];

#[test]
fn nothing_of_the_command_or_the_suite_reaches_a_terminal_unescaped() {
    let mut wrong = Vec::new();
    for file in files().expect("git answers") {
        let path = file.path.display().to_string();
        let ours = path.starts_with("cli/src/") || path.starts_with("sdk/conformance/src/");
        let rust = file.path.extension().is_some_and(|kind| kind == "rs");
        if !ours || !rust || DOORS.contains(&path.as_str()) {
            continue;
        }
        for (number, line) in file.text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if PRINTS.iter().any(|print| code.contains(print)) {
                wrong.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "say it with log::say, log::page, log::note or log::error: {wrong:#?}"
    );
    for door in DOORS {
        assert!(root().join(door).is_file(), "{door} is no more: name the one in its place");
    }
}

/// The lists of `deny.toml` that a key has.
fn allowed(key: &str) -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let list = text.split(&format!("\n{key} = [")).nth(1).expect(key);
    let list = list.split(']').next().unwrap_or_default();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether every part of a licence expression has a choice that is allowed.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    expression.split(" AND ").all(|part| {
        let choices = part.trim_matches(['(', ')', ' ']).replace('/', " OR ");
        choices.split(" OR ").any(|choice| allowed.iter().any(|it| it == choice.trim()))
    })
}

#[test]
fn every_crate_comes_from_crates_io_and_has_a_licence_that_is_allowed() {
    let sources = allowed("allow-registry");
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    for line in lock.lines().filter(|line| line.starts_with("source = ")) {
        let source = line.trim_start_matches("source = \"registry+").trim_end_matches('"');
        assert!(sources.iter().any(|it| it == source), "{line}");
    }
    let (licences, metadata) = (allowed("allow"), metadata());
    let wrong: Vec<String> = list(&metadata, "/packages")
        .iter()
        .filter(|it| !is_allowed(it["license"].as_str().unwrap_or_default(), &licences))
        .map(|it| format!("{} {}: {}", it["name"], it["version"], it["license"]))
        .collect();
    assert!(list(&metadata, "/packages").len() > 100);
    assert!(wrong.is_empty(), "licences that deny.toml does not allow: {wrong:#?}");
}

/// The metadata of all crates in use, from cargo.
fn metadata() -> Value {
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    // Crates for other platforms need not be here.
    repository::metadata(&["--filter-platform", host]).expect("cargo answers")
}

#[test]
fn a_licence_is_judged_by_each_of_its_parts() {
    let allowed = ["MIT", "Apache-2.0"].map(str::to_owned);
    for (expression, good) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("Apache-2.0 / MIT", true),
        ("GPL-3.0-only OR MIT", true),
        ("(GPL-3.0-only OR MIT) AND Apache-2.0", true),
        ("MIT AND GPL-3.0-only", false),
        ("GPL-3.0-only", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), good, "{expression}");
    }
}

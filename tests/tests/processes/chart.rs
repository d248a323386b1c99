//! `deploy/chart` by an unmodified Helm: installed, upgraded, rolled back and uninstalled in the API server of `ostler up`.
//!
//! Helm 4 is built with Go once, and kept. `OSTLER_TEST_HELM=FILE` is another one, as Helm 3:
//! `GOBIN=/tmp/helm3 go install helm.sh/helm/v3/cmd/helm@v3.22.0`. Without Go, or the module, the tests say `skipped`.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

use ostler_api::machine::WaitReason;
use ostler_tests::stack::{Part, Stack};
use ostler_tests::tools::{self, root};
use serde_json::Value;

const HELM: &str = "helm.sh/helm/v4/cmd/helm@v4.3.2";

/// The files of `deploy/base` that are templates of the chart.
const SHARED: [&str; 7] =
    ["account", "role", "tokens", "node-events", "cluster-role", "deployment", "network-policy"];

/// Everything that the chart can do.
const ALL: &str = "
namespaces: [team-a, team-b]
replicas: 2
drivers:
  aws: {provider: aws.example.com, aliases: [AWS], image: 'aws:1', mode: deployment, unary: true}
  gcp: {provider: gcp.example.com, image: 'gcp:1', mode: deployment, args: [--region=x]}
  metal: {provider: metal.example.com, image: 'metal:1', unary: true, env: [{name: A, value: b}]}
  vms: {provider: vms.example.com, image: 'vms:1', volumes: [{name: v, emptyDir: {}}], volumeMounts: [{name: v, mountPath: /v}]}
driversListen: {tlsSecret: tls, caConfigMap: ca}
driverAccess: [{certificate: 'spiffe://example.com/x', providers: [x.example.com]}]
control: {kubeconfigSecret: {name: control}}
target: {kind: kubeconfig, kubeconfigSecret: {name: target}}
autoscaler: {enabled: true, tlsSecret: autoscaler, from: [{podSelector: {}}]}
metrics: {serviceMonitor: true, alerts: true, dashboard: true}
otlpEndpoint: 'http://collector:4317'
networkPolicy: {egress: [{ports: [{port: 443}]}]}
priorityClassName: system-cluster-critical
";

fn helm() -> Option<PathBuf> {
    static BUILDS: Mutex<()> = Mutex::new(());
    if let Some(given) = std::env::var_os("OSTLER_TEST_HELM") {
        return Some(given.into());
    }
    let _one = BUILDS.lock().unwrap_or_else(PoisonError::into_inner);
    let version = HELM.rsplit('@').next().unwrap_or_default();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("helm-{version}"));
    let helm = directory.join("helm");
    if !helm.exists() {
        let go = tools::find("go", &["go"])?;
        let built = Command::new(go).args(["install", HELM]).env("GOBIN", &directory).output();
        let built = built.unwrap();
        if !built.status.success() {
            tools::skip(&format!("{HELM}: {}", String::from_utf8_lossy(&built.stderr)));
            return None;
        }
    }
    Some(helm)
}

fn chart() -> PathBuf {
    root().join("deploy/chart")
}

fn values_of_base() -> String {
    root().join("deploy/base/values.yaml").display().to_string()
}

/// What a template, or all of them, become with the values of a file; or what Helm says against it.
fn rendered(helm: &Path, values: &[&str]) -> Output {
    let mut command = Command::new(helm);
    command.args(["template", "ostler"]).arg(chart()).args(["--namespace", "default"]);
    command.args(values).output().unwrap()
}

fn text(output: &Output) -> String {
    let of = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", of(&output.stderr));
    of(&output.stdout)
}

#[test]
fn deploy_base_is_what_the_chart_becomes() {
    let Some(helm) = helm() else { return };
    for name in SHARED {
        let template = format!("templates/{name}.yaml");
        let made = text(&rendered(&helm, &["-f", &values_of_base(), "--show-only", &template]));
        let objects = made.split("---\n# Source: ").filter_map(|it| it.split_once('\n'));
        let objects: Vec<_> = objects.map(|(_, object)| object.trim()).collect();
        let made = objects.join("\n---\n") + "\n";
        let file = root().join(format!("deploy/base/{name}.yaml"));
        if std::env::var_os("UPDATE_BASE").is_some() {
            std::fs::write(&file, &made).unwrap();
        }
        let there = std::fs::read_to_string(&file).unwrap();
        let hint = "UPDATE_BASE=1 cargo test --workspace --test processes deploy_base";
        assert!(there == made, "{}: write it anew: {hint}\n{made}", file.display());
    }
}

#[test]
fn every_value_of_the_chart_makes_objects_and_no_process_can_climb() {
    let Some(helm) = helm() else { return };
    let directory = tempfile::tempdir().unwrap();
    let values = directory.path().join("values.yaml");
    std::fs::write(&values, ALL).unwrap();
    let made = text(&rendered(&helm, &["-f", values.to_str().unwrap()]));
    let objects: Vec<Value> = serde_saphyr::from_multiple(&made).unwrap();
    let of_kind = |kind: &str| objects.iter().filter(|it| it["kind"] == kind).collect::<Vec<_>>();
    for (kind, count) in [
        ("CustomResourceDefinition", 7),
        ("Deployment", 3),
        ("ServiceAccount", 3),
        ("PodDisruptionBudget", 3),
        // Of each namespace, and in kube-system and default.
        ("Role", 4),
        ("ServiceMonitor", 1),
        ("PrometheusRule", 1),
        // Permissions of drivers, and the dashboard.
        ("ConfigMap", 2),
    ] {
        assert_eq!(of_kind(kind).len(), count, "{kind}");
    }
    for deployment in of_kind("Deployment") {
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        for container in pod["containers"].as_array().unwrap() {
            let own = &container["securityContext"];
            assert_eq!(own["readOnlyRootFilesystem"], true, "{container}");
            assert_eq!(own["allowPrivilegeEscalation"], false, "{container}");
        }
    }
}

#[test]
fn a_value_that_is_wrong_is_named() {
    let Some(helm) = helm() else { return };
    for (set, named) in [
        ("replica=3", "replica"),
        ("target.kind=kubconfig", "target"),
        ("drivers.a.provider=a.example.com", "image"),
        ("namespaces={Team_A}", "namespaces"),
        ("autoscaler.enabled=true", "autoscaler.tlsSecret"),
        ("target.kind=kubeconfig", "target.kubeconfigSecret.name"),
    ] {
        let answer = rendered(&helm, &["--set", set]);
        let said = String::from_utf8_lossy(&answer.stderr);
        assert!(!answer.status.success() && said.contains(named), "{set}: {said}");
    }
}

/// The chart of the next version: a definition has changed.
fn next(directory: &Path) -> PathBuf {
    let next = directory.join("next");
    let copied = Command::new("cp").arg("-rL").args([&chart(), &next]).status().unwrap();
    assert!(copied.success());
    let file = next.join("definitions/ostler.dev_machinereserves.yaml");
    let before = std::fs::read_to_string(&file).unwrap();
    let after = before.replace("      name: Target\n", "      name: Aim\n");
    assert_ne!(before, after);
    std::fs::write(&file, after).unwrap();
    next
}

#[test]
fn helm_installs_upgrades_rolls_back_and_uninstalls_the_chart_and_no_machine_is_lost() {
    let Some(helm) = helm() else { return };
    let Some(mut stack) = Stack::with_own_api("it installs a chart") else { return };
    // A cluster that has nothing of ours.
    stack.kill(Part::Driver);
    stack.kill(Part::Core);
    let kubectl = stack.kubectl();
    kubectl.run(["delete", "crds", "--all"]);
    let directory = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(&helm);
        command.args(args).args(["--namespace", "machines"]);
        text(&command.env("KUBECONFIG", stack.kubeconfig()).output().unwrap())
    };
    let is = |replicas: &str, column: &str| {
        let path = "jsonpath={.spec.replicas}";
        let there = kubectl.run(["get", "deployment", "ostler", "-n", "machines", "-o", path]);
        assert_eq!(there, replicas);
        let path = "jsonpath={.spec.versions[0].additionalPrinterColumns[0].name}";
        let there = kubectl.run(["get", "crd", "machinereserves.ostler.dev", "-o", path]);
        assert_eq!(there, column);
    };
    let values = values_of_base();
    let (now, next) = (chart(), next(directory.path()));
    let (now, next) = (now.to_str().unwrap(), next.to_str().unwrap());

    let notes = run(&["install", "ostler", now, "--create-namespace", "-f", &values]);
    assert!(notes.contains("rollout status deployment/ostler"), "{notes}");
    is("1", "Target");
    kubectl.run(["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"]);
    kubectl.apply(
        r#"{"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass", "provider": "fake.ostler.dev",
            "metadata": {"name": "kept"}, "providerSpec": {}, "secretRef": {"name": "fake", "namespace": "default"}}"#,
    );
    run(&["upgrade", "ostler", next, "-f", &values, "--set", "replicas=2"]);
    is("2", "Aim");
    run(&["rollback", "ostler", "1"]);
    is("1", "Target");
    run(&["uninstall", "ostler"]);
    let left =
        kubectl.run(["get", "deployments,networkpolicies,roles", "-n", "machines", "-o", "name"]);
    assert_eq!(left, "");
    assert_eq!(kubectl.get("machineclass", "kept")["metadata"]["name"], "kept");
}

/// The metrics that a text of rules or panels asks for.
fn metrics_in(text: &str) -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    let prefixed = |it: &&str| ["ostler_", "mcm_", "process_"].iter().any(|p| it.starts_with(p));
    text.split(word).filter(prefixed).map(str::to_owned).collect()
}

/// The alerts and the dashboard ask for what a core shows: here its metrics once it has made a machine and looked for orphans.
pub(crate) fn assert_that_alerts_and_dashboard_ask_for(scrape: &str) {
    // A family whose members are not there now, as no machine waits, has its line all the same.
    let name =
        |line: &str| line.trim_start_matches("# TYPE ").split(['{', ' ']).next().map(str::to_owned);
    let shown: BTreeSet<String> = scrape.lines().filter_map(name).collect();
    let monitoring = chart().join("monitoring");
    for (file, field) in [("alerts.yaml", "expr"), ("dashboard.json", "expr")] {
        let text = std::fs::read_to_string(monitoring.join(file)).unwrap();
        let whole: Value = serde_saphyr::from_str(&text).unwrap();
        let asked = metrics_in(&all(&whole, field).join(" "));
        assert!(asked.len() > 8, "{file}: {asked:?}");
        let missing: Vec<_> = asked.difference(&shown).collect();
        assert!(missing.is_empty(), "{file} asks for {missing:?}, and a core shows {shown:#?}");
        for reason in all(&whole, field).iter().flat_map(|it| reasons(it)) {
            assert!(WaitReason::WORDS.contains(&reason), "{file}: {reason}");
        }
    }
}

/// `tests/monitoring` has a case in which each alert fires, and one in which it does not, and Prometheus agrees.
#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    let cases = root().join("tests/monitoring/alerts.yaml");
    let read = |path: &Path| -> Value {
        serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let alerts: BTreeSet<_> =
        all(&read(&chart().join("monitoring/alerts.yaml")), "alert").into_iter().collect();
    let all_cases = read(&cases);
    let checks = all_cases["tests"].as_array().unwrap().iter();
    let checks: Vec<_> =
        checks.flat_map(|it| it["alert_rule_test"].as_array().into_iter().flatten()).collect();
    for fires in [true, false] {
        let those = checks.iter().filter(|it| it["exp_alerts"].is_array() == fires);
        let tested: BTreeSet<_> = those.flat_map(|it| all(it, "alertname")).collect();
        assert_eq!(tested, alerts, "fires: {fires}");
    }
    let Some(promtool) = tools::find("promtool", &["promtool"]) else { return };
    let output = Command::new(promtool).args(["test", "rules"]).arg(cases).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Each text that stands in a field of that name.
fn all(value: &Value, field: &str) -> Vec<String> {
    let own = value.get(field).and_then(Value::as_str).map(str::to_owned);
    let fields = value.as_object().into_iter().flat_map(|it| it.values());
    let items = value.as_array().into_iter().flatten();
    own.into_iter().chain(fields.chain(items).flat_map(|it| all(it, field))).collect()
}

/// The reasons that a query chooses.
fn reasons(query: &str) -> Vec<&str> {
    let chosen = query.split("reason=~\"").nth(1).and_then(|rest| rest.split('"').next());
    chosen.into_iter().flat_map(|it| it.split('|')).collect()
}

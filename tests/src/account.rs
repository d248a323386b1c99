//! The core's own account, as `deploy/base` makes it.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::kubectl::Kubectl;
use crate::tools::root;

/// The kinds in `deploy/base` that grant rights.
const RIGHTS: [&str; 5] =
    ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];

/// A token for a working day, asked for as JSON.
fn token(kubectl: &Kubectl) -> String {
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": { "audiences": [], "expirationSeconds": 8 * 60 * 60 },
    });
    let address = "/api/v1/namespaces/default/serviceaccounts/ostler/token";
    let answer =
        kubectl.output(["create", "--raw", address, "-f", "-"], Some(&request.to_string()));
    let answer: Value = serde_json::from_slice(&answer.stdout).expect("kubectl writes JSON");
    answer["status"]["token"].as_str().expect("there is a token").to_owned()
}

/// Makes the account with exactly the roles of `deploy/base`, and a kubeconfig in `directory` that
/// acts as it.
///
/// # Panics
/// If kubectl fails.
pub fn kubeconfig_of_the_core(kubectl: &Kubectl, directory: &Path) -> PathBuf {
    let base = root().join("deploy/base");
    let all = kubectl.run(["kustomize", base.to_str().expect("the path is text")]);
    let rights = all.split("\n---\n").filter(|document| {
        let object: Value = serde_saphyr::from_str(document).expect("kustomize writes YAML");
        RIGHTS.iter().any(|kind| object["kind"] == *kind)
    });
    kubectl.apply(&rights.collect::<Vec<_>>().join("\n---\n"));
    let token = token(kubectl);
    let admin = kubectl.run(["config", "view", "--raw", "--minify", "-o", "json"]);
    let admin: Value = serde_json::from_str(&admin).expect("kubectl writes JSON");
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "core",
        "clusters": [{ "name": "core", "cluster": admin["clusters"][0]["cluster"] }],
        "users": [{ "name": "core", "user": { "token": token } }],
        "contexts": [{ "name": "core", "context": { "cluster": "core", "user": "core" } }],
    });
    let path = directory.join("core.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).expect("the directory is ours");
    path
}

//! How a machine becomes a node of the embedded API, with real kubectl on both sides.

use std::path::{Path, PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ostler_tests::kubectl::Kubectl;
use ostler_tests::process::Process;
use ostler_tests::tools;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use tempfile::TempDir;

const SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";

/// A key and the manifest of a request for a certificate.
fn request(name: &str, signer: &str, organization: &str, user: &str) -> (KeyPair, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.distinguished_name.push(DnType::CommonName, user);
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let manifest = json!({"apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {"request": BASE64_STANDARD.encode(pem), "signerName": signer,
            "usages": ["digital signature", "client auth"]}});
    (key, manifest.to_string())
}

/// Another kubeconfig for the same server.
fn kubeconfig(of: &Path, user: &Value, path: PathBuf) -> PathBuf {
    let text = std::fs::read_to_string(of).unwrap();
    let mut config: Value = serde_saphyr::from_str(&text).unwrap();
    *config.pointer_mut("/users/0/user").unwrap() = user.clone();
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// An API server alone, and its administrator.
fn cluster(program: &Path, dir: &TempDir) -> (Process, Kubectl, PathBuf) {
    let data = dir.path().join("data");
    let data_dir = data.to_str().unwrap();
    let args = ["up", "--data-dir", data_dir, "--api-listen", "127.0.0.1:0"];
    let args = args.into_iter().chain(["--driver", "none", "--core", "none"]);
    let mut process = Process::start("ostler", args, &[]);
    process.line("`ready`", |line| line.starts_with("ready"));
    let admin = Kubectl::new(program.to_owned(), data.join("kubeconfig"), dir.path());
    (process, admin, data.join("kubeconfig"))
}

fn refused(kubectl: &Kubectl, args: &[&str]) -> String {
    let output = kubectl.output(args, None);
    assert!(!output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_bootstrap_token_gets_a_certificate_and_the_certificate_is_a_node() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let (_up, admin, config) = cluster(&program, &dir);
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "stringData": {"token-id": "abcdef", "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true"}});
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    admin.apply(&secret.to_string());
    admin.apply(&node("n2").to_string());

    let token = json!({"token": "abcdef.0123456789abcdef"});
    let config_of_machine = kubeconfig(&config, &token, dir.path().join("machine"));
    let machine = Kubectl::new(program.clone(), config_of_machine, dir.path());
    assert!(machine.run(["auth", "whoami"]).contains("system:bootstrap:abcdef"));
    let (key, manifest) = request("n1", SIGNER, "system:nodes", "system:node:n1");
    let created = machine.output(["create", "-f", "-"], Some(&manifest));
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    for args in [["get", "nodes"], ["get", "secrets"], ["delete", "csr/n1"]] {
        assert!(refused(&machine, &args).contains("Forbidden"), "{args:?}");
    }

    machine.run(["wait", "csr/n1", "--for=condition=Approved", "--timeout=60s"]);
    machine.run(["wait", "csr/n1", "--for=jsonpath={.status.certificate}", "--timeout=60s"]);
    let shown = admin.run(["get", "csr", "n1"]);
    assert!(shown.contains("REQUESTOR") && shown.contains("Approved,Issued"), "{shown}");
    let certificate = machine.run(["get", "csr", "n1", "-o", "jsonpath={.status.certificate}"]);
    let user = json!({"client-certificate-data": certificate,
        "client-key-data": BASE64_STANDARD.encode(key.serialize_pem())});
    let joined =
        Kubectl::new(program, kubeconfig(&config, &user, dir.path().join("node")), dir.path());
    let created = joined.output(["create", "-f", "-"], Some(&node("n1").to_string()));
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    assert!(joined.run(["get", "node", "n1"]).contains("n1"));
    assert!(refused(&joined, &["get", "node", "n2"]).contains("Forbidden"));
    assert_eq!(joined.run(["auth", "can-i", "get", "nodes/n1"]).trim(), "yes");
    refused(&joined, &["auth", "can-i", "get", "nodes/n2"]);
}

#[test]
fn an_administrator_decides_over_what_other_signers_sign() {
    let Some(program) = tools::kubectl() else { return };
    let dir = TempDir::new().unwrap();
    let (_up, admin, _) = cluster(&program, &dir);
    for name in ["jane", "joe"] {
        let (_, manifest) = request(name, "example.com/people", "people", name);
        let created = admin.output(["create", "-f", "-"], Some(&manifest));
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    }
    assert!(admin.run(["get", "csr", "jane"]).contains("Pending"));
    admin.run(["certificate", "approve", "jane"]);
    admin.run(["certificate", "deny", "joe"]);
    let condition = |name: &str| {
        let request = admin.get("csr", name);
        assert!(request["status"]["certificate"].is_null(), "{request:#}");
        let condition = &request["status"]["conditions"][0];
        assert!(condition["lastTransitionTime"].is_string(), "{condition}");
        condition["type"].clone()
    };
    assert_eq!((condition("jane"), condition("joe")), (json!("Approved"), json!("Denied")));
    // what kubectl sends in its binary form although the test did not ask for it
    admin.run(["create", "serviceaccount", "driver"]);
    admin.run(["create", "secret", "generic", "key", "--from-literal=a=b"]);
    assert_eq!(admin.get("secret", "key")["data"]["a"], "Yg==");
    assert_eq!(admin.run(["create", "token", "driver"]).trim().split('.').count(), 3);
    let explained = admin.run(["explain", "csr.spec.signerName"]);
    assert!(explained.contains("CertificateSigningRequest"), "{explained}");
}

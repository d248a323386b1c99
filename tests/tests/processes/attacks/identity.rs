//! Clients that take another client's name.

use std::time::Duration;

use http::HeaderValue;
use rcgen::{DnType, KeyPair};
use serde_json::{Value, json};

use crate::attacks::client::{CSRS, Client, MERGE, PATCH, csr, plain, request};
use crate::attacks::table;
use crate::attacks::up::{Options, Up, within};

/// Long enough for what is decided in milliseconds.
const DECIDED: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn nobody_acts_as_somebody_else() {
    let up = Up::start(Options::api_only()).await;
    let admin = Client::admin(&up);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}});
    admin.post("/api/v1/namespaces/default/configmaps", &map).await.unwrap().good();
    let path = "/api/v1/namespaces/default/configmaps/kept";
    let mut codes = Vec::new();
    for header in
        ["impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-a"]
    {
        let mut delete = plain("DELETE", path);
        delete.headers_mut().insert(header, HeaderValue::from_static("nobody"));
        codes.push(admin.ask(delete).await.unwrap().code);
    }
    let kept = admin.get(path).await.unwrap().code;
    let outcome = format!("{codes:?}, object {}", if kept == 200 { "kept" } else { "deleted" });
    table::verdict("08a Impersonate-* on a DELETE", "administrator by mistake", &outcome);
    assert_eq!(kept, 200, "{codes:?}");
    assert!(codes.iter().all(|code| (400..500).contains(code)), "{codes:?}");
}

/// Whether a request is answered with a certificate, after another one that must be.
async fn is_signed(up: &Up, name: &str, object: &Value, after: &str) -> bool {
    let (machine, other) = (Client::machine(up, name).await, Client::machine(up, after).await);
    if machine.post(CSRS, object).await.unwrap().code != 201 {
        return false;
    }
    // Requests are handled in turn: once this one is signed, the first one was handled.
    let key = KeyPair::generate().unwrap();
    let user = format!("system:node:{after}");
    let good = request(
        &key,
        &[(DnType::OrganizationName, "system:nodes"), (DnType::CommonName, &user)],
        &[],
    );
    other.post(CSRS, &csr(after, &good)).await.unwrap().good();
    other.signed(after).await.expect("an honest request is signed");
    let name = object["metadata"]["name"].as_str().unwrap();
    let seen = Client::admin(up).get(&format!("{CSRS}/{name}")).await.unwrap().json();
    seen["status"]["certificate"].is_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bootstrap_token_does_not_become_a_node_that_exists() {
    let up = Up::start(Options::api_only()).await;
    let owner = Client::node(&up, "owners", "n2").await;
    let key = KeyPair::generate().unwrap();
    let pem = request(
        &key,
        &[(DnType::OrganizationName, "system:nodes"), (DnType::CommonName, "system:node:n2")],
        &[],
    );
    let signed = is_signed(&up, "attack", &csr("steal", &pem), "honest").await;
    table::verdict(
        "08b CSR for a Node that exists",
        "bootstrap token",
        if signed { "signed" } else { "not signed" },
    );
    assert!(!signed);
    let again = owner.get("/api/v1/nodes/n2").await.unwrap();
    assert_eq!(again.code, 200, "its owner is not harmed");
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_requests_for_certificates_are_not_signed() {
    let up = Up::start(Options::api_only()).await;
    let key = KeyPair::generate().unwrap();
    let (o, cn) = (DnType::OrganizationName, DnType::CommonName);
    let nodes = (o.clone(), "system:nodes");
    let n9 = (cn.clone(), "system:node:n9");
    let forged = [
        (
            "masters",
            csr("masters", &request(&key, &[(o.clone(), "system:masters"), n9.clone()], &[])),
        ),
        ("person", csr("person", &request(&key, &[nodes.clone(), (cn, "admin")], &[]))),
        ("groups", csr("groups", &request(&key, std::slice::from_ref(&n9), &[]))),
        ("sans", csr("sans", &request(&key, &[nodes.clone(), n9.clone()], &["localhost"]))),
        ("server", {
            let mut object = csr("server", &request(&key, &[nodes.clone(), n9.clone()], &[]));
            object["spec"]["usages"] = json!(["digital signature", "server auth"]);
            object
        }),
        (
            "garbage",
            csr(
                "garbage",
                "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n",
            ),
        ),
    ];
    let mut signed = Vec::new();
    for (number, (what, object)) in forged.iter().enumerate() {
        if is_signed(&up, &format!("forge{number}"), object, &format!("good0{number}")).await {
            signed.push(*what);
        }
    }
    // The identity of the requester is the presented credential, not the content of the object.
    let machine = Client::machine(&up, "namer0").await;
    let mut object = csr("named", &request(&key, &[nodes, n9], &[]));
    object["spec"]["username"] = "system:admin".into();
    object["spec"]["groups"] = json!(["system:masters"]);
    object["spec"]["expirationSeconds"] = 2_000_000_000_u32.into();
    let made = machine.post(CSRS, &object).await.unwrap();
    let named = made.json()["spec"]["username"].clone();
    table::verdict(
        "08c forged CSRs: masters, no organization, a person, SAN, server auth, garbage, username",
        "bootstrap token",
        &format!("signed: {signed:?}; forged username: {}, stored as {named}", made.code),
    );
    assert!(signed.is_empty(), "{signed:?}");
    assert!(made.refused() || named == "system:bootstrap:namer0", "{named}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gives_its_pods_no_owners() {
    let up = Up::start(Options::api_only()).await;
    let (admin, node) = (Client::admin(&up), Client::node(&up, "attack", "n1").await);
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}});
    let pods = "/api/v1/namespaces/default/pods";
    admin.post(pods, &pod).await.unwrap().good();
    let owner = json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap",
        "name": "gone", "uid": "0d8a6a52-0000-4000-8000-000000000001"}], "finalizers": ["a.example.com/f"]},
        "status": {"phase": "Running"}});
    let patched =
        node.patch(&format!("{pods}/p/status"), MERGE, owner.to_string()).await.unwrap().code;
    let seen = admin.get(&format!("{pods}/p")).await.unwrap();
    let owners = seen.json()["metadata"]["ownerReferences"].clone();
    let finalizers = seen.json()["metadata"]["finalizers"].clone();
    table::verdict(
        "08d ownerReferences through pods/status",
        "node",
        &format!("{patched}; owners {}", if owners.is_null() { "unchanged" } else { "written" }),
    );
    assert!(seen.code == 200 && owners.is_null() && finalizers.is_null(), "{owners} {finalizers}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_does_not_keep_its_node_from_going() {
    let up = Up::start(Options::api_only()).await;
    let (admin, node) = (Client::admin(&up), Client::node(&up, "attack", "n1").await);
    let patch =
        json!([{"op": "add", "path": "/metadata/finalizers", "value": ["a.example.com/f"]}]);
    let mut codes = Vec::new();
    for path in ["/api/v1/nodes/n1", "/api/v1/nodes/n1/status"] {
        codes.push(node.patch(path, PATCH, patch.to_string()).await.unwrap().code);
    }
    admin.delete("/api/v1/nodes/n1").await.unwrap().good();
    let gone = within(DECIDED, async || {
        admin.get("/api/v1/nodes/n1").await.is_ok_and(|answer| answer.code == 404).then_some(())
    });
    let gone = gone.await.is_some();
    table::verdict(
        "08e finalizer on its own Node",
        "node",
        &format!("{codes:?}; the Node {}", if gone { "goes" } else { "stays" }),
    );
    assert!(gone, "{codes:?}");
}

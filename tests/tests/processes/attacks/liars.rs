//! Drivers that claim to hold operations that no core sent.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ostler_proto::v1alpha1::operation_completed::Outcome;
use ostler_proto::v1alpha1::operation_result::Response;
use ostler_proto::v1alpha1::{
    CreateMachineResponse, DeleteMachineResponse, DeletionOutcome, HeldOperation, MachineRecord,
    ObjectRevision, OperationKind, OperationResult, Verdict,
};
use ostler_tests::process::binaries;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tonic::Code;

use crate::attacks::client::Client;
use crate::attacks::driver::{HOSTILE, Session, held, token_file, up_for};
use crate::attacks::table;
use crate::attacks::up::{Up, within};

pub(super) const FAKE: &str = "fake.ostler.dev";
pub(super) const SPACE: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default";
const LYING: &str = "drv-a";
const HONEST: &str = "drv-b";
/// An honest driver makes a machine in a second or two.
const MADE: Duration = Duration::from_secs(20);
/// For this long the deletion that was not done must not count as done. A core that believes takes milliseconds.
const BELIEVED: Duration = Duration::from_secs(4);

pub(super) async fn ground() -> (TempDir, Up, Client) {
    let directory = TempDir::new().unwrap();
    let up = up_for(directory.path(), &[(LYING, HOSTILE), (HONEST, FAKE)]).await;
    let admin = Client::admin(&up);
    (directory, up, admin)
}

pub(super) async fn class(admin: &Client, name: &str, provider: &str, spec: Value) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
        "stringData": {"userData": "#!/bin/sh", "accessToken": format!("KEY-{name}")}});
    let class = json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": name}, "provider": provider, "providerSpec": spec,
        "secretRef": {"name": name, "namespace": "default"}});
    admin.post("/api/v1/namespaces/default/secrets", &secret).await.unwrap().good();
    admin.post(&format!("{SPACE}/machineclasses"), &class).await.unwrap().good();
}

/// Creates a machine and gives back its UID.
pub(super) async fn machine(admin: &Client, name: &str, class: &str) -> String {
    let machine = json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": name}, "spec": {"class": {"kind": "MachineClass", "name": class}}});
    let made = admin.post(&format!("{SPACE}/machines"), &machine).await.unwrap().good().json();
    made["metadata"]["uid"].as_str().unwrap().to_owned()
}

pub(super) async fn provider_id(admin: &Client, name: &str) -> Option<String> {
    let path = format!("{SPACE}/machines/{name}");
    let made = within(MADE, async || {
        let machine = admin.get(&path).await.ok()?.json();
        machine["spec"]["providerID"].as_str().map(str::to_owned)
    });
    made.await
}

/// The driver of the fake cloud, by the token of the honest one.
pub(super) async fn honest(up: &Up, directory: &Path) -> Child {
    let endpoint = format!("http://{}", up.drivers().await);
    Command::new(binaries().join("ostler-driver-fake"))
        .arg("--state-file")
        .arg(directory.join("cloud.jsonl"))
        .args(["--endpoint", &endpoint])
        .env("OSTLER_TOKEN_FILE", token_file(up, FAKE))
        .env("RUST_LOG", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

pub(super) fn small() -> Value {
    json!({"region": "local", "image": "fake-1.0"})
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_nobody_sent_opens_no_secret() {
    let (_directory, up, admin) = ground().await;
    class(&admin, "ca1", HOSTILE, json!({})).await;
    class(&admin, "ca2", HOSTILE, json!({})).await;
    let update = OperationKind::UpdateMachine;
    let named = ObjectRevision {
        uid: String::new(),
        namespace: "default".to_owned(),
        name: "ca2".to_owned(),
        revision: String::new(),
    };
    let with_class = HeldOperation {
        machine_class: Some(named),
        ..held("op-1", update, "0d8a6a52-0000-4000-8000-000000000001", "none")
    };
    let without = held("op-2", update, "0d8a6a52-0000-4000-8000-000000000002", "nobody");
    let mut session = Session::begin(&up, HOSTILE, vec![with_class, without]).await;
    let mut got = Vec::new();
    for operation in ["op-1", "op-2", "op-3"] {
        for secret in ["ca1", "ca2"] {
            if session.secret(secret, operation).await != Err(Code::PermissionDenied) {
                got.push(format!("{secret} for {operation}"));
            }
        }
    }
    let verdicts = ["op-1", "op-2"].map(|operation| session.verdict(operation));
    let outcome = format!("{verdicts:?}; secrets got: {}", got.len());
    table::verdict("09a Hello holds updates of machines that never were", "driver", &outcome);
    assert!(!verdicts.contains(&Verdict::Keep), "{verdicts:?}");
    assert!(got.is_empty(), "{got:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_does_not_make_the_machines_of_another() {
    let (directory, up, admin) = ground().await;
    class(&admin, "cb1", FAKE, small()).await;
    let (first, second) =
        (machine(&admin, "mb1", "cb1").await, machine(&admin, "mb3", "cb1").await);
    let create = held("op-1", OperationKind::CreateMachine, &first, "mb1");
    let update = held("op-2", OperationKind::UpdateMachine, &second, "mb3");
    let mut session = Session::begin(&up, HOSTILE, vec![create, update]).await;
    let record = MachineRecord {
        provider_id: "a:///attacker-vm".to_owned(),
        machine_name: "mb1".to_owned(),
        machine_uid: first,
        node_name: "attacker-node".to_owned(),
        ..MachineRecord::default()
    };
    let created = Response::CreateMachine(CreateMachineResponse {
        machine: Some(record),
        ..Default::default()
    });
    let result = OperationResult { response: Some(created) };
    session.complete("op-1", Outcome::Result(result)).await;
    let _honest = honest(&up, directory.path()).await;
    let made = (provider_id(&admin, "mb1").await, provider_id(&admin, "mb3").await);
    table::verdict(
        "09b Hello holds the creation of another provider's machine, and completes it",
        "driver",
        &format!("{:?}; providerID {:?}", session.verdict("op-1"), made.0),
    );
    table::verdict(
        "09c Hello holds an update of another provider's machine",
        "driver",
        &format!("{:?}; providerID {:?}", session.verdict("op-2"), made.1),
    );
    for (operation, made) in [("op-1", made.0), ("op-2", made.1)] {
        assert_ne!(session.verdict(operation), Verdict::Keep, "{operation}");
        assert!(
            made.as_deref().is_some_and(|id| id.starts_with("fake:///")),
            "{operation}: {made:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_another_driver_says_is_done_is_not_done() {
    let (directory, up, admin) = ground().await;
    let mut slow = small();
    slow["latency"] = json!({"delete": "60s"});
    class(&admin, "cb1", FAKE, slow).await;
    let uid = machine(&admin, "mb2", "cb1").await;
    let mut driver = honest(&up, directory.path()).await;
    provider_id(&admin, "mb2").await.expect("it is made");
    let path = format!("{SPACE}/machines/mb2");
    admin.delete(&path).await.unwrap().good();
    let deleting = within(MADE, async || {
        let machine = admin.get(&path).await.ok()?.json();
        (machine["status"]["operation"]["kind"] == "DeleteMachine"
            || machine["status"]["step"] == "DeleteInstance")
            .then_some(())
    });
    deleting.await.expect("the deletion is under way");
    driver.kill().await.unwrap();
    let up = up.kill_and_start().await;
    let admin = Client::admin(&up);
    let delete = held("op-1", OperationKind::DeleteMachine, &uid, "mb2");
    let mut session = Session::begin(&up, HOSTILE, vec![delete]).await;
    let done = OperationResult {
        response: Some(Response::DeleteMachine(DeleteMachineResponse {
            outcome: DeletionOutcome::Deleted.into(),
            ..<_>::default()
        })),
    };
    session.complete("op-1", Outcome::Result(done)).await;
    let gone = within(BELIEVED, async || {
        admin.get(&path).await.is_ok_and(|answer| answer.code == 404).then_some(())
    });
    let gone = gone.await.is_some();
    let outcome = format!(
        "{:?}; {}",
        session.verdict("op-1"),
        if gone { "the Machine is gone, the instance is left" } else { "the Machine stays" }
    );
    table::verdict(
        "09d Hello after a restart holds the deletion of another provider's machine, done",
        "driver",
        &outcome,
    );
    assert!(!gone, "the driver of the machine was not asked");
    assert_ne!(session.verdict("op-1"), Verdict::Keep);
}

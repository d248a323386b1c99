//! Texts of a driver on a terminal.

use std::process::Stdio;

use ostler_proto::v1alpha1::operation_completed::Outcome;
use ostler_proto::v1alpha1::operation_result::Response;
use ostler_proto::v1alpha1::{
    ListMachinesResponse, MachineErrorCode, OperationError, OperationResult, OutcomeCertainty,
    operation,
};
use ostler_tests::process::binaries;
use serde_json::json;
use tempfile::TempDir;
use tokio::process::Command;

use crate::attacks::client::Client;
use crate::attacks::driver::{HOSTILE, Session, up_for};
use crate::attacks::table;
use crate::attacks::up::within;

const SPACE: &str = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default";
const FORGED: &str = "12:00:00.000 ready: forged line";

fn hostile_text() -> String {
    format!("\u{1b}]0;PWNED-TITLE\u{7}\u{1b}[2J\u{9b}31mboom\r\n{FORGED}\u{2028}\u{202e}")
}

fn error(code: MachineErrorCode) -> Outcome {
    Outcome::Error(OperationError {
        code: code.into(),
        reason: "BROKEN".to_owned(),
        message: hostile_text(),
        certainty: OutcomeCertainty::NotApplied.into(),
        ..OperationError::default()
    })
}

/// Answers until a creation has failed.
async fn fail_a_creation(session: &mut Session) {
    loop {
        let operation = session.operation().await;
        let list = ListMachinesResponse::default();
        let (outcome, last) = match operation.request {
            Some(operation::Request::CreateMachine(_)) => {
                (error(MachineErrorCode::InvalidArgument), true)
            }
            Some(operation::Request::ListMachines(_)) => {
                let response = Some(Response::ListMachines(list));
                (Outcome::Result(OperationResult { response }), false)
            }
            _ => (error(MachineErrorCode::NotFound), false),
        };
        session.complete(&operation.operation_id, outcome).await;
        if last {
            return;
        }
    }
}

/// Whether a terminal would do anything but show it.
fn acts(text: &str) -> bool {
    text.chars().any(|letter| letter.is_control() && letter != '\n')
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_driver_says_moves_no_terminal() {
    let directory = TempDir::new().unwrap();
    let up = up_for(directory.path(), &[("drv-a", HOSTILE)]).await;
    let admin = Client::admin(&up);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "ca"}, "stringData": {"userData": "x"}});
    let class = json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": {"name": "ca"}, "provider": HOSTILE, "providerSpec": {},
        "secretRef": {"name": "ca", "namespace": "default"}});
    let machine = json!({"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {"name": "m"}, "spec": {"class": {"kind": "MachineClass", "name": "ca"}}});
    admin.post("/api/v1/namespaces/default/secrets", &secret).await.unwrap().good();
    admin.post(&format!("{SPACE}/machineclasses"), &class).await.unwrap().good();
    admin.post(&format!("{SPACE}/machines"), &machine).await.unwrap().good();
    let mut session = Session::begin(&up, HOSTILE, Vec::new()).await;
    fail_a_creation(&mut session).await;
    let told = up.stdout.line(|line| line.contains("boom"));
    tokio::time::timeout(ostler_tests::process::PATIENCE, told).await.unwrap();
    let status = within(ostler_tests::process::PATIENCE, async || {
        let machine = admin.get(&format!("{SPACE}/machines/m")).await.ok()?.json();
        machine["status"].to_string().contains("boom").then_some(())
    });
    status.await.unwrap();

    let mut shown = vec![("up", up.stdout.all()), ("the log", up.stderr.all())];
    let kubeconfig = up.data().join("kubeconfig");
    let description = Command::new(binaries().join("ostler"))
        .args(["describe", "machine", "m", "--kubeconfig"])
        .arg(kubeconfig)
        .stdin(Stdio::null())
        .output();
    shown.push(("describe", String::from_utf8(description.await.unwrap().stdout).unwrap()));
    assert!(shown[2].1.contains("boom"), "{}", shown[2].1);
    let acting: Vec<&str> =
        shown.iter().filter(|(_, text)| acts(text)).map(|(who, _)| *who).collect();
    let forged: Vec<&str> = shown
        .iter()
        .filter(|(_, text)| text.lines().any(|line| line.starts_with(FORGED)))
        .map(|(who, _)| *who)
        .collect();
    let outcome = format!("control characters in: {acting:?}; forged lines in: {forged:?}");
    table::verdict("10 control characters in an error", "driver", &outcome);
    assert!(acting.is_empty() && forged.is_empty(), "{outcome}: {shown:?}");
}

//! The operation in flight, recorded where a client that knows only upstream's status cannot erase it.
//!
//! A program that was built with machine-controller-manager's types and writes the status of a Machine (its MachineSet
//! controller does, and tools that PUT whole objects) erases every field of ours. Facts that protect an instance stand
//! in an annotation as well, which such a client keeps.

use crate::{ProviderName, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::{
    driver::OperationKind,
    machine::{Machine, MachinePhase, MachineStatus, OperationIntent},
    names::annotation::OPERATION,
};

/// The value of annotation [`OPERATION`], as JSON.
///
/// The record is written with the finalizer, in the last write of metadata before the first create is sent, and again
/// with the provider id. The record holds only creates, and the initialization sent with the second write. The start of
/// every other operation is in upstream's own last operation, and such an operation may be repeated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperationRecord {
    /// UID of the Machine. The record of another Machine is void: it came with a dump, a copy or a template.
    #[serde(rename = "machineUID")]
    pub machine_uid: Uid,
    /// See [`MachineStatus::instance_uid`].
    #[serde(rename = "instanceUID", default, skip_serializing_if = "Option::is_none")]
    pub instance_uid: Option<Uid>,
    /// The provider that the last create was sent to, or whose driver found the instance. `None`: a core before this
    /// field wrote the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderName>,
    /// See [`MachineStatus::creation_started_at`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creation_started_at: Option<Time>,
    /// The first create of its idempotency key, until the instance is recorded; then the initialization that followed
    /// immediately, which stays here after its end. Absent: the create is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationIntent>,
}

impl OperationRecord {
    /// The wanted record of a Machine with this status, and its provider.
    pub fn of(machine: &Machine, status: &MachineStatus, provider: Option<ProviderName>) -> Self {
        // A takeover of a running Machine's instance is no creation, and may be repeated.
        let begun = status.creation_started_at.is_some();
        let creates = |it: &&OperationIntent| {
            let kind = it.operation_kind();
            begun && (kind == Some(OperationKind::CreateMachine) || is_initialization(it))
        };
        Self {
            machine_uid: machine.uid().into(),
            instance_uid: status.instance_uid.clone().or_else(|| machine.noted_instance_uid()),
            provider,
            creation_started_at: status.creation_started_at.clone(),
            operation: status.operation.as_ref().filter(creates).cloned(),
        }
    }
}

fn is_initialization(intent: &OperationIntent) -> bool {
    intent.operation_kind() == Some(OperationKind::InitializeMachine)
}

impl Machine {
    /// The record, if present and this Machine's. An unreadable record only proves a former record.
    pub fn operation_record(&self) -> Option<OperationRecord> {
        let text = self.annotation(OPERATION)?;
        let unreadable =
            || OperationRecord { machine_uid: self.uid().into(), ..OperationRecord::default() };
        let record: OperationRecord = serde_json::from_str(text).unwrap_or_else(|_| unreadable());
        (record.machine_uid == self.uid()).then_some(record)
    }

    /// UID that the record says is on the instance. Users write annotations: it is a reason to ask a driver, and proves
    /// nothing.
    pub fn noted_instance_uid(&self) -> Option<Uid> {
        self.operation_record()?.instance_uid
    }

    /// The status, with fields restored that a client erased without knowing them. A create sets
    /// [`MachineStatus::creation_started_at`], and nothing unsets it: where it is missing beside a create in the
    /// record, it was erased, or the core died before it wrote the status. Either way the create may have been sent. An
    /// initialization counts only before the first status that shows a phase: it may long be over.
    pub fn recorded_status(&self) -> MachineStatus {
        let mut status = self.status.clone().unwrap_or_default();
        let Some(record) = self.operation_record() else { return status };
        let (None, Some(intent)) = (&status.creation_started_at, record.operation) else {
            return status;
        };
        let is_new = status.machine_phase() == MachinePhase::New;
        if !is_initialization(&intent) {
            if is_new {
                // Of a create whose status was never written there is no other spec.
                status.creation_spec_digest.clone_from(&intent.spec_digest);
            }
            status.creation_started_at.clone_from(&intent.started_at);
            status.operation.get_or_insert(intent);
        } else if is_new {
            status.creation_started_at = record.creation_started_at;
            status.operation.get_or_insert(intent);
        }
        status
    }

    /// The operation that was or is about to be sent.
    pub fn intent(&self) -> Option<OperationIntent> {
        let shown = self.status.as_ref().and_then(|status| status.operation.clone());
        shown.or_else(|| self.recorded_status().operation)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn machine(record: &str, status: &Value) -> Machine {
        serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "uid": "u", "annotations": { OPERATION: record } },
            "spec": {}, "status": status,
        }))
        .unwrap()
    }

    const OPEN: &str = r#"{"machineUID":"u","operation":{"id":"1","kind":"CreateMachine",
        "idempotencyKey":"u:c","startedAt":"2026-01-01T00:00:00Z"}}"#;

    #[test]
    fn what_a_client_erased_comes_back_from_the_record() {
        let machine = machine(OPEN, &json!({ "currentStatus": { "phase": "Terminating" } }));
        let status = machine.recorded_status();
        assert_eq!(status.operation.unwrap().id, "1");
        assert!(status.creation_started_at.is_some());
        assert_eq!(machine.intent().unwrap().id, "1");
    }

    #[test]
    fn the_spec_of_a_create_comes_back_while_no_status_was_written() {
        let open = OPEN.replace(r#""kind":"C"#, r#""specDigest":"s1","kind":"C"#);
        let spec = |status: &Value| machine(&open, status).recorded_status().creation_spec_digest;
        assert_eq!(spec(&json!({})).unwrap(), "s1");
        let erased = json!({ "currentStatus": { "phase": "CrashLoopBackOff" } });
        assert_eq!(spec(&erased), None, "another create, of another spec, may have followed");
    }

    #[test]
    fn a_status_that_knows_of_the_create_counts() {
        let settled = json!({ "creationStartedAt": "2026-01-01T00:00:00Z" });
        assert_eq!(machine(OPEN, &settled).intent(), None, "its answer was recorded");
    }

    #[test]
    fn an_initialization_counts_until_a_status_shows_a_phase() {
        let open = OPEN.replace("CreateMachine", "InitializeMachine").replace("u:c", "u:i");
        let open = open.replacen('{', r#"{"creationStartedAt":"2025-12-31T23:59:00Z","#, 1);
        let unwritten = machine(&open, &json!({})).recorded_status();
        assert_eq!(unwritten.operation.unwrap().id, "1");
        let started = unwritten.creation_started_at.unwrap().0.to_string();
        assert_eq!(started, "2025-12-31T23:59:00Z", "the creation began before");
        for phase in ["Pending", "Running", "Terminating"] {
            let shown = machine(&open, &json!({ "currentStatus": { "phase": phase } }));
            assert_eq!(shown.intent(), None, "{phase}: a client erased the rest");
        }
    }

    #[test]
    fn a_record_of_another_machine_is_void() {
        let copied = OPEN.replace(r#""machineUID":"u""#, r#""machineUID":"v""#);
        let machine = machine(&copied, &json!({}));
        assert_eq!((machine.operation_record(), machine.intent()), (None, None));
    }

    #[test]
    fn one_that_cannot_be_read_says_that_there_was_one() {
        let record = machine("{", &json!({})).operation_record().unwrap();
        assert_eq!(record, OperationRecord { machine_uid: "u".into(), ..Default::default() });
    }

    #[test]
    fn the_uid_on_the_instance_is_kept_and_no_status_comes_from_it() {
        let machine = machine(r#"{"machineUID":"u","instanceUID":"u"}"#, &json!({}));
        assert_eq!(machine.recorded_status(), MachineStatus::default());
        let again = OperationRecord::of(&machine, &MachineStatus::default(), None);
        assert_eq!(again.instance_uid.unwrap(), "u");
    }
}

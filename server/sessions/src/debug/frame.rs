//! One frame as people read it: what it is about, and its text without secrets.

use std::time::SystemTime;

use ostler_api::driver::OperationKind;
use ostler_proto::json;
use ostler_proto::v1alpha1::{
    FrameDirection, FrameInfo, OperationCompleted, RegisterRequest, RegisterResponse, Target,
    operation_completed, operation_result, register_request, register_response,
};
use prost::{Message, Name};

use crate::convert::kind_of;

/// Longest text of a frame, in bytes.
const TEXT_BYTES: usize = 4 << 10;

/// What a frame is about.
#[derive(Debug, Default)]
struct Subject {
    kind: &'static str,
    operation: String,
    operation_id: String,
    target: Option<Target>,
}

impl Subject {
    fn of(kind: &'static str) -> Self {
        Self { kind, ..Self::default() }
    }

    fn about(kind: &'static str, operation_id: &str) -> Self {
        Self { operation_id: operation_id.to_owned(), ..Self::of(kind) }
    }
}

/// A frame of a driver.
pub(super) fn from_driver(request: &RegisterRequest) -> FrameInfo {
    use register_request::Frame;
    let subject = match &request.frame {
        None => Subject::default(),
        Some(Frame::Hello(_)) => Subject::of("hello"),
        Some(Frame::Accepted(it)) => Subject::about("accepted", &it.operation_id),
        Some(Frame::Progress(it)) => Subject::about("progress", &it.operation_id),
        Some(Frame::Page(it)) => Subject::about("page", &it.operation_id),
        Some(Frame::Completed(it)) => Subject {
            operation: result_name(it).unwrap_or_default(),
            ..Subject::about("completed", &it.operation_id)
        },
        Some(Frame::State(_)) => Subject::of("state"),
        Some(Frame::Heartbeat(_)) => Subject::of("heartbeat"),
        Some(Frame::Unsupported(_)) => Subject::of("unsupported"),
    };
    info(FrameDirection::DriverToCore, request.seq, subject, request)
}

/// A frame of the core.
pub(super) fn from_core(response: &RegisterResponse) -> FrameInfo {
    use register_response::Frame;
    let subject = match &response.frame {
        None => Subject::default(),
        Some(Frame::Welcome(_)) => Subject::of("welcome"),
        Some(Frame::Operation(it)) => Subject {
            operation: it.request.as_ref().map(|it| json_name(kind_of(it))).unwrap_or_default(),
            target: it.target.clone(),
            ..Subject::about("operation", &it.operation_id)
        },
        Some(Frame::Cancel(it)) => Subject::about("cancel", &it.operation_id),
        Some(Frame::ResultAck(it)) => Subject::about("resultAck", &it.operation_id),
        Some(Frame::Role(_)) => Subject::of("role"),
        Some(Frame::Draining(_)) => Subject::of("draining"),
        Some(Frame::Heartbeat(_)) => Subject::of("heartbeat"),
        Some(Frame::Invalidate(_)) => Subject::of("invalidate"),
        Some(Frame::ProtocolError(_)) => Subject::of("protocolError"),
        Some(Frame::Unsupported(_)) => Subject::of("unsupported"),
    };
    info(FrameDirection::CoreToDriver, response.seq, subject, response)
}

fn info<M: Message + Name>(
    direction: FrameDirection,
    seq: u64,
    subject: Subject,
    frame: &M,
) -> FrameInfo {
    let mut text = json::to_redacted_json(frame).to_string();
    if text.len() > TEXT_BYTES {
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        text.push('…');
    }
    FrameInfo {
        time: Some(SystemTime::now().into()),
        provider: String::new(),
        session_id: String::new(),
        direction: direction.into(),
        seq,
        kind: subject.kind.to_owned(),
        operation: subject.operation,
        operation_id: subject.operation_id,
        target: subject.target,
        size: u32::try_from(frame.encoded_len()).unwrap_or(u32::MAX),
        text,
    }
}

fn result_name(completed: &OperationCompleted) -> Option<String> {
    use operation_result::Response;
    let operation_completed::Outcome::Result(result) = completed.outcome.as_ref()? else {
        return None;
    };
    let kind = match result.response.as_ref()? {
        Response::CreateMachine(_) => OperationKind::CreateMachine,
        Response::InitializeMachine(_) => OperationKind::InitializeMachine,
        Response::UpdateMachine(_) => OperationKind::UpdateMachine,
        Response::DeleteMachine(_) => OperationKind::DeleteMachine,
        Response::GetMachineStatus(_) => OperationKind::GetMachineStatus,
        Response::ListMachines(_) => OperationKind::ListMachines,
        Response::GetVolumeIds(_) => OperationKind::GetVolumeIds,
        Response::ValidateClass(_) => OperationKind::ValidateClass,
    };
    Some(json_name(kind))
}

/// The name of an operation in JSON, e.g. `createMachine`.
pub(super) fn json_name(kind: OperationKind) -> String {
    let mut letters = kind.name().chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::{BootstrapData, CreateMachineRequest, Operation, operation};

    use super::*;

    fn create(user_data: Vec<u8>, checkpoint: &str) -> RegisterResponse {
        let bootstrap = Some(BootstrapData { user_data, ..BootstrapData::default() });
        let create = CreateMachineRequest { bootstrap, ..CreateMachineRequest::default() };
        let operation = Operation {
            operation_id: "op-1".to_owned(),
            target: Some(Target { name: "m-1".to_owned(), ..Target::default() }),
            checkpoint: checkpoint.to_owned(),
            request: Some(operation::Request::CreateMachine(create)),
            ..Operation::default()
        };
        let frame = Some(register_response::Frame::Operation(operation));
        RegisterResponse { seq: 9, ack_seq: 0, frame }
    }

    #[test]
    fn a_create_says_what_it_is_about_and_keeps_its_user_data_to_itself() {
        let info = from_core(&create(b"canary-7f3a".to_vec(), ""));
        assert_eq!((info.kind.as_str(), info.operation.as_str()), ("operation", "createMachine"));
        assert_eq!((info.operation_id.as_str(), info.seq), ("op-1", 9));
        assert_eq!(info.target.as_ref().unwrap().name, "m-1");
        assert!(info.text.contains("<redacted, 11 bytes>"), "{}", info.text);
        let shown = format!("{info:?}");
        assert!(!shown.contains("canary") && !shown.contains("Y2FuYXJ5"), "{shown}");
    }

    #[test]
    fn a_long_frame_is_cut() {
        let info = from_core(&create(Vec::new(), &"ä".repeat(TEXT_BYTES)));
        assert!(info.text.len() <= TEXT_BYTES + '…'.len_utf8());
        assert!(info.size > 8000);
    }

    #[test]
    fn every_operation_goes_by_the_name_that_it_has_in_json() {
        let arms = json::arms::<Operation>("request");
        let names: Vec<_> = OperationKind::ALL.into_iter().map(json_name).collect();
        assert_eq!(names, arms);
    }
}

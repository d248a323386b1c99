//! A frame for people: subject, and text without secrets.

use std::time::SystemTime;

use ostler_api::driver::OperationKind;
use ostler_proto::json;
use ostler_proto::v1alpha1::{
    FrameDirection, FrameInfo, RegisterRequest, RegisterResponse, operation_completed,
    register_request, register_response,
};
use prost::{Message, Name};
use serde_json::Value;

/// Longest text of a frame, in bytes.
const TEXT_BYTES: usize = 4 << 10;

/// A frame of a driver.
pub(super) fn from_driver(request: &RegisterRequest) -> FrameInfo {
    let mut info = info(FrameDirection::DriverToCore, request);
    if let Some(register_request::Frame::Completed(completed)) = &request.frame
        && let Some(operation_completed::Outcome::Result(result)) = &completed.outcome
    {
        info.operation = json::arm(result, "response").unwrap_or_default();
    }
    info
}

/// A frame of the core.
pub(super) fn from_core(response: &RegisterResponse) -> FrameInfo {
    let mut info = info(FrameDirection::CoreToDriver, response);
    if let Some(register_response::Frame::Operation(operation)) = &response.frame {
        info.operation = json::arm(operation.as_ref(), "request").unwrap_or_default();
        info.target.clone_from(&operation.target);
    }
    info
}

/// Common to every frame: kind, named operation, and text.
fn info<M: Message + Name>(direction: FrameDirection, frame: &M) -> FrameInfo {
    let kind = json::arm(frame, "frame").unwrap_or_default();
    let json = json::to_redacted_json(frame);
    let operation_id = json.pointer(&format!("/{kind}/operationId")).and_then(Value::as_str);
    let operation_id = operation_id.unwrap_or_default().to_owned();
    let mut text = json.to_string();
    if text.len() > TEXT_BYTES {
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        text.push('…');
    }
    FrameInfo {
        time: Some(SystemTime::now().into()),
        direction: direction.into(),
        kind,
        operation_id,
        size: u32::try_from(frame.encoded_len()).unwrap_or(u32::MAX),
        text,
        ..FrameInfo::default()
    }
}

/// The name of an operation in JSON, e.g. `createMachine`.
pub(crate) fn json_name(kind: OperationKind) -> String {
    let mut letters = kind.name().chars();
    letters.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(letters).collect()
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::{
        BootstrapData, CreateMachineRequest, Operation, Target, operation,
    };

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
        let frame = Some(register_response::Frame::Operation(Box::new(operation)));
        RegisterResponse { frame }
    }

    #[test]
    fn a_create_says_what_it_is_about_and_keeps_its_user_data_to_itself() {
        let info = from_core(&create(b"canary-7f3a".to_vec(), ""));
        assert_eq!((info.kind.as_str(), info.operation.as_str()), ("operation", "createMachine"));
        assert_eq!(info.operation_id, "op-1");
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

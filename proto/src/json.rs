//! Messages as JSON, in the canonical form that grpcurl reads and writes.

use std::fmt;
use std::sync::LazyLock;

use prost::Name;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, ReflectMessage as _,
};
use serde_json::{Map, Value};

use crate::v1alpha1::ADMIN_FILE_DESCRIPTOR_SET;

/// The contract, or `None` if its description cannot be read: a defect of the build.
static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(ADMIN_FILE_DESCRIPTOR_SET).ok());

/// Something is not a message of the contract; says which field and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError(String);

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JsonError {}

/// The message as JSON, secrets and all.
pub fn to_json<M: Name>(message: &M) -> Value {
    dynamic(message).map_or(Value::Null, |message| plain(&message))
}

/// The message as JSON, with `<redacted, N bytes>` in the place of every field that the contract
/// marks with `debug_redact`.
pub fn to_redacted_json<M: Name>(message: &M) -> Value {
    let Some(mut message) = dynamic(message) else { return Value::Null };
    let mut cut = Vec::new();
    redact(&mut message, &mut Vec::new(), &mut cut);
    let mut json = plain(&message);
    for Cut { path, size } in cut {
        let note = Value::String(format!("<redacted, {size} bytes>"));
        insert(&mut json, &path, note);
    }
    json
}

/// Reads a message from JSON.
///
/// # Errors
/// A field is not known, or its value does not fit.
pub fn from_json<M: Name + Default>(json: &Value) -> Result<M, JsonError> {
    let descriptor = descriptor::<M>().ok_or_else(|| JsonError("no description".to_owned()))?;
    let message = DynamicMessage::deserialize(descriptor, json)
        .map_err(|error| JsonError(error.to_string()))?;
    message.transcode_to().map_err(|error| JsonError(error.to_string()))
}

/// The JSON names of the arms of a oneof, by number; empty if there is no such oneof.
pub fn arms<M: Name>(oneof: &str) -> Vec<String> {
    let oneofs = descriptor::<M>()
        .into_iter()
        .flat_map(|message| message.oneofs().filter(|it| it.name() == oneof).collect::<Vec<_>>());
    oneofs
        .flat_map(|it| it.fields().map(|arm| arm.json_name().to_owned()).collect::<Vec<_>>())
        .collect()
}

/// The JSON name of the arm that is set.
pub fn arm<M: Name>(message: &M, oneof: &str) -> Option<String> {
    let message = dynamic(message)?;
    let oneof = message.descriptor().oneofs().find(|it| it.name() == oneof)?;
    let mut arms = oneof.fields();
    arms.find(|arm| message.has_field(arm)).map(|arm| arm.json_name().to_owned())
}

fn descriptor<M: Name>() -> Option<MessageDescriptor> {
    POOL.as_ref()?.get_message_by_name(&M::full_name())
}

fn dynamic<M: Name>(message: &M) -> Option<DynamicMessage> {
    let mut dynamic = DynamicMessage::new(descriptor::<M>()?);
    dynamic.transcode_from(message).ok()?;
    Some(dynamic)
}

fn plain(message: &DynamicMessage) -> Value {
    // Maps of the contract have text keys, and text is all that could fail.
    serde_json::to_value(message).unwrap_or_default()
}

/// A field that was taken out.
struct Cut {
    path: Vec<Step>,
    size: usize,
}

#[derive(Clone)]
enum Step {
    Field(String),
    Item(usize),
}

fn redact(message: &mut DynamicMessage, path: &mut Vec<Step>, cut: &mut Vec<Cut>) {
    let set: Vec<FieldDescriptor> = message.fields().map(|(field, _)| field).collect();
    for field in set {
        path.push(Step::Field(field.json_name().to_owned()));
        if is_secret(&field) {
            let size = message.take_field(&field).map_or(0, |value| size(&value));
            cut.push(Cut { path: path.clone(), size });
        } else {
            redact_value(message.get_field_mut(&field), path, cut);
        }
        path.pop();
    }
}

fn redact_value(value: &mut prost_reflect::Value, path: &mut Vec<Step>, cut: &mut Vec<Cut>) {
    if let Some(message) = value.as_message_mut() {
        redact(message, path, cut);
    } else if let Some(items) = value.as_list_mut() {
        for (index, item) in items.iter_mut().enumerate() {
            path.push(Step::Item(index));
            redact_value(item, path, cut);
            path.pop();
        }
    } else if let Some(entries) = value.as_map_mut() {
        for (key, entry) in entries {
            let key = key.as_str().unwrap_or_default().to_owned();
            path.push(Step::Field(key));
            redact_value(entry, path, cut);
            path.pop();
        }
    }
}

/// Whether the contract marks the field with `debug_redact`.
fn is_secret(field: &FieldDescriptor) -> bool {
    let options = field.options();
    options.get_field_by_name("debug_redact").and_then(|it| it.as_bool()).unwrap_or(false)
}

fn size(value: &prost_reflect::Value) -> usize {
    if let Some(bytes) = value.as_bytes() {
        bytes.len()
    } else if let Some(text) = value.as_str() {
        text.len()
    } else if let Some(items) = value.as_list() {
        items.iter().map(size).sum()
    } else if let Some(entries) = value.as_map() {
        entries.values().map(size).sum()
    } else {
        0
    }
}

fn insert(json: &mut Value, path: &[Step], note: Value) {
    let Some((step, rest)) = path.split_first() else {
        *json = note;
        return;
    };
    let next = match step {
        Step::Field(name) => {
            // A message whose only field was taken out is still there, as an empty object.
            if !json.is_object() {
                *json = Value::Object(Map::new());
            }
            json.as_object_mut().map(|object| object.entry(name).or_insert(Value::Null))
        }
        Step::Item(index) => json.get_mut(index),
    };
    if let Some(next) = next {
        insert(next, rest, note);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde_json::json;

    use super::*;
    use crate::v1alpha1::{
        BootstrapData, CreateMachineRequest, GetSecretResponse, InvokeRequest, Operation,
        RegisterResponse, operation, register_response,
    };

    fn create() -> Operation {
        let bootstrap =
            BootstrapData { user_data: b"canary-7f3a".to_vec(), format: "cloud-init".to_owned() };
        let create = CreateMachineRequest {
            bootstrap: Some(bootstrap),
            tags: HashMap::from([("name".to_owned(), "m-1".to_owned())]),
            ..CreateMachineRequest::default()
        };
        Operation {
            operation_id: "op-1".to_owned(),
            request: Some(operation::Request::CreateMachine(create)),
            ..Operation::default()
        }
    }

    #[test]
    fn a_create_on_the_stream_is_shown_without_its_user_data() {
        let frame = Some(register_response::Frame::Operation(Box::new(create())));
        let shown = to_redacted_json(&RegisterResponse { frame });
        let bootstrap = &shown["operation"]["createMachine"]["bootstrap"];
        assert_eq!(
            bootstrap,
            &json!({ "userData": "<redacted, 11 bytes>", "format": "cloud-init" })
        );
        assert_eq!(shown["operation"]["createMachine"]["tags"]["name"], "m-1");
        assert!(!shown.to_string().contains("canary"), "{shown}");
    }

    #[test]
    fn a_secret_is_shown_without_keys_and_values() {
        let data = HashMap::from([("canary-key".to_owned(), b"canary".to_vec())]);
        let shown = to_redacted_json(&GetSecretResponse { data, ..GetSecretResponse::default() });
        assert_eq!(shown, json!({ "data": "<redacted, 6 bytes>" }));
    }

    #[test]
    fn every_field_that_holds_bytes_is_marked_as_secret() {
        let pool = POOL.as_ref().unwrap();
        let ours = pool.all_messages().filter(|it| it.package_name().starts_with("ostler."));
        let mut seen = 0;
        for field in ours.flat_map(|message| message.fields().collect::<Vec<_>>()) {
            if matches!(field.kind(), prost_reflect::Kind::Bytes)
                && !field.parent_message().is_map_entry()
            {
                seen += 1;
                assert!(is_secret(&field), "{}", field.full_name());
            }
        }
        assert_eq!(seen, 1, "user data; the secret is a map");
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        assert_eq!(from_json(&to_json(&create())), Ok(create()));
    }

    #[test]
    fn an_unknown_field_is_refused_by_name() {
        let refused = from_json::<InvokeRequest>(&json!({ "dryRum": true })).unwrap_err();
        assert!(refused.to_string().contains("dryRum"), "{refused}");
    }

    #[test]
    fn arms_go_by_their_json_names() {
        assert_eq!(arm(&create(), "request").as_deref(), Some("createMachine"));
        assert_eq!(arms::<Operation>("request").len(), 15);
        assert!(arms::<Operation>("nothing").is_empty());
    }
}

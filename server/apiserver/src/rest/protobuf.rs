//! Bodies in Kubernetes' binary form, which typed clients send whatever the server prefers: those
//! of the kinds in `proto/bodies.proto` are read, as the JSON that they stand for.

use std::sync::LazyLock;

use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage as _, SerializeOptions,
    Value as Field,
};
use serde_json::{Value, value::Serializer};

use crate::{
    kinds::access::set,
    status::{Answer, Status},
};

/// The media type of the binary form.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// What a body begins with.
const MAGIC: &[u8] = b"k8s\0";
/// The message that times are.
const TIME: &str = "google.protobuf.Timestamp";

/// The kinds that are read, with their group and version.
const KINDS: [(&str, &str); 10] = [
    ("v1", "ConfigMap"),
    ("v1", "Namespace"),
    ("v1", "Secret"),
    ("v1", "ServiceAccount"),
    ("authentication.k8s.io/v1", "SelfSubjectReview"),
    ("authentication.k8s.io/v1", "TokenRequest"),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"),
    ("certificates.k8s.io/v1", "CertificateSigningRequest"),
    ("policy/v1", "Eviction"),
];

/// The descriptions, or none if they cannot be read: a defect of the build.
static POOL: LazyLock<Option<DescriptorPool>> = LazyLock::new(|| {
    let bytes: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bodies.bin"));
    DescriptorPool::decode(bytes).ok()
});

fn descriptor(name: &str) -> Answer<MessageDescriptor> {
    let found = POOL.as_ref().and_then(|pool| pool.get_message_by_name(&format!("bodies.{name}")));
    found.ok_or_else(|| Status::internal("there is no description of binary bodies"))
}

/// The JSON that a body stands for.
///
/// # Errors
/// It is malformed (400), or of a kind that is not read in this form (415).
pub(crate) fn decode(bytes: &[u8]) -> Answer<Value> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(Status::bad_request("the body does not begin as a protobuf body does"));
    };
    let envelope = read("Unknown", rest)?;
    let text = |message: &DynamicMessage, field: &str| {
        let value = message.get_field_by_name(field);
        value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let kind = envelope.get_field_by_name("typeMeta");
    let kind = kind.as_ref().and_then(|kind| kind.as_message());
    let (version, kind) =
        kind.map(|kind| (text(kind, "apiVersion"), text(kind, "kind"))).unwrap_or_default();
    // Clients write the group and version of what they delete there.
    let is_read = kind == "DeleteOptions" || KINDS.contains(&(version.as_str(), kind.as_str()));
    if !is_read {
        let mut refused = Status::unsupported_media_type(&["application/json", "application/yaml"]);
        // A kubelet sends protobuf unless it is told otherwise, and its user has only this text.
        let hint = format!("; {kind} is not read as protobuf: set contentType to application/json");
        refused.message.push_str(&hint);
        return Err(refused);
    }
    let raw = envelope.get_field_by_name("raw");
    let raw = raw.as_ref().and_then(|raw| raw.as_bytes()).cloned().unwrap_or_default();
    let mut message = read(&kind, &raw)?;
    forget_empty_times(&mut message);
    let mut object = json(&message)?;
    set(&mut object, "apiVersion", version);
    set(&mut object, "kind", kind);
    Ok(object)
}

/// `prost` refuses what nests deeper than 100 messages or groups, unknown ones included; none of the messages
/// that are read contains itself, so that their JSON is no deeper than they are.
fn read(name: &str, bytes: &[u8]) -> Answer<DynamicMessage> {
    DynamicMessage::decode(descriptor(name)?, bytes)
        .map_err(|error| Status::bad_request(format!("the body is no {name}: {error}")))
}

fn json(message: &DynamicMessage) -> Answer<Value> {
    let options = SerializeOptions::new().stringify_64_bit_integers(false);
    message
        .serialize_with_options(Serializer, &options)
        .map_err(|error| Status::bad_request(error.to_string()))
}

/// A time that is not set is an empty message, which would read as 1970.
fn forget_empty_times(message: &mut DynamicMessage) {
    let mut empty = Vec::new();
    for (field, value) in message.fields_mut() {
        if let Some(inner) = value.as_message_mut() {
            let is_time = inner.descriptor().full_name() == TIME;
            if is_time && inner.fields().next().is_none() {
                empty.push(field);
            } else {
                forget_empty_times(inner);
            }
        } else if let Some(items) = value.as_list_mut() {
            items.iter_mut().filter_map(Field::as_message_mut).for_each(forget_empty_times);
        }
    }
    for field in &empty {
        message.clear_field(field);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NO_TIME: &str = "1970-01-01T00:00:00Z";

    /// A body as a client makes it of JSON.
    fn encode(version: &str, kind: &str, object: &Value) -> Vec<u8> {
        encode_as(kind, version, kind, object)
    }

    /// The same of a kind that is not described here.
    fn encode_as(described: &str, version: &str, kind: &str, object: &Value) -> Vec<u8> {
        use prost_reflect::prost::Message;
        let message =
            |name: &str, json: &Value| DynamicMessage::deserialize(descriptor(name).unwrap(), json);
        let raw = message(described, object).unwrap().encode_to_vec();
        let raw = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, raw);
        let envelope = json!({"typeMeta": {"apiVersion": version, "kind": kind}, "raw": raw});
        [MAGIC, &message("Unknown", &envelope).unwrap().encode_to_vec()].concat()
    }

    #[test]
    fn a_binary_body_reads_as_the_json_that_it_stands_for() {
        let object = json!({
            "metadata": {"name": "n1", "generation": 3, "labels": {"a": "b"},
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"request": "YWJj", "usages": ["client auth"], "expirationSeconds": 600},
            "status": {"conditions": [{"type": "Approved", "status": "True"}]},
        });
        let mut sent = object.clone();
        sent["status"]["conditions"][0]["lastTransitionTime"] = json!(NO_TIME);
        let (version, kind) = ("certificates.k8s.io/v1", "CertificateSigningRequest");
        let mut expected = object;
        expected["apiVersion"] = json!(version);
        expected["kind"] = json!(kind);
        assert_eq!(decode(&encode(version, kind, &sent)).unwrap(), expected);
    }

    #[test]
    fn what_is_a_time_by_its_name_only_is_kept() {
        let mut object = json!({
            "metadata": {"name": "a", "labels": {"startTime": NO_TIME},
                "annotations": {"example.org/endTimestamp": NO_TIME}},
            "data": {"bootTime": NO_TIME},
        });
        let sent = encode("v1", "ConfigMap", &object);
        object["apiVersion"] = json!("v1");
        object["kind"] = json!("ConfigMap");
        assert_eq!(decode(&sent).unwrap(), object);
    }

    #[test]
    fn every_kind_that_is_read_is_described() {
        for kind in KINDS.map(|(_, kind)| kind).into_iter().chain(["DeleteOptions"]) {
            assert!(descriptor(kind).is_ok(), "{kind}");
        }
    }

    #[test]
    fn delete_options_are_read_whatever_is_deleted() {
        for version in ["v1", "apps/v1", "metal.ironcore.dev/v1alpha1"] {
            let sent = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}});
            let mut expected = sent.clone();
            expected["apiVersion"] = json!(version);
            expected["kind"] = json!("DeleteOptions");
            assert_eq!(decode(&encode(version, "DeleteOptions", &sent)).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_malformed_or_of_another_kind_is_refused() {
        let truncated = encode("policy/v1", "Eviction", &json!({"metadata": {"name": "x"}}));
        for (body, code) in [
            (b"".to_vec(), 400),
            (b"{}".to_vec(), 400),
            (b"k8s\0".to_vec(), 415),
            (b"k8s\0\xff\xff".to_vec(), 400),
            (truncated[..truncated.len() - 1].to_vec(), 400),
            (encode("policy/v2", "Eviction", &json!({})), 415),
        ] {
            assert_eq!(decode(&body).unwrap_err().code, code, "{body:?}");
        }
        let lease = encode_as("Namespace", "coordination.k8s.io/v1", "Lease", &json!({}));
        let told = decode(&lease).unwrap_err().message;
        assert!(
            told.ends_with("; Lease is not read as protobuf: set contentType to application/json")
        );
    }
}

//! Bodies in Kubernetes' binary form, which typed clients send whatever the server prefers: those of the
//! built-in kinds are read, as the JSON that they stand for. Answers are JSON; a client that wants no JSON reads so.
//!
//! `proto/bodies.proto` describes them. A message is an object with a field for each of its own, but for the
//! types whose JSON form Kubernetes writes by hand (times, quantities, …), and for parts that stand in
//! their owner.

use std::sync::LazyLock;

use base64::{Engine, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use prost_reflect::{
    DescriptorPool, DynamicMessage, MapKey, MessageDescriptor, ReflectMessage as _, Value as Field,
    prost::Message as _,
};
use serde_json::{Map, Value, json};

use super::{bounds, number::number};
use crate::kinds::{
    access::set,
    schema::catalogue,
    status::{Answer, Status},
    type_name,
};

/// The media type of the binary form.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of a body.
const MAGIC: &[u8] = b"k8s\0";

/// Messages whose fields belong to the object around.
const INLINE: [&str; 5] = [
    "ephemeralContainerCommon",
    "handler",
    "localObjectReference",
    "persistentVolumeSource",
    "volumeSource",
];

/// The descriptions, or none if they cannot be read: a defect of the build.
static POOL: LazyLock<Option<DescriptorPool>> = LazyLock::new(|| {
    let bytes: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bodies.bin"));
    DescriptorPool::decode(bytes).ok()
});

fn descriptor(name: &str) -> Option<MessageDescriptor> {
    POOL.as_ref()?.get_message_by_name(&format!("bodies.{name}"))
}

/// The description of a kind of Kubernetes' own, if there is one.
fn described(version: &str, kind: &str) -> Option<MessageDescriptor> {
    // Clients write the group and version of what they delete there.
    if kind == "DeleteOptions" {
        return descriptor("meta_v1_DeleteOptions");
    }
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let first = group.split('.').next().filter(|first| !first.is_empty()).unwrap_or("core");
    // Every server takes evictions of the version before, which has the same fields: cluster-autoscaler 1.36 sends them.
    let version = if (kind, version) == ("Eviction", "v1beta1") { "v1" } else { version };
    let is_ours = !group.contains('.') || group.ends_with(".k8s.io");
    let found = descriptor(&format!("{first}_{version}_{kind}")).filter(|_| is_ours);
    found.filter(|message| message.get_field_by_name("metadata").is_some())
}

/// The JSON that a body stands for.
///
/// # Errors
/// The body is malformed (400), or its kind is not read as protobuf (415).
pub(crate) fn decode(bytes: &[u8]) -> Answer<Value> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return Err(Status::bad_request("the body does not begin as a protobuf body does"));
    };
    let unknown = descriptor("runtime_Unknown")
        .ok_or_else(|| Status::internal("there is no description of binary bodies"))?;
    let envelope = read(unknown, rest)?;
    let text = |message: &DynamicMessage, field: &str| {
        let value = message.get_field_by_name(field);
        value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let kind = envelope.get_field_by_name("typeMeta");
    let kind = kind.as_ref().and_then(|kind| kind.as_message());
    let (version, kind) =
        kind.map(|kind| (text(kind, "apiVersion"), text(kind, "kind"))).unwrap_or_default();
    let Some(described) = described(&version, &kind) else {
        let mut refused = Status::unsupported_media_type(&["application/json", "application/yaml"]);
        let hint = format!("; {kind} is not read as protobuf: set contentType to application/json");
        refused.message.push_str(&hint);
        return Err(refused);
    };
    let raw = envelope.get_field_by_name("raw");
    let raw = raw.as_ref().and_then(|raw| raw.as_bytes()).cloned().unwrap_or_default();
    let mut object = Value::Object(fields(&read(described, &raw)?)?);
    if bounds::depth(&object) > bounds::DEPTH {
        let most = bounds::DEPTH;
        return Err(Status::bad_request(format!(
            "the body is nested more than {most} levels deep"
        )));
    }
    // Fields of a later version are dropped silently, as by a server of this one: they have values in
    // this form also where nobody set them.
    let (group, short) = version.split_once('/').unwrap_or(("", version.as_str()));
    // The write of the object refuses wrong types.
    catalogue::decode_type(&type_name(group, short, &kind), &mut object).ok();
    set(&mut object, "apiVersion", version);
    set(&mut object, "kind", kind);
    Ok(object)
}

/// A refusal in the binary form.
pub(crate) fn refusal(status: &Status) -> Option<Vec<u8>> {
    let mut fields = serde_json::to_value(status).ok()?;
    for name in ["apiVersion", "kind"] {
        fields.as_object_mut()?.remove(name);
    }
    encode(descriptor("meta_v1_Status")?, "v1", "Status", fields)
}

/// A body of the fields of a message.
fn encode(form: MessageDescriptor, version: &str, kind: &str, fields: Value) -> Option<Vec<u8>> {
    let bytes = |form: MessageDescriptor, fields: Value| {
        Some(DynamicMessage::deserialize(form, fields).ok()?.encode_to_vec())
    };
    let raw = BASE64_STANDARD.encode(bytes(form, fields)?);
    let envelope = json!({"typeMeta": {"apiVersion": version, "kind": kind}, "raw": raw});
    Some([MAGIC, &bytes(descriptor("runtime_Unknown")?, envelope)?].concat())
}

/// `prost` refuses what nests deeper than 100 messages or groups, unknown ones included.
fn read(described: MessageDescriptor, bytes: &[u8]) -> Answer<DynamicMessage> {
    let name = described.name().to_owned();
    DynamicMessage::decode(described, bytes)
        .map_err(|error| Status::bad_request(format!("the body is no {name}: {error}")))
}

/// The fields of a message that are set.
fn fields(message: &DynamicMessage) -> Answer<Map<String, Value>> {
    let owner = message.descriptor();
    let is_schema = owner.name() == "apiextensions_v1_JSONSchemaProps";
    let mut all = Map::new();
    for (field, value) in message.fields() {
        if let Some(inner) = value.as_message().filter(|_| INLINE.contains(&field.name())) {
            all.extend(fields(inner)?);
            continue;
        }
        let name = if is_schema { schema_name(field.name()) } else { field.name().to_owned() };
        all.extend(plain(value)?.map(|value| (name, value)));
    }
    Ok(all)
}

/// The name of a field of a definition's schema: `x-kubernetes-list-type` for `xKubernetesListType`.
fn schema_name(name: &str) -> String {
    if let "ref" | "schema" = name {
        return format!("${name}");
    }
    if !name.starts_with("xKubernetes") {
        return name.to_owned();
    }
    let dashed = name.chars().flat_map(|c| {
        let dash = c.is_ascii_uppercase().then_some('-');
        dash.into_iter().chain([c.to_ascii_lowercase()])
    });
    dashed.collect()
}

/// The JSON of a value; none for a time that is not set.
fn plain(value: &Field) -> Answer<Option<Value>> {
    Ok(Some(match value {
        Field::Bool(value) => json!(value),
        Field::I32(value) | Field::EnumNumber(value) => json!(value),
        Field::I64(value) => json!(value),
        Field::U32(value) => json!(value),
        Field::U64(value) => json!(value),
        Field::F32(value) => json!(number((*value).into())),
        Field::F64(value) => json!(number(*value)),
        Field::String(value) => json!(value),
        Field::Bytes(value) => json!(BASE64_STANDARD.encode(value)),
        Field::Message(message) => return special(message),
        Field::List(values) => {
            values.iter().filter_map(|one| plain(one).transpose()).collect::<Answer<_>>()?
        }
        Field::Map(values) => {
            let mut all = Map::new();
            for (key, value) in values {
                if let (MapKey::String(key), Some(value)) = (key, plain(value)?) {
                    all.insert(key.clone(), value);
                }
            }
            Value::Object(all)
        }
    }))
}

/// The JSON of a message, of which some have a form of their own.
fn special(message: &DynamicMessage) -> Answer<Option<Value>> {
    let of = |field: &str| {
        let value = message.get_field_by_name(field).filter(|_| message.has_field_by_name(field));
        value.map_or(Ok(None), |value| plain(&value))
    };
    let either = |first: &str, second: &str| {
        of(first).and_then(|it| if it.is_some() { Ok(it) } else { of(second) })
    };
    let owner = message.descriptor();
    match owner.name() {
        "meta_v1_Time" => time(message, "%Y-%m-%dT%H:%M:%SZ"),
        "meta_v1_MicroTime" => time(message, "%Y-%m-%dT%H:%M:%S%.6fZ"),
        "quantity_Quantity" => of("string"),
        "intstr_IntOrString" if of("type")? == Some(json!(1)) => of("strVal"),
        "intstr_IntOrString" => of("intVal"),
        "apiextensions_v1_JSONSchemaPropsOrArray" => either("schema", "jSONSchemas"),
        "apiextensions_v1_JSONSchemaPropsOrBool" => either("schema", "allows"),
        "apiextensions_v1_JSONSchemaPropsOrStringArray" => either("schema", "property"),
        "meta_v1_FieldsV1" | "runtime_RawExtension" | "apiextensions_v1_JSON" => text(message),
        name if name.ends_with("_ExtraValue") => Ok(of("items")?.or(Some(json!([])))),
        _ => fields(message).map(Value::Object).map(Some),
    }
}

/// The JSON whose text a message has.
fn text(message: &DynamicMessage) -> Answer<Option<Value>> {
    let raw = message.fields().find_map(|(_, value)| value.as_bytes());
    let Some(raw) = raw.filter(|raw| !raw.is_empty()) else { return Ok(None) };
    serde_json::from_slice(raw).map(Some).map_err(|error| Status::bad_request(error.to_string()))
}

/// A time as text. An unset time is an empty message, which would read as 1970.
fn time(message: &DynamicMessage, format: &str) -> Answer<Option<Value>> {
    let number = |field: &str| {
        let value = message.get_field_by_name(field);
        value
            .and_then(|value| value.as_i64().or_else(|| value.as_i32().map(i64::from)))
            .unwrap_or(0)
    };
    if message.fields().next().is_none() {
        return Ok(None);
    }
    let nanos = i32::try_from(number("nanos")).unwrap_or(0);
    let time = Timestamp::new(number("seconds"), nanos);
    let time = time.map_err(|error| Status::bad_request(error.to_string()))?;
    Ok(Some(time.strftime(format).to_string().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body as a client makes it.
    fn sent(version: &str, kind: &str, message: &Value) -> Vec<u8> {
        sent_as(described(version, kind).unwrap(), version, kind, message)
    }

    /// The same of a kind that is not described here.
    fn sent_as(form: MessageDescriptor, version: &str, kind: &str, message: &Value) -> Vec<u8> {
        encode(form, version, kind, message.clone()).unwrap()
    }

    fn decoded(version: &str, kind: &str, message: &Value) -> Value {
        let mut object = decode(&sent(version, kind, message)).unwrap();
        let fields = object.as_object_mut().unwrap();
        assert_eq!(fields.remove("apiVersion"), Some(json!(version)));
        assert_eq!(fields.remove("kind"), Some(json!(kind)));
        object
    }

    #[test]
    fn a_binary_body_reads_as_the_json_that_it_stands_for() {
        let sent = json!({
            "metadata": {"name": "n1", "generation": 3, "labels": {"a": "b"},
                "creationTimestamp": {"seconds": 1_767_225_600, "nanos": 0}, "uid": ""},
            "spec": {"request": "YWJj", "usages": ["client auth"], "expirationSeconds": 600,
                "extra": {"k": {"items": ["v"]}}},
            "status": {"conditions":
                [{"type": "Approved", "status": "True", "lastTransitionTime": {}}]},
        });
        let expected = json!({
            "metadata": {"name": "n1", "generation": 3, "labels": {"a": "b"},
                "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"request": "YWJj", "usages": ["client auth"], "expirationSeconds": 600,
                "signerName": "", "extra": {"k": ["v"]}},
            "status": {"conditions": [{"type": "Approved", "status": "True"}]},
        });
        let mut found = decoded("certificates.k8s.io/v1", "CertificateSigningRequest", &sent);
        set(&mut found["spec"], "signerName", "");
        assert_eq!(found, expected);
    }

    #[test]
    fn a_pod_has_its_inline_parts_quantities_and_ports_where_json_has_them() {
        let sent = json!({"metadata": {"name": "p"}, "spec": {
            "volumes": [{"name": "v", "volumeSource": {"configMap":
                {"localObjectReference": {"name": "c"}, "optional": true}}}],
            "containers": [{"name": "c", "image": "i", "stdin": false,
                "env": [{"name": "E", "valueFrom": {"secretKeyRef":
                    {"localObjectReference": {"name": "s"}, "key": "k"}}}],
                "resources": {"limits": {"cpu": {"string": "500m"}}},
                "livenessProbe": {"handler": {"httpGet": {"path": "/", "port":
                    {"type": 1, "intVal": 0, "strVal": "http"}}}, "periodSeconds": 5},
                "readinessProbe": {"handler": {"tcpSocket": {"port":
                    {"type": 0, "intVal": 80, "strVal": ""}}}, "failureThreshold": 0}}],
            "hostNetwork": false, "nodeName": ""}});
        let expected = json!({"metadata": {"name": "p"}, "spec": {
            "volumes": [{"name": "v", "configMap": {"name": "c", "optional": true}}],
            "containers": [{"name": "c", "image": "i",
                "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "resources": {"limits": {"cpu": "500m"}},
                "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 5},
                "readinessProbe": {"tcpSocket": {"port": 80}}}]}});
        assert_eq!(decoded("v1", "Pod", &sent), expected);
    }

    #[test]
    fn times_of_leases_are_exact_and_schemas_have_their_own_names() {
        let at = json!({"seconds": 1_767_225_600, "nanos": 120_000_000});
        let lease =
            json!({"metadata": {"name": "l"}, "spec": {"renewTime": at, "acquireTime": {}}});
        let found = decoded("coordination.k8s.io/v1", "Lease", &lease);
        assert_eq!(found["spec"], json!({"renewTime": "2026-01-01T00:00:00.120000Z"}));
        let default = BASE64_STANDARD.encode("{\"a\":1}");
        let schema = json!({"type": "object", "xKubernetesPreserveUnknownFields": true,
            "default": {"raw": default}, "additionalProperties": {"allows": true},
            "properties": {"l": {"items": {"schema": {"type": "string"}}, "xKubernetesListType": "set"}}});
        let spec = json!({"group": "g", "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]});
        let sent = json!({"metadata": {"name": "d"}, "spec": spec});
        let found = decoded("apiextensions.k8s.io/v1", "CustomResourceDefinition", &sent);
        assert_eq!(
            found["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            json!({
            "type": "object", "x-kubernetes-preserve-unknown-fields": true, "default": {"a": 1},
            "additionalProperties": true,
            "properties": {"l": {"items": {"type": "string"}, "x-kubernetes-list-type": "set"}}})
        );
    }

    #[test]
    fn every_built_in_kind_is_described_by_the_names_of_its_json() {
        for kind in crate::kinds::BuiltIn::ALL {
            let resource = kind.resource();
            let version = match resource.group.as_str() {
                "" => resource.version.clone(),
                group => format!("{group}/{}", resource.version),
            };
            let form = described(&version, &resource.kind);
            let form = form.unwrap_or_else(|| panic!("{version} {}", resource.kind));
            if let Some(field) = form.get_field_by_name("spec") {
                let name = kind.type_name();
                let known = catalogue::type_of_field(&name, "spec");
                assert!(known.is_some(), "{name} has no spec, and {:?} is one", field.kind());
            }
        }
        for (version, kind) in [
            ("v1", "Binding"),
            ("policy/v1", "Eviction"),
            ("policy/v1beta1", "Eviction"),
            ("authentication.k8s.io/v1", "TokenRequest"),
            ("authentication.k8s.io/v1", "TokenReview"),
            ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
            ("autoscaling/v1", "Scale"),
        ] {
            assert!(described(version, kind).is_some(), "{kind}");
        }
    }

    #[test]
    fn delete_options_are_read_whatever_is_deleted() {
        for version in ["v1", "apps/v1", "metal.ironcore.dev/v1alpha1"] {
            let sent = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}});
            assert_eq!(decoded(version, "DeleteOptions", &sent), sent);
        }
    }

    #[test]
    fn what_is_malformed_or_of_another_kind_is_refused() {
        let truncated = sent("policy/v1", "Eviction", &json!({"metadata": {"name": "x"}}));
        let eviction = || described("policy/v1", "Eviction").unwrap();
        for (body, code) in [
            (b"".to_vec(), 400),
            (b"{}".to_vec(), 400),
            (b"k8s\0".to_vec(), 415),
            (b"k8s\0\xff\xff".to_vec(), 400),
            (truncated[..truncated.len() - 1].to_vec(), 400),
            (sent_as(eviction(), "policy/v2", "Eviction", &json!({})), 415),
            (sent_as(eviction(), "policy.example.com/v1", "Eviction", &json!({})), 415),
            (sent_as(eviction(), "v1", "PodSpec", &json!({})), 415),
        ] {
            assert_eq!(decode(&body).unwrap_err().code, code, "{body:?}");
        }
        let machine = sent_as(eviction(), "machine.sapcloud.io/v1alpha1", "Machine", &json!({}));
        let told = decode(&machine).unwrap_err().message;
        assert!(
            told.ends_with(
                "; Machine is not read as protobuf: set contentType to application/json"
            )
        );
    }
}

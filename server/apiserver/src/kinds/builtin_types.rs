//! The JSON schemas of built-in types, as OpenAPI components.

use std::{collections::BTreeMap, sync::LazyLock};

use k8s_openapi::{
    api::{
        apps::v1 as apps, authentication::v1 as authentication, authorization::v1 as authorization,
        autoscaling::v1 as autoscaling, autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1 as batch, certificates::v1 as certificates, coordination::v1 as coordination,
        core::v1 as core, discovery::v1 as discovery, events::v1 as events,
        networking::v1 as networking, node::v1 as node, policy::v1 as policy, rbac::v1 as rbac,
        resource::v1beta2 as resource, scheduling::v1 as scheduling, storage::v1 as storage,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    apimachinery::pkg::apis::meta::v1 as meta,
    schemars::{SchemaGenerator, generate::SchemaSettings},
};
use serde_json::{Value, json};

/// The type of `metadata`.
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

static DEFINITIONS: LazyLock<BTreeMap<String, Value>> = LazyLock::new(generate);

/// All types by name (`io.k8s.api.core.v1.Pod`), with references as OpenAPI v3 writes them.
pub(crate) fn definitions() -> &'static BTreeMap<String, Value> {
    &DEFINITIONS
}

/// The types of devices have not changed since their last version before the one that is served.
const DEVICES_BEFORE: &str = "api.resource.v1beta2";
const DEVICES: &str = "api.resource.v1";

const PREFIX: &str = "#/components/schemas/";

/// The name of a type without the part that all of them share: `core.v1.Pod`.
pub(crate) fn short_name(name: &str) -> &str {
    let name = name.strip_prefix("io.k8s.api.").unwrap_or(name);
    name.strip_prefix("io.k8s.apimachinery.pkg.apis.").unwrap_or(name)
}

/// The type that a field refers to.
pub(crate) fn reference(field: &Value) -> Option<&str> {
    let direct = field.get("$ref");
    let wrapped = || field.get("allOf")?.get(0)?.get("$ref");
    direct.or_else(wrapped)?.as_str()?.strip_prefix(PREFIX)
}

fn generate() -> BTreeMap<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    macro_rules! add {
        ($($kind:ty),* $(,)?) => { $(drop(generator.subschema_for::<$kind>());)* };
    }
    add!(core::ConfigMap, core::Event, core::Namespace, core::Node, core::PersistentVolumeClaim);
    add!(core::PersistentVolume, core::Pod, core::Secret, core::ServiceAccount, core::Service);
    add!(core::Binding, apps::DaemonSet, apps::Deployment, apps::ReplicaSet, apps::StatefulSet);
    add!(events::Event, policy::PodDisruptionBudget, policy::Eviction, coordination::Lease);
    add!(rbac::ClusterRoleBinding, rbac::ClusterRole, rbac::RoleBinding, rbac::Role);
    add!(storage::CSINode, storage::VolumeAttachment, autoscaling::Scale);
    add!(apiextensions::CustomResourceDefinition, meta::Status, meta::DeleteOptions);
    add!(authentication::TokenRequest, authentication::TokenReview);
    add!(authentication::SelfSubjectReview, authorization::SelfSubjectAccessReview);
    add!(authorization::SelfSubjectRulesReview);
    add!(meta::ListMeta, certificates::CertificateSigningRequest);
    add!(core::ReplicationController, core::ResourceQuota, batch::Job, batch::CronJob);
    add!(HorizontalPodAutoscaler, scheduling::PriorityClass, storage::StorageClass);
    add!(storage::CSIDriver, storage::CSIStorageCapacity, resource::ResourceSlice);
    add!(resource::ResourceClaim, resource::DeviceClass, networking::NetworkPolicy);
    add!(resource::ResourceClaimTemplate, apps::ControllerRevision);
    add!(core::Endpoints, discovery::EndpointSlice, node::RuntimeClass);
    take(&mut generator)
}

fn take(generator: &mut SchemaGenerator) -> BTreeMap<String, Value> {
    generator
        .take_definitions(true)
        .into_iter()
        .map(|(name, mut document)| {
            let name = name.replace(DEVICES_BEFORE, DEVICES);
            rewrite(&mut document);
            special(&name, &mut document);
            (name, document)
        })
        .collect()
}

/// Gives references the form that Kubernetes publishes: with a description beside it, a reference
/// stands in an `allOf`.
fn rewrite(document: &mut Value) {
    match document {
        Value::Object(fields) => {
            fields.values_mut().for_each(rewrite);
            if let Some(Value::String(target)) = fields.get_mut("$ref") {
                *target = target.replace(DEVICES_BEFORE, DEVICES);
            }
            // a property may have that name too: then it is no text
            let refers = fields.get("$ref").is_some_and(Value::is_string);
            if refers
                && fields.len() > 1
                && let Some(target) = fields.remove("$ref")
            {
                fields.insert("allOf".to_owned(), json!([{ "$ref": target }]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(rewrite),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The types with a JSON form other than the fields.
fn special(name: &str, document: &mut Value) {
    let Some(fields) = document.as_object_mut() else { return };
    let mut set = |name: &str, value: Value| {
        fields.insert(name.to_owned(), value);
    };
    match name.rsplit('.').next().unwrap_or_default() {
        "Quantity" => set("oneOf", json!([{ "type": "string" }, { "type": "number" }])),
        "IntOrString" => {
            set("format", json!("int-or-string"));
            set("oneOf", json!([{ "type": "integer" }, { "type": "string" }]));
        }
        "JSON"
        | "JSONSchemaPropsOrBool"
        | "JSONSchemaPropsOrArray"
        | "JSONSchemaPropsOrStringArray" => {
            fields.retain(|name, _| name == "description");
            return;
        }
        _ => return,
    }
    fields.remove("x-kubernetes-int-or-string");
}

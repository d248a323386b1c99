//! The CustomResourceDefinitions, generated from the types.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps,
    JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;
use schemars::{Schema, SchemaGenerator, json_schema};

use crate::{machine::Machine, machine_class::MachineClass};

/// Every CustomResourceDefinition of ours, in the order in which to apply them.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![machine(), machine_class()]
}

/// A column of `kubectl get`.
struct Column {
    name: &'static str,
    type_: &'static str,
    path: &'static str,
    /// Shown with `-o wide` only.
    wide: bool,
}

const fn column(name: &'static str, type_: &'static str, path: &'static str) -> Column {
    Column { name, type_, path, wide: false }
}

const fn wide(name: &'static str, type_: &'static str, path: &'static str) -> Column {
    Column { name, type_, path, wide: true }
}

/// Status, Age, Node and ProviderID are upstream's, by name, path and order; the others say where a
/// Machine is and why. What is shown with `-o wide` only comes after ProviderID.
const MACHINE_COLUMNS: &[Column] = &[
    column("Status", "string", ".status.currentStatus.phase"),
    column("Age", "date", ".metadata.creationTimestamp"),
    column("Node", "string", ".metadata.labels.node"),
    column("Step", "string", ".status.step"),
    column("Waiting", "string", ".status.waitingFor.reason"),
    wide("ProviderID", "string", ".spec.providerID"),
    wide("Phase", "string", ".status.phase"),
    wide("Bootstrap", "string", ".status.bootstrapPhase"),
    wide("Infrastructure", "string", ".status.infrastructurePhase"),
    wide("Version", "string", ".status.version"),
    wide("Class", "string", ".spec.class.name"),
];

const CLASS_COLUMNS: &[Column] = &[
    column("Provider", "string", ".provider"),
    column("Age", "date", ".metadata.creationTimestamp"),
    wide("Secret", "string", ".secretRef.name"),
];

/// An object that is kept as it is, unknown fields included.
pub(crate) fn free_form(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn machine() -> CustomResourceDefinition {
    let mut crd = Machine::crd();
    set_columns(&mut crd, MACHINE_COLUMNS);
    each_schema(&mut crd, |root| {
        let Some(template) = property(root, "spec").and_then(|it| property(it, "nodeTemplate"))
        else {
            return;
        };
        if let Some(metadata) = property(template, "metadata") {
            metadata.nullable = Some(true);
        }
        // As the types of core/v1 are marked, which upstream's definition is generated from.
        let Some(node) = property(template, "spec") else { return };
        for (list, type_) in [("taints", "atomic"), ("podCIDRs", "set")] {
            if let Some(list) = property(node, list) {
                list.x_kubernetes_list_type = Some(type_.to_owned());
            }
        }
    });
    crd
}

fn machine_class() -> CustomResourceDefinition {
    let mut crd = MachineClass::crd();
    set_columns(&mut crd, CLASS_COLUMNS);
    each_schema(&mut crd, |root| {
        root.required = Some(vec!["providerSpec".to_owned()]);
        for reference in ["secretRef", "credentialsSecretRef"] {
            if let Some(reference) = property(root, reference) {
                reference.x_kubernetes_map_type = Some("atomic".to_owned());
            }
        }
    });
    crd
}

fn set_columns(crd: &mut CustomResourceDefinition, columns: &[Column]) {
    let definition = |column: &Column| CustomResourceColumnDefinition {
        name: column.name.to_owned(),
        type_: column.type_.to_owned(),
        json_path: column.path.to_owned(),
        priority: column.wide.then_some(1),
        ..CustomResourceColumnDefinition::default()
    };
    for version in &mut crd.spec.versions {
        version.additional_printer_columns = Some(columns.iter().map(definition).collect());
    }
}

/// Applies `change` to the schema of every version, without the defaults that the decoder needs
/// and the API must not have: upstream defaults nothing.
fn each_schema(crd: &mut CustomResourceDefinition, change: impl Fn(&mut JSONSchemaProps)) {
    for version in &mut crd.spec.versions {
        let schema = version.schema.as_mut().and_then(|all| all.open_api_v3_schema.as_mut());
        if let Some(root) = schema {
            remove_defaults(root);
            change(root);
        }
    }
}

fn remove_defaults(schema: &mut JSONSchemaProps) {
    schema.default = None;
    for property in schema.properties.iter_mut().flat_map(BTreeMap::values_mut) {
        remove_defaults(property);
    }
    if let Some(items) = &mut schema.items {
        match items {
            JSONSchemaPropsOrArray::Schema(one) => remove_defaults(one),
            JSONSchemaPropsOrArray::Schemas(all) => all.iter_mut().for_each(remove_defaults),
        }
    }
}

fn property<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> Option<&'a mut JSONSchemaProps> {
    schema.properties.as_mut()?.get_mut(name)
}

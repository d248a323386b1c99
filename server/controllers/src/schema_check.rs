//! Checks whether the API server would drop fields that the core writes. A CRD of another version silently prunes
//! unknown fields; without the write-ahead intent, instances would be created twice.

use std::fmt;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::{Api, Client, ResourceExt};
use ostler_api::crds::crds;
use ostler_api::names::VERSION;

/// The fields that the core writes, by kind: a path from the root of the object, with everything below it.
const WRITTEN: [(&str, &[&str]); 2] = [
    ("machines.machine.sapcloud.io", &["spec", "providerID"]),
    ("machines.machine.sapcloud.io", &["status"]),
];

/// The kinds without which the core does not start. Machines work where upstream's definitions of sets and deployments
/// are served, or none.
const NEEDED: [&str; 2] = ["machines.machine.sapcloud.io", "machineclasses.machine.sapcloud.io"];

/// Why the core cannot run against this API server.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// Fields would be dropped.
    #[error(
        "the API server would drop fields that are written: {}; run `ostler crds | kubectl apply -f -`",
        .0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Pruned(Vec<PrunedField>),
    /// The definitions cannot be read.
    #[error("cannot read CustomResourceDefinition {name}")]
    Api {
        /// Which one.
        name: String,
        /// Why not.
        #[source]
        source: kube::Error,
    },
}

/// A field that would be dropped.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrunedField {
    /// Name of the CustomResourceDefinition.
    pub crd: String,
    /// Path of the field, e.g. `status.operation`; empty if the kind is not served.
    pub path: String,
}

impl fmt::Display for PrunedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => write!(f, "{} (not served)", self.crd),
            path => write!(f, "{} {path}", self.crd),
        }
    }
}

static OURS: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(crds);

/// Compares the served definitions with ours.
pub async fn check_schemas(client: &Client) -> Result<(), SchemaError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut pruned = Vec::new();
    for ours in OURS.iter() {
        let name = ours.name_any();
        if !NEEDED.contains(&name.as_str()) {
            continue;
        }
        let served = api.get_opt(&name).await;
        let served = served.map_err(|source| SchemaError::Api { name: name.clone(), source })?;
        pruned.extend(pruned_fields(ours, served.as_ref()));
    }
    if pruned.is_empty() { Ok(()) } else { Err(SchemaError::Pruned(pruned)) }
}

/// The fields that the core writes according to `ours` and that `served` lacks.
fn pruned_fields(
    ours: &CustomResourceDefinition,
    served: Option<&CustomResourceDefinition>,
) -> Vec<PrunedField> {
    let crd = ours.name_any();
    let Some(served) = served.and_then(schema) else {
        return vec![PrunedField { crd, path: String::new() }];
    };
    let mut missing = Vec::new();
    for (_, path) in WRITTEN.iter().filter(|(name, _)| *name == crd) {
        if let Some(ours) = schema(ours) {
            follow(ours, served, path, &mut Vec::new(), &mut missing);
        }
    }
    missing.into_iter().map(|path| PrunedField { crd: crd.clone(), path }).collect()
}

fn schema(crd: &CustomResourceDefinition) -> Option<&JSONSchemaProps> {
    let version = crd.spec.versions.iter().find(|version| version.name == VERSION)?;
    version.schema.as_ref()?.open_api_v3_schema.as_ref().filter(|_| version.served)
}

/// Follows `path`, then compares everything below it.
fn follow(
    ours: &JSONSchemaProps,
    served: &JSONSchemaProps,
    path: &[&str],
    walked: &mut Vec<String>,
    missing: &mut Vec<String>,
) {
    let Some((field, rest)) = path.split_first() else {
        return compare(ours, served, walked, missing);
    };
    let Some(ours) = property(ours, field) else { return };
    walked.push((*field).to_owned());
    match (property(served, field), keeps_unknown(served)) {
        (Some(served), _) => follow(ours, served, rest, walked, missing),
        (None, true) => {}
        (None, false) => missing.push(dotted(walked)),
    }
    walked.pop();
}

fn compare(
    ours: &JSONSchemaProps,
    served: &JSONSchemaProps,
    walked: &mut Vec<String>,
    missing: &mut Vec<String>,
) {
    for field in ours.properties.iter().flatten().map(|(field, _)| field) {
        follow(ours, served, &[field.as_str()], walked, missing);
    }
    if let (Some(ours), Some(served)) = (items(ours), items(served)) {
        walked.push("[]".to_owned());
        compare(ours, served, walked, missing);
        walked.pop();
    }
}

fn property<'a>(schema: &'a JSONSchemaProps, field: &str) -> Option<&'a JSONSchemaProps> {
    schema.properties.as_ref()?.get(field)
}

fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(one) => Some(one),
        JSONSchemaPropsOrArray::Schemas(all) => all.first(),
    }
}

fn keeps_unknown(schema: &JSONSchemaProps) -> bool {
    let any_value = match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Bool(allowed)) => *allowed,
        Some(JSONSchemaPropsOrBool::Schema(_)) => true,
        None => false,
    };
    any_value || schema.x_kubernetes_preserve_unknown_fields == Some(true)
}

fn dotted(walked: &[String]) -> String {
    walked.join(".").replace(".[]", "[]")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn machines() -> CustomResourceDefinition {
        crds().into_iter().find(|crd| crd.name_any() == "machines.machine.sapcloud.io").unwrap()
    }

    fn edit(
        path: &[&str],
        change: impl FnOnce(&mut BTreeMap<String, JSONSchemaProps>),
    ) -> Vec<String> {
        let mut served = machines();
        let version = served.spec.versions.first_mut().unwrap();
        let mut schema = version.schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
        for field in path {
            schema = schema.properties.as_mut().unwrap().get_mut(*field).unwrap();
        }
        change(schema.properties.as_mut().unwrap());
        let missing = pruned_fields(&machines(), Some(&served));
        missing.into_iter().map(|field| field.path).collect()
    }

    #[test]
    fn our_own_definitions_drop_nothing() {
        assert!(edit(&[], |_| {}).is_empty());
    }

    #[test]
    fn a_field_of_the_status_that_is_not_served_is_named_without_what_is_below_it() {
        let missing = edit(&["status"], |fields| {
            fields.remove("operation");
        });
        assert_eq!(missing, ["status.operation"]);
        let missing = edit(&["status", "operation"], |fields| {
            fields.remove("idempotencyKey");
        });
        assert_eq!(missing, ["status.operation.idempotencyKey"]);
    }

    #[test]
    fn a_field_that_is_only_read_may_be_missing() {
        let missing = edit(&["spec"], |fields| {
            fields.remove("drainTimeout");
        });
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn an_object_that_keeps_unknown_fields_drops_nothing() {
        let missing = edit(&[], |fields| {
            let status = JSONSchemaProps {
                x_kubernetes_preserve_unknown_fields: Some(true),
                ..JSONSchemaProps::default()
            };
            fields.insert("status".to_owned(), status);
        });
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_kind_that_is_not_served_is_named() {
        let missing = pruned_fields(&machines(), None);
        assert_eq!(missing.len(), 1);
        assert!(missing[0].to_string().contains("not served"));
    }
}

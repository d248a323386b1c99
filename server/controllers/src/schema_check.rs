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

use crate::{Controller, EnabledControllers};

/// The fields that the core writes, by kind: the controller that writes them, and a path from the root of the object, with
/// everything below it.
const WRITTEN: [(&str, Controller, &[&str]); 7] = [
    ("machines.machine.sapcloud.io", Controller::Machine, &["spec", "providerID"]),
    ("machines.machine.sapcloud.io", Controller::Machine, &["status"]),
    ("machinepools.ostler.dev", Controller::Machine, &["status"]),
    ("machinehealthchecks.ostler.dev", Controller::MachineHealthCheck, &["status"]),
    ("machinereserves.ostler.dev", Controller::MachineSet, &["status"]),
    ("machinesets.machine.sapcloud.io", Controller::MachineSet, &["status"]),
    ("machinedeployments.machine.sapcloud.io", Controller::MachineDeployment, &["status"]),
];

/// The kinds without which the core does not start. The others may be missing: then there are no objects of them.
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
        /// The name of the definition.
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

/// Compares the served definitions with ours, for a core that runs these controllers.
pub async fn check_schemas(
    client: &Client,
    controllers: EnabledControllers,
) -> Result<(), SchemaError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut pruned = Vec::new();
    for ours in OURS.iter() {
        let name = ours.name_any();
        let needed = NEEDED.contains(&name.as_str());
        let writes = |(kind, writer, _): &_| *kind == name && controllers.run(*writer);
        if !needed && !WRITTEN.iter().any(writes) {
            continue;
        }
        let served = api.get_opt(&name).await;
        let served = served.map_err(|source| SchemaError::Api { name: name.clone(), source })?;
        if needed || served.as_ref().and_then(schema).is_some() {
            pruned.extend(pruned_fields(ours, served.as_ref()));
        }
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
    for (_, _, path) in WRITTEN.iter().filter(|(name, ..)| *name == crd) {
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
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn machines() -> CustomResourceDefinition {
        crds().into_iter().find(|crd| crd.name_any() == "machines.machine.sapcloud.io").unwrap()
    }

    fn fields(crd: &mut CustomResourceDefinition) -> &mut BTreeMap<String, JSONSchemaProps> {
        let schema = crd.spec.versions[0].schema.as_mut().unwrap();
        schema.open_api_v3_schema.as_mut().unwrap().properties.as_mut().unwrap()
    }

    /// The findings of a core with these controllers and definitions.
    async fn found(served: Vec<CustomResourceDefinition>, controllers: &str) -> Vec<String> {
        let answer = move |request: Request<Body>| {
            let name = request.uri().path().rsplit('/').next().unwrap();
            let found = served.iter().find(|crd| crd.name_any() == name);
            let (code, body) = match found {
                Some(crd) => (200, json!(crd)),
                None => (404, json!({ "kind": "Status", "reason": "NotFound", "code": 404 })),
            };
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(body.to_string().into_bytes())).unwrap();
            std::future::ready(Ok::<_, Infallible>(answer))
        };
        let client = Client::new(tower::service_fn(answer), "default");
        match check_schemas(&client, controllers.parse().unwrap()).await {
            Ok(()) => Vec::new(),
            Err(SchemaError::Pruned(fields)) => fields.iter().map(ToString::to_string).collect(),
            Err(error @ SchemaError::Api { .. }) => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn a_kind_counts_if_its_controller_runs_and_it_is_served() {
        let without_status = || {
            let mut all = crds();
            for crd in &mut all {
                fields(crd).remove("status");
            }
            all
        };
        assert_eq!(found(crds(), "*").await, [""; 0]);
        let machines = "machines.machine.sapcloud.io status";
        let pools = "machinepools.ostler.dev status";
        assert_eq!(found(without_status(), "machine").await, [machines, pools]);
        let sets = "machinesets.machine.sapcloud.io status";
        let reserves = "machinereserves.ostler.dev status";
        assert_eq!(found(without_status(), "machineset").await, [machines, sets, reserves]);
        assert_eq!(found(without_status(), "*").await.len(), 6);
        let of_machines = crds().into_iter().filter(|it| NEEDED.contains(&it.name_any().as_str()));
        assert_eq!(found(of_machines.collect(), "*").await, [""; 0]);
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

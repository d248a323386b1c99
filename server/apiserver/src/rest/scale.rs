//! `/scale`: an autoscaling/v1 Scale made of a few fields of an object.

use serde_json::{Map, Value, json};

use super::{
    Api, Target,
    body::Body,
    patching::Patch,
    stored::{meta_text, metadata},
    write::{By, check_name, check_types},
};
use crate::kinds::{
    Resource, ScalePaths,
    access::{entries, items, number, text},
    field::{self, FieldError},
    status::{Answer, Status},
};

/// Fields that the path of the replicas may have: no object is deeper.
const PARTS_LIMIT: usize = 100;

/// The changes that a Scale asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wanted {
    replicas: i64,
    version: String,
}

fn paths(resource: &Resource) -> Answer<&ScalePaths> {
    resource.subresources.scale.as_ref().ok_or_else(Status::no_such_resource)
}

/// `.spec.replicas` as a JSON pointer.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

/// The whole number at a path of an object.
///
/// # Errors
/// Another value is there, such as a percentage (500).
fn number_at(object: &Value, path: &str) -> Answer<Option<i64>> {
    let value = object.pointer(&pointer(path)).filter(|value| !value.is_null());
    let number = |value: &Value| {
        let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let kind = match value {
            Value::String(_) => "string",
            Value::Number(_) => "float64",
            Value::Bool(_) => "bool",
            Value::Array(_) => "[]interface {}",
            Value::Object(_) | Value::Null => "map[string]interface {}",
        };
        let text = format!("{path} accessor error: {shown} is of the type {kind}, expected int64");
        value.as_i64().ok_or_else(|| Status::unknown(text))
    };
    value.map(number).transpose()
}

/// The Scale of an object.
///
/// # Errors
/// A custom object has no replicas, or they are no number (500).
pub(crate) fn scale_of(resource: &Resource, object: &Value) -> Answer<Value> {
    let paths = paths(resource)?;
    let replicas = number_at(object, &paths.spec_replicas)?;
    if replicas.is_none() && resource.is_custom() {
        let path = field::quote(&paths.spec_replicas);
        let text = format!("the spec replicas field {path} does not exist");
        return Err(Status::internal(text));
    }
    let mut spec = Map::new();
    if let Some(replicas) = replicas.filter(|replicas| *replicas != 0) {
        spec.insert("replicas".to_owned(), replicas.into());
    }
    let mut status = Map::new();
    status.insert(
        "replicas".to_owned(),
        number_at(object, &paths.status_replicas)?.unwrap_or(0).into(),
    );
    let selector = paths.label_selector.as_deref().and_then(|path| object.pointer(&pointer(path)));
    let selector = selector.map(selector_text).filter(|text| !text.is_empty());
    if let Some(selector) = selector {
        status.insert("selector".to_owned(), selector.into());
    }
    let own = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let kept = metadata(object).into_iter().flatten();
    let kept: Map<String, Value> = kept
        .filter(|(name, _)| own.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Ok(json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": kept,
        "spec": spec,
        "status": status,
    }))
}

/// A selector as text: custom objects keep it so, workloads as an object.
fn selector_text(selector: &Value) -> String {
    if let Some(text) = selector.as_str() {
        return text.to_owned();
    }
    let labels = entries(selector, "/matchLabels")
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    let expressions = items(selector, "/matchExpressions").iter().map(|one| {
        let values: Vec<&str> = items(one, "/values").iter().filter_map(Value::as_str).collect();
        let (key, values) = (text(one, "/key"), values.join(","));
        match text(one, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        }
    });
    labels.chain(expressions).collect::<Vec<_>>().join(",")
}

/// Reads what a Scale wants.
///
/// # Errors
/// It is no Scale (400), or is invalid (422).
fn read(target: &Target, scale: &Value) -> Answer<Wanted> {
    let kind = scale.get("kind").and_then(Value::as_str).unwrap_or("Scale");
    if kind != "Scale" || !scale.is_object() {
        return Err(Status::bad_request(format!(
            "{kind} in version \"v1\" cannot be handled as a Scale"
        )));
    }
    check_types("io.k8s.api.autoscaling.v1.Scale", scale)?;
    let replicas = number(scale, "/spec/replicas").unwrap_or(0);
    if replicas < 0 {
        return Err(negative(target, replicas));
    }
    Ok(Wanted { replicas, version: meta_text(scale, "resourceVersion").to_owned() })
}

fn negative(target: &Target, replicas: i64) -> Box<Status> {
    let resource = &target.resource;
    if resource.is_custom()
        && let Some(paths) = &resource.subresources.scale
    {
        let detail = "should be a non-negative integer";
        let error = FieldError::invalid(paths.spec_replicas.as_str(), &replicas.into(), detail);
        return Status::invalid(resource, &target.name, &[error]);
    }
    let detail = "must be greater than or equal to 0";
    let error = FieldError::invalid("spec.replicas", &replicas.into(), detail);
    Status::invalid_kind("autoscaling", "Scale", &target.name, &[error])
}

/// The configuration for the object that an applied Scale stands for.
///
/// # Errors
/// It is no Scale (400), or is invalid (422).
pub(crate) fn applied(target: &Target, scale: &Value) -> Answer<Value> {
    let resource = &target.resource;
    let identity = json!({
        "apiVersion": resource.api_version(),
        "kind": resource.kind,
        "metadata": { "name": target.name },
    });
    with_replicas(resource, &identity, &read(target, scale)?)
}

/// The object with the replicas that are wanted.
///
/// # Errors
/// Its replicas are no number (500), or too deep in it (422).
fn with_replicas(resource: &Resource, object: &Value, wanted: &Wanted) -> Answer<Value> {
    let path = &paths(resource)?.spec_replicas;
    number_at(object, path)?;
    let (mut object, path) = (object.clone(), pointer(path));
    let mut place = &mut object;
    // A definition may say anything, and here an object is made of it.
    if path.split('/').count() > PARTS_LIMIT {
        return Err(Status::unprocessable());
    }
    for name in path.split('/').skip(1) {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let Some(fields) = place.as_object_mut() else { return Err(Status::unprocessable()) };
        place = fields.entry(name.to_owned()).or_insert(Value::Null);
    }
    *place = wanted.replicas.into();
    super::stored::set_meta(&mut object, "resourceVersion", wanted.version.clone().into());
    Ok(object)
}

impl Api {
    /// Replaces the Scale of an object.
    ///
    /// # Errors
    /// The body is no Scale of it, or the change is refused.
    pub(crate) async fn put_scale(
        &self,
        target: &Target,
        body: &Body,
        by: By<'_>,
    ) -> Answer<Value> {
        let resource = &target.resource;
        let object = self
            .modify(target, by, |old| {
                check_name(target, &body.value)?;
                let wanted = read(target, &body.value)?;
                with_replicas(resource, old, &wanted)
            })
            .await?;
        scale_of(resource, &object)
    }

    /// Patches the Scale of an object.
    ///
    /// # Errors
    /// The patch does not apply to it, or the change is refused.
    pub(crate) async fn patch_scale(
        &self,
        target: &Target,
        mut patch: impl FnMut() -> Answer<Patch>,
        by: By<'_>,
    ) -> Answer<Value> {
        let resource = &target.resource;
        let object = self
            .modify(target, by, |old| {
                // An object that never had replicas can be given some.
                let scale = scale_of(resource, old).or_else(|_| {
                    let version = meta_text(old, "resourceVersion").to_owned();
                    let none = Wanted { replicas: 0, version };
                    scale_of(resource, &with_replicas(resource, old, &none)?)
                })?;
                let wanted = read(target, &patch()?.apply_plainly(&scale)?)?;
                with_replicas(resource, old, &wanted)
            })
            .await?;
        scale_of(resource, &object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::BuiltIn;

    #[test]
    fn a_scale_shows_replicas_and_selector_of_a_workload() {
        let deployment = BuiltIn::Deployment.resource();
        let object = json!({"metadata": {"name": "d", "labels": {"a": "b"}},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"x": "y"},
                "matchExpressions": [{"key": "k", "operator": "In", "values": ["a", "b"]}]}},
            "status": {"replicas": 2}});
        let scale = scale_of(&deployment, &object).unwrap();
        assert_eq!(
            scale,
            json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d"},
                "spec": {"replicas": 3},
                "status": {"replicas": 2, "selector": "x=y,k in (a,b)"}})
        );
        let wanted = Wanted { replicas: 0, version: String::new() };
        let mut bottomless = deployment.clone();
        let path = ".spec".repeat(1_000_000);
        if let Some(paths) = &mut bottomless.subresources.scale {
            paths.spec_replicas = path;
        }
        assert_eq!(with_replicas(&bottomless, &object, &wanted).unwrap_err().code, 422);
        let object = with_replicas(&deployment, &object, &wanted).unwrap();
        assert_eq!(scale_of(&deployment, &object).unwrap()["spec"], json!({}));
    }
}

//! PATCH: what a patch body makes of the stored object.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use super::{
    Api, Target,
    admission::Admission,
    body::{self, Body, content_type},
    metadata, unevaluated,
    write::{self, By, Decoded},
};
use crate::kinds::{
    Resource,
    apply::Author,
    field::{self, FieldError},
    patch::{self, json, strategic},
    query::{FieldValidation, WriteOptions},
    status::{Answer, Status},
};

/// Operations that one JSON patch may have, as in kube-apiserver.
const OPERATIONS_LIMIT: usize = 10_000;

const JSON_PATCH: &str = "application/json-patch+json";
const MERGE_PATCH: &str = "application/merge-patch+json";
const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The kinds of patches that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, which knows the lists of built-in kinds.
    Strategic,
    /// The fields that a manager wants to own.
    Apply,
}

impl PatchType {
    /// Reads the content type.
    ///
    /// # Errors
    /// The resource does not take such patches (415).
    pub(crate) fn of(resource: &Resource, headers: &HeaderMap) -> Answer<Self> {
        let media_type = content_type(headers);
        match media_type.as_str() {
            JSON_PATCH => Ok(Self::Json),
            MERGE_PATCH => Ok(Self::Merge),
            STRATEGIC_PATCH if !resource.is_custom() => Ok(Self::Strategic),
            APPLY_PATCH => Ok(Self::Apply),
            _ if resource.is_custom() => {
                Err(Status::unsupported_media_type(&[JSON_PATCH, MERGE_PATCH, APPLY_PATCH]))
            }
            _ => Err(Status::unsupported_patch_type()),
        }
    }
}

/// Bodies that are longer are patched aside: the work grows with the operations, and a runtime worker that
/// is at it serves no other request.
pub(crate) const LARGE: usize = 64 << 10;

/// A patch on its way.
pub(crate) struct Patching {
    pub(crate) api: Api,
    pub(crate) target: Target,
    pub(crate) admission: Admission,
    pub(crate) author: Author,
    pub(crate) body: Bytes,
    pub(crate) kind: PatchType,
    pub(crate) options: WriteOptions,
}

impl Patching {
    /// The patched object and the warnings; the work of a large patch is done on a thread of its own.
    pub(crate) async fn run_aside_if_large(self) -> (Answer<Value>, Vec<String>) {
        if self.body.len() <= LARGE {
            return self.run().await;
        }
        let runtime = tokio::runtime::Handle::current();
        let work = tokio::task::spawn_blocking(move || runtime.block_on(self.run()));
        work.await.unwrap_or_else(|error| (Err(Status::internal(error.to_string())), Vec::new()))
    }

    async fn run(self) -> (Answer<Value>, Vec<String>) {
        let Self { api, target, admission, author, body, kind, options } = self;
        let resource = &target.resource;
        let mut warnings = Vec::new();
        let mut read = None;
        let object = api
            .modify(&target, By { author: Some(&author), dry_run: options.dry_run }, |old| {
                // Whether the object is there is answered before whether the patch is one.
                let patch = match read.take() {
                    Some(patch) => patch,
                    None => Patch::parse(kind, &body)?,
                };
                let object = patch.result(resource, old, options, &mut warnings)?;
                write::check_name(&target, &object)?;
                write::check_namespace(&target, &object)?;
                warnings.extend(metadata::finalizer_warnings(resource, &object, Some(old)));
                warnings.extend(unevaluated::warnings(resource, &object));
                read = Some(patch);
                admission.admit(Some(old), object)
            })
            .await;
        (object, warnings)
    }
}

/// A patch that was read and can be applied again and again.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    /// A JSON patch.
    Json(Vec<json::Operation>),
    /// A merge patch.
    Merge(Value),
    /// A strategic merge patch.
    Strategic(Value),
}

impl Patch {
    /// Reads the body of a patch.
    ///
    /// # Errors
    /// It is no patch of its type (400), or too long (413).
    pub(crate) fn parse(kind: PatchType, bytes: &[u8]) -> Answer<Self> {
        let Body { value, .. } = body::decode_json(bytes)
            .map_err(|_| Status::bad_request("error decoding patch: the body is no JSON"))?;
        let mismatch = |wanted: &str| {
            let found = match &value {
                Value::Array(_) => "array",
                Value::Object(_) => "object",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                Value::Bool(_) | Value::Null => "bool",
            };
            Status::bad_request(format!(
                "error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
            ))
        };
        match kind {
            PatchType::Json if !value.is_array() => Err(mismatch("[]handlers.jsonPatchOp")),
            PatchType::Json => {
                let operations: Vec<json::Operation> =
                    serde_json::from_value(value).map_err(|error| {
                        Status::bad_request(format!("error decoding patch: {error}"))
                    })?;
                if operations.len() > OPERATIONS_LIMIT {
                    return Err(Status::too_large_patch(OPERATIONS_LIMIT, operations.len()));
                }
                Ok(Self::Json(operations))
            }
            PatchType::Merge if value.is_object() => Ok(Self::Merge(value)),
            PatchType::Strategic if value.is_object() => Ok(Self::Strategic(value)),
            PatchType::Merge | PatchType::Strategic | PatchType::Apply => {
                Err(mismatch("map[string]interface {}"))
            }
        }
    }

    /// Applies the patch to an object, without decoding the result.
    ///
    /// # Errors
    /// It cannot be applied to this object (422), or makes no sense (400).
    pub(crate) fn apply(&self, resource: &Resource, old: &Value) -> Answer<Value> {
        let mut new = old.clone();
        match self {
            Self::Json(operations) => {
                json::apply(&mut new, operations).map_err(|error| unapplied(&error))?;
            }
            Self::Merge(changes) => patch::merge(&mut new, changes),
            Self::Strategic(changes) => {
                // Custom kinds, which have none, were refused with the content type.
                let Some(kind) = resource.built_in() else {
                    return Err(Status::unprocessable());
                };
                strategic::apply(kind, &mut new, changes).map_err(|error| {
                    if error.is_bad_request() {
                        Status::bad_request(error.to_string())
                    } else {
                        Status::unknown(error.to_string())
                    }
                })?;
            }
        }
        Ok(new)
    }

    /// What the patch makes of something that has no lists to merge by key, such as a Scale.
    ///
    /// # Errors
    /// It cannot be applied (422).
    pub(crate) fn apply_plainly(&self, old: &Value) -> Answer<Value> {
        let mut new = old.clone();
        match self {
            Self::Json(operations) => {
                json::apply(&mut new, operations).map_err(|error| unapplied(&error))?;
            }
            Self::Merge(changes) | Self::Strategic(changes) => patch::merge(&mut new, changes),
        }
        Ok(new)
    }

    /// The patched object, decoded; problems become warnings or a refusal.
    ///
    /// # Errors
    /// As [`Patch::apply`], or what comes out is no object of the kind (422).
    pub(crate) fn result(
        &self,
        resource: &Resource,
        old: &Value,
        options: WriteOptions,
        warnings: &mut Vec<String>,
    ) -> Answer<Value> {
        let value = self.apply(resource, old)?;
        let Decoded { object, problems } =
            write::decode(resource, Body { value, duplicates: Vec::new() })
                .map_err(|text| self.refused(&text))?;
        match options.field_validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => *warnings = problems,
            FieldValidation::Strict if problems.is_empty() => {}
            FieldValidation::Strict => {
                let text = format!("strict decoding error: {}", problems.join(", "));
                return Err(self.refused(&text));
            }
        }
        Ok(object)
    }

    fn refused(&self, why: &str) -> Box<Status> {
        let shown = match self {
            Self::Json(_) | Self::Merge(_) => field::quote("{}"),
            Self::Strategic(changes) => field::quote(&go_map(changes)),
        };
        let error = FieldError::invalid_shown("patch", &shown, why);
        Status::invalid_kind("", "", "", &[error])
    }
}

/// The error of a JSON patch that was not applied. Kubernetes gives no cause; limits of this server are named.
fn unapplied(error: &json::PatchError) -> Box<Status> {
    if !error.is_beyond_limits() {
        return Status::unprocessable();
    }
    let error = FieldError::invalid_shown("patch", "", &error.to_string());
    Status::invalid_kind("", "", "", &[error])
}

/// A value as Go prints a map: what Kubernetes shows of a strategic patch. Calls itself once for each level
/// of the body.
fn go_map(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let pairs: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", go_map(value))).collect();
            format!("map[{}]", pairs.join(" "))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_map).collect();
            format!("[{}]", items.join(" "))
        }
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

//! `metav1.Status`: every answer that is not an object, above all every error.
//!
//! A [`Status`] knows its HTTP code, so a handler's error type is `Box<Status>` and nothing else.
//! Texts follow kube-apiserver, because clients and people match on them.

use std::borrow::Cow;

use http::StatusCode;
use serde::Serialize;

use crate::kinds::{
    Resource,
    field::{self, FieldError, FieldErrorKind},
};

/// The answer of a handler: a value, or a Status with the reason.
pub(crate) type Answer<T> = Result<T, Box<Status>>;

/// Field errors that one Status tells: no reader wants more, and an object of 2 MiB may have a million.
const MOST_ERRORS: usize = 1000;
/// And how long they may be together, for each may show what the client sent.
const MOST_TEXT: usize = 256 << 10;

/// The text of a lost optimistic lock.
const STALE: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Whether a request was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Outcome {
    /// It was.
    Success,
    /// It was not.
    Failure,
}

/// Why a request was refused, for programs. Closed: this server answers with no other reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Reason {
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    InternalError,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    RequestEntityTooLarge,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unauthorized,
    UnsupportedMediaType,
}

/// A cause among several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Cause {
    /// The machine-readable cause, such as `FieldValueInvalid`.
    pub(crate) reason: &'static str,
    /// The text for people.
    pub(crate) message: String,
    /// The field of the cause, if any.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) field: String,
}

/// The subject of a Status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Details {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    /// Its API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) group: String,
    /// The kind or the resource of the object: Kubernetes uses both.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) kind: String,
    /// Its uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    /// The causes in detail.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) causes: Vec<Cause>,
    /// When trying again makes sense, in seconds; 0 says nothing. Also sent as a header.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) retry_after_seconds: u32,
}

impl Details {
    /// Details of an object or a resource.
    pub(crate) fn of(group: &str, kind: &str, name: &str) -> Self {
        let [group, kind, name] = [group, kind, name].map(str::to_owned);
        Self { name, group, kind, ..Self::default() }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// An answer that is not an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    /// Success or failure.
    #[serde(rename = "status")]
    pub(crate) outcome: Outcome,
    /// The text for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    /// The reason for programs; none where Kubernetes gives none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
    /// The object of the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) details: Option<Details>,
    /// The HTTP code; 0 is not shown and means 200.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) code: u16,
}

/// As many errors as one Status tells, and how many there are besides.
fn most_of(errors: &[FieldError]) -> Cow<'_, [FieldError]> {
    let mut size = 0;
    let fits = |error: &&FieldError| {
        size += error.path.len() + error.body.len();
        size <= MOST_TEXT
    };
    let told = errors.iter().take(MOST_ERRORS).take_while(fits).count().max(1);
    let Some((told, rest)) = errors.split_at_checked(told).filter(|(_, rest)| !rest.is_empty())
    else {
        return Cow::Borrowed(errors);
    };
    let mut told = told.to_vec();
    let more = format!("Invalid value: {} more errors are not shown", rest.len());
    told.push(FieldError::verbatim(FieldErrorKind::Invalid, "", &more));
    Cow::Owned(told)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Empty {}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}

impl Status {
    fn new(outcome: Outcome, code: u16) -> Self {
        Self {
            kind: "Status",
            api_version: "v1",
            metadata: Empty {},
            outcome,
            message: String::new(),
            reason: None,
            details: None,
            code,
        }
    }

    fn failure(code: u16, reason: Reason, message: impl Into<String>) -> Box<Self> {
        let mut status = Self::new(Outcome::Failure, code);
        status.message = message.into();
        status.reason = Some(reason);
        Box::new(status)
    }

    fn about(self: Box<Self>, resource: &Resource, name: &str) -> Box<Self> {
        self.with_details(Details::of(&resource.group, &resource.plural, name))
    }

    fn with_details(mut self: Box<Self>, details: Details) -> Box<Self> {
        self.details = Some(details);
        self
    }

    /// The same with a time to wait before the next try.
    #[must_use]
    pub(crate) fn retry_after(mut self: Box<Self>, seconds: u32) -> Box<Self> {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    /// The HTTP code to send.
    pub(crate) fn http_code(&self) -> StatusCode {
        match self.code {
            0 => StatusCode::OK,
            code => StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }

    /// Done, with nothing to show (201).
    pub(crate) fn created() -> Self {
        Self::new(Outcome::Success, 201)
    }

    /// The object is gone now.
    pub(crate) fn deleted(resource: &Resource, name: &str, uid: &str) -> Self {
        let mut status = Self::new(Outcome::Success, 0);
        let details = Details::of(&resource.group, &resource.plural, name);
        status.details = Some(Details { uid: uid.to_owned(), ..details });
        status
    }

    /// There is no such object (404).
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Box<Self> {
        let message = format!("{} {} not found", resource.qualified_plural(), field::quote(name));
        Self::failure(404, Reason::NotFound, message).about(resource, name)
    }

    /// There is no such namespace (404).
    pub(crate) fn namespace_not_found(name: &str) -> Box<Self> {
        let message = format!("namespaces {} not found", field::quote(name));
        let details = Details::of("", "namespaces", name);
        Self::failure(404, Reason::NotFound, message).with_details(details)
    }

    /// Nothing is served at this address (404).
    pub(crate) fn no_such_resource() -> Box<Self> {
        let message = "the server could not find the requested resource";
        Self::failure(404, Reason::NotFound, message).with_details(Details::default())
    }

    /// The address does not know this verb (405).
    pub(crate) fn method_not_allowed() -> Box<Self> {
        let message = "the server does not allow this method on the requested resource";
        Self::failure(405, Reason::MethodNotAllowed, message).with_details(Details::default())
    }

    /// The resource does not support this verb (405).
    pub(crate) fn verb_not_supported(resource: &Resource, verb: &str) -> Box<Self> {
        let kind = field::quote(&resource.qualified_plural());
        let message = format!("{verb} is not supported on resources of kind {kind}");
        Self::failure(405, Reason::MethodNotAllowed, message).about(resource, "")
    }

    /// The name is taken (409).
    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Box<Self> {
        let message =
            format!("{} {} already exists", resource.qualified_plural(), field::quote(name));
        Self::failure(409, Reason::AlreadyExists, message).about(resource, name)
    }

    /// The name is taken, and the client had asked for a generated one (409, try again).
    pub(crate) fn name_not_unique(resource: &Resource, name: &str) -> Box<Self> {
        let mut status = Self::already_exists(resource, name);
        status
            .message
            .push_str(", the server was not able to generate a unique name for the object");
        status.retry_after(1)
    }

    /// The object changed since the client read it (409).
    pub(crate) fn stale(resource: &Resource, name: &str) -> Box<Self> {
        Self::conflict(resource, name, STALE)
    }

    /// The object is not in the state that the request needs (409).
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Box<Self> {
        Self::conflict_on(&resource.qualified_plural(), name, why).about(resource, name)
    }

    /// A conflict on something that is named by its kind or by a subresource (409).
    pub(crate) fn conflict_on(kind: &str, name: &str, why: &str) -> Box<Self> {
        let message =
            format!("Operation cannot be fulfilled on {kind} {}: {why}", field::quote(name));
        Self::failure(409, Reason::Conflict, message).with_details(Details::of("", kind, name))
    }

    /// A precondition does not hold (409). Names the kind where other conflicts name the resource.
    pub(crate) fn precondition(resource: &Resource, name: &str, why: &str) -> Box<Self> {
        Self::conflict_on(&resource.qualified_kind(), name, why).with_details(Details::of(
            &resource.group,
            &resource.kind,
            name,
        ))
    }

    /// Other managers own applied fields (409): the managers as messages name them, and the fields.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Box<Self> {
        let message = match conflicts {
            [(manager, path)] => format!("1 conflict: conflict with {manager}: {path}"),
            many => {
                let mut lines = Vec::new();
                let mut before = "";
                for (manager, path) in many {
                    if manager != before {
                        lines.push(format!("conflicts with {manager}:"));
                        before = manager;
                    }
                    lines.push(format!("- {path}"));
                }
                format!("{} conflicts: {}", many.len(), lines.join("\n"))
            }
        };
        let cause = |(manager, path): &(String, String)| Cause {
            reason: "FieldManagerConflict",
            message: format!("conflict with {manager}"),
            field: path.clone(),
        };
        let causes = conflicts.iter().map(cause).collect();
        Self::failure(409, Reason::Conflict, format!("Apply failed with {message}"))
            .with_details(Details { causes, ..Details::default() })
    }

    /// The object is invalid (422).
    pub(crate) fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Box<Self> {
        Self::invalid_kind(&resource.group, &resource.kind, name, errors)
    }

    /// Something of this group and kind is invalid (422): options, a patch, an Eviction.
    pub(crate) fn invalid_kind(
        group: &str,
        kind: &str,
        name: &str,
        errors: &[FieldError],
    ) -> Box<Self> {
        let told = most_of(errors);
        let errors = told.as_ref();
        let dot = if group.is_empty() { "" } else { "." };
        let quoted = field::quote(name);
        let summary = field::summary(errors);
        let message = format!("{kind}{dot}{group} {quoted} is invalid: {summary}");
        let causes = errors
            .iter()
            .map(|error| Cause {
                reason: error.kind.reason(),
                message: error.body.clone(),
                field: error.field().to_owned(),
            })
            .collect();
        let details = Details { causes, ..Details::of(group, kind, name) };
        Self::failure(422, Reason::Invalid, message).with_details(details)
    }

    /// A patch cannot be applied to the object as it is (422).
    pub(crate) fn unprocessable() -> Box<Self> {
        let message = "the server rejected our request due to an error in our request";
        Self::failure(422, Reason::Invalid, message).with_details(Details::default())
    }

    /// The request makes no sense (400).
    pub(crate) fn bad_request(message: impl Into<String>) -> Box<Self> {
        Self::failure(400, Reason::BadRequest, message)
    }

    /// The requester lacks the permission (403).
    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Box<Self> {
        let message =
            format!("{} {} is forbidden: {why}", resource.qualified_plural(), field::quote(name));
        Self::failure(403, Reason::Forbidden, message).about(resource, name)
    }

    /// A 403 whose text the caller has composed, about nothing in particular.
    pub(crate) fn forbidden_text(message: impl Into<String>) -> Box<Self> {
        Self::failure(403, Reason::Forbidden, message).with_details(Details::default())
    }

    /// The namespace is being deleted: nothing can be created in it (403).
    pub(crate) fn namespace_terminating(
        resource: &Resource,
        name: &str,
        namespace: &str,
    ) -> Box<Self> {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let mut status = Self::forbidden(resource, name, &why);
        status.details.get_or_insert_default().causes.push(Cause {
            reason: "NamespaceTerminating",
            message: format!("namespace {namespace} is being terminated"),
            field: "metadata.namespace".to_owned(),
        });
        status
    }

    /// The client is not known (401).
    pub(crate) fn unauthorized() -> Box<Self> {
        Self::failure(401, Reason::Unauthorized, "Unauthorized")
    }

    /// The body has a type that is not read here (415).
    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Box<Self> {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::failure(415, Reason::UnsupportedMediaType, message)
    }

    /// A patch of a built-in kind has a type that is no patch type (415).
    pub(crate) fn unsupported_patch_type() -> Box<Self> {
        let message = "415: Unsupported Media Type";
        Self::failure(415, Reason::UnsupportedMediaType, message).with_details(Details::default())
    }

    /// The answer can be had in these types only (406).
    pub(crate) fn not_acceptable(accepted: &[&str]) -> Box<Self> {
        let list = accepted.join(", ");
        Self::not_acceptable_text(format!("only the following media types are accepted: {list}"))
    }

    /// The answer cannot be had in the form asked for (406).
    pub(crate) fn not_acceptable_text(message: impl Into<String>) -> Box<Self> {
        Self::failure(406, Reason::NotAcceptable, message)
    }

    /// The body is too large (413).
    pub(crate) fn too_large(limit: usize) -> Box<Self> {
        let message = format!("Request entity too large: limit is {limit}");
        Self::failure(413, Reason::RequestEntityTooLarge, message)
    }

    /// A JSON patch has too many operations (413).
    pub(crate) fn too_large_patch(limit: usize, operations: usize) -> Box<Self> {
        let message =
            format!("The allowed maximum operations in a JSON patch is {limit}, got {operations}");
        Self::failure(413, Reason::RequestEntityTooLarge, message)
    }

    /// Not now (429), for one cause.
    pub(crate) fn too_many_requests(message: &str, cause: Cause) -> Box<Self> {
        let details = Details { causes: vec![cause], ..Details::default() };
        Self::failure(429, Reason::TooManyRequests, message).with_details(details)
    }

    /// Not now (429): something that all share is taken.
    pub(crate) fn busy(message: &str) -> Box<Self> {
        Self::failure(429, Reason::TooManyRequests, message)
    }

    /// The body did not come in time (408).
    pub(crate) fn body_timeout() -> Box<Self> {
        let message = "the body of the request did not arrive in time";
        Self::failure(408, Reason::Timeout, message)
    }

    /// The request took too long (504). Whether it was done is not known.
    pub(crate) fn request_timeout() -> Box<Self> {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self::failure(504, Reason::Timeout, message)
    }

    /// A part of history is gone (410).
    pub(crate) fn expired(message: impl Into<String>) -> Box<Self> {
        Self::failure(410, Reason::Expired, message)
    }

    /// The watched history is gone: what an ERROR event carries (410).
    pub(crate) fn too_old(revision: u64, oldest: u64) -> Box<Self> {
        Self::expired(format!("too old resource version: {revision} ({oldest})"))
    }

    /// The revision asked for is not reached (504, try again).
    pub(crate) fn too_large_version(revision: u64, current: u64) -> Box<Self> {
        let message =
            format!("Timeout: Too large resource version: {revision}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        let details = Details { causes: vec![cause], ..Details::default() };
        Self::failure(504, Reason::Timeout, message).with_details(details).retry_after(1)
    }

    /// Something Kubernetes answers with a bare 500 and no reason.
    pub(crate) fn unknown(message: impl Into<String>) -> Box<Self> {
        let mut status = Self::new(Outcome::Failure, 500);
        status.message = message.into();
        Box::new(status)
    }

    /// The server itself failed (500).
    pub(crate) fn internal(message: impl Into<String>) -> Box<Self> {
        let message = format!("Internal error occurred: {}", message.into());
        Self::failure(500, Reason::InternalError, message)
    }

    /// The server is going down (503, try again).
    pub(crate) fn shutting_down() -> Box<Self> {
        Self::failure(503, Reason::ServiceUnavailable, "the server is shutting down").retry_after(1)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::BuiltIn;

    #[test]
    fn a_missing_object_is_named_with_group_and_plural() {
        let lease = BuiltIn::Lease.resource();
        let status = serde_json::to_value(Status::not_found(&lease, "a")).unwrap();
        assert_eq!(
            status,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "leases.coordination.k8s.io \"a\" not found", "reason": "NotFound",
                "details": {"name": "a", "group": "coordination.k8s.io", "kind": "leases"},
                "code": 404})
        );
    }

    #[test]
    fn a_deleted_object_is_success_without_a_code() {
        let map = BuiltIn::ConfigMap.resource();
        let status = serde_json::to_value(Status::deleted(&map, "a", "u")).unwrap();
        assert_eq!(
            status,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                "details": {"name": "a", "kind": "configmaps", "uid": "u"}})
        );
    }

    #[test]
    fn an_invalid_object_lists_every_cause_and_names_the_kind() {
        let lease = BuiltIn::Lease.resource();
        let errors = [FieldError::required("spec.a", "")];
        let status = Status::invalid(&lease, "x", &errors);
        let text = "Lease.coordination.k8s.io \"x\" is invalid: spec.a: Required value";
        assert_eq!(status.message, text);
        let causes = status.details.map(|details| details.causes).unwrap_or_default();
        assert_eq!(causes.len(), 1);
        assert_eq!(causes[0].reason, "FieldValueRequired");
    }

    #[test]
    fn a_patch_without_a_kind_has_a_blank_before_its_empty_name() {
        let errors = [FieldError::invalid_shown("patch", "\"x\"", "no")];
        let status = Status::invalid_kind("", "", "", &errors);
        assert_eq!(status.message, " \"\" is invalid: patch: Invalid value: \"x\": no");
    }
}

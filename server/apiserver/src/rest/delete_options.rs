//! DeleteOptions, from the body of a DELETE or from its query.

use http::HeaderMap;
use serde::Deserialize;
use serde_json::json;

use super::body;
use crate::kinds::{
    field::FieldError,
    query::{Query, dry_run_error},
    status::{Answer, Status},
};

/// The treatment of an object's dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They are collected after the object is gone.
    Background,
    /// Dependents go first, and the object waits for them.
    Foreground,
    /// Dependents stay and lose their owner references.
    Orphan,
}

/// Preconditions of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Preconditions {
    /// Its uid.
    pub(crate) uid: Option<String>,
    /// Its version.
    pub(crate) resource_version: Option<String>,
}

/// How to delete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    /// Seconds an object that ends gracefully may take.
    pub(crate) grace_period_seconds: Option<i64>,
    /// The treatment of dependents; none leaves it to the object and its kind.
    pub(crate) propagation: Option<Propagation>,
    /// What must hold.
    pub(crate) preconditions: Preconditions,
    /// Everything but the deletion is done.
    pub(crate) dry_run: bool,
    /// The old way to ask for dependents to be collected: an answer that the object still waits
    /// is then 202, and 200 otherwise.
    pub(crate) collects: bool,
}

/// The options as they are sent.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Sent {
    api_version: Option<String>,
    kind: Option<String>,
    grace_period_seconds: Option<i64>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    preconditions: Option<Preconditions>,
    dry_run: Option<Vec<String>>,
}

impl DeleteOptions {
    /// Reads the body, or the query where there is no body.
    ///
    /// # Errors
    /// The body is malformed or of another kind (400), or options are invalid (422).
    pub(crate) fn parse(headers: &HeaderMap, bytes: &[u8], query: &Query) -> Answer<Self> {
        if bytes.is_empty() {
            return Self::from_query(query)?.checked();
        }
        let body = body::decode(headers, bytes)?;
        let sent: Sent = serde_json::from_value(body.value)
            .map_err(|error| Status::bad_request(error.to_string()))?;
        sent.checked()
    }

    fn from_query(query: &Query) -> Answer<Sent> {
        let precondition = |name: &str| query.get(name).map(ToOwned::to_owned);
        Ok(Sent {
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            orphan_dependents: query.flag("orphanDependents"),
            propagation_policy: query.get("propagationPolicy").map(ToOwned::to_owned),
            preconditions: Some(Preconditions {
                uid: precondition("preconditions.uid"),
                resource_version: precondition("preconditions.resourceVersion"),
            }),
            dry_run: Some(query.all("dryRun").map(ToOwned::to_owned).collect()),
            ..Sent::default()
        })
    }
}

impl Sent {
    /// The options, if they make sense.
    ///
    /// # Errors
    /// They are something else (400) or invalid (422).
    pub(crate) fn checked(self) -> Answer<DeleteOptions> {
        let kind = self.kind.as_deref().unwrap_or_default();
        if !matches!(kind, "" | "DeleteOptions") {
            let version = self.api_version.as_deref().unwrap_or_default();
            let text =
                format!("{kind} in version \"{version}\" cannot be handled as DeleteOptions");
            return Err(Status::bad_request(text));
        }
        let mut errors = Vec::new();
        let policy = self.propagation_policy.as_deref();
        let mut propagation = match policy {
            None => None,
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Background") => Some(Propagation::Background),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                let path = "propagationPolicy";
                errors.push(FieldError::not_supported(path, &json!(other), &known));
                None
            }
        };
        if let (Some(_), Some(policy)) = (self.orphan_dependents, policy) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.insert(0, FieldError::invalid_text("propagationPolicy", policy, detail));
        }
        let dry_run = self.dry_run.unwrap_or_default();
        let values: Vec<&str> = dry_run.iter().map(String::as_str).collect();
        errors.extend(dry_run_error(&values));
        if !errors.is_empty() {
            return Err(Status::invalid_kind("meta.k8s.io", "DeleteOptions", "", &errors));
        }
        match self.orphan_dependents {
            Some(true) => propagation = Some(Propagation::Orphan),
            Some(false) => propagation = Some(Propagation::Background),
            None => {}
        }
        Ok(DeleteOptions {
            grace_period_seconds: self.grace_period_seconds,
            propagation,
            preconditions: self.preconditions.unwrap_or_default(),
            dry_run: !values.is_empty(),
            collects: self.orphan_dependents == Some(false),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str, query: &str) -> Answer<DeleteOptions> {
        DeleteOptions::parse(&HeaderMap::new(), body.as_bytes(), &Query::parse(query))
    }

    #[test]
    fn options_come_from_the_body_or_else_from_the_query() {
        let options =
            parse("", "gracePeriodSeconds=0&propagationPolicy=Orphan&dryRun=All").unwrap();
        assert_eq!(options.grace_period_seconds, Some(0));
        assert_eq!(options.propagation, Some(Propagation::Orphan));
        assert!(options.dry_run);
        let options = parse(r#"{"propagationPolicy":"Background"}"#, "dryRun=All").unwrap();
        assert_eq!(options.propagation, Some(Propagation::Background));
        assert!(!options.dry_run);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let cases = [
            (r#"{"kind":"ConfigMap","apiVersion":"v1"}"#, 400),
            ("{", 400),
            (r#"{"propagationPolicy":"Sideways"}"#, 422),
            (r#"{"propagationPolicy":"Background","orphanDependents":true}"#, 422),
            (r#"{"dryRun":["Some"]}"#, 422),
        ];
        for (body, code) in cases {
            assert_eq!(parse(body, "").unwrap_err().code, code, "{body}");
        }
    }
}

//! The query string, and its options.

use percent_encoding::percent_decode_str;
use serde_json::json;

use crate::kinds::{
    field::FieldError,
    status::{Answer, Status},
};

/// The decoded pairs of a query string, in order. Empty pairs are skipped: clients send `?&a=b`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

impl Query {
    /// Reads what stands behind the `?`.
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(name), decode(value))
            })
            .collect();
        Self { pairs }
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let pair = self.pairs.iter().find(|(other, _)| other == name)?;
        Some(&pair.1)
    }

    /// The first value, or the empty text.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// All values of a parameter.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let named = self.pairs.iter().filter(move |(other, _)| other == name);
        named.map(|(_, value)| value.as_str())
    }

    /// A flag: anything but `false` and `0` sets it, as in Kubernetes.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }

    /// A whole number.
    ///
    /// # Errors
    /// It is none (400).
    pub(crate) fn number(&self, name: &str) -> Answer<Option<i64>> {
        let Some(value) = self.get(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        value.parse().map(Some).map_err(|_| {
            let text = format!("strconv.ParseInt: parsing \"{value}\": invalid syntax");
            Status::bad_request(text)
        })
    }
}

/// How strictly fields that the schema does not have are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    /// They are dropped silently.
    Ignore,
    /// They are dropped, and the answer warns.
    #[default]
    Warn,
    /// They are refused.
    Strict,
}

/// The options of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    /// Everything but the write itself is done.
    pub(crate) dry_run: bool,
    /// The treatment of unknown fields.
    pub(crate) field_validation: FieldValidation,
    /// Fields are applied although others own them.
    pub(crate) force: bool,
}

impl WriteOptions {
    /// Reads the options; messages call them `kind`, such as `CreateOptions`.
    ///
    /// # Errors
    /// A value outside its set (422).
    pub(crate) fn parse(query: &Query, kind: &str) -> Answer<Self> {
        Self::read(query, kind, Vec::new())
    }

    /// Reads the options of an apply, which must name a manager.
    ///
    /// # Errors
    /// A value outside its set, or no manager (422).
    pub(crate) fn of_apply(query: &Query) -> Answer<Self> {
        let detail = "is required for apply patch";
        let missing = query.text("fieldManager").is_empty();
        let missing = missing.then(|| FieldError::required("fieldManager", detail));
        Self::read(query, "PatchOptions", missing.into_iter().collect())
    }

    fn read(query: &Query, kind: &str, mut errors: Vec<FieldError>) -> Answer<Self> {
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        errors.extend(dry_run_error(&dry_run));
        let field_validation = match query.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let known = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", &json!(other), &known));
                FieldValidation::Warn
            }
        };
        errors.extend(manager_errors(query.text("fieldManager")));
        if !errors.is_empty() {
            return Err(Status::invalid_kind("meta.k8s.io", kind, "", &errors));
        }
        let force = query.flag("force") == Some(true);
        Ok(Self { dry_run: !dry_run.is_empty(), field_validation, force })
    }
}

/// The errors of a field manager's name.
fn manager_errors(manager: &str) -> Vec<FieldError> {
    const LIMIT: usize = 128;
    let path = "fieldManager";
    let mut errors = Vec::new();
    if manager.len() > LIMIT {
        errors.push(FieldError::too_long(path, LIMIT));
    }
    if let Some((at, letter)) = manager.char_indices().find(|(_, letter)| letter.is_control()) {
        let code = u32::from(letter);
        let detail = format!("invalid character U+{code:04X} (at position {at})");
        errors.push(FieldError::invalid_text(path, manager, &detail));
    }
    errors
}

/// The error of wrong values of `dryRun`.
pub(crate) fn dry_run_error(values: &[&str]) -> Option<FieldError> {
    let wrong = values.iter().any(|value| *value != "All");
    wrong.then(|| FieldError::not_supported("dryRun", &json!(values), &["All"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_pairs_are_skipped_and_values_decoded() {
        let query = Query::parse("&limit=500&&labelSelector=a%3Db+c&watch");
        assert_eq!(query.number("limit").unwrap(), Some(500));
        assert_eq!(query.text("labelSelector"), "a=b c");
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.flag("nothing"), None);
        assert!(Query::parse("limit=x").number("limit").is_err());
    }

    #[test]
    fn options_outside_their_set_are_refused() {
        let options = |text: &str| WriteOptions::parse(&Query::parse(text), "CreateOptions");
        assert!(options("dryRun=All").unwrap().dry_run);
        assert_eq!(
            options("dryRun=Some").unwrap_err().message,
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\""
        );
        assert_eq!(options("fieldValidation=Loud").unwrap_err().code, 422);
    }
}

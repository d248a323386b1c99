//! What is wrong with one field of an object, in Kubernetes' own words.
//!
//! A [`FieldError`] is data; how it reads in a `Status` (message and cause) is fixed here once, so
//! that every validator answers as kube-apiserver does.

use std::{collections::HashSet, fmt};

use serde_json::Value;

/// The kind of a field error. Decides the cause's `reason` and the first words of its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FieldErrorKind {
    /// The value refers to something that is not there.
    NotFound,
    /// A value must be given.
    Required,
    /// The value occurs twice where it must be unique.
    Duplicate,
    /// The value is malformed or out of range.
    Invalid,
    /// The value is not one of a closed set.
    NotSupported,
    /// The field may not be set or changed like this.
    Forbidden,
    /// The value is longer than allowed.
    TooLong,
    /// The list has more items than allowed.
    TooMany,
    /// The value has a JSON type other than the schema's.
    TypeInvalid,
}

impl FieldErrorKind {
    /// The `reason` of a Status cause, and the first words of its message.
    const fn texts(self) -> (&'static str, &'static str) {
        match self {
            Self::NotFound => ("FieldValueNotFound", "Not found"),
            Self::Required => ("FieldValueRequired", "Required value"),
            Self::Duplicate => ("FieldValueDuplicate", "Duplicate value"),
            Self::Invalid => ("FieldValueInvalid", "Invalid value"),
            Self::NotSupported => ("FieldValueNotSupported", "Unsupported value"),
            Self::Forbidden => ("FieldValueForbidden", "Forbidden"),
            Self::TooLong => ("FieldValueTooLong", "Too long"),
            Self::TooMany => ("FieldValueTooMany", "Too many"),
            Self::TypeInvalid => ("FieldValueTypeInvalid", "Invalid value"),
        }
    }

    /// The `reason` of a Status cause.
    pub(crate) const fn reason(self) -> &'static str {
        self.texts().0
    }
}

/// An error of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// The kind of the error.
    pub(crate) kind: FieldErrorKind,
    /// The path of the field (`spec.containers[0].name`); empty for the whole object.
    pub(crate) path: String,
    /// The cause's message, without the path: `Invalid value: "x": must be …`.
    pub(crate) body: String,
}

impl FieldError {
    fn with_body(kind: FieldErrorKind, path: impl Into<String>, parts: &[&str]) -> Self {
        let mut body = kind.texts().1.to_owned();
        for part in parts.iter().filter(|part| !part.is_empty()) {
            body.push_str(": ");
            body.push_str(part);
        }
        Self { kind, path: path.into(), body }
    }

    /// A value that must be given; `detail` may be empty.
    pub(crate) fn required(path: impl Into<String>, detail: &str) -> Self {
        Self::with_body(FieldErrorKind::Required, path, &[detail])
    }

    /// A malformed or out-of-range value.
    pub(crate) fn invalid(path: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::with_body(FieldErrorKind::Invalid, path, &[&render(value), detail])
    }

    /// [`Self::invalid`] for a text value.
    pub(crate) fn invalid_text(path: impl Into<String>, value: &str, detail: &str) -> Self {
        Self::with_body(FieldErrorKind::Invalid, path, &[&quote(value), detail])
    }

    /// [`Self::invalid_text`] for each problem of a value.
    pub(crate) fn invalid_for(
        path: &str,
        value: &str,
        problems: Vec<String>,
    ) -> impl Iterator<Item = Self> {
        let refuse = move |problem: String| Self::invalid_text(path, value, &problem);
        problems.into_iter().map(refuse)
    }

    /// A text that must be one of a set: required if empty.
    pub(crate) fn unless_one_of(path: &str, value: &str, allowed: &[&str]) -> Option<Self> {
        if value.is_empty() {
            return Some(Self::required(path, ""));
        }
        (!allowed.contains(&value)).then(|| Self::not_supported(path, &value.into(), allowed))
    }

    /// [`Self::invalid`] where the value is already rendered (or, if empty, not shown at all).
    pub(crate) fn invalid_shown(path: impl Into<String>, shown: &str, detail: &str) -> Self {
        Self::with_body(FieldErrorKind::Invalid, path, &[shown, detail])
    }

    /// A value of the wrong JSON type; `shown` is the value as Kubernetes prints it.
    pub(crate) fn type_invalid(path: impl Into<String>, shown: &str, detail: &str) -> Self {
        Self::with_body(FieldErrorKind::TypeInvalid, path, &[shown, detail])
    }

    /// A value outside a closed set, which is listed in the order given.
    pub(crate) fn not_supported(
        path: impl Into<String>,
        value: &Value,
        supported: &[&str],
    ) -> Self {
        let mut detail = String::new();
        if !supported.is_empty() {
            let quoted: Vec<String> = supported.iter().map(|one| quote(one)).collect();
            detail = format!("supported values: {}", quoted.join(", "));
        }
        Self::with_body(FieldErrorKind::NotSupported, path, &[&render(value), &detail])
    }

    /// A field that may not be set or changed.
    pub(crate) fn forbidden(path: impl Into<String>, detail: &str) -> Self {
        Self::with_body(FieldErrorKind::Forbidden, path, &[detail])
    }

    /// A value that must be unique and is not.
    pub(crate) fn duplicate(path: impl Into<String>, value: &Value) -> Self {
        Self::with_body(FieldErrorKind::Duplicate, path, &[&render(value)])
    }

    /// A reference to something that is not there.
    pub(crate) fn not_found(path: impl Into<String>, value: &Value) -> Self {
        Self::with_body(FieldErrorKind::NotFound, path, &[&render(value)])
    }

    /// A text of more than `max` bytes.
    pub(crate) fn too_long(path: impl Into<String>, max: usize) -> Self {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {max} {unit}");
        Self::with_body(FieldErrorKind::TooLong, path, &[&detail])
    }

    /// A list of `actual` items where at most `max` are allowed.
    pub(crate) fn too_many(path: impl Into<String>, actual: usize, max: usize) -> Self {
        let unit = if max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {max} {unit}");
        Self::with_body(FieldErrorKind::TooMany, path, &[&actual.to_string(), &detail])
    }

    /// An error whose cause message the caller has composed, for the texts that follow no pattern.
    pub(crate) fn verbatim(kind: FieldErrorKind, path: impl Into<String>, body: &str) -> Self {
        Self { kind, path: path.into(), body: body.to_owned() }
    }

    /// The cause's `field`: the path, or `<nil>` for the whole object.
    pub(crate) fn field(&self) -> &str {
        if self.path.is_empty() { "<nil>" } else { &self.path }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field(), self.body)
    }
}

/// All errors in one sentence: alone as it is, several in brackets, repeated texts once.
pub(crate) fn summary(errors: &[FieldError]) -> String {
    let mut seen = HashSet::with_capacity(errors.len());
    let mut texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    texts.retain(|text| seen.insert(text.clone()));
    match texts.as_slice() {
        [one] => one.clone(),
        _ => format!("[{}]", texts.join(", ")),
    }
}

/// The path of a named child: `spec` + `name` is `spec.name`.
pub(crate) fn child(parent: &str, name: &str) -> String {
    if parent.is_empty() { name.to_owned() } else { format!("{parent}.{name}") }
}

/// The path of a list item: `spec.items[3]`.
pub(crate) fn index(parent: &str, position: usize) -> String {
    format!("{parent}[{position}]")
}

/// The path of a map entry: `metadata.labels[a/b]`.
pub(crate) fn key(parent: &str, name: &str) -> String {
    format!("{parent}[{name}]")
}

/// Where a walk through an object is. Most walks find nothing to tell of, so this becomes a text only when
/// it is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    /// Where the walk begins; empty for a whole object.
    Root(&'a str),
    /// A named child.
    Child(&'a Self, &'a str),
    /// A list item.
    Index(&'a Self, usize),
    /// A map entry.
    Key(&'a Self, &'a str),
}

impl Path<'_> {
    /// The path as errors show it. Calls itself once for each level of an object, which are bounded where
    /// objects are read and where patches are applied.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Root(text) => text.to_owned(),
            Self::Child(parent, name) => child(&parent.text(), name),
            Self::Index(parent, position) => index(&parent.text(), position),
            Self::Key(parent, name) => key(&parent.text(), name),
        }
    }

    /// How long its text is, about.
    pub(crate) fn length(self) -> usize {
        let (mut at, mut length) = (self, 0);
        loop {
            match at {
                Self::Root(text) => return length + text.len(),
                Self::Child(parent, name) | Self::Key(parent, name) => {
                    length += name.len() + 1;
                    at = *parent;
                }
                Self::Index(parent, _) => {
                    length += 4;
                    at = *parent;
                }
            }
        }
    }
}

/// What of a path is shown where many are: names may be as long as a body.
pub(crate) const SHOWN_PATH: usize = 256;

/// The beginning of a text, of at most so many bytes, and a mark if that is not all.
pub(crate) fn shorten(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('\u{2026}');
    }
    text
}

/// A value as Kubernetes prints it in a field error: text quoted, all else as JSON.
pub(crate) fn render(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// A text in double quotes, with Go's `%q` escapes.
pub(crate) fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => out.push_str(&hex_escape(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn hex_escape(c: char) -> String {
    format!("\\x{:02x}", u32::from(c))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_read_as_kubernetes_writes_them() {
        let cases = [
            (FieldError::required("spec.containers", ""), "spec.containers: Required value"),
            (
                FieldError::invalid(
                    "spec.x",
                    &json!(99999),
                    "must be between 1 and 65535, inclusive",
                ),
                "spec.x: Invalid value: 99999: must be between 1 and 65535, inclusive",
            ),
            (
                FieldError::not_supported("spec.p", &json!("S"), &["Always", "Never"]),
                r#"spec.p: Unsupported value: "S": supported values: "Always", "Never""#,
            ),
            (FieldError::duplicate("a[1].name", &json!("x")), r#"a[1].name: Duplicate value: "x""#),
            (FieldError::not_found("a.b", &json!("v")), r#"a.b: Not found: "v""#),
            (FieldError::forbidden("spec", "no"), "spec: Forbidden: no"),
            (FieldError::too_long("a", 63), "a: Too long: may not be more than 63 bytes"),
            (FieldError::too_many("a", 3, 1), "a: Too many: 3: must have at most 1 item"),
            (FieldError::invalid_text("", "a\"b", "bad"), r#"<nil>: Invalid value: "a\"b": bad"#),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_summary_names_each_text_once_and_brackets_several() {
        let a = FieldError::required("a", "");
        let b = FieldError::required("b", "");
        assert_eq!(summary(&[a.clone(), a.clone()]), "a: Required value");
        assert_eq!(summary(&[a.clone(), b, a]), "[a: Required value, b: Required value]");
    }
}

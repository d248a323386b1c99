//! Field selectors.

use std::str::FromStr;

use super::{SelectorError, allocated, allocated_texts};

/// One comparison of a field with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldTerm {
    /// The field's label, such as `metadata.name`.
    pub(crate) label: Box<str>,
    /// The value.
    pub(crate) value: Box<str>,
    /// Whether the field must differ from the value.
    pub(crate) negated: bool,
}

/// Comparisons that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSelector {
    terms: Box<[FieldTerm]>,
}

impl FieldSelector {
    /// Whether it selects everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Bytes of memory of the selector.
    pub(crate) fn bytes(&self) -> usize {
        let texts = self.terms.iter().flat_map(|term| [&*term.label, &*term.value]);
        allocated(size_of_val(&*self.terms)) + allocated_texts(texts)
    }

    /// The comparisons.
    pub(crate) fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// Whether an object with these fields is selected. A field that is not listed is empty.
    pub(crate) fn matches(&self, fields: &[(String, String)]) -> bool {
        self.terms.iter().all(|term| {
            let field = fields.iter().find(|(label, _)| **label == *term.label);
            let equal = field.map_or("", |(_, value)| value.as_str()) == &*term.value;
            equal != term.negated
        })
    }

    /// The value that the selector requires of a field, if it does.
    pub(crate) fn required(&self, label: &str) -> Option<&str> {
        let term = self.terms.iter().find(|term| !term.negated && *term.label == *label)?;
        Some(&term.value)
    }
}

impl FromIterator<FieldTerm> for FieldSelector {
    fn from_iter<T: IntoIterator<Item = FieldTerm>>(terms: T) -> Self {
        Self { terms: terms.into_iter().collect() }
    }
}

impl FromStr for FieldSelector {
    type Err = SelectorError;

    /// Reads a selector as it stands in a query string.
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let parts = split_terms(text).into_iter().filter(|part| !part.is_empty());
        let terms = parts
            .map(|part| {
                term(part)?.ok_or_else(|| {
                    SelectorError(format!("invalid selector: '{text}'; can't understand '{part}'"))
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, c) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == ',' {
            parts.extend(text.get(start..at));
            start = at + 1;
        }
    }
    parts.extend(text.get(start..));
    parts
}

fn term(part: &str) -> Result<Option<FieldTerm>, SelectorError> {
    for (at, _) in part.char_indices() {
        let (label, rest) = part.split_at(at);
        for (symbol, negated) in [("!=", true), ("==", false), ("=", false)] {
            if let Some(value) = rest.strip_prefix(symbol) {
                let value = unescape(value)?.into();
                return Ok(Some(FieldTerm { label: label.into(), value, negated }));
            }
        }
    }
    Ok(None)
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => {
                    return Err(SelectorError(format!(
                        "invalid field selector: invalid escape sequence: \\{c}"
                    )));
                }
                None => {
                    return Err(SelectorError(
                        "invalid field selector: invalid escape sequence: \\".to_owned(),
                    ));
                }
            },
            '=' => {
                return Err(SelectorError(format!(
                    "invalid field selector: unescaped character in value: {c}"
                )));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Vec<(String, String)> {
        vec![
            ("metadata.name".to_owned(), "a".to_owned()),
            ("spec.nodeName".to_owned(), String::new()),
        ]
    }

    #[test]
    fn terms_compare_the_fields_of_an_object() {
        let cases = [
            ("", true),
            ("metadata.name=a", true),
            ("metadata.name==a", true),
            ("metadata.name!=a", false),
            ("metadata.name=a,spec.nodeName=", true),
            ("spec.nodeName!=x", true),
            ("metadata.name=b", false),
        ];
        for (text, expected) in cases {
            let selector: FieldSelector = text.parse().unwrap();
            assert_eq!(selector.matches(&fields()), expected, "{text}");
        }
    }

    #[test]
    fn escapes_are_undone_and_nonsense_is_refused() {
        let selector: FieldSelector = r"a=x\,y\=z".parse().unwrap();
        assert_eq!(selector.required("a"), Some("x,y=z"));
        let error = "metadata.name".parse::<FieldSelector>().unwrap_err().to_string();
        assert_eq!(error, "invalid selector: 'metadata.name'; can't understand 'metadata.name'");
        assert!(r"a=\x".parse::<FieldSelector>().is_err());
        assert!("a=b=c".parse::<FieldSelector>().is_err());
    }
}

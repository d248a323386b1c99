//! The selection of objects in a collection.

use serde_json::Value;

use crate::{
    kinds::{
        Resource,
        field::quote,
        query::Query,
        selector::{FieldSelector, LabelSelector},
        status::{Answer, Status},
    },
    store::Key,
};

/// The selectors of a list, a watch or a collection's deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// Texts that the stored form of every selected object contains.
    texts: Vec<String>,
}

/// Fields whose values stand in the stored text just as they are served.
const VERBATIM: [&str; 7] = [
    "spec.nodeName",
    "metadata.name",
    "type",
    "involvedObject.uid",
    "involvedObject.name",
    "regarding.uid",
    "regarding.name",
];

impl Selection {
    /// Reads both selectors.
    ///
    /// # Errors
    /// One cannot be read, or names a field that cannot be selected by (400).
    pub(crate) fn parse(resource: &Resource, query: &Query) -> Answer<Self> {
        let labels: LabelSelector = query.text("labelSelector").parse().map_err(
            |error: crate::kinds::selector::SelectorError| Status::bad_request(error.to_string()),
        )?;
        let fields: FieldSelector = query.text("fieldSelector").parse().map_err(
            |error: crate::kinds::selector::SelectorError| Status::bad_request(error.to_string()),
        )?;
        for term in fields.terms() {
            if !resource.supports_field_label(&term.label) {
                let label = &term.label;
                let text = if resource.has_no_field_labels() {
                    let label = quote(label);
                    format!(
                        "{label} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )
                } else {
                    format!("field label not supported: {label}")
                };
                return Err(Status::bad_request(text));
            }
        }
        Ok(Self::new(labels, fields))
    }

    fn new(labels: LabelSelector, fields: FieldSelector) -> Self {
        let required = VERBATIM.into_iter().filter_map(|label| fields.required(label));
        // A value that JSON would escape needs a full look.
        let plain = |value: &&str| {
            value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
        };
        let required = required.filter(|value| !value.is_empty()).filter(plain);
        let texts = required.map(|value| format!("\"{value}\"")).collect();
        Self { labels, fields, texts }
    }

    /// Whether everything is meant.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Bytes of memory of the selection.
    pub(crate) fn bytes(&self) -> usize {
        let texts: usize = self.texts.iter().map(String::capacity).sum();
        self.labels.bytes() + self.fields.bytes() + texts
    }

    /// The only name that can be meant, if there is only one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.required("metadata.name").filter(|name| !name.is_empty())
    }

    /// Field and value of the first comparison for which `find` finds something, which is an index that has the field.
    pub(crate) fn indexed<T>(&self, find: impl FnMut((&str, &str)) -> Option<T>) -> Option<T> {
        let terms = self.fields.terms().iter().filter(|term| !term.negated);
        terms.map(|term| (&*term.label, &*term.value)).find_map(find)
    }

    /// Whether an object of this key can be meant at all: spares reading it.
    pub(crate) fn may_name(&self, key: &Key) -> bool {
        self.name().is_none_or(|name| name == key.name())
    }

    /// False: the object with this stored text is not meant, which is found out without reading it.
    /// A request for the pods of one Node does not pay for those of all others.
    pub(crate) fn may_select(&self, stored: &[u8]) -> bool {
        self.texts.is_empty()
            || str::from_utf8(stored)
                .is_ok_and(|stored| self.texts.iter().all(|text| stored.contains(text.as_str())))
    }

    /// Whether the selection covers a served object.
    pub(crate) fn selects(&self, resource: &Resource, object: &Value) -> bool {
        self.labels.selects(object)
            && (self.fields.is_empty() || self.fields.matches(&resource.field_labels(object)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_node(node: &str) -> Selection {
        let fields = format!("spec.nodeName={node}").parse().unwrap();
        Selection::new(LabelSelector::default(), fields)
    }

    #[test]
    fn pods_of_other_nodes_are_told_by_their_text() {
        let stored = br#"{"metadata":{"name":"a"},"spec":{"nodeName":"n-1"}}"#;
        assert!(of_node("n-1").may_select(stored));
        assert!(!of_node("n-2").may_select(stored));
        assert!(!of_node("n").may_select(stored), "a part of a name is another name");
        assert!(of_node("").may_select(stored), "pods without a node have no text for it");
        assert!(Selection::default().may_select(stored));
    }
}

//! Which objects of a collection are meant.

use serde_json::Value;

use super::query::Query;
use crate::{
    kinds::Resource,
    selector::{FieldSelector, LabelSelector},
    status::{Answer, Status},
};

/// The selectors of a list, a watch or a collection's deletion.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
}

/// Fields whose values stand in the stored text just as they are served.
const VERBATIM: [&str; 2] = ["spec.nodeName", "metadata.name"];

impl Selection {
    /// Reads both selectors.
    ///
    /// # Errors
    /// One cannot be read, or names a field that cannot be selected by (400).
    pub(crate) fn parse(resource: &Resource, query: &Query) -> Answer<Self> {
        let labels: LabelSelector = query.text("labelSelector").parse().map_err(
            |error: crate::selector::SelectorError| Status::bad_request(error.to_string()),
        )?;
        let fields: FieldSelector = query.text("fieldSelector").parse().map_err(
            |error: crate::selector::SelectorError| Status::bad_request(error.to_string()),
        )?;
        for term in fields.terms() {
            if !resource.supports_field_label(&term.label) {
                let label = &term.label;
                return Err(Status::bad_request(format!("field label not supported: {label}")));
            }
        }
        Ok(Self { labels, fields })
    }

    /// Whether everything is meant.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The only name that can be meant, if there is only one.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.required("metadata.name").filter(|name| !name.is_empty())
    }

    /// False: the object with this stored text is not meant, which is found out without reading it.
    /// A request for the pods of one Node does not pay for those of all others.
    pub(crate) fn may_select(&self, stored: &[u8]) -> bool {
        let mut required = VERBATIM.into_iter().filter_map(|label| self.fields.required(label));
        required.all(|value| {
            // What JSON would escape is looked at in full.
            let plain =
                value.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
            value.is_empty()
                || !plain
                || str::from_utf8(stored).is_ok_and(|text| text.contains(&format!("\"{value}\"")))
        })
    }

    /// Whether this object, as it is served, is meant.
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
        Selection { fields, ..Selection::default() }
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

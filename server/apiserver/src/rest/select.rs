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

    /// Whether this object, as it is served, is meant.
    pub(crate) fn selects(&self, resource: &Resource, object: &Value) -> bool {
        self.labels.selects(object)
            && (self.fields.is_empty() || self.fields.matches(&resource.field_labels(object)))
    }
}

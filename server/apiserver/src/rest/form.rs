//! The forms of an answer: whole objects, their metadata alone, or rows of a table.

use serde_json::{Value, json};

use super::{
    negotiate::{Form, MetaVersion},
    stored::{self, meta_text},
};
use crate::kinds::{
    Resource,
    access::{remove, set},
    status::{Answer, Status},
    table::{self, Include, Rendering},
};

/// Reads `includeObject`.
///
/// # Errors
/// The text is no valid value (400).
pub(crate) fn include(text: &str) -> Answer<Include> {
    Include::parse(text).map_err(Status::bad_request)
}

/// Turns objects of one resource into the form that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Shaper<'a> {
    /// The resource.
    pub(crate) resource: &'a Resource,
    /// The form.
    pub(crate) form: Form,
    /// The object in each table row.
    pub(crate) include: Include,
    /// For ages.
    pub(crate) now: jiff::Timestamp,
}

impl Shaper<'_> {
    /// A single object in its form.
    ///
    /// # Errors
    /// The form is one of lists (406).
    pub(crate) fn object(&self, object: Value) -> Answer<Value> {
        match self.form {
            Form::Whole => Ok(object),
            Form::Partial(version) => Ok(partial(&object, version)),
            Form::PartialList(_) => Err(Status::not_acceptable_text(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list (*{}.{})",
                self.package(),
                self.resource.kind
            ))),
            Form::Table(version) => Ok(self.table(version, &[object], true)),
        }
    }

    /// An object of a watch event. Only the first event of a table has columns.
    pub(crate) fn event(&self, object: Value, first: bool) -> Value {
        match self.form {
            Form::Whole => object,
            Form::Partial(version) | Form::PartialList(version) => partial(&object, version),
            Form::Table(version) => self.table(version, &[object], first),
        }
    }

    /// Refuses a list in a form of single objects.
    ///
    /// # Errors
    /// It is one (406).
    pub(crate) fn check_list(&self) -> Answer<()> {
        match self.form {
            Form::Partial(_) => Err(Status::not_acceptable_text(format!(
                "you requested PartialObjectMetadata, but the requested object is a list (*{}.{})",
                self.package(),
                self.resource.list_kind
            ))),
            Form::Whole | Form::PartialList(_) | Form::Table(_) => Ok(()),
        }
    }

    /// An item of a list. Items of built-in kinds do not repeat what the list says.
    pub(crate) fn item(&self, mut object: Value) -> Value {
        match self.form {
            Form::Whole => {
                if !self.resource.is_custom() {
                    remove(&mut object, "apiVersion");
                    remove(&mut object, "kind");
                }
                object
            }
            Form::Partial(version) | Form::PartialList(version) => partial(&object, version),
            Form::Table(version) => self.row(object, version),
        }
    }

    /// The head of a list, and the name of the field with its items.
    pub(crate) fn list_head(&self, metadata: &Value) -> (Value, &'static str) {
        let (kind, version) = match self.form {
            Form::Whole => (self.resource.list_kind.as_str(), self.resource.api_version()),
            Form::Partial(version) | Form::PartialList(version) => {
                ("PartialObjectMetadataList", version.api_version().to_owned())
            }
            Form::Table(version) => ("Table", version.api_version().to_owned()),
        };
        let mut head = json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        if let Form::Table(version) = self.form {
            set(&mut head, "columnDefinitions", self.columns(version));
            return (head, "rows");
        }
        (head, "items")
    }

    fn row(&self, object: Value, version: MetaVersion) -> Value {
        let mut table = self.table(version, &[object], false);
        let row = table.pointer_mut("/rows/0").map(Value::take);
        row.unwrap_or_default()
    }

    fn columns(&self, version: MetaVersion) -> Value {
        let mut table = self.table(version, &[], true);
        table.get_mut("columnDefinitions").map(Value::take).unwrap_or_default()
    }

    fn table(&self, version: MetaVersion, objects: &[Value], columns: bool) -> Value {
        let how = self.rendering(version, columns);
        let resource_version = objects.first().map(|object| meta_text(object, "resourceVersion"));
        let metadata = json!({"resourceVersion": resource_version.unwrap_or_default()});
        table::table(self.resource, objects, metadata, how)
    }

    fn rendering(&self, version: MetaVersion, columns: bool) -> Rendering {
        let api_version = version.api_version();
        Rendering { api_version, include: self.include, columns, now: self.now }
    }

    /// A bookmark; `metadata` holds its version.
    pub(crate) fn bookmark(&self, metadata: &Value) -> Value {
        let mut object = json!({"metadata": metadata});
        stored::stamp(self.resource, &mut object);
        match self.form {
            Form::Whole => object,
            Form::Partial(version) | Form::PartialList(version) => partial(&object, version),
            Form::Table(version) => {
                let resource_version = meta_text(&object, "resourceVersion").to_owned();
                table::bookmark(&resource_version, self.rendering(version, false))
            }
        }
    }

    /// The Go package that Kubernetes names in messages.
    fn package(&self) -> &str {
        let group = self.resource.group.split('.').next().unwrap_or_default();
        if self.resource.is_custom() {
            "unstructured"
        } else if group.is_empty() {
            "core"
        } else {
            group
        }
    }
}

fn partial(object: &Value, version: MetaVersion) -> Value {
    let metadata = object.get("metadata").cloned().unwrap_or_default();
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": version.api_version(),
        "metadata": metadata,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::BuiltIn;

    fn shaper(resource: &Resource, form: Form) -> Shaper<'_> {
        let now = jiff::Timestamp::UNIX_EPOCH;
        Shaper { resource, form, include: Include::Metadata, now }
    }

    #[test]
    fn forms_of_lists_and_of_objects_exclude_each_other() {
        let map = BuiltIn::ConfigMap.resource();
        let one = shaper(&map, Form::Partial(MetaVersion::V1));
        let many = shaper(&map, Form::PartialList(MetaVersion::V1));
        assert_eq!(one.check_list().unwrap_err().code, 406);
        assert_eq!(many.object(json!({})).unwrap_err().code, 406);
        assert!(many.check_list().is_ok());
        let metadata = json!({"metadata": {"name": "a"}, "data": {}});
        assert_eq!(
            one.object(metadata).unwrap(),
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"name": "a"}})
        );
    }
}

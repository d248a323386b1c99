//! Copies of templates of bootstrap providers, whose kinds are known at run time only.

use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use ostler_lifecycle::bootstrap::ConfigKind;
use ostler_lifecycle::copies::{Made, NewCopy};

use crate::bootstrap::CONFIG;
use crate::client::{WriteError, Writer};
use crate::watch::ObjectName;

/// Makes the copy of what is created next, if that has one.
pub(super) async fn make_first(writer: &Writer, copy: Option<&NewCopy>) -> Result<(), WriteError> {
    if let Some(copy) = copy { make(writer, copy).await } else { Ok(()) }
}

/// Makes a copy, unless it is there. Whatever is refused is said with its name.
pub(super) async fn make(writer: &Writer, copy: &NewCopy) -> Result<(), WriteError> {
    let says = |why: &dyn std::fmt::Display| format!("cannot make {copy}: {why}");
    let resource = resource(&copy.kind, &copy.plural);
    let object = serde_json::from_value(copy.object.clone())
        .map_err(|error| WriteError::Other(says(&error)))?;
    let of = (&resource, copy.kind.namespace.as_str());
    match writer.create_dynamic(CONFIG, of, &object).await {
        Ok(_) => Ok(()),
        Err(WriteError::Conflict) => {
            let name = ObjectName::new(&copy.kind.namespace, &copy.name);
            match writer.get_dynamic((&resource, &name)).await {
                Ok(Some(found)) if copy.is(&found) => Ok(()),
                Ok(_) => Err(WriteError::Conflict),
                // The copy may be ours: its name is repeated.
                Err(_) => Err(WriteError::NoAnswer),
            }
        }
        Err(WriteError::NotFound) => Err(WriteError::Other(says(&"its kind is not served"))),
        Err(WriteError::Forbidden(why)) => Err(WriteError::Forbidden(says(&why))),
        Err(WriteError::Invalid(why)) => Err(WriteError::Invalid(says(&why))),
        Err(error) => Err(error),
    }
}

fn resource(kind: &ConfigKind, plural: &str) -> ApiResource {
    let kind = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    ApiResource::from_gvk_with_plural(&kind, plural)
}

/// Deletes a copy.
pub(super) async fn delete(writer: &Writer, copy: &Made) -> Result<(), WriteError> {
    let name = ObjectName::new(&copy.kind.namespace, &copy.name);
    let of = (&resource(&copy.kind, &copy.plural), &name);
    writer.delete_dynamic(CONFIG, of, &copy.uid).await
}

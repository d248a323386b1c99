//! From an address to its resource.

use std::sync::Arc;

use http::Method;

use super::{Target, path::ResourcePath};
use crate::kinds::{
    Registry, Resource, Subresource,
    status::{Answer, Status},
};

/// Why there is no target.
pub(crate) enum Missing {
    /// Nothing at all is at this address.
    Page,
    /// The API has no such thing, or does not allow this.
    Status(Box<Status>),
}

impl From<Box<Status>> for Missing {
    fn from(status: Box<Status>) -> Self {
        Self::Status(status)
    }
}

/// Finds what an address names.
pub(crate) fn resolve(
    registry: &Registry,
    path: &ResourcePath,
    method: &Method,
) -> Result<Target, Missing> {
    if path.group.is_empty() && path.plural == "bindings" && path.name.is_none() {
        return bindings(registry, path);
    }
    let Some(resource) = registry.lookup(&path.group, &path.version, &path.plural) else {
        let ours = registry.resources().any(|one| one.group == path.group && !one.is_custom());
        return Err(if ours { Status::no_such_resource().into() } else { Missing::Page });
    };
    let elsewhere = || {
        if resource.is_custom() { Missing::Page } else { Status::no_such_resource().into() }
    };
    let named = path.name.is_some();
    match (resource.namespaced, path.namespace.is_empty()) {
        (false, false) => return Err(elsewhere()),
        (true, true) if named => return Err(elsewhere()),
        (true, true) if *method != Method::GET => {
            return Err(if resource.is_custom() {
                Missing::Page
            } else {
                Status::method_not_allowed().into()
            });
        }
        (true, _) | (false, true) => {}
    }
    let name = path.name.clone().unwrap_or_default();
    let part = match &path.subresource {
        None => None,
        Some(wanted) => Some(find_part(resource, wanted, &name)?),
    };
    let resource = Arc::clone(resource);
    Ok(Target { resource, namespace: path.namespace.clone(), name, part })
}

fn find_part(resource: &Resource, wanted: &str, name: &str) -> Answer<Subresource> {
    let part = Subresource::ALL.into_iter().find(|part| part.name() == wanted);
    part.filter(|part| resource.subresources.has(*part)).ok_or_else(|| {
        if resource.is_custom() {
            Status::not_found(resource, name)
        } else {
            Status::no_such_resource()
        }
    })
}

/// The collection of bindings has no objects; posting to it binds the pod that the body names.
fn bindings(registry: &Registry, path: &ResourcePath) -> Result<Target, Missing> {
    let pods = registry.lookup("", &path.version, "pods").ok_or_else(Status::no_such_resource)?;
    Ok(Target {
        resource: Arc::clone(pods),
        namespace: path.namespace.clone(),
        name: String::new(),
        part: Some(Subresource::Binding),
    })
}

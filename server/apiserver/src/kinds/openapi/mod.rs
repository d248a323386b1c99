//! OpenAPI v3: an index, and one document for each group and version. [`v2`]: all of them as one document of OpenAPI v2.
//!
//! Clients read from it which parameters a write takes (`fieldValidation`, `dryRun`), how lists of
//! built-in kinds are merged, and what fields mean. Documents of built-in groups never change and
//! are made once; those of custom groups are made once for each [`Registry`].

mod operations;
mod schemas;
pub(crate) mod v2;

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use serde_json::{Map, Value, json};

use crate::kinds::{
    Registry, Resource,
    document::{Document, Documents, hash, tagged},
    query::Query,
};

/// The document at an OpenAPI address.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    /// The document.
    pub(crate) document: Arc<Document>,
    /// The address names this very content by its hash: it may be cached for ever.
    pub(crate) immutable: bool,
}

/// What is served at `path` with `query` (without the question mark): the index at `/openapi/v3`,
/// a document below it. `None`: nothing is there (404 with an empty body).
pub(crate) fn answer(registry: &Registry, path: &str, query: Option<&str>) -> Option<Published> {
    let rest = path.strip_prefix("/openapi/v3")?;
    let documents = documents_in(registry);
    if rest.is_empty() || rest == "/" {
        return Some(Published { document: Arc::new(index(documents)), immutable: false });
    }
    let document = documents.get(rest.trim_matches('/'))?;
    let query = Query::parse(query.unwrap_or_default());
    let named = query.all("hash").any(|wanted| wanted == hash(&document.bytes));
    Some(Published { document: Arc::clone(document), immutable: named })
}

fn documents_in(registry: &Registry) -> &Documents {
    registry.documents().get_or_init(|| documents(registry))
}

/// The index of documents. The content type is the one that kube-apiserver sends, although the content is plain JSON.
fn index(documents: &Documents) -> Document {
    let paths: Map<String, Value> = documents
        .iter()
        .map(|(name, document)| {
            let tag = document.etag.as_deref().unwrap_or_default().trim_matches('"');
            (name.clone(), json!({ "serverRelativeURL": format!("/openapi/v3/{name}?hash={tag}") }))
        })
        .collect();
    tagged("text/plain; charset=utf-8", &json!({ "paths": paths }))
}

static BUILT_IN: LazyLock<Documents> = LazyLock::new(|| documents_of(&Registry::built_in(), false));

/// The documents of a registry.
fn documents(registry: &Registry) -> Documents {
    let mut all = BUILT_IN.clone();
    all.extend(documents_of(registry, true));
    all
}

fn documents_of(registry: &Registry, custom: bool) -> Documents {
    let resources = registry.resources().filter(|resource| resource.is_custom() == custom);
    let versions: BTreeSet<(String, String)> =
        resources.map(|resource| (resource.group.clone(), resource.version.clone())).collect();
    versions
        .into_iter()
        .map(|(group, version)| {
            let name = address(&group, &version);
            let served: Vec<&Resource> =
                registry.of_version(&group, &version).map(AsRef::as_ref).collect();
            (name, Arc::new(tagged("application/json", &document(&served))))
        })
        .collect()
}

fn address(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn document(resources: &[&Resource]) -> Value {
    let mut paths = Map::new();
    for resource in resources {
        operations::add_paths(&mut paths, resource);
    }
    let components = schemas::components(resources);
    json!({
        "openapi": "3.0.0",
        "info": { "title": "Kubernetes", "version": VERSION },
        "paths": paths,
        "components": { "schemas": components },
    })
}

/// The version in the documents' headers: it says nothing about what is served.
const VERSION: &str = "unversioned";

#[cfg(test)]
mod tests;

//! Discovery: which groups, versions and kinds are served.
//!
//! Two forms of the same facts: the old one, one document for each group and version, and the
//! aggregated one, one document for all, chosen by the Accept header.

mod aggregated;
mod legacy;
mod reviews;

use std::cmp::Reverse;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::kinds::{Registry, Resource, Subresource, document::Document};

/// The answer at a discovery address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A document.
    Document(Document),
    /// The group is served, this version of it is not: a NotFound Status.
    UnknownVersion,
    /// Nothing is there: a plain-text 404.
    Nothing,
}

/// An address of discovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Address<'a> {
    Core,
    Groups,
    Group(&'a str),
    Version(&'a str, &'a str),
}

/// Whether `path` is an address of discovery, served or not.
pub(crate) fn is_discovery(path: &str) -> bool {
    parse(path).is_some()
}

fn parse(path: &str) -> Option<Address<'_>> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api"] => Some(Address::Core),
        ["api", version] => Some(Address::Version("", version)),
        ["apis"] => Some(Address::Groups),
        ["apis", group] => Some(Address::Group(group)),
        ["apis", group, version] => Some(Address::Version(group, version)),
        _ => None,
    }
}

/// What is served at `path`, in the form that the Accept header asks for.
pub(crate) fn answer(registry: &Registry, path: &str, accept: Option<&str>) -> Found {
    let Some(address) = parse(path) else { return Found::Nothing };
    let groups = groups(registry);
    let aggregated = aggregated::version_of(accept);
    let document = match (address, aggregated) {
        (Address::Core, Some(version)) => return aggregated::core(registry, version),
        (Address::Groups, Some(version)) => return aggregated::groups(registry, &groups, version),
        (Address::Core, None) => legacy::api_versions(),
        (Address::Groups, None) => legacy::group_list(&groups),
        (Address::Group(name), _) => match groups.iter().find(|group| group.name == name) {
            Some(group) => legacy::group(group),
            None => return Found::Nothing,
        },
        (Address::Version(name, version), _) => {
            let known = name.is_empty() || groups.iter().any(|group| group.name == name);
            let resources = resources(registry, name, version);
            match (known, resources.is_empty()) {
                (false, _) => return Found::Nothing,
                (true, true) => return Found::UnknownVersion,
                (true, false) => legacy::resource_list(name, version, &resources),
            }
        }
    };
    let bytes = Bytes::from(document.to_string());
    Found::Document(Document { content_type: "application/json".to_owned(), etag: None, bytes })
}

/// A group with its versions, the preferred version first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) versions: Vec<String>,
}

/// The built-in groups in the order of their priority: a client that looks for a kind by its name
/// takes the first group that has it.
const ORDER: [&str; 9] = [
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "policy",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
];

/// All groups but the core one: built-in ones first, then those of definitions by name.
pub(crate) fn groups(registry: &Registry) -> Vec<Group> {
    let mut groups: Vec<(bool, Group)> = Vec::new();
    let mut add = |custom: bool, name: &str, version: &str| {
        if name.is_empty() {
            return;
        }
        match groups.iter_mut().find(|(_, group)| group.name == name) {
            Some((_, group)) => {
                if !group.versions.iter().any(|one| one == version) {
                    group.versions.push(version.to_owned());
                }
            }
            None => groups.push((
                custom,
                Group { name: name.to_owned(), versions: vec![version.to_owned()] },
            )),
        }
    };
    for review in reviews::ALL {
        add(false, review.group, "v1");
    }
    for resource in registry.resources() {
        add(resource.is_custom(), &resource.group, &resource.version);
    }
    let rank = |name: &str| ORDER.iter().position(|one| *one == name).unwrap_or(ORDER.len());
    groups.sort_by_cached_key(|(custom, group)| (*custom, rank(&group.name), group.name.clone()));
    let ordered = groups.into_iter().map(|(_, mut group)| {
        group.versions.sort_by_key(|version| Reverse(version_rank(version)));
        group
    });
    ordered.collect()
}

/// The order of versions: general availability over beta over alpha, then the larger numbers; what
/// does not look like a version comes last.
fn version_rank(version: &str) -> (u8, u32, u32, Reverse<String>) {
    let none = (0, 0, 0, Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return none };
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, stage) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let Ok(major) = major.parse::<u32>() else { return none };
    let staged = |rank: u8, minor: &str| {
        let minor = minor.parse();
        minor.map_or_else(|_| none.clone(), |minor| (rank, major, minor, Reverse(String::new())))
    };
    match (stage, stage.strip_prefix("beta"), stage.strip_prefix("alpha")) {
        ("", _, _) => (3, major, 0, Reverse(String::new())),
        (_, Some(minor), _) => staged(2, minor),
        (_, _, Some(minor)) => staged(1, minor),
        _ => none,
    }
}

/// One line of a resource list: a resource or a subresource.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listed {
    pub(crate) plural: String,
    pub(crate) sub: Option<&'static str>,
    pub(crate) singular: String,
    pub(crate) namespaced: bool,
    pub(crate) kind: String,
    /// The group of the kind, where it is not that of the list; its version is v1.
    pub(crate) foreign: Option<&'static str>,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
}

/// Everything of one version, each resource followed by its subresources.
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Vec<Listed> {
    let mut listed = Vec::new();
    for resource in registry.of_version(group, version) {
        listed.push(Listed {
            plural: resource.plural.clone(),
            singular: resource.singular.clone(),
            namespaced: resource.namespaced,
            kind: resource.kind.clone(),
            verbs: resource.verbs,
            short_names: resource.short_names.clone(),
            categories: resource.categories.clone(),
            ..Listed::default()
        });
        let parts = Subresource::ALL.into_iter().filter(|part| resource.subresources.has(*part));
        listed.extend(parts.map(|part| subresource(resource, part)));
    }
    listed.extend(reviews::listed(group, version));
    listed.sort_by(|a, b| a.plural.cmp(&b.plural));
    listed
}

fn subresource(resource: &Resource, part: Subresource) -> Listed {
    let foreign = part.foreign_kind();
    Listed {
        plural: resource.plural.clone(),
        sub: Some(part.name()),
        namespaced: resource.namespaced,
        kind: foreign.map_or_else(|| resource.kind.clone(), |(_, kind)| kind.to_owned()),
        foreign: foreign.map(|(group, _)| group).filter(|group| !group.is_empty()),
        verbs: part.verbs(),
        ..Listed::default()
    }
}

/// Adds a list that is left out when empty.
fn put_list(fields: &mut serde_json::Map<String, Value>, name: &str, list: &[String]) {
    if !list.is_empty() {
        fields.insert(name.to_owned(), json!(list));
    }
}

#[cfg(test)]
mod tests;

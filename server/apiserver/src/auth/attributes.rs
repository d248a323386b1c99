//! Attributes of a request for its authorization.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::kinds::{
    identity::Identity,
    query::Query,
    selector::FieldSelector,
    status::{Details, Status},
};

/// What a request acts on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Objects of a resource.
    Resource {
        /// The API group, empty for the core group.
        group: String,
        /// The plural resource name.
        resource: String,
        /// The subresource, empty for the object itself.
        subresource: String,
        /// The namespace, empty at the cluster scope.
        namespace: String,
        /// The object's name, empty for a collection.
        name: String,
    },
    /// Any other path.
    Path(String),
}

/// The attributes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; for
    /// other paths the method in lower case.
    pub(crate) verb: String,
    /// The target of the request.
    pub(crate) target: Target,
    /// Which objects of a collection are asked for; empty if all of them are, or the selector is
    /// none.
    pub(crate) fields: FieldSelector,
}

/// Subresources of a namespace: below `namespaces/x` everything else is a resource in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl Attributes {
    /// Reads method, path and query. Never fails: a path that leads nowhere is still a path that
    /// the one who asks may or may not know about.
    pub(crate) fn of(method: &Method, path: &str, query: Option<&str>) -> Self {
        let decode = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
        let parts: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _version, rest @ ..] if !rest.is_empty() => ("", rest),
            ["apis", group, _version, rest @ ..] if !rest.is_empty() => (*group, rest),
            _ => return Self::path(method, path),
        };
        Self::resource(method, group, rest, query).with_selected_name()
    }

    fn path(method: &Method, path: &str) -> Self {
        let verb = method.as_str().to_ascii_lowercase();
        Self { verb, target: Target::Path(path.to_owned()), fields: FieldSelector::default() }
    }

    fn resource(method: &Method, group: &str, parts: &[&str], query: Option<&str>) -> Self {
        let (namespace, parts) = match parts {
            ["namespaces", namespace, rest @ ..] => match rest {
                [first, ..] if !NAMESPACE_SUBRESOURCES.contains(first) => (*namespace, rest),
                _ => (*namespace, parts),
            },
            _ => ("", parts),
        };
        let part = |index: usize| parts.get(index).copied().unwrap_or_default().to_owned();
        let name = part(1);
        Self {
            verb: verb(method, name.is_empty(), is_watch(query)).to_owned(),
            fields: field_selector(query),
            target: Target::Resource {
                group: group.to_owned(),
                resource: part(0),
                subresource: part(2),
                namespace: namespace.to_owned(),
                name,
            },
        }
    }

    /// The value that a field must have to be among what is asked for.
    pub(super) fn selects(&self, label: &str) -> Option<&str> {
        self.fields.required(label)
    }

    /// Why `identity` may not do this.
    pub(super) fn forbidden(&self, identity: &Identity) -> Box<Status> {
        let (user, verb) = (&identity.username, &self.verb);
        let Target::Resource { group, resource, subresource, namespace, name } = &self.target
        else {
            let Target::Path(path) = &self.target else { return Status::unauthorized() };
            let why = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
            return Status::forbidden_text(why);
        };
        let dot = if group.is_empty() { "" } else { "." };
        let slash = if subresource.is_empty() { "" } else { "/" };
        let named = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let place = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{namespace}\"")
        };
        let mut status = Status::forbidden_text(format!(
            "{resource}{dot}{group}{named} is forbidden: User \"{user}\" cannot {verb} resource \
             \"{resource}{slash}{subresource}\" in API group \"{group}\" {place}"
        ));
        status.details = Some(Details::of(group, resource, name));
        status
    }
}

fn verb(method: &Method, collection: bool, watch: bool) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if collection => "deletecollection",
        Method::DELETE => "delete",
        Method::GET | Method::HEAD if collection && watch => "watch",
        Method::GET | Method::HEAD if collection => "list",
        Method::GET | Method::HEAD => "get",
        _ => "",
    }
}

/// Parsed as the handlers parse it: the permission covers exactly the request.
fn field_selector(query: Option<&str>) -> FieldSelector {
    let query = Query::parse(query.unwrap_or_default());
    query.text("fieldSelector").parse().unwrap_or_default()
}

fn is_watch(query: Option<&str>) -> bool {
    let pairs = query.unwrap_or_default().split('&');
    pairs
        .filter_map(|pair| pair.strip_prefix("watch"))
        .any(|value| matches!(value, "" | "=" | "=true" | "=1" | "=True" | "=TRUE" | "=t" | "=T"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: &Method, uri: &str) -> (String, String) {
        let (path, query) = match uri.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (uri, None),
        };
        let Attributes { verb, target, .. } = Attributes::of(method, path, query);
        let target = match target {
            Target::Path(path) => format!("path {path}"),
            Target::Resource { group, resource, subresource, namespace, name } => {
                format!("{group}|{resource}|{subresource}|{namespace}|{name}")
            }
        };
        (verb, target)
    }

    #[test]
    fn method_and_path_say_what_is_wanted() {
        for (method, uri, verb, target) in [
            (Method::GET, "/healthz", "get", "path /healthz"),
            (Method::GET, "/api/v1", "get", "path /api/v1"),
            (Method::GET, "/apis/apps/v1", "get", "path /apis/apps/v1"),
            (Method::GET, "/api/v1/nodes", "list", "|nodes|||"),
            (Method::GET, "/api/v1/nodes?&watch=true", "watch", "|nodes|||"),
            (Method::GET, "/api/v1/nodes?watch=false", "list", "|nodes|||"),
            (
                Method::GET,
                "/api/v1/nodes?fieldSelector=metadata.name%3Da&watch=1",
                "watch",
                "|nodes|||a",
            ),
            (Method::GET, "/api/v1/nodes?fieldSelector=metadata.name!%3Da", "list", "|nodes|||"),
            (Method::GET, "/api/v1/namespaces/x", "get", "|namespaces||x|x"),
            (Method::PUT, "/api/v1/namespaces/x/finalize", "update", "|namespaces|finalize|x|x"),
            (Method::POST, "/api/v1/namespaces/x/pods/a/eviction", "create", "|pods|eviction|x|a"),
            (Method::DELETE, "/api/v1/namespaces/x/pods/", "deletecollection", "|pods||x|"),
            (
                Method::PATCH,
                "/apis/apps/v1/namespaces/x/daemonsets/%61",
                "patch",
                "apps|daemonsets||x|a",
            ),
        ] {
            assert_eq!(of(&method, uri), (verb.to_owned(), target.to_owned()), "{uri}");
        }
    }

    #[test]
    fn a_refusal_names_user_verb_resource_and_place() {
        let attributes = Attributes::of(
            &Method::GET,
            "/apis/coordination.k8s.io/v1/namespaces/default/leases/x",
            None,
        );
        let status = attributes.forbidden(&Identity::anonymous());
        assert_eq!(
            status.message,
            "leases.coordination.k8s.io \"x\" is forbidden: User \"system:anonymous\" cannot get \
             resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"default\""
        );
        let status =
            Attributes::of(&Method::GET, "/metrics", None).forbidden(&Identity::anonymous());
        assert_eq!(
            status.message,
            "forbidden: User \"system:anonymous\" cannot get path \"/metrics\""
        );
    }
}

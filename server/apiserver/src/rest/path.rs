//! The meaning of an address.

use http::Uri;
use percent_encoding::percent_decode_str;

/// An address below `/api` or `/apis` that names a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    /// The API group; empty for the core group.
    pub(crate) group: String,
    /// The version.
    pub(crate) version: String,
    /// The namespace; empty if the address names none.
    pub(crate) namespace: String,
    /// The plural name.
    pub(crate) plural: String,
    /// The object's name; none for a collection.
    pub(crate) name: Option<String>,
    /// The subresource of the object.
    pub(crate) subresource: Option<String>,
}

/// The address that an old one of a watch stands for: `/api/v1/watch/pods` is `/api/v1/pods?watch=true`.
pub(crate) fn of_watch(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let at = match *parts.first()? {
        "api" => 2,
        "apis" => 3,
        _ => return None,
    };
    let (before, rest) = parts.split_at_checked(at)?;
    let ["watch", rest @ ..] = rest else { return None };
    let whole = format!("/{}/{}", before.join("/"), rest.join("/"));
    let mut query = "watch=true".to_owned();
    let found = parse(&whole)?;
    let collection = match &found.name {
        Some(_) if found.subresource.is_some() => return None,
        Some(_) => {
            let (collection, name) = whole.rsplit_once('/')?;
            query = format!("{query}&fieldSelector=metadata.name%3D{name}");
            collection
        }
        None => &whole,
    };
    for pair in uri.query().into_iter().flat_map(|query| query.split('&')) {
        query = format!("{query}&{pair}");
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(format!("{collection}?{query}").parse().ok()?);
    Uri::from_parts(parts).ok()
}

/// Reads a request path; none if it is not the address of a resource.
pub(crate) fn parse(path: &str) -> Option<ResourcePath> {
    let segments = segments(path)?;
    let mut rest = segments.iter().map(String::as_str);
    let group = match rest.next()? {
        "api" => "",
        "apis" => rest.next()?,
        _ => return None,
    };
    let version = rest.next()?;
    let rest: Vec<&str> = rest.collect();
    let (namespace, rest) = match rest.as_slice() {
        // What follows a namespace is a resource in it, but for the namespace's own parts.
        ["namespaces", namespace, part, ..]
            if group.is_empty() && rest.len() == 3 && matches!(*part, "status" | "finalize") =>
        {
            return Some(own_part(version, namespace, part));
        }
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(name), None),
        [plural, name, subresource] => (plural, Some(name), Some(subresource)),
        _ => return None,
    };
    Some(ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        plural: (*plural).to_owned(),
        name: name.map(|name| (*name).to_owned()),
        subresource: subresource.map(|subresource| (*subresource).to_owned()),
    })
}

fn own_part(version: &str, namespace: &str, part: &str) -> ResourcePath {
    ResourcePath {
        version: version.to_owned(),
        plural: "namespaces".to_owned(),
        name: Some(namespace.to_owned()),
        subresource: Some(part.to_owned()),
        ..ResourcePath::default()
    }
}

/// The decoded segments; none if one is empty (a trailing slash is fine) or no text.
fn segments(path: &str) -> Option<Vec<String>> {
    let path = path.strip_prefix('/')?;
    let path = path.strip_suffix('/').unwrap_or(path);
    path.split('/')
        .map(|segment| {
            let decoded = percent_decode_str(segment).decode_utf8().ok()?;
            (!decoded.is_empty()).then(|| decoded.into_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(path: &str) -> String {
        parse(path).map_or_else(
            || "-".to_owned(),
            |p| {
                let name = p.name.unwrap_or_default();
                let part = p.subresource.unwrap_or_default();
                format!("{}|{}|{}|{}|{name}|{part}", p.group, p.version, p.namespace, p.plural)
            },
        )
    }

    #[test]
    fn old_addresses_of_watches_are_those_of_collections() {
        let cases = [
            ("/api/v1/watch/pods", Some("/api/v1/pods?watch=true")),
            (
                "/api/v1/watch/namespaces/a/pods?x=y",
                Some("/api/v1/namespaces/a/pods?watch=true&x=y"),
            ),
            (
                "https://host/apis/apps/v1/watch/namespaces/a/deployments/d",
                Some(
                    "https://host/apis/apps/v1/namespaces/a/deployments?watch=true&fieldSelector=metadata.name%3Dd",
                ),
            ),
            ("/api/v1/pods", None),
            ("/api/v1/watch", None),
            ("/api/v1/namespaces/watch/pods", None),
            ("/apis/watch/v1/watch", None),
        ];
        for (uri, expected) in cases {
            let found = of_watch(&uri.parse().unwrap()).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), expected, "{uri}");
        }
    }

    #[test]
    fn each_address_names_what_it_should() {
        let cases = [
            ("/api/v1/nodes", "|v1||nodes||"),
            ("/api/v1/nodes/", "|v1||nodes||"),
            ("/api/v1/nodes/n", "|v1||nodes|n|"),
            ("/api/v1/nodes/n/status", "|v1||nodes|n|status"),
            ("/api/v1/namespaces", "|v1||namespaces||"),
            ("/api/v1/namespaces/a", "|v1||namespaces|a|"),
            ("/api/v1/namespaces/a/status", "|v1||namespaces|a|status"),
            ("/api/v1/namespaces/a/finalize", "|v1||namespaces|a|finalize"),
            ("/api/v1/namespaces/a/pods", "|v1|a|pods||"),
            ("/api/v1/namespaces/a/pods/p/eviction", "|v1|a|pods|p|eviction"),
            ("/apis/g.io/v1/namespaces/a/things/t", "g.io|v1|a|things|t|"),
            ("/apis/g.io/v1/things", "g.io|v1||things||"),
            ("/api/v1/namespaces/a/configmaps/%61", "|v1|a|configmaps|a|"),
            ("/api/v1", "-"),
            ("/apis/g.io/v1", "-"),
            ("/api//v1/nodes", "-"),
            ("/nothing/here", "-"),
            ("/", "-"),
        ];
        for (path, expected) in cases {
            assert_eq!(shown(path), expected, "{path}");
        }
    }
}

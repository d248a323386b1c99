//! What a core asked of the API server, and whether the roles in `deploy/base` allow it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use kube::client::Body;
use serde_json::{Value, json};

use crate::tools::root;

/// A request as an authorizer sees it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: &'static str,
    /// API group; empty for the core group.
    pub group: String,
    /// Plural name, with the subresource after a slash.
    pub resource: String,
    /// Empty for the whole cluster.
    pub namespace: String,
    /// Empty for all.
    pub name: String,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource, namespace, name } = self;
        write!(f, "{verb} {resource}.{group} {namespace}/{name}")
    }
}

impl Request {
    /// Reads a request.
    pub fn of_http<B>(request: &http::Request<B>) -> Option<Self> {
        let uri = request.uri();
        Self::of(request.method().as_str(), uri.path(), uri.query().unwrap_or_default())
    }

    /// Reads method and address; none for addresses that are no resources, such as discovery.
    pub fn of(method: &str, path: &str, query: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match (parts.next()?, parts.next()?) {
            ("api", _) => String::new(),
            ("apis", group) => {
                parts.next()?;
                group.to_owned()
            }
            _ => return None,
        };
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, resource, more @ ..] => {
                (*namespace, [&[*resource], more].concat())
            }
            other => ("", other.to_vec()),
        };
        let (resource, name) = match rest.as_slice() {
            [] => return None,
            [resource] => ((*resource).to_owned(), ""),
            [resource, name] => ((*resource).to_owned(), *name),
            [resource, name, sub, ..] => (format!("{resource}/{sub}"), *name),
        };
        // As a Kubernetes API server: a namespace is in itself, so a Role of it is enough.
        let namespace = if resource == "namespaces" { name } else { namespace };
        let verb = match (method, name) {
            ("GET", "") if query.split('&').any(|one| one == "watch=true" || one == "watch=1") => {
                "watch"
            }
            ("GET", "") => "list",
            ("GET", _) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", "") => "deletecollection",
            ("DELETE", _) => "delete",
            _ => return None,
        };
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Some(Self { verb, group, resource, namespace, name })
    }
}

/// The answer of an API server to a client without the right.
///
/// # Panics
/// Never: the answer is made of constants.
pub fn refusal(forbidden: &Request) -> http::Response<Full<Bytes>> {
    let message = format!("the core is not allowed to {forbidden}");
    failure(403, "Forbidden", &message)
}

/// What the API server answers to a change of an object that another client changed meanwhile.
///
/// # Panics
/// Never: the answer is made of constants.
pub fn conflict() -> http::Response<Full<Bytes>> {
    failure(
        409,
        "Conflict",
        "the object has been modified; please apply your changes to the latest version",
    )
}

fn failure(code: u16, reason: &str, message: &str) -> http::Response<Full<Bytes>> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code,
        "message": message,
    });
    let answer = http::Response::builder().status(code).header("content-type", "application/json");
    answer.body(Full::from(status.to_string())).expect("a status and a header")
}

/// No role has this verb: a list without pages costs an API server what all of it costs, at once.
const UNLIMITED: &str = "list without a limit";

/// Everything that was asked, each once.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    requests: Arc<Mutex<BTreeSet<Request>>>,
}

impl Asked {
    /// All of it.
    pub fn all(&self) -> BTreeSet<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a request and the rights that the API server may demand for it.
    ///
    /// # Panics
    /// If its body breaks off.
    pub async fn note(&self, request: http::Request<Body>) -> http::Request<Body> {
        let (parts, bytes) = read(request).await;
        let request = http::Request::from_parts(parts, Body::from(bytes.clone()));
        if let Some(mut asked) = Request::of_http(&request) {
            let query = request.uri().query().unwrap_or_default();
            if asked.verb == "list" && !query.split('&').any(|one| one.starts_with("limit=")) {
                asked.verb = UNLIMITED;
            }
            let mut all = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
            let said: Value = serde_json::from_slice(&bytes).unwrap_or_default();
            blocked_owners(&said, &asked.namespace, &mut all);
            all.insert(asked);
        }
        request
    }
}

/// A request with its whole body.
///
/// # Panics
/// If the body breaks off.
pub async fn read(request: http::Request<Body>) -> (http::request::Parts, Bytes) {
    let (parts, body) = request.into_parts();
    (parts, body.collect_bytes().await.expect("a core sends its whole request"))
}

/// With the admission plugin OwnerReferencesPermissionEnforcement, who writes a reference with `blockOwnerDeletion` must
/// be allowed to write the finalizers of the owner.
fn blocked_owners(said: &Value, namespace: &str, into: &mut BTreeSet<Request>) {
    let text = |field: &str| said[field].as_str().unwrap_or_default();
    if said["blockOwnerDeletion"] == true {
        let (group, _) = text("apiVersion").split_once('/').unwrap_or_default();
        into.insert(Request {
            verb: "update",
            group: group.to_owned(),
            resource: format!("{}s/finalizers", text("kind").to_lowercase()),
            namespace: namespace.to_owned(),
            name: text("name").to_owned(),
        });
    }
    let of_object = said.as_object().into_iter().flat_map(|it| it.values());
    for inner in of_object.chain(said.as_array().into_iter().flatten()) {
        blocked_owners(inner, namespace, into);
    }
}

/// A verb on a resource in a role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The verb.
    pub verb: String,
    group: String,
    /// The resource.
    pub resource: String,
    /// Only these; all if empty.
    names: BTreeSet<String>,
    /// Only there; everywhere if none. Empty stands for the namespace that is served.
    namespace: Option<String>,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, group, resource, names, namespace } = self;
        write!(f, "{verb} {resource}.{group} {names:?} in {namespace:?}")
    }
}

impl Right {
    /// Whether the right covers the request of a core that serves `served`.
    pub fn allows(&self, request: &Request, served: &dyn Fn(&str) -> bool) -> bool {
        let here = match self.namespace.as_deref() {
            None => true,
            Some("") => served(&request.namespace),
            Some(namespace) => namespace == request.namespace,
        };
        here && self.verb == request.verb
            && self.group == request.group
            && (self.resource == request.resource || self.resource == ANY)
            && (self.names.is_empty() || self.names.contains(&request.name))
    }
}

/// The API group of the bootstrap provider of the tests.
const PROVIDER_GROUP: &str = "bootstrap.example.com";
/// Any resource.
const ANY: &str = "*";

/// The rights that `deploy/base/role.yaml` asks users of a bootstrap provider to add.
fn of_providers() -> impl Iterator<Item = Right> {
    ["get", "list", "watch", "patch", "create", "delete"].into_iter().map(|verb| Right {
        verb: verb.to_owned(),
        group: PROVIDER_GROUP.to_owned(),
        resource: ANY.to_owned(),
        names: BTreeSet::new(),
        namespace: Some(String::new()),
    })
}

/// Every right that `deploy/base` gives to the core.
///
/// # Panics
/// If the roles cannot be read.
pub fn rights() -> Vec<Right> {
    let mut rights = Vec::new();
    for file in ["role.yaml", "tokens.yaml", "node-events.yaml", "cluster-role.yaml"] {
        let text = std::fs::read_to_string(root().join("deploy/base").join(file));
        for document in text.expect("the roles are there").split("\n---\n") {
            let role: Value = serde_saphyr::from_str(document).expect("the roles are YAML");
            rights.extend(rights_of(&role));
        }
    }
    rights
}

fn rights_of(role: &Value) -> Vec<Right> {
    let namespace = match role["kind"].as_str() {
        Some("Role") => Some(role["metadata"]["namespace"].as_str().unwrap_or_default().to_owned()),
        Some("ClusterRole") => None,
        _ => return Vec::new(),
    };
    let mut rights = Vec::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                rights.extend(texts(&rule["verbs"]).into_iter().map(|verb| Right {
                    verb,
                    group: group.clone(),
                    resource: resource.clone(),
                    names: texts(&rule["resourceNames"]).into_iter().collect(),
                    namespace: namespace.clone(),
                }));
            }
        }
    }
    rights
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Which of the requests no role allows to a core that serves `served`.
pub fn refused(asked: &BTreeSet<Request>, served: &dyn Fn(&str) -> bool) -> Vec<Request> {
    let rights = rights();
    let rights: Vec<_> = rights.into_iter().chain(of_providers()).collect();
    let allowed = |request: &Request| rights.iter().any(|right| right.allows(request, served));
    asked.iter().filter(|request| !allowed(request)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(method: &str, path: &str, query: &str) -> String {
        Request::of(method, path, query).map(|one| one.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_request_reads_as_an_authorizer_reads_it() {
        for (method, path, query, expected) in [
            ("GET", "/api/v1/nodes", "watch=true&x=y", "watch nodes. /"),
            ("GET", "/api/v1/nodes", "limit=500", "list nodes. /"),
            (
                "GET",
                "/api/v1/namespaces/kube-system",
                "",
                "get namespaces. kube-system/kube-system",
            ),
            ("POST", "/api/v1/namespaces/a/pods/p/eviction", "", "create pods/eviction. a/p"),
            (
                "PATCH",
                "/apis/machine.sapcloud.io/v1alpha1/namespaces/a/machines/m/status",
                "",
                "patch machines/status.machine.sapcloud.io a/m",
            ),
            ("DELETE", "/api/v1/namespaces/a/pods/p", "", "delete pods. a/p"),
            ("GET", "/apis/apps/v1", "", ""),
            ("GET", "/version", "", ""),
        ] {
            assert_eq!(shown(method, path, query), expected);
        }
    }

    #[tokio::test]
    async fn a_reference_that_keeps_its_owner_needs_the_finalizers_of_the_owner() {
        let owner = |kind: &str, blocks: bool| {
            json!({
                "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": kind, "name": "o",
                "blockOwnerDeletion": blocks,
            })
        };
        let patch = json!([{
            "op": "add", "path": "/metadata/ownerReferences",
            "value": [owner("MachineSet", true), owner("Machine", false)],
        }]);
        let path = "/apis/machine.sapcloud.io/v1alpha1/namespaces/a/machines/m";
        let request = http::Request::patch(path).body(Body::from(patch.to_string().into_bytes()));
        let asked = Asked::default();
        let sent = asked.note(request.unwrap()).await;
        assert_eq!(sent.into_body().collect_bytes().await.unwrap(), patch.to_string());
        let shown: Vec<_> = asked.all().iter().map(ToString::to_string).collect();
        let expected = [
            "patch machines.machine.sapcloud.io a/m",
            "update machinesets/finalizers.machine.sapcloud.io a/o",
        ];
        assert_eq!(shown, expected);
    }

    #[tokio::test]
    async fn a_list_without_a_limit_is_refused() {
        for (query, allowed) in [("limit=500", true), ("fieldSelector=spec.nodeName%3Dn", false)] {
            let asked = Asked::default();
            let request = http::Request::get(format!("/api/v1/pods?{query}")).body(Body::empty());
            asked.note(request.unwrap()).await;
            assert_eq!(refused(&asked.all(), &|_| true).is_empty(), allowed, "{query}");
        }
    }

    #[test]
    fn a_role_allows_what_it_says_and_nothing_else() {
        let served = |namespace: &str| namespace == "default";
        let refused = |method: &str, path: &str| {
            let request = Request::of(method, path, "").unwrap();
            !refused(&[request].into(), &served).is_empty()
        };
        let machines = "/apis/machine.sapcloud.io/v1alpha1/namespaces";
        assert!(!refused("PATCH", &format!("{machines}/default/machines/m")));
        assert!(refused("PATCH", &format!("{machines}/other/machines/m")), "not served");
        assert!(refused("PUT", &format!("{machines}/default/machines/m")), "another verb");
        assert!(!refused("GET", "/api/v1/namespaces/kube-system"));
        assert!(!refused("GET", "/api/v1/namespaces/default"), "its own home");
        assert!(refused("GET", "/api/v1/namespaces/other"), "another name");
        assert!(
            refused("GET", "/api/v1/namespaces/kube-system/secrets"),
            "tokens are never listed"
        );
    }
}

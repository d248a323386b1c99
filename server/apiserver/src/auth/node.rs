//! What a node may do, as the Node authorizer of Kubernetes has it.

use serde_json::Value;

use crate::kinds::{certificate::kubelet, identity::Identity};

use super::{
    Attributes, Target,
    policy::{NODE, Rule, Scope},
};

/// Where the leases of nodes are.
const LEASES: &str = "kube-node-lease";
/// The fields for a node's selection of its Node and pods.
const NAME: &str = "metadata.name";
const BOUND_TO: &str = "spec.nodeName";

/// Which pods, secrets and config maps belong to which node.
pub(crate) trait Bindings {
    /// The node that a pod is bound to; none if there is no such pod, or it is bound to none.
    fn node_of_pod(&self, namespace: &str, pod: &str) -> Option<String>;
    /// Whether a pod that is bound to the node refers to this secret or config map.
    fn is_used(&self, node: &str, namespace: &str, resource: &str, name: &str) -> bool;
}

impl Identity {
    /// The name of the node, if the user is a node.
    pub(crate) fn node(&self) -> Option<&str> {
        let is_node = self.groups.iter().any(|group| group == kubelet::NODES);
        if is_node { kubelet::node_of(&self.username) } else { None }
    }
}

/// Whether a node may do this.
pub(super) fn permits(node: &str, attributes: &Attributes, bindings: &dyn Bindings) -> bool {
    NODE.iter().any(|rule| rule.covers(attributes) && is_within(rule, node, attributes, bindings))
}

fn is_within(rule: &Rule, node: &str, attributes: &Attributes, bindings: &dyn Bindings) -> bool {
    let Target::Resource { resource, namespace, name, .. } = &attributes.target else {
        return false;
    };
    // a new object's name is not in the address: `restriction` looks at it
    let is_own = *name == node || (name.is_empty() && attributes.verb == "create");
    match rule.scope {
        Scope::Any => true,
        Scope::Own => is_own,
        Scope::OwnLease => is_own && namespace == LEASES,
        Scope::Bound if name.is_empty() => attributes.selects(BOUND_TO) == Some(node),
        Scope::Bound => bindings.node_of_pod(namespace, name).as_deref() == Some(node),
        Scope::Used => !name.is_empty() && bindings.is_used(node, namespace, resource, name),
    }
}

impl Attributes {
    /// Gives a request for a collection the name that it is selected by, as Kubernetes does.
    pub(super) fn with_selected_name(mut self) -> Self {
        let selected = self.selects(NAME).unwrap_or_default().to_owned();
        if let Target::Resource { name, .. } = &mut self.target
            && name.is_empty()
            && matches!(self.verb.as_str(), "list" | "watch" | "deletecollection")
        {
            *name = selected;
        }
        self
    }
}

/// The names of secrets or config maps that a pod's spec refers to, wherever it does: each kind of
/// reference has a field of its own, and in all of them the name stands in the same field.
pub(super) fn references<'a>(spec: &'a Value, resource: &str) -> Vec<&'a str> {
    let (holders, names): (&[&str], &[&str]) = match resource {
        "secrets" => (
            &[
                "secret",
                "secretRef",
                "secretKeyRef",
                "imagePullSecrets",
                "nodePublishSecretRef",
                "azureFile",
            ],
            &["secretName", "name"],
        ),
        _ => (&["configMap", "configMapRef", "configMapKeyRef"], &["name"]),
    };
    let (mut found, mut left) = (Vec::new(), vec![spec]);
    while let Some(value) = left.pop() {
        match value {
            Value::Object(fields) => {
                for (field, value) in fields {
                    if holders.contains(&field.as_str()) {
                        let held = value
                            .as_array()
                            .map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
                        let named =
                            held.iter().flat_map(|one| names.iter().map(|name| one.get(name)));
                        found.extend(named.flatten().filter_map(Value::as_str));
                    }
                    left.push(value);
                }
            }
            Value::Array(items) => left.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::*;

    /// Pod `default/mine` is bound to n1 and uses secret `key`, pod `default/theirs` to n2; pod
    /// `default/free` to none.
    struct Table;

    impl Bindings for Table {
        fn node_of_pod(&self, namespace: &str, pod: &str) -> Option<String> {
            match (namespace, pod) {
                ("default", "mine") => Some("n1".to_owned()),
                ("default", "theirs") => Some("n2".to_owned()),
                _ => None,
            }
        }

        fn is_used(&self, node: &str, namespace: &str, resource: &str, name: &str) -> bool {
            (node, namespace, resource, name) == ("n1", "default", "secrets", "key")
        }
    }

    const ALLOWED: &str = "
        GET /api/v1/services
        GET /api/v1/services?watch=true
        POST /api/v1/nodes
        GET /api/v1/nodes/n1
        PUT /api/v1/nodes/n1
        PATCH /api/v1/nodes/n1/status
        GET /api/v1/nodes?fieldSelector=metadata.name%3Dn1&watch=1
        POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases
        PUT /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1
        GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1
        POST /api/v1/namespaces/default/pods
        GET /api/v1/pods?fieldSelector=spec.nodeName=n1&watch=true
        GET /api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3Dn1,status.phase%3DRunning
        GET /api/v1/namespaces/default/pods/mine
        DELETE /api/v1/namespaces/default/pods/mine
        PATCH /api/v1/namespaces/default/pods/mine/status
        POST /api/v1/namespaces/default/pods/mine/eviction
        GET /api/v1/namespaces/default/secrets/key
        GET /api/v1/namespaces/default/secrets?fieldSelector=metadata.name%3Dkey
        POST /api/v1/namespaces/default/events
        PATCH /api/v1/namespaces/default/events/x
        POST /apis/certificates.k8s.io/v1/certificatesigningrequests
        GET /apis/certificates.k8s.io/v1/certificatesigningrequests/x
        PUT /apis/storage.k8s.io/v1/csinodes/n1";

    const REFUSED: &str = "
        DELETE /api/v1/namespaces/default/services/x
        DELETE /api/v1/nodes/n1
        GET /api/v1/nodes/n2
        PATCH /api/v1/nodes/n2
        PUT /api/v1/nodes/n2/status
        GET /api/v1/nodes
        GET /api/v1/nodes?fieldSelector=metadata.name%3Dn2&watch=1
        GET /api/v1/nodes?fieldSelector=metadata.name!%3Dn1
        PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n2
        GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases
        GET /apis/coordination.k8s.io/v1/namespaces/default/leases/n1
        GET /api/v1/namespaces/default/pods
        GET /api/v1/pods?fieldSelector=spec.nodeName=n2
        GET /api/v1/pods?fieldSelector=spec.nodeName!=n2
        DELETE /api/v1/namespaces/default/pods?fieldSelector=spec.nodeName%3Dn1
        PATCH /api/v1/namespaces/default/pods/mine
        POST /api/v1/namespaces/default/pods/mine/binding
        GET /api/v1/namespaces/default/pods/theirs
        DELETE /api/v1/namespaces/default/pods/theirs
        PATCH /api/v1/namespaces/default/pods/theirs/status
        POST /api/v1/namespaces/default/pods/theirs/eviction
        GET /api/v1/namespaces/default/pods/free
        GET /api/v1/namespaces/default/pods/missing
        GET /api/v1/namespaces/default/secrets
        GET /api/v1/namespaces/default/secrets/other
        GET /api/v1/namespaces/default/configmaps/key
        PUT /api/v1/namespaces/default/secrets/key
        GET /api/v1/namespaces/default/events
        PUT /apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval
        PUT /apis/certificates.k8s.io/v1/certificatesigningrequests/x/status
        DELETE /apis/certificates.k8s.io/v1/certificatesigningrequests/x
        PUT /apis/storage.k8s.io/v1/csinodes/n2
        GET /api/v1/namespaces
        GET /apis/machine.sapcloud.io/v1alpha1/machines";

    #[test]
    fn a_node_may_do_what_concerns_it_and_nothing_else() {
        let lines =
            |text: &'static str| text.lines().map(str::trim).filter(|line| !line.is_empty());
        let cases = lines(ALLOWED).map(|line| (line, true));
        for (line, allowed) in cases.chain(lines(REFUSED).map(|line| (line, false))) {
            let (method, uri) = line.split_once(' ').unwrap();
            let method = method.parse::<Method>().unwrap();
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let attributes = Attributes::of(&method, path, Some(query));
            assert_eq!(permits("n1", &attributes, &Table), allowed, "{line}");
        }
    }

    #[test]
    fn every_way_in_which_a_pod_refers_to_a_secret_or_config_map_is_known() {
        let spec = json!({
            "imagePullSecrets": [{"name": "pull"}],
            "containers": [{"name": "c", "envFrom": [{"secretRef": {"name": "all"}}, {"configMapRef": {"name": "maps"}}],
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}},
                        {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "k"}}}]}],
            "volumes": [{"name": "v", "secret": {"secretName": "mounted"}}, {"name": "w", "configMap": {"name": "files"}},
                {"name": "x", "projected": {"sources": [{"secret": {"name": "projected"}}, {"configMap": {"name": "part"}}]}}],
        });
        let refers = |resource: &str, name: &str| references(&spec, resource).contains(&name);
        for name in ["pull", "all", "one", "mounted", "projected"] {
            assert!(refers("secrets", name), "{name}");
            assert!(!refers("configmaps", name), "{name}");
        }
        for name in ["maps", "map", "files", "part"] {
            assert!(refers("configmaps", name), "{name}");
            assert!(!refers("secrets", name), "{name}");
        }
        for name in ["c", "A", "k", "v", "other"] {
            let found = ["secrets", "configmaps"].map(|kind| refers(kind, name));
            assert_eq!(found, [false, false], "{name}");
        }
        let none = json!({"containers": [{"name": "secret", "image": "configMap"}]});
        for kind in ["secrets", "configmaps"] {
            assert!(references(&none, kind).is_empty(), "{kind}");
        }
    }
}

//! The data for a legacy driver: its own kind of machine class, and a Secret, as JSON. Both are
//! made from what the core has; nothing is fetched on behalf of a driver.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler_proto::v1alpha1::ObjectRevision;
use serde_json::{Map, Value, json};

use crate::LegacyKind;
use ostler_sessions::{ClassContent, SecretContent};

/// The tags by which such a driver finds the instances of a cluster. If a class lacks any of these
/// tags, the driver lists nothing and reports no error.
const CLUSTER_TAGS: [&str; 2] = ["kubernetes.io/cluster/", "kubernetes.io/role/"];
const USER_DATA: &str = "userData";

/// The name of a class: the path that it would have in the API. It is sent with an operation, and
/// nothing but the same text is ever answered.
pub(crate) fn path(kind: &LegacyKind, class: &ObjectRevision) -> String {
    let LegacyKind { group, version, kind } = kind;
    let plural = format!("{}es", kind.to_ascii_lowercase());
    let ObjectRevision { namespace, name, .. } = class;
    format!("/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}")
}

/// The provider spec, if it is an object.
pub(crate) fn spec(class: &ClassContent) -> Option<Map<String, Value>> {
    serde_json::from_str(&class.provider_spec_json).ok()
}

/// The first of the needed tags that a provider spec lacks.
pub(crate) fn missing_tag(spec: &Map<String, Value>) -> Option<&'static str> {
    let tags = spec.get("tags").and_then(Value::as_object);
    let has = |wanted: &str| tags.is_some_and(|tags| tags.keys().any(|key| key.contains(wanted)));
    CLUSTER_TAGS.into_iter().find(|wanted| !has(wanted))
}

/// The class as an object of the driver's own kind. The secret has the name of the class.
pub(crate) fn class(
    kind: &LegacyKind,
    named: &ObjectRevision,
    has_secret: bool,
    mut spec: Map<String, Value>,
) -> String {
    let ObjectRevision { namespace, name, .. } = named;
    spec.remove("secretRef");
    if has_secret {
        spec.insert("secretRef".to_owned(), json!({ "name": name, "namespace": namespace }));
    }
    json!({
        "apiVersion": format!("{}/{}", kind.group, kind.version),
        "kind": kind.kind,
        "metadata": { "name": name, "namespace": namespace },
        "spec": spec,
    })
    .to_string()
}

/// The merged secret of a class, with the user data of the machine in creation.
pub(crate) fn secret(
    named: &ObjectRevision,
    secret: &SecretContent,
    user_data: Option<&[u8]>,
) -> String {
    let pairs = secret.data.iter().map(|(key, value)| (key.as_str(), value.as_slice()));
    let pairs = pairs.filter(|(key, _)| *key != USER_DATA);
    let data: Map<String, Value> = pairs
        .chain(user_data.map(|data| (USER_DATA, data)))
        .map(|(key, value)| (key.to_owned(), STANDARD.encode(value).into()))
        .collect();
    let ObjectRevision { namespace, name, .. } = named;
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "namespace": namespace },
        "type": "Opaque",
        "data": data,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> LegacyKind {
        "machine.sapcloud.io/v1alpha1/AWSMachineClass".parse().unwrap()
    }

    fn named() -> ObjectRevision {
        ObjectRevision {
            uid: String::new(),
            namespace: "dev".into(),
            name: "m5".into(),
            revision: "7".into(),
        }
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_class_goes_by_the_path_of_the_drivers_own_kind() {
        let expected = "/apis/machine.sapcloud.io/v1alpha1/namespaces/dev/awsmachineclasses/m5";
        assert_eq!(path(&kind(), &named()), expected);
    }

    #[test]
    fn a_class_is_rendered_as_the_driver_declares_it() {
        let spec = json!({ "region": "eu-1", "secretRef": { "name": "elsewhere" } });
        let spec = spec.as_object().unwrap().clone();
        let expected = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1",
            "kind": "AWSMachineClass",
            "metadata": { "name": "m5", "namespace": "dev" },
            "spec": { "region": "eu-1", "secretRef": { "name": "m5", "namespace": "dev" } },
        });
        assert_eq!(parsed(&class(&kind(), &named(), true, spec.clone())), expected);
        let without = parsed(&class(&kind(), &named(), false, spec));
        assert_eq!(without["spec"], json!({ "region": "eu-1" }));
    }

    #[test]
    fn a_secret_has_base64_data_and_only_the_user_data_of_this_machine() {
        let data = [("key", "one"), (USER_DATA, "of all")];
        let data = data.map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec())).into();
        let content = SecretContent { revision: "1".into(), data };
        let shown = |user_data| parsed(&secret(&named(), &content, user_data))["data"].clone();
        assert_eq!(shown(None), json!({ "key": "b25l" }));
        assert_eq!(shown(Some(b"two".as_slice())), json!({ "key": "b25l", "userData": "dHdv" }));
    }

    #[test]
    fn both_tags_are_needed_as_keys() {
        let missing = |spec: Value| missing_tag(spec.as_object().unwrap());
        let (cluster, role) = ("kubernetes.io/cluster/dev", "kubernetes.io/role/node");
        assert_eq!(missing(json!({ "tags": { cluster: "1", role: "1" } })), None);
        assert_eq!(missing(json!({ "tags": { cluster: "1" } })), Some("kubernetes.io/role/"));
        assert_eq!(missing(json!({ "tags": { role: "1" } })), Some("kubernetes.io/cluster/"));
        for spec in
            [json!({}), json!({ "tags": [cluster, role] }), json!({ "tags": { "x": role } })]
        {
            assert_eq!(missing(spec), Some("kubernetes.io/cluster/"));
        }
    }
}

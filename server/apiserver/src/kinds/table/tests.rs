use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Include, Rendering, age, json_path, table};
use crate::kinds::{BuiltIn, Registry};

fn how() -> Rendering {
    Rendering {
        api_version: "meta.k8s.io/v1",
        include: Include::None,
        columns: false,
        now: "2026-01-01T00:01:00Z".parse().unwrap(),
    }
}

fn cells(kind: BuiltIn, object: &Value) -> Value {
    let table = table(&kind.resource(), std::slice::from_ref(object), json!({}), how());
    table["rows"][0]["cells"].clone()
}

#[test]
fn ages_read_as_kubectl_shows_them() {
    let cases = [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (330, "5m30s"),
        (3600, "60m"),
        (10800, "3h"),
        (11000, "3h3m"),
        (100_000, "27h"),
        (200_000, "2d7h"),
        (86_400 * 41, "41d"),
        (86_400 * 800, "2y70d"),
        (-5, "<invalid>"),
    ];
    for (seconds, text) in cases {
        assert_eq!(age::words(seconds), text, "{seconds}");
    }
}

#[test]
fn json_paths_find_fields_items_and_filtered_items() {
    let object = json!({"a": {"b.c": 1}, "l": [{"type": "X", "s": 1}, {"type": "Y", "s": 2}]});
    let cases = [
        (".a['b.c']", json!([1])),
        (r".a.b\.c", json!([1])),
        (".l[1].s", json!([2])),
        (".l[-1].s", json!([2])),
        (".l[*].s", json!([1, 2])),
        (r#".l[?(@.type=="Y")].s"#, json!([2])),
        (r".l[?(@.type!='Y')].s", json!([1])),
        ("{.l[0].type}", json!(["X"])),
        (".nope.deep", json!([])),
        (".l[", json!([])),
    ];
    for (path, found) in cases {
        assert_eq!(json!(json_path::find(&object, path)), found, "{path}");
    }
}

#[test]
fn a_pod_says_what_its_containers_do() {
    let pod = json!({
        "metadata": {"name": "b", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"containers": [{"name": "x"}, {"name": "y"}], "nodeName": "n"},
        "status": {"phase": "Running", "podIP": "10.1.1.1", "containerStatuses": [
            {"name": "x", "ready": true, "restartCount": 2, "state": {"running": {}}},
            {"name": "y", "ready": false, "restartCount": 0, "state": {"waiting": {"reason": "ImagePullBackOff"}}},
        ]},
    });
    assert_eq!(
        cells(BuiltIn::Pod, &pod),
        json!(["b", "1/2", "ImagePullBackOff", "2", "60s", "10.1.1.1", "n", "<none>", "<none>"])
    );
}

#[test]
fn a_node_shows_its_roles_and_whether_it_is_cordoned() {
    let node = json!({
        "metadata": {"name": "m", "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "x"}},
        "spec": {"unschedulable": true},
    });
    assert_eq!(
        cells(BuiltIn::Node, &node),
        json!([
            "m",
            "Unknown,SchedulingDisabled",
            "worker,x",
            "<unknown>",
            "",
            "<none>",
            "<none>",
            "<unknown>",
            "<unknown>",
            "<unknown>"
        ])
    );
}

#[test]
fn custom_columns_show_values_of_their_type_or_nothing() {
    let definition = json!({
        "spec": {"group": "g.io", "scope": "Namespaced", "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object"}},
            "additionalPrinterColumns": [
                {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                {"name": "Color", "type": "string", "jsonPath": ".spec.color", "priority": 1},
                {"name": "Born", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            ]}]},
        "status": {
            "conditions": [{"type": "Established", "status": "True"}],
            "acceptedNames": {"plural": "ws", "kind": "W", "listKind": "WList", "singular": "w"},
        },
    });
    let registry = Registry::with_definitions([&definition]);
    let resource = registry.lookup("g.io", "v1", "ws").unwrap();
    let objects = [
        json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:30Z"}, "spec": {"size": 1, "color": 5}}),
        json!({"metadata": {"name": "b"}, "spec": {"size": "big"}}),
    ];
    let table = table(resource, &objects, json!({}), Rendering { columns: true, ..how() });
    assert_eq!(table["columnDefinitions"][2]["priority"], 1);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 1, "5", "30s"]));
    assert_eq!(table["rows"][1]["cells"], json!(["b", null, null, null]));
}

#[test]
fn a_certificate_request_shows_who_asks_for_what_and_what_became_of_it() {
    let mut request = json!({
        "metadata": {"name": "n1", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                 "username": "system:bootstrap:abcdef", "expirationSeconds": 3600},
    });
    let (name, requester) =
        ("kubernetes.io/kube-apiserver-client-kubelet", "system:bootstrap:abcdef");
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    for (status, shown) in [
        (json!({}), "Pending"),
        (json!({"conditions": [condition("Approved")]}), "Approved"),
        (json!({"conditions": [condition("Approved")], "certificate": "c"}), "Approved,Issued"),
        (json!({"conditions": [condition("Denied")]}), "Denied"),
        (json!({"conditions": [condition("Failed")]}), "Pending,Failed"),
    ] {
        request["status"] = status;
        let row = cells(BuiltIn::CertificateSigningRequest, &request);
        assert_eq!(row, json!(["n1", "60s", name, requester, "60m", shown]));
    }
}

#[test]
fn columns_of_built_in_kinds_show_what_is_there_and_a_word_for_what_is_not() {
    let objects: Vec<(String, Value)> =
        serde_saphyr::from_str(include_str!("objects.yaml")).unwrap();
    let mut shown = String::new();
    for kind in BuiltIn::ALL {
        let name = format!("{kind:?}");
        let full = objects.iter().filter(|(of, _)| *of == name).map(|(_, object)| {
            let mut object = object.clone();
            object["metadata"]["name"] = json!("x");
            object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
            object
        });
        for object in full.chain([json!({"metadata": {"name": "y"}})]) {
            writeln!(shown, "{name} {}", cells(*kind, &object)).unwrap();
        }
    }
    assert_eq!(shown, include_str!("shown.txt"));
}

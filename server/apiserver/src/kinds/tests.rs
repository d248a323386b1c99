use serde_json::{Value, json};

use super::{BuiltIn, Subresource};
use crate::kinds::field::FieldError;

/// The object that a create would store, and the fields that are refused.
fn attempt(kind: BuiltIn, object: Value) -> (Value, Vec<String>) {
    let resource = kind.resource();
    let mut object = object;
    resource.decode(&mut object).unwrap();
    resource.default(&mut object);
    resource.prepare_create(&mut object);
    let refused = fields(&resource.validate_create(&object));
    (object, refused)
}

fn created(kind: BuiltIn, object: Value) -> Value {
    let (object, refused) = attempt(kind, object);
    assert!(refused.is_empty(), "{refused:?}");
    object
}

fn refused(kind: BuiltIn, object: Value) -> Vec<String> {
    attempt(kind, object).1
}

fn fields(errors: &[FieldError]) -> Vec<String> {
    errors.iter().map(|error| error.field().to_owned()).collect()
}

#[test]
fn a_new_node_takes_no_pods_and_shows_what_is_unknown() {
    let node = created(BuiltIn::Node, json!({"metadata": {"name": "n"}}));
    assert_eq!(
        node["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    assert_eq!(node["status"]["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "");
}

#[test]
fn the_provider_id_of_a_node_is_written_once() {
    let nodes = BuiltIn::Node.resource();
    let old = json!({"spec": {"providerID": "fake:///n"}});
    let cases = [("fake:///n", vec![]), ("fake:///m", vec!["spec.providerID"])];
    for (id, refused) in cases {
        let new = json!({"spec": {"providerID": id}});
        assert_eq!(fields(&nodes.validate_update(&new, &old, None)), refused);
    }
}

#[test]
fn allocatable_follows_capacity_and_quantities_are_canonical() {
    let nodes = BuiltIn::Node.resource();
    let mut node = json!({"status": {"capacity": {"cpu": "4000m", "memory": 1024}}});
    nodes.decode(&mut node).unwrap();
    nodes.default(&mut node);
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "4", "memory": "1024"}));
}

#[test]
fn text_data_of_a_secret_is_encoded_and_wins() {
    let secret = created(
        BuiltIn::Secret,
        json!({"stringData": {"a": "new"}, "data": {"a": "b2xk", "b": "Yg=="}}),
    );
    assert_eq!(secret, json!({"data": {"a": "bmV3", "b": "Yg=="}, "type": "Opaque"}));
}

#[test]
fn secrets_and_config_maps_are_refused_by_field() {
    let cases = [
        (
            BuiltIn::Secret,
            json!({"type": "kubernetes.io/tls"}),
            vec!["data[tls.crt]", "data[tls.key]"],
        ),
        (BuiltIn::Secret, json!({"data": {"a b": "Yg=="}}), vec!["data[a b]"]),
        (BuiltIn::ConfigMap, json!({"data": {"..": "x"}}), vec!["data[..]"]),
        (
            BuiltIn::ConfigMap,
            json!({"data": {"a": "x"}, "binaryData": {"a": "Yg=="}}),
            vec!["data[a]"],
        ),
    ];
    for (kind, object, fields) in cases {
        assert_eq!(refused(kind, object), fields);
    }
}

#[test]
fn an_immutable_config_map_keeps_its_data() {
    let maps = BuiltIn::ConfigMap.resource();
    let old = json!({"data": {"a": "1"}, "immutable": true});
    let cases = [
        (json!({"data": {"a": "1"}, "immutable": true}), vec![]),
        (json!({"data": {"a": "2"}, "immutable": true}), vec!["data"]),
        (json!({"data": {"a": "1"}}), vec!["immutable"]),
    ];
    for (new, refused) in cases {
        assert_eq!(fields(&maps.validate_update(&new, &old, None)), refused);
    }
}

#[test]
fn a_namespace_is_held_and_labelled_by_its_name() {
    let namespace = created(BuiltIn::Namespace, json!({"metadata": {"name": "x"}}));
    assert_eq!(
        namespace,
        json!({
            "metadata": {"name": "x", "labels": {"kubernetes.io/metadata.name": "x"}},
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        })
    );
}

#[test]
fn one_event_has_two_faces() {
    let events = BuiltIn::Event.resource();
    let mut event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "a", "namespace": "n"},
        "action": "Creating", "eventTime": "2026-01-01T00:00:00.123456Z", "note": "making it",
        "reason": "Create", "type": "Normal", "regarding": {"kind": "Widget", "name": "a", "namespace": "n"},
        "reportingController": "ctl", "reportingInstance": "ctl-0",
    });
    events.decode(&mut event).unwrap();
    assert_eq!(fields(&events.validate_create(&event)), Vec::<String>::new());
    let served = event.clone();
    events.to_stored(&mut event);
    assert_eq!(event["message"], "making it");
    assert_eq!(event["reportingComponent"], "ctl");
    assert_eq!(event["firstTimestamp"], Value::Null);
    assert_eq!(event["apiVersion"], "v1");
    events.from_stored(&mut event);
    assert_eq!(event, served);
}

#[test]
fn an_event_lives_beside_its_object_unless_it_has_a_time_of_its_own() {
    let old = |own: &str, theirs: &str| json!({"metadata": {"namespace": own}, "involvedObject": {"namespace": theirs}});
    let new = |own: &str, theirs: &str| {
        let mut event = old(own, theirs);
        let more = json!({"eventTime": "2026-01-01T00:00:00.000000Z", "reportingComponent": "c",
            "reportingInstance": "i", "action": "a", "reason": "r"});
        event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        event
    };
    let cases = [
        (old("n", "n"), true),
        (old("n", "m"), false),
        (old("default", ""), true),
        (old("kube-system", ""), false),
        (new("kube-system", ""), true),
        (new("n", ""), false),
        (new("n", "m"), true),
    ];
    for (event, fine) in cases {
        assert_eq!(refused(BuiltIn::CoreEvent, event.clone()).is_empty(), fine, "{event}");
    }
}

#[test]
fn leases_and_budgets_are_refused_by_field() {
    let cases = [
        (
            BuiltIn::Lease,
            json!({"spec": {"leaseDurationSeconds": 0}}),
            vec!["spec.leaseDurationSeconds"],
        ),
        (BuiltIn::Lease, json!({"spec": {"leaseTransitions": -1}}), vec!["spec.leaseTransitions"]),
        (
            BuiltIn::PodDisruptionBudget,
            json!({"spec": {"minAvailable": 1, "maxUnavailable": 1}}),
            vec!["spec"],
        ),
        (
            BuiltIn::PodDisruptionBudget,
            json!({"spec": {"minAvailable": "120%"}}),
            vec!["spec.minAvailable"],
        ),
    ];
    for (kind, object, fields) in cases {
        assert_eq!(refused(kind, object), fields);
    }
}

#[test]
fn an_empty_holder_of_a_lease_is_kept() {
    let lease =
        created(BuiltIn::Lease, json!({"spec": {"holderIdentity": "", "leaseTransitions": 0}}));
    assert_eq!(lease["spec"], json!({"holderIdentity": "", "leaseTransitions": 0}));
}

#[test]
fn a_definition_gets_its_names_and_says_what_it_stored() {
    let definition = created(
        BuiltIn::CustomResourceDefinition,
        json!({"metadata": {"name": "widgets.example.org"}, "spec": {
            "group": "example.org", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}}),
    );
    assert_eq!(definition["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
}

#[test]
fn values_of_the_wrong_type_and_unknown_fields_are_told_apart() {
    let maps = BuiltIn::ConfigMap.resource();
    let mut object = json!({"data": {"k": 5}});
    assert!(maps.decode(&mut object).is_err());
    let mut object =
        json!({"data": {"k": "v"}, "bogus": 1, "metadata": {"nope": true}, "binaryData": null});
    let unknown = maps.decode(&mut object).unwrap();
    let paths: Vec<&str> = unknown.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(paths, ["bogus", "metadata.nope"]);
    assert_eq!(object, json!({"data": {"k": "v"}, "metadata": {}}));
}

#[test]
fn on_status_a_custom_object_keeps_its_labels_and_a_built_in_one_takes_new_ones() {
    let old = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"x": 1}, "status": {"s": 1}});
    let sent = json!({"metadata": {"labels": {"b": "2"}}, "spec": {"x": 2}, "status": {"s": 2}});
    let mut node = sent.clone();
    BuiltIn::Node.resource().prepare_update(&mut node, &old, Some(Subresource::Status));
    assert_eq!(
        node,
        json!({"metadata": {"labels": {"b": "2"}}, "spec": {"x": 1}, "status": {"s": 2}})
    );
    let mut definition = sent;
    let definitions = BuiltIn::CustomResourceDefinition.resource();
    definitions.prepare_update(&mut definition, &old, Some(Subresource::Status));
    assert_eq!(definition["metadata"]["labels"], json!({"a": "1"}));
    assert_eq!(definition["status"], json!({"s": 2}));
}

#[test]
fn a_job_selects_its_own_pods_and_has_its_defaults() {
    let pod = json!({"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"});
    let job = |spec: Value| created(BuiltIn::Job, json!({"metadata": {"name": "j"}, "spec": spec}));
    let several = job(json!({"parallelism": 3, "template": {"spec": &pod}}));
    assert_eq!(several["spec"].get("completions"), None);
    let job = job(json!({"template": {"spec": pod}}));
    let labels = &job["spec"]["template"]["metadata"]["labels"];
    assert_eq!(labels["job-name"], "j");
    let own = &job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"];
    assert!(own.is_string() && *own == labels["controller-uid"], "{job}");
    let spec = &job["spec"];
    assert_eq!((&spec["completions"], &spec["backoffLimit"]), (&json!(1), &json!(6)));
}

#[test]
fn classes_and_drivers_of_volumes_have_their_defaults() {
    let class = json!({"metadata": {"name": "c"}, "provisioner": "p"});
    assert_eq!(created(BuiltIn::StorageClass, class)["reclaimPolicy"], "Delete");
    let driver = created(BuiltIn::CsiDriver, json!({"metadata": {"name": "d"}, "spec": {}}));
    assert_eq!(driver["spec"]["volumeLifecycleModes"], json!(["Persistent"]));
}

/// What is wrong with a new object.
fn told(kind: BuiltIn, mut object: Value) -> String {
    let resource = kind.resource();
    object["metadata"]["name"] = json!("w");
    resource.default(&mut object);
    let errors = resource.validate_create(&object);
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_workload_that_could_never_run_is_refused() {
    let container = json!([{"name": "c", "image": "i"}]);
    for (kind, policy, more, wanted) in [
        (BuiltIn::Deployment, "Always", json!({}), ""),
        (BuiltIn::Job, "Never", json!({}), ""),
        (BuiltIn::Deployment, "Always", json!({"selector": null}), "spec.selector: Required value"),
        (
            BuiltIn::Deployment,
            "Always",
            json!({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}),
            "may not be 0 when `maxSurge` is 0",
        ),
        (
            BuiltIn::Deployment,
            "Always",
            json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}}),
            "may not be specified when strategy `type` is 'Recreate'",
        ),
        (
            BuiltIn::StatefulSet,
            "Always",
            json!({"replicas": -1}),
            "spec.replicas: Invalid value: -1",
        ),
        (
            BuiltIn::Job,
            "Always",
            json!({}),
            "Required value: valid values: \"OnFailure\", \"Never\"",
        ),
    ] {
        let mut spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"restartPolicy": policy, "containers": container}}});
        for (name, value) in more.as_object().unwrap() {
            spec[name] = value.clone();
        }
        spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let found = told(kind, json!({"metadata": {}, "spec": spec}));
        assert!(found.contains(wanted) && found.is_empty() == wanted.is_empty(), "{found}");
    }
}

#[test]
fn a_bad_definition_is_refused_at_the_field_that_kubernetes_names() {
    let list = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
        "items": {"type": "object", "properties": {"n": {"type": "string"}}}});
    let column = json!([{"name": "N", "type": "string", "jsonPath": "p"}]);
    for (property, part, value, wanted) in [
        (json!({}), "", json!(null), "spec.validation.openAPIV3Schema.properties[p].type"),
        (
            list,
            "",
            json!(null),
            "spec.validation.openAPIV3Schema.properties[p].items.properties[n].default",
        ),
        (
            json!({"type": "string"}),
            "selectableFields",
            json!([{"jsonPath": ".q"}]),
            "spec.selectableFields[0].jsonPath",
        ),
        (
            json!({"type": "string"}),
            "additionalPrinterColumns",
            column,
            "spec.additionalPrinterColumns[0].JSONPath",
        ),
    ] {
        let schema = json!({"type": "object", "properties": {"p": property}});
        let mut version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        if !part.is_empty() {
            version[part] = value;
        }
        let definition = json!({"metadata": {}, "spec": {"group": "g.io", "scope": "Cluster",
            "names": {"plural": "ws", "kind": "W"}, "versions": [version]}});
        let found = told(BuiltIn::CustomResourceDefinition, definition);
        assert!(found.contains(&format!("{wanted}: ")), "{found}");
    }
}

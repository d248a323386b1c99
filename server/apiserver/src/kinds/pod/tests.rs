use serde_json::{Value, json};

use crate::kinds::{BuiltIn, Resource, field::summary};

fn pods() -> Resource {
    BuiltIn::Pod.resource()
}

fn created(spec: &Value) -> Value {
    let mut pod = json!({"metadata": {"name": "a"}, "spec": spec});
    let pods = pods();
    pods.decode(&mut pod).unwrap();
    pods.default(&mut pod);
    pods.prepare_create(&mut pod);
    pod
}

fn refused(spec: &Value) -> String {
    let errors = pods().validate_create(&created(spec));
    if errors.is_empty() { String::new() } else { summary(&errors) }
}

#[test]
fn a_bare_pod_gets_all_its_defaults() {
    let pod = created(&json!({"containers": [{"name": "x", "image": "reg/i"}]}));
    assert_eq!(
        pod,
        json!({
            "metadata": {"name": "a"},
            "spec": {
                "containers": [{
                    "name": "x", "image": "reg/i", "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File", "imagePullPolicy": "Always",
                }],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
                "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
                "serviceAccount": "default", "securityContext": {},
                "schedulerName": "default-scheduler",
                "tolerations": [
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                     "effect": "NoExecute", "tolerationSeconds": 300},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists",
                     "effect": "NoExecute", "tolerationSeconds": 300},
                ],
                "priority": 0, "enableServiceLinks": true,
                "preemptionPolicy": "PreemptLowerPriority",
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        })
    );
}

#[test]
fn the_quality_class_follows_what_containers_ask_for() {
    let cases = [
        (json!({}), "BestEffort"),
        (json!({"limits": {"cpu": "1"}, "requests": {"memory": "64Mi"}}), "Burstable"),
        (json!({"limits": {"cpu": "500m", "memory": "1Gi"}}), "Guaranteed"),
    ];
    for (resources, class) in cases {
        let pod =
            created(&json!({"containers": [{"name": "x", "image": "i", "resources": resources}]}));
        assert_eq!(pod["status"]["qosClass"], class);
    }
}

#[test]
fn a_malformed_pod_is_refused_by_field() {
    let one = |more: Value| {
        let mut container = json!({"name": "x", "image": "i"});
        container.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"containers": [container]})
    };
    let cases = [
        (json!({"containers": []}), "spec.containers: Required value"),
        (json!({"containers": [{"name": "x"}]}), "spec.containers[0].image: Required value"),
        (
            json!({"containers": [{"name": "x", "image": "i"}, {"name": "x", "image": "i"}]}),
            r#"spec.containers[1].name: Duplicate value: "x""#,
        ),
        (
            one(json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]})),
            r#"spec.containers[0].volumeMounts[0].name: Not found: "v""#,
        ),
        (
            one(json!({"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}})),
            r#"spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1"#,
        ),
        (
            one(json!({"ports": [{"containerPort": 99999}]})),
            "spec.containers[0].ports[0].containerPort: Invalid value: 99999: must be between 1 and 65535, inclusive",
        ),
        (one(json!({})), ""),
    ];
    for (spec, text) in cases {
        assert_eq!(refused(&spec), text);
    }
}

#[test]
fn only_image_deadline_and_more_tolerations_may_change() {
    let old = created(&json!({"containers": [{"name": "x", "image": "i"}], "nodeName": "n",
        "activeDeadlineSeconds": 50}));
    let cases = [
        ("/spec/containers/0/image", json!("i:2"), ""),
        ("/spec/activeDeadlineSeconds", json!(20), ""),
        ("/spec/activeDeadlineSeconds", json!(500), "spec.activeDeadlineSeconds"),
        ("/spec/nodeName", json!("other"), "spec"),
        ("/spec/restartPolicy", json!("Never"), "spec"),
        ("/spec/tolerations", json!([]), "spec.tolerations"),
    ];
    for (pointer, value, field) in cases {
        let mut new = old.clone();
        *new.pointer_mut(pointer).unwrap() = value;
        let errors = pods().validate_update(&new, &old, None);
        let fields: Vec<&str> = errors.iter().map(crate::kinds::field::FieldError::field).collect();
        let wanted: Vec<&str> = if field.is_empty() { vec![] } else { vec![field] };
        assert_eq!(fields, wanted, "{pointer}");
    }
}

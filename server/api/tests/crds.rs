//! The generated CustomResourceDefinitions: fresh, and strict where they have to be.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod readable;

use std::path::PathBuf;

use serde_json::Value;

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

fn files() -> Vec<(PathBuf, String)> {
    ostler_api::crds()
        .iter()
        .map(|crd| {
            let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
            let text = serde_saphyr::to_string(&serde_json::to_value(crd).unwrap()).unwrap();
            let head = "# Generated from server/api. To write it anew: \
                        UPDATE_CRDS=1 cargo test -p ostler-api --test crds\n";
            (directory().join(name), format!("{head}{text}"))
        })
        .collect()
}

#[test]
fn the_files_in_deploy_crds_are_fresh() {
    for (path, text) in files() {
        if std::env::var_os("UPDATE_CRDS").is_some() {
            std::fs::create_dir_all(directory()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let stored = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == text,
            "{} is stale: UPDATE_CRDS=1 cargo test -p ostler-api --test crds",
            path.display()
        );
    }
}

#[test]
fn a_generated_file_reads_back_as_the_same_definition() {
    for ((_, text), crd) in files().into_iter().zip(ostler_api::crds()) {
        let read: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(read, serde_json::to_value(crd).unwrap());
    }
}

fn schema(index: usize) -> Value {
    let crd = serde_json::to_value(&ostler_api::crds()[index]).unwrap();
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn the_columns_of_upstream_come_first_by_name_path_and_order() {
    let crd = serde_json::to_value(&ostler_api::crds()[0]).unwrap();
    let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
    let shown = |wide: bool| {
        let all = columns.iter().filter(move |column| (column["priority"] == 1) == wide);
        all.map(|column| (column["name"].as_str().unwrap(), column["jsonPath"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    let upstream = [
        ("Status", ".status.currentStatus.phase"),
        ("Age", ".metadata.creationTimestamp"),
        // No label carries a name of 64 letters and more: the status does, and else has what the label says.
        ("Node", ".status.nodeName"),
    ];
    assert_eq!(shown(false)[..3], upstream);
    assert_eq!(shown(true)[0], ("ProviderID", ".spec.providerID"));
    let of_a_pool = [
        ("Pool", r".metadata.labels.cluster\.x-k8s\.io/pool-name"),
        ("Instance", ".status.instance.id"),
        ("State", ".status.instance.provisioningState"),
    ];
    assert!(
        shown(true).ends_with(&of_a_pool) && shown(true).contains(&("Version", ".status.version"))
    );
    assert!(columns.windows(2).all(|pair| pair[0]["priority"] != 1 || pair[1]["priority"] == 1));
}

#[test]
fn an_old_object_that_upstream_took_is_still_taken() {
    let machine = schema(0);
    let spec = &machine["properties"]["spec"];
    for part in [spec, &spec["properties"]["class"]] {
        assert_eq!(part["required"], Value::Null, "an empty class must not keep a finalizer");
    }
    let class = spec["properties"]["class"]["properties"].as_object().unwrap();
    assert!(class.values().all(|field| field["minLength"].is_null()), "{class:?}");
    assert_eq!(spec["properties"]["maxEvictRetries"]["minimum"], Value::Null);
}

#[test]
fn lists_and_maps_are_merged_as_upstreams_are() {
    let (machine, class) = (schema(0), schema(1));
    let node = &machine["properties"]["spec"]["properties"]["nodeTemplate"]["properties"]["spec"];
    assert_eq!(node["properties"]["taints"]["x-kubernetes-list-type"], "atomic");
    assert_eq!(node["properties"]["podCIDRs"]["x-kubernetes-list-type"], "set");
    for reference in ["secretRef", "credentialsSecretRef"] {
        assert_eq!(class["properties"][reference]["x-kubernetes-map-type"], "atomic");
    }
}

#[test]
fn a_class_needs_a_provider_spec_and_keeps_whatever_is_in_it() {
    let class = schema(1);
    assert_eq!(class["required"], serde_json::json!(["providerSpec"]));
    let spec = &class["properties"]["providerSpec"];
    assert_eq!(spec["x-kubernetes-preserve-unknown-fields"], true);
    assert_eq!(spec["type"], "object");
}

#[test]
fn nothing_is_defaulted_nothing_is_an_enum_and_rules_are_few() {
    fn walk(value: &Value, path: &str) {
        if let Some(map) = value.as_object() {
            for (key, inner) in map {
                if matches!(key.as_str(), "default" | "enum" | "x-kubernetes-validations")
                    && !path.ends_with("/properties")
                {
                    panic!("{path}/{key}");
                }
                walk(inner, &format!("{path}/{key}"));
            }
        }
    }
    walk(&schema(0), "machine");
    walk(&schema(1), "class");
    for (index, kind) in [(2, "set"), (3, "deployment")] {
        let mut schema = schema(index);
        let spec = &mut schema["properties"]["spec"];
        let rules = spec.as_object_mut().unwrap().remove("x-kubernetes-validations").unwrap();
        assert_eq!(rules.as_array().unwrap().len(), if kind == "set" { 2 } else { 7 });
        walk(&schema, kind);
    }
}

#[test]
fn sets_and_deployments_have_the_columns_and_the_short_names_of_upstream() {
    let shown = |index: usize| {
        let crd = serde_json::to_value(&ostler_api::crds()[index]).unwrap();
        let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
        let column = |column: &Value| {
            format!("{}={}", column["name"].as_str().unwrap(), column["jsonPath"].as_str().unwrap())
        };
        let names = crd["spec"]["names"]["shortNames"].clone();
        (names, columns.iter().map(column).collect::<Vec<_>>().join(" "))
    };
    let set = "Desired=.spec.replicas Current=.status.replicas Ready=.status.readyReplicas \
               Age=.metadata.creationTimestamp";
    assert_eq!(shown(2), (serde_json::json!(["mcs"]), set.to_owned()));
    let deployment = "Ready=.status.readyReplicas Desired=.spec.replicas \
                      Up-to-date=.status.updatedReplicas Available=.status.availableReplicas \
                      Age=.metadata.creationTimestamp";
    assert_eq!(shown(3), (serde_json::json!(["mcd"]), deployment.to_owned()));
}

#[test]
fn sets_and_deployments_scale_and_show_that_replicas_are_absent() {
    for index in [2, 3] {
        let crd = serde_json::to_value(&ostler_api::crds()[index]).unwrap();
        let version = &crd["spec"]["versions"][0];
        let scale = serde_json::json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector"
        });
        assert_eq!(version["subresources"]["scale"], scale);
        assert_eq!(version["subresources"]["status"], serde_json::json!({}));
        let spec = &schema(index)["properties"]["spec"]["properties"];
        assert_eq!(spec["replicas"]["default"], Value::Null);
        assert_eq!(spec["replicas"]["minimum"], 0.0);
        assert_eq!(spec["selector"]["x-kubernetes-map-type"], "atomic");
        let metadata = &spec["template"]["properties"]["metadata"];
        assert_eq!(metadata["x-kubernetes-preserve-unknown-fields"], true);
    }
    let spec = &schema(3)["properties"]["spec"];
    assert_eq!(spec["required"], serde_json::json!(["template"]));
    let rolling = &spec["properties"]["strategy"]["properties"]["rollingUpdate"]["properties"];
    assert_eq!(rolling["maxSurge"]["x-kubernetes-int-or-string"], true);
}

#[test]
fn a_pool_scales_has_its_columns_and_refuses_what_could_never_work() {
    let crd = serde_json::to_value(&ostler_api::crds()[4]).unwrap();
    assert_eq!(crd["spec"]["group"], "ostler.dev");
    let names = &crd["spec"]["names"];
    assert_eq!(
        (&names["shortNames"], &names["categories"]),
        (&serde_json::json!(["mp"]), &serde_json::json!(["all"]))
    );
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["subresources"]["scale"]["labelSelectorPath"], ".status.selector");
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    let shown: Vec<_> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
    let all = "Desired Current Ready Available Up-to-date Phase Age Version Provider ProviderID";
    assert_eq!(shown.join(" "), all);
    let spec = &schema(4)["properties"]["spec"];
    assert_eq!(spec["properties"]["replicas"]["minimum"], 0.0);
    assert_eq!(spec["properties"]["replicas"]["default"], Value::Null, "it may be an autoscaler's");
    let told = |rules: &Value| {
        let rules = rules["x-kubernetes-validations"].as_array().unwrap();
        rules.iter().map(|rule| rule["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(told(spec).iter().any(|text| text.contains("clusterName never changes")));
    let strategy = told(&spec["properties"]["strategy"]);
    assert!(strategy.iter().any(|text| text.contains("both 0")), "{strategy:?}");
}

#[test]
fn a_health_check_has_its_columns_and_refuses_what_could_never_work() {
    let crd = serde_json::to_value(&ostler_api::crds()[5]).unwrap();
    assert_eq!(crd["spec"]["names"]["shortNames"], serde_json::json!(["mhc"]));
    let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
    let shown: Vec<_> = columns.iter().map(|column| column["name"].as_str().unwrap()).collect();
    let all = "MaxUnhealthy ExpectedMachines CurrentHealthy RemediationAllowed Age UnhealthyRange \
               NodeStartupTimeout Cluster";
    assert_eq!(shown.join(" "), all);
    let spec = &schema(5)["properties"]["spec"];
    assert_eq!(spec["required"], serde_json::json!(["selector"]));
    let fields = &spec["properties"];
    let most = &fields["maxUnhealthy"];
    assert_eq!(
        (&most["x-kubernetes-int-or-string"], &most["minimum"]),
        (&true.into(), &0.0.into())
    );
    assert_eq!(most["pattern"], "^[0-9]+%?$");
    let one = &fields["unhealthyConditions"]["items"];
    assert_eq!(one["required"], serde_json::json!(["status", "timeout", "type"]));
    assert_eq!(
        one["properties"]["status"]["enum"],
        serde_json::json!(["True", "False", "Unknown"])
    );
    let new = &fields["checks"]["properties"]["unhealthyNodeConditions"]["items"];
    assert_eq!(new["required"], serde_json::json!(["status", "timeoutSeconds", "type"]));
    assert_eq!(new["properties"]["status"]["enum"], one["properties"]["status"]["enum"]);
    let trigger = &fields["remediation"]["properties"]["triggerIf"]["properties"];
    assert_eq!(trigger["unhealthyLessThanOrEqualTo"]["pattern"], most["pattern"]);
    let rules = spec["x-kubernetes-validations"].as_array().unwrap();
    let told = rules.iter().map(|rule| rule["message"].as_str().unwrap()).collect::<Vec<_>>();
    for part in [
        "selector is empty",
        "remediationTemplate is not supported",
        "remediation.templateRef is not supported",
        "checks.unhealthyMachineConditions is not supported",
        "never changes",
    ] {
        assert!(told.iter().any(|text| text.contains(part)), "{part}: {told:?}");
    }
}

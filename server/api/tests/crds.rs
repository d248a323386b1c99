//! The generated CustomResourceDefinitions: fresh, and strict where they have to be.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

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
        ("Node", ".metadata.labels.node"),
    ];
    assert_eq!(shown(false)[..3], upstream);
    assert_eq!(shown(true)[0], ("ProviderID", ".spec.providerID"));
    assert!(columns.windows(2).all(|pair| pair[0]["priority"] != 1 || pair[1]["priority"] == 1));
}

#[test]
fn a_machine_without_a_class_name_is_refused_by_its_schema() {
    let machine = schema(0);
    let spec = &machine["properties"]["spec"];
    assert_eq!(spec["required"], serde_json::json!(["class"]));
    assert_eq!(spec["properties"]["class"]["required"], serde_json::json!(["kind", "name"]));
    assert_eq!(spec["properties"]["class"]["properties"]["name"]["minLength"], 1);
    let timeout = spec["properties"]["drainTimeout"]["pattern"].as_str().unwrap();
    assert!(timeout.starts_with(r"^\+?(0|"), "{timeout}");
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
fn nothing_is_defaulted_and_nothing_is_an_enum() {
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
}

//! What the README and the schema file say is what the driver takes.

use ostler_driver_fake::control::Control;
use ostler_driver_fake::spec::ProviderSpec;
use serde_json::Value;

use crate::schema::{assert_fresh_schema, blocks};

const README: &str = include_str!("../README.md");

#[test]
fn every_provider_spec_in_the_readme_is_good() {
    let examples = blocks(README, "yaml");
    assert!(examples.len() > 10, "{} examples were found", examples.len());
    for example in examples {
        let class: Value = serde_saphyr::from_str(example).unwrap();
        let spec: ProviderSpec = serde_json::from_value(class["providerSpec"].clone())
            .unwrap_or_else(|error| panic!("{error}\n{example}"));
        assert_eq!(spec.violations(), [], "{example}");
    }
}

#[test]
fn every_control_file_in_the_readme_is_good() {
    for example in blocks(README, "json") {
        let control: Control = serde_json::from_str(example).unwrap();
        for fault in &control.faults {
            fault.plan().unwrap();
        }
    }
}

#[test]
fn every_field_of_a_fault_is_in_the_readme() {
    let schema = schemars::schema_for!(ProviderSpec).to_value();
    for name in ["Fault", "KubeletSpec", "Latency", "Capacity"] {
        for field in schema["$defs"][name]["properties"].as_object().unwrap().keys() {
            assert!(README.contains(field.as_str()), "{name}.{field} is not explained");
        }
    }
}

#[test]
fn the_schema_file_is_fresh() {
    assert_fresh_schema::<ProviderSpec>(env!("CARGO_MANIFEST_DIR"));
}

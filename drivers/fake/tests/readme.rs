//! What the README and the schema file say is what the driver takes.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use ostler_driver_fake::fault::Control;
use ostler_driver_fake::spec::ProviderSpec;
use serde_json::Value;

const README: &str = include_str!("../README.md");

/// The fenced blocks of one language.
fn blocks(language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    README.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn every_provider_spec_in_the_readme_is_good() {
    let examples = blocks("yaml");
    assert!(examples.len() > 10, "{} examples were found", examples.len());
    for example in examples {
        let class: Value = serde_saphyr::from_str(&example).unwrap();
        let spec: ProviderSpec = serde_json::from_value(class["providerSpec"].clone())
            .unwrap_or_else(|error| panic!("{error}\n{example}"));
        assert_eq!(spec.violations(), [], "{example}");
    }
}

#[test]
fn every_control_file_in_the_readme_is_good() {
    for example in blocks("json") {
        let control: Control = serde_json::from_str(&example).unwrap();
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

/// `UPDATE_SCHEMA=1 cargo test -p ostler-driver-fake --test readme` writes it.
#[test]
fn the_schema_file_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("provider-spec.schema.json");
    let schema = schemars::schema_for!(ProviderSpec);
    let fresh = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(present == fresh, "run it with UPDATE_SCHEMA=1 to write {}", path.display());
}

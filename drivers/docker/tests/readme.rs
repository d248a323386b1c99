//! What the README and the schema file say is what the driver takes.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "../../readme.rs"]
mod readme;

use ostler_driver_docker::spec::ProviderSpec;
use ostler_driver_docker::tags::TagFile;
use serde_json::Value;

use readme::{assert_fresh_schema, blocks};

const README: &str = include_str!("../README.md");

#[test]
fn the_provider_spec_in_the_readme_is_good_and_shows_every_field() {
    let example = blocks(README, "yaml").pop().unwrap();
    let class: Value = serde_saphyr::from_str(example).unwrap();
    let spec: ProviderSpec = serde_json::from_value(class["providerSpec"].clone()).unwrap();
    assert_eq!(spec.violations(), []);
    let schema = schemars::schema_for!(ProviderSpec).to_value();
    for field in schema["properties"].as_object().unwrap().keys() {
        assert!(class["providerSpec"].get(field).is_some(), "{field} is not shown");
    }
    for name in ["Network", "Volume", "Port", "UserData"] {
        for field in schema["$defs"][name]["properties"].as_object().unwrap().keys() {
            assert!(README.contains(field.as_str()), "{name}.{field} is not explained");
        }
    }
}

#[test]
fn the_tags_in_the_readme_are_read() {
    let file = serde_json::from_str::<TagFile>(blocks(README, "json").pop().unwrap()).unwrap();
    assert!(file.driver.initialized);
}

#[test]
fn the_schema_file_is_fresh() {
    assert_fresh_schema::<ProviderSpec>(env!("CARGO_MANIFEST_DIR"));
}

//! What the README and the schema file say is what the driver takes.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use ostler_driver_docker::spec::ProviderSpec;
use ostler_driver_docker::tags::TagFile;
use serde_json::Value;

const README: &str = include_str!("../README.md");

/// The fenced blocks of one language.
fn blocks(language: &str) -> Vec<&str> {
    let fence = format!("```{language}\n");
    README.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_provider_spec_in_the_readme_is_good_and_shows_every_field() {
    let example = blocks("yaml").pop().unwrap();
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
    let file = serde_json::from_str::<TagFile>(blocks("json").pop().unwrap()).unwrap();
    assert!(file.driver.initialized);
}

/// `UPDATE_SCHEMA=1 cargo test -p ostler-driver-docker --test readme` writes it.
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

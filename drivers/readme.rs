//! What the tests of the drivers' READMEs share: `#[path]` takes it into each.

use std::path::Path;

use schemars::JsonSchema;

/// The fenced blocks of one language in a README.
pub(crate) fn blocks<'a>(readme: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    readme.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// `UPDATE_SCHEMA=1 cargo test -p <driver> --test readme` writes the file.
pub(crate) fn assert_fresh_schema<T: JsonSchema>(driver: &str) {
    let path = Path::new(driver).join("provider-spec.schema.json");
    let schema = schemars::schema_for!(T);
    let fresh = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(present == fresh, "run it with UPDATE_SCHEMA=1 to write {}", path.display());
}

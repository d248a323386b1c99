//! The files of a data directory that say what is known of drivers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use serde::de::DeserializeOwned;

use crate::driver_choice::DriverChoice;

/// The drivers that were ever started.
pub(crate) const DRIVERS: &str = "drivers.json";
/// The names that classes ever had for providers.
pub(crate) const ALIASES: &str = "aliases.json";
/// The names of the variables that drivers were ever given.
pub(crate) const DRIVER_ENV: &str = "driver-env.json";

/// Parses a file that `ostler up` wrote.
pub(crate) fn parse<T: DeserializeOwned>(file: &Path, text: &str) -> anyhow::Result<T> {
    serde_json::from_str(text)
        .with_context(|| format!("{} is not what `ostler up` wrote", file.display()))
}

/// Checks what a later `ostler up` would read of a file of a data directory.
///
/// # Errors
/// `ostler up` would refuse the text.
pub(crate) fn check(name: &str, text: &str) -> anyhow::Result<()> {
    let file = Path::new(name);
    match name {
        DRIVERS => parse::<Vec<DriverChoice>>(file, text).map(drop),
        ALIASES => parse::<BTreeMap<String, String>>(file, text).map(drop),
        DRIVER_ENV => parse::<BTreeSet<String>>(file, text).map(drop),
        _ => Ok(()),
    }
}

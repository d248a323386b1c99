//! What `--version` says of each of our programs. It is a module of each, so that another commit compiles nothing else anew.

use std::sync::LazyLock;

/// The version, the commit that the environment of the build named (`OSTLER_COMMIT`), and the contract.
pub(crate) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("OSTLER_COMMIT").unwrap_or("unknown");
    format!("{} (commit {commit}, contract ostler.driver.v1alpha1)", env!("CARGO_PKG_VERSION"))
});

//! `ostler crds`.

use crate::log;

/// Prints every CustomResourceDefinition as one YAML stream.
pub(crate) fn run() -> anyhow::Result<()> {
    for crd in ostler_api::crds() {
        log::page(format_args!("---\n{}", serde_saphyr::to_string(&crd)?.trim_end()));
    }
    Ok(())
}

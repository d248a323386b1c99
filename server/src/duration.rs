//! Times in flags.

use std::time::Duration;

use anyhow::anyhow;
use ostler_api::timeout::Timeout;

/// Reads a time as Go writes it.
pub(crate) fn duration(text: &str) -> anyhow::Result<Duration> {
    Timeout::from(text)
        .duration()
        .ok_or_else(|| anyhow!("`{text}` is not a duration such as 90s, 20m or 1h30m"))
}

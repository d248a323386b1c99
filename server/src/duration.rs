//! Times in flags.

use std::time::Duration;

use anyhow::{anyhow, ensure};
use ostler_api::timeout::Timeout;

/// Reads a time as Go writes it.
pub(crate) fn duration(text: &str) -> anyhow::Result<Duration> {
    let wrong = || anyhow!("`{text}` is not a duration such as 90s, 20m or 1h30m");
    let given = Timeout::from(text).duration().ok_or_else(wrong)?;
    ensure!(
        !text.starts_with('-'),
        "`{text}` is negative; give a duration such as 90s, 20m or 1h30m"
    );
    Ok(given)
}

/// The same where no time at all would mean nothing.
pub(crate) fn positive(text: &str) -> anyhow::Result<Duration> {
    let given = duration(text)?;
    ensure!(
        !given.is_zero(),
        "`{text}` is no time at all; give a duration such as 90s, 20m or 1h30m"
    );
    Ok(given)
}

/// The same in whole seconds, since a Lease has no smaller unit.
pub(crate) fn seconds(text: &str) -> anyhow::Result<Duration> {
    let given = positive(text)?;
    ensure!(
        given.subsec_nanos() == 0,
        "`{text}` has a fraction of a second; give whole seconds, e.g. 15s"
    );
    Ok(given)
}

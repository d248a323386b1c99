//! The flags about the time limits of a Lease.

use std::time::Duration;

use anyhow::bail;
use clap::Args;

use crate::duration::{positive, seconds};

/// How a Lease is acquired and kept.
#[derive(Debug, Clone, Args)]
pub(crate) struct ElectionArgs {
    /// How long a Lease is valid without being renewed, in whole seconds
    #[arg(long = "leader-elect-lease-duration", value_name = "DURATION", default_value = "15s", value_parser = seconds)]
    lease_duration: Duration,
    /// How long the leader tries to renew the Lease before it gives up
    #[arg(long = "leader-elect-renew-deadline", value_name = "DURATION", default_value = "10s", value_parser = positive)]
    renew_deadline: Duration,
    /// How long to wait between two attempts to acquire or renew the Lease
    #[arg(long = "leader-elect-retry-period", value_name = "DURATION", default_value = "2s", value_parser = positive)]
    retry_period: Duration,
}

impl ElectionArgs {
    /// Refuses limits that do not go together. The factor is client-go's: its waits are up to so much longer.
    ///
    /// # Errors
    /// A flag asks for it.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let (lease, renew, retry) = self.limits();
        if renew >= lease || renew.saturating_mul(5) <= retry.saturating_mul(6) {
            bail!(
                "leader election needs --leader-elect-renew-deadline ({renew:?}) below --leader-elect-lease-duration \
                 ({lease:?}) and over 1.2 times --leader-elect-retry-period ({retry:?}); leave them out for 10s, 15s and 2s"
            );
        }
        Ok(())
    }

    /// Lease duration, renew deadline and retry period.
    pub(crate) const fn limits(&self) -> (Duration, Duration, Duration) {
        (self.lease_duration, self.renew_deadline, self.retry_period)
    }
}

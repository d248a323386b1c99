//! What a control plane does by itself.

mod loopback;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{context::Context, serving::LocalService};

pub(crate) use loopback::Loopback;

/// Starts all controllers; each ends when `stop` is cancelled or the store is closed.
pub(crate) fn start(
    _tasks: &TaskTracker,
    _context: &Context,
    _local: &LocalService,
    _stop: &CancellationToken,
) {
}

//! One change of a machine at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use ostler_driver_sdk::{Context, DriverError};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::identity::{Identity, instance_name};

/// The machines that are being changed, by name of their container, and the groups, by UID of their pool. No more than
/// operations in flight.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy {
    instances: Arc<Mutex<BTreeSet<String>>>,
    freed: Arc<Notify>,
}

/// As long as it is there nothing else changes the machine.
#[derive(Debug)]
pub(super) struct Turn {
    busy: Busy,
    instance: String,
}

impl Busy {
    /// The turn to change a machine; `ABORTED` if another operation has it.
    pub(super) fn turn(&self, identity: &Identity) -> Result<Turn, DriverError> {
        self.take(instance_name(identity)).ok_or_else(|| {
            let message = "another operation on this machine is under way";
            DriverError::aborted(message).reason("OPERATION_PENDING").not_applied()
        })
    }

    /// The turn to change a group, if nothing else changes it.
    pub(super) fn turn_of_group(&self, ctx: &Context) -> Option<Turn> {
        self.take(format!("group/{}", ctx.target().uid))
    }

    /// The turn to change a group, once it is free: a read may be making its instances.
    pub(super) async fn wait_for_group(&self, ctx: &Context) -> Result<Turn, DriverError> {
        loop {
            // It hears of every turn that ends from now on.
            let freed = self.freed.notified();
            if let Some(turn) = self.turn_of_group(ctx) {
                return Ok(turn);
            }
            tokio::select! {
                () = freed => {}
                () = ctx.cancelled() => {
                    return Err(DriverError::canceled("stopped waiting for the group").not_applied());
                }
            }
        }
    }

    fn take(&self, instance: String) -> Option<Turn> {
        let is_free = self.instances.lock().insert(instance.clone());
        is_free.then(|| Turn { busy: self.clone(), instance })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.busy.instances.lock().remove(&self.instance);
        self.busy.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use ostler_driver_sdk::{Certainty, Code};

    use super::*;

    #[test]
    fn a_machine_is_changed_by_one_operation_at_a_time() {
        let identity = |uid: &str| Identity {
            cluster_id: "c".to_owned(),
            machine_name: "m".to_owned(),
            machine_uid: uid.to_owned(),
        };
        let busy = Busy::default();
        let turn = busy.turn(&identity("1")).unwrap();
        let refused = busy.turn(&identity("1")).unwrap_err();
        assert_eq!((refused.code(), refused.certainty()), (Code::Aborted, Certainty::NotApplied));
        let other = busy.turn(&identity("2")).unwrap();
        drop((turn, other));
        assert!(busy.turn(&identity("1")).is_ok());
    }
}

//! One change of a machine at a time.

use std::collections::BTreeSet;
use std::sync::Arc;

use ostler_driver_sdk::DriverError;
use parking_lot::Mutex;

use crate::identity::{Identity, instance_name};

/// The machines that are being changed, by name of their container. No more than operations in flight.
#[derive(Debug, Clone, Default)]
pub(super) struct Busy {
    instances: Arc<Mutex<BTreeSet<String>>>,
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
        let instance = instance_name(identity);
        if self.instances.lock().insert(instance.clone()) {
            return Ok(Turn { busy: self.clone(), instance });
        }
        let message = "another operation on this machine is under way";
        Err(DriverError::aborted(message).reason("OPERATION_PENDING").not_applied())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.busy.instances.lock().remove(&self.instance);
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

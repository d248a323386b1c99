//! What records of lists take in memory: the core and the adapter count it before they keep any more.

use prost::Message;

use crate::v1alpha1::{MachineRecord, OperationError, PartRecord, PoolMachineRecord, PoolRecord};

/// A record of a list.
pub trait Weight: Message + Sized {
    /// How many bytes it takes in memory. Two bytes of a frame may be an address or a violation of 48.
    fn weight(&self) -> usize {
        size_of::<Self>() + self.encoded_len() + self.nested()
    }

    /// Its content besides texts.
    fn nested(&self) -> usize;
}

impl Weight for MachineRecord {
    fn nested(&self) -> usize {
        size_of_val(self.addresses.as_slice()) + fault(self.fault.as_deref())
    }
}

impl Weight for PartRecord {
    fn nested(&self) -> usize {
        0
    }
}

impl Weight for PoolRecord {
    fn nested(&self) -> usize {
        fault(self.fault.as_deref())
    }
}

impl Weight for PoolMachineRecord {
    fn nested(&self) -> usize {
        self.machine.as_ref().map(Weight::nested).unwrap_or_default()
    }
}

fn fault(of: Option<&OperationError>) -> usize {
    let Some(error) = of else { return 0 };
    size_of::<OperationError>() + size_of_val(error.violations.as_slice())
}

//! Causes scans of providers for orphans.

use ostler_api::{MachineClass, ProviderName};

use super::{OrphanScans, Orphans};
use crate::triggers::{DriverChange, Triggers, Woken};
use crate::watch::Change;

impl Triggers for Woken<Orphans, OrphanScans> {
    fn class(&self, change: &Change<MachineClass>) {
        if let Some(class) = change.latest() {
            self.own.note(&self.settings.driver_name(class.provider()));
        }
    }

    fn driver(&self, provider: &ProviderName, change: DriverChange) {
        if change == DriverChange::Came {
            self.own.note(provider);
        }
    }
}

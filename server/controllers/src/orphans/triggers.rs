//! What has a provider scanned for orphans.

use std::sync::Arc;

use ostler_api::{MachineClass, ProviderName};

use super::OrphanScans;
use crate::settings::Settings;
use crate::triggers::{DriverChange, Triggers};
use crate::watch::Change;

/// Has providers scanned.
pub(crate) struct ScanTriggers {
    pub(crate) scans: OrphanScans,
    pub(crate) settings: Arc<Settings>,
}

impl Triggers for ScanTriggers {
    fn class(&self, change: &Change<MachineClass>) {
        if let Some(class) = change.latest() {
            self.scans.note(&self.settings.driver_name(class.provider()));
        }
    }

    fn driver(&self, provider: &ProviderName, change: DriverChange) {
        if change == DriverChange::Came {
            self.scans.note(provider);
        }
    }
}

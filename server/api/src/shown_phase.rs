//! The phase that people see: column STATUS of kubectl is never empty once the core has written a status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::machine::{CurrentStatus, MachinePhase, MachineStatus};

impl MachinePhase {
    /// For people, as kubectl shows the phase.
    pub fn word(&self) -> &str {
        if *self == Self::New { Self::Pending.as_str() } else { self.as_str() }
    }
}

impl MachineStatus {
    /// Writes Pending for a Machine that is new. No creation timeout runs, so [`Self::machine_phase`] reads the Machine as new.
    pub fn show_new(&mut self, now: &Time) {
        if self.machine_phase() != MachinePhase::New {
            return;
        }
        let current = self.current_status.get_or_insert_default();
        current.phase = Some(MachinePhase::Pending);
        current.timeout_active = Some(false);
        current.last_update_time.get_or_insert_with(|| now.clone());
    }
}

impl CurrentStatus {
    /// Whether [`MachineStatus::show_new`] wrote the phase.
    pub(crate) fn shows_new(&self) -> bool {
        self.phase == Some(MachinePhase::Pending) && self.timeout_active == Some(false)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    #[test]
    fn a_new_machine_is_shown_as_pending_and_read_as_new() {
        let now = Time(Timestamp::UNIX_EPOCH);
        let phase = |phase: MachinePhase, timeout_active| MachineStatus {
            current_status: Some(CurrentStatus {
                phase: Some(phase),
                timeout_active,
                ..CurrentStatus::default()
            }),
            ..MachineStatus::default()
        };
        let mut status = MachineStatus::default();
        status.show_new(&now);
        let shown = serde_json::to_value(&status).unwrap();
        assert_eq!(shown["currentStatus"]["phase"], "Pending");
        assert_eq!(status.machine_phase(), MachinePhase::New);
        assert_eq!(status.machine_phase().word(), "Pending");
        for timeout in [Some(true), None] {
            let joins = phase(MachinePhase::Pending, timeout);
            assert_eq!(joins.machine_phase(), MachinePhase::Pending);
        }
        let mut runs = phase(MachinePhase::Running, Some(false));
        runs.show_new(&now);
        assert_eq!(runs.machine_phase(), MachinePhase::Running);
    }
}

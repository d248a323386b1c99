//! The Machines that a check looks at.

use jiff::Timestamp;
use ostler_api::{
    Machine, MachineHealthCheck,
    names::{annotation, label},
};

use crate::selector;

/// Why a check does not look at a Machine that it selects. An exempt Machine is no target, and does
/// not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exempt {
    /// A user paused the Machine.
    Paused,
    /// Annotation `cluster.x-k8s.io/skip-remediation`.
    Skipped,
    /// The Machine is kept for examination.
    Preserved,
}

/// Why the Machine is exempt; `None`: not exempt.
pub fn exempt(machine: &Machine, now: Timestamp) -> Option<Exempt> {
    if machine.is_paused() || machine.annotation(annotation::CLUSTER_API_PAUSED).is_some() {
        return Some(Exempt::Paused);
    }
    if machine.annotation(annotation::SKIP_REMEDIATION).is_some() {
        return Some(Exempt::Skipped);
    }
    let status = machine.status.as_ref();
    let current = status.and_then(|status| status.current_status.as_ref());
    let kept = current.and_then(|current| current.preserve_expiry_time.as_ref());
    kept.filter(|until| until.0 > now).map(|_| Exempt::Preserved)
}

/// Whether a check selects a Machine of its namespace.
pub fn selects(check: &MachineHealthCheck, machine: &Machine) -> bool {
    let of_cluster = |name: &String| machine.label(label::CLUSTER_NAME) == Some(name);
    let labels = machine.metadata.labels.as_ref();
    check.spec.selector.as_ref().is_some_and(|it| selector::matches(it, labels))
        && check.spec.cluster_name.as_ref().is_none_or(of_cluster)
}

/// Whether the Machine goes whatever a check says: it is being deleted, or an autoscaler chose it.
pub(crate) fn is_leaving(machine: &Machine) -> bool {
    let chosen = machine.annotation(annotation::PRIORITY) == Some("1");
    machine.is_deleting()
        || (chosen && machine.annotation(annotation::MARKED_FOR_DELETION).is_some())
}

//! Audit log of deletions by the core: events of the audit target, names and ids only.

use ostler_api::{Machine, ProviderId, ProviderName};
use ostler_lifecycle::machine::abandoned;
use ostler_lifecycle::orphans::{Orphan, Owner};

/// The target of the audit events.
const TARGET: &str = "ostler::audit";
/// The actor.
const WHO: &str = "core";

/// The core removed the finalizer of a Machine: its instance is gone, or is not ours and the operator abandoned it.
pub(crate) fn machine_released(machine: &Machine) {
    let namespace = machine.namespace();
    let object = format!("machines/{namespace}/{}", machine.name());
    let status = machine.status.clone().unwrap_or_default();
    let abandoned = abandoned(machine, &status);
    let outcome = if abandoned.is_some() { "abandoned" } else { "ok" };
    let uid = machine.uid();
    tracing::info!(
        target: TARGET,
        who = WHO,
        verb = "remove-finalizer",
        object,
        uid,
        instance = abandoned,
        outcome
    );
}

/// The driver was asked to delete an instance that belongs to no Machine.
pub(crate) fn orphan_deleted(provider: &ProviderName, orphan: &Orphan, outcome: &str) {
    let Orphan { machine_name, provider_ids, .. } = orphan;
    let object = match orphan.owner {
        Owner::Machine if provider_ids.is_empty() => {
            format!("parts/{}", orphan.parts.join(","))
        }
        Owner::Machine => format!("instances/{}", joined(provider_ids, ",")),
        Owner::Pool => format!("groups/{}", joined(provider_ids, ",")),
    };
    tracing::info!(
        target: TARGET,
        who = WHO,
        verb = "delete-orphan",
        object,
        provider = provider.as_str(),
        machine = machine_name,
        uid = orphan.machine_uid(),
        outcome
    );
}

/// Ids as one text.
pub(crate) fn joined(ids: &[ProviderId], separator: &str) -> String {
    ids.iter().map(ProviderId::as_str).collect::<Vec<_>>().join(separator)
}

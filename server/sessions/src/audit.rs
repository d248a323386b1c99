//! The audit log's records of a driver and its calls. Events of the audit target appear nowhere else.
//!
//! `who` did `verb` to `object`, calling `from` somewhere, and it came to `outcome`. Names and ids
//! only: nothing that a secret or user data could be in.

use ostler_proto::v1alpha1::{ObjectRevision, Target};

use crate::session::hello::Introduction;

/// The target of the audit events.
pub(crate) const TARGET: &str = "ostler::audit";
/// The sender of operations to drivers.
pub(crate) const CORE: &str = "core";

/// A caller got no further than the door; `who` is empty if it is unknown.
pub(crate) fn refused(who: &str, from: &str, reason: &str) {
    tracing::info!(target: TARGET, who, from, verb = "connect", outcome = "refused", reason);
}

/// A driver has a session.
pub(crate) fn opened(who: &str, from: &str, driver: &Introduction, session: &str) {
    let Introduction { provider, instance_name, .. } = driver;
    tracing::info!(
        target: TARGET,
        who,
        from,
        verb = "open-session",
        object = session,
        provider = provider.as_str(),
        instance = instance_name,
        outcome = "ok"
    );
}

/// A session ended.
pub(crate) fn closed(who: &str, from: &str, provider: &str, session: &str, reason: &str) {
    tracing::info!(
        target: TARGET,
        who,
        from,
        verb = "close-session",
        object = session,
        provider,
        outcome = "ok",
        reason
    );
}

/// A driver asked for a class or its secret.
pub(crate) fn read(who: &str, from: &str, what: &str, wanted: &ObjectRevision, outcome: &str) {
    let object = format!("{what}/{}/{}", wanted.namespace, wanted.name);
    tracing::info!(target: TARGET, who, from, verb = "get", object, outcome);
}

/// A person did something by hand to `object`.
pub(crate) fn by_hand(who: &str, verb: &str, object: &str, provider: &str, outcome: &str) {
    tracing::info!(target: TARGET, who, from = "admin", verb, object, provider, outcome);
}

/// Kind, namespace and name.
pub(crate) fn object(target: &Target) -> String {
    format!("{}/{}/{}", target.kind, target.namespace, target.name)
}

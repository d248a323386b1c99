//! The core's own needs until the end of a deletion: its Leases and the ConfigMap with the cluster id. They carry a
//! finalizer while there is something to delete, since a terminating namespace takes no new objects, and go with the
//! last deletion. If a user deletes a single object, the object goes and is made again.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use ostler_api::names::finalizer;

use crate::hold::FinalizerChange;

/// Whether the core is needed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Need {
    /// Not everything was listed yet.
    #[default]
    Unknown,
    /// There is a Machine or a pool, or an object with a finalizer that only a core takes off.
    Needed,
    /// There is none.
    Idle,
}

/// The decision about the finalizer of an object of the core's own. An object in deletion takes no new finalizer. The
/// object of an idle core has none: then no core has to run for its namespace to go.
pub fn hold(metadata: &ObjectMeta, need: Need) -> FinalizerChange {
    match (need, is_held(metadata)) {
        (Need::Needed, false) if metadata.deletion_timestamp.is_none() => FinalizerChange::Add,
        (Need::Idle, true) => FinalizerChange::Remove,
        (Need::Unknown | Need::Needed | Need::Idle, _) => FinalizerChange::Keep,
    }
}

/// Whether the finalizer is there.
pub fn is_held(metadata: &ObjectMeta) -> bool {
    metadata.finalizers.iter().flatten().any(|name| name == finalizer::CORE)
}

/// Whether a user deleted an object that is held, or its namespace goes.
pub fn is_going(metadata: &ObjectMeta) -> bool {
    metadata.deletion_timestamp.is_some() && is_held(metadata)
}

/// Takes the finalizer off.
pub fn let_go(metadata: &mut ObjectMeta) {
    metadata.finalizers.get_or_insert_default().retain(|name| name != finalizer::CORE);
}

/// Changes the finalizer as [`hold`] says. Returns whether that is a change.
pub fn apply(metadata: &mut ObjectMeta, need: Need) -> bool {
    let hold = hold(metadata, need);
    match hold {
        FinalizerChange::Keep => {}
        FinalizerChange::Add => {
            metadata.finalizers.get_or_insert_default().push(finalizer::CORE.to_owned());
        }
        FinalizerChange::Remove => let_go(metadata),
    }
    hold != FinalizerChange::Keep
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_core_needs_is_held_while_it_is_needed_and_let_go_only_when_that_is_known_to_be_over()
     {
        let table = [
            ((false, false, Need::Needed), FinalizerChange::Add),
            ((true, false, Need::Needed), FinalizerChange::Keep),
            ((true, true, Need::Needed), FinalizerChange::Keep),
            ((false, true, Need::Needed), FinalizerChange::Keep),
            ((true, false, Need::Unknown), FinalizerChange::Keep),
            ((true, true, Need::Unknown), FinalizerChange::Keep),
            ((false, false, Need::Unknown), FinalizerChange::Keep),
            ((true, false, Need::Idle), FinalizerChange::Remove),
            ((true, true, Need::Idle), FinalizerChange::Remove),
            ((false, false, Need::Idle), FinalizerChange::Keep),
        ];
        for ((held, deleting, need), expected) in table {
            let other = "example.com/other".to_owned();
            let mut finalizers = vec![other.clone()];
            finalizers.extend(held.then(|| finalizer::CORE.to_owned()));
            let mut metadata = ObjectMeta {
                finalizers: Some(finalizers),
                deletion_timestamp: deleting.then(|| jiff::Timestamp::UNIX_EPOCH.into()),
                ..ObjectMeta::default()
            };
            assert_eq!(hold(&metadata, need), expected, "{held} {deleting} {need:?}");
            assert_eq!(apply(&mut metadata, need), expected != FinalizerChange::Keep);
            assert!(metadata.finalizers.unwrap().contains(&other));
        }
    }
}

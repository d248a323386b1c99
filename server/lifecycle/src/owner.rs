//! The controller of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use ostler_api::names::{MACHINE_POOL, MACHINE_RESERVE, MACHINE_SET};

/// The controller of an object.
pub fn controller(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// Whether the object with this UID controls another.
pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    !uid.is_empty() && controller(meta).is_some_and(|owner| owner.uid == uid)
}

/// Whether the controller replaces the Machine after its deletion.
pub fn is_replaced(meta: &ObjectMeta) -> bool {
    let owners = [MACHINE_SET, MACHINE_POOL, MACHINE_RESERVE];
    controller(meta).is_some_and(|owner| owners.contains(&owner.kind.as_str()))
}

/// Whether a reserve controls it: a Machine that no set has, and no autoscaler may see.
pub fn is_in_reserve(meta: &ObjectMeta) -> bool {
    controller(meta).is_some_and(|owner| owner.kind == MACHINE_RESERVE)
}

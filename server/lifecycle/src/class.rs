//! Decisions about classes and their secrets: both are held by a finalizer while somebody needs
//! them to delete what was made with them.

use k8s_openapi::api::core::v1::Secret;
use ostler_api::{Machine, MachineClass, names};

/// What to do with the finalizer of a class or secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// It is as it has to be.
    Keep,
    /// Put our finalizer on it.
    Add,
    /// Take our finalizer from it.
    Remove,
}

/// A class is held while a Machine names it. One that is being deleted takes no new finalizer: the
/// API server refuses that, and no Machine can be made with it any more.
pub fn hold_class(class: &MachineClass, in_use: bool) -> Hold {
    hold(class.has_finalizer(), class.metadata.deletion_timestamp.is_some(), in_use)
}

/// A secret is held while a class names it.
pub fn hold_secret(secret: &Secret, in_use: bool) -> Hold {
    let finalizers = secret.metadata.finalizers.as_deref().unwrap_or_default();
    let held = finalizers.iter().any(|name| name == names::finalizer::SECRET);
    hold(held, secret.metadata.deletion_timestamp.is_some(), in_use)
}

const fn hold(held: bool, deleting: bool, in_use: bool) -> Hold {
    match (held, in_use) {
        (false, true) if !deleting => Hold::Add,
        (true, false) => Hold::Remove,
        (_, _) => Hold::Keep,
    }
}

/// Whether a Machine names the class of this name in its own namespace.
pub fn uses_class(machine: &Machine, namespace: &str, class: &str) -> bool {
    machine.metadata.namespace.as_deref().unwrap_or_default() == namespace
        && machine.spec.class.kind == names::MACHINE_CLASS
        && machine.spec.class.name == class
}

/// Whether a class names the secret of this name. A secret of another namespace is never used, so
/// it is not held either.
pub fn uses_secret(class: &MachineClass, namespace: &str, secret: &str) -> bool {
    class.metadata.namespace.as_deref().unwrap_or_default() == namespace
        && class.secret_refs().iter().any(|(of, name)| of == namespace && name == secret)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_class_or_secret_is_held_exactly_while_it_is_used() {
        let table = [
            ((false, false, false), Hold::Keep),
            ((false, false, true), Hold::Add),
            ((false, true, true), Hold::Keep),
            ((true, false, true), Hold::Keep),
            ((true, true, true), Hold::Keep),
            ((true, false, false), Hold::Remove),
            ((true, true, false), Hold::Remove),
        ];
        for ((held, deleting, in_use), expected) in table {
            assert_eq!(hold(held, deleting, in_use), expected, "{held} {deleting} {in_use}");
        }
    }

    #[test]
    fn a_secret_of_another_namespace_is_not_used() {
        let class: MachineClass = serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": "MachineClass",
            "metadata": { "name": "c", "namespace": "default" },
            "providerSpec": {}, "secretRef": { "name": "s", "namespace": "other" },
            "credentialsSecretRef": { "name": "t" }
        }))
        .unwrap();
        assert!(!uses_secret(&class, "other", "s"));
        assert!(!uses_secret(&class, "default", "s"));
        assert!(uses_secret(&class, "default", "t"));
    }

    #[test]
    fn a_machine_uses_a_class_of_its_own_namespace_only() {
        let machine: Machine = serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": "Machine",
            "metadata": { "name": "m", "namespace": "default" },
            "spec": { "class": { "kind": "MachineClass", "name": "c" } }
        }))
        .unwrap();
        assert!(uses_class(&machine, "default", "c"));
        assert!(!uses_class(&machine, "other", "c"));
        assert!(!uses_class(&machine, "default", "d"));
    }
}

//! Facts in the metadata of an object.

use crate::names::finalizer;
use crate::{
    Machine, MachineClass, MachineDeployment, MachineHealthCheck, MachinePool, MachineReserve,
    MachineSet,
};

/// The same questions to the metadata of each kind. The kinds have methods and not a trait: `kube::ResourceExt` has a
/// method of the same name with another answer.
macro_rules! metadata_of {
    ($($kind:ty),+) => {$(
        impl $kind {
            /// Name; empty only for an object that was never stored.
            pub fn name(&self) -> &str {
                self.metadata.name.as_deref().unwrap_or_default()
            }

            /// Namespace; empty only for an object that was never stored.
            pub fn namespace(&self) -> &str {
                self.metadata.namespace.as_deref().unwrap_or_default()
            }

            /// UID; empty only for an object that was never stored.
            pub fn uid(&self) -> &str {
                self.metadata.uid.as_deref().unwrap_or_default()
            }

            /// Value of a label.
            pub fn label(&self, key: &str) -> Option<&str> {
                self.metadata.labels.as_ref()?.get(key).map(String::as_str)
            }

            /// Value of an annotation.
            pub fn annotation(&self, key: &str) -> Option<&str> {
                self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
            }

            /// Whether our finalizer is there.
            pub fn has_finalizer(&self) -> bool {
                self.metadata.finalizers.iter().flatten().any(|name| is_ours(name))
            }

            /// The finalizers of others.
            pub fn other_finalizers(&self) -> Vec<&str> {
                let all = self.metadata.finalizers.iter().flatten().map(String::as_str);
                all.filter(|name| !is_ours(name)).collect()
            }

            /// Whether its deletion was asked for.
            pub fn is_deleting(&self) -> bool {
                self.metadata.deletion_timestamp.is_some()
            }
        }
    )+};
}

fn is_ours(name: &str) -> bool {
    name == finalizer::MACHINE || name == finalizer::POOL
}

metadata_of!(
    Machine,
    MachineClass,
    MachineDeployment,
    MachineHealthCheck,
    MachinePool,
    MachineReserve,
    MachineSet
);

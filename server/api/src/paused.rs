//! `ostler.dev/paused`: nothing is changed for a Machine while the annotation is on it or on its
//! class.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{MachineClass, machine::Machine, names::annotation::PAUSED};

/// Any value pauses, an empty one too; only `false` does not.
fn is_paused(metadata: &ObjectMeta) -> bool {
    let value = metadata.annotations.as_ref().and_then(|all| all.get(PAUSED));
    value.is_some_and(|value| value != "false")
}

impl Machine {
    /// Whether a user paused this Machine.
    pub fn is_paused(&self) -> bool {
        is_paused(&self.metadata)
    }
}

impl MachineClass {
    /// Whether a user paused all Machines of this class.
    pub fn is_paused(&self) -> bool {
        is_paused(&self.metadata)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_but_false_pauses() {
        let table = [
            (None, false),
            (Some("false"), false),
            (Some("true"), true),
            (Some(""), true),
            (Some("False"), true),
        ];
        for (value, paused) in table {
            let mut machine = Machine::default();
            machine.metadata.annotations =
                value.map(|value| [(PAUSED.to_owned(), value.to_owned())].into());
            assert_eq!(machine.is_paused(), paused, "{value:?}");
        }
    }
}

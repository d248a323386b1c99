//! Can the oracle fail? Each mutation removes one safety measure at the seams of the product: in its writes, its
//! options, or the promises of its drivers. The lives of some seeds must then break a rule.

use std::time::Duration;

use ostler_server::CoreOptions;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A missing safety measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mutation {
    /// Operations are not written down before they are sent.
    NoWriteAhead,
    /// Writes come without the version that they were made from.
    NoVersions,
    /// Deletions come without the UID of what is meant.
    NoUidPreconditions,
    /// Machines get no finalizer.
    NoFinalizer,
    /// The finalizer goes when the deletion of the instance begins.
    EarlyFinalizer,
    /// Every core has a Lease of its own.
    NoElection,
    /// Drains last no time.
    NoDrain,
    /// A Node counts as unreachable immediately.
    NoPatience,
    /// Orphans are deleted at the first look.
    NoOrphanGrace,
    /// Drivers make another instance when a create is repeated.
    CreateTwice,
    /// Drivers say that an instance is gone, and keep it.
    DeleteLies,
    /// Drivers say that an update is done, and do nothing.
    UpdateLies,
    /// Drivers find nothing when they read.
    StatusLies,
    /// Deletions take an instance of another cluster along.
    DeleteForeign,
}

impl Mutation {
    /// Changes how a core is set up.
    pub fn tune(self, options: &mut CoreOptions) {
        let settings = &mut options.settings;
        match self {
            Self::NoDrain => settings.lifecycle.drain_timeout = Duration::ZERO,
            Self::NoPatience => settings.lifecycle.unreachable_after = Duration::ZERO,
            Self::NoOrphanGrace => {
                settings.orphans.grace = Duration::ZERO;
                settings.orphans.period = Duration::from_secs(1);
            }
            Self::NoWriteAhead
            | Self::NoVersions
            | Self::NoUidPreconditions
            | Self::NoFinalizer
            | Self::EarlyFinalizer
            | Self::NoElection
            | Self::CreateTwice
            | Self::DeleteLies
            | Self::UpdateLies
            | Self::StatusLies
            | Self::DeleteForeign => {}
        }
    }

    /// Changes what a core writes.
    pub fn write(self, method: &str, path: &str, sent: &mut Value) {
        let of_machine = path.contains("/machines/") && method == "PATCH";
        if self == Self::NoWriteAhead && of_machine {
            remove(sent, "/status", "operation");
        } else if self == Self::NoVersions && method == "PATCH" {
            remove(sent, "/metadata", "resourceVersion");
        } else if self == Self::NoUidPreconditions && method == "DELETE" {
            remove(sent, "", "preconditions");
        } else if self == Self::NoFinalizer && of_machine {
            remove(sent, "/metadata", "finalizers");
        }
    }

    /// The finalizer that a core takes too early, as a patch of the machine that it wrote about.
    pub fn early(self, method: &str, path: &str, sent: &Value) -> Option<(String, Value)> {
        let deletes = sent.pointer("/status/step").is_some_and(|step| step == "DeleteInstance");
        let machine = path.strip_suffix("/status")?;
        let early = self == Self::EarlyFinalizer && method == "PATCH" && deletes;
        early.then(|| {
            (machine.to_owned(), serde_json::json!({ "metadata": { "finalizers": null } }))
        })
    }

    /// The name of the Lease that a core uses in place of the one that all use.
    pub fn lease(self, core: &str) -> Option<String> {
        let place = core.split('.').next().unwrap_or_default();
        (self == Self::NoElection).then(|| format!("{LEASE}-{place}"))
    }
}

/// The Lease that all cores use.
pub const LEASE: &str = "machine-controller";

fn remove(object: &mut Value, parent: &str, field: &str) {
    if let Some(Value::Object(fields)) = object.pointer_mut(parent) {
        fields.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutation_takes_away_what_it_names_and_nothing_else() {
        let path = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machines/m/status";
        let sent = serde_json::json!({
            "metadata": { "resourceVersion": "1" }, "status": { "operation": {}, "step": "x" },
        });
        let mut changed = sent.clone();
        Mutation::NoWriteAhead.write("PATCH", path, &mut changed);
        assert_eq!(changed["status"], serde_json::json!({ "step": "x" }));
        let mut changed = sent.clone();
        Mutation::NoVersions.write("PATCH", path, &mut changed);
        assert_eq!(changed["metadata"], serde_json::json!({}));
        let mut changed = sent.clone();
        Mutation::NoDrain.write("PATCH", path, &mut changed);
        assert_eq!(changed, sent);
    }
}

//! What of a definition is stored and published, and not done: its author is warned.

use serde_json::Value;

use super::is;
use crate::kinds::{BuiltIn, Resource, access::text};

const UNCALLED: &str = "spec.conversion: the webhook is stored and not called: objects can be written in their storage version alone, and are read in every version as they are stored, without the fields that the version does not have";

/// A warning for a webhook.
pub(super) fn warnings(resource: &Resource, object: &Value) -> Option<String> {
    let webhook = is(resource, BuiltIn::CustomResourceDefinition)
        && text(object, "/spec/conversion/strategy") == "Webhook";
    webhook.then(|| UNCALLED.to_owned())
}

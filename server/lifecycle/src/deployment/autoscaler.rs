//! Annotations for autoscalers on a deployment: the size limits, and the capacity of a future Node.

use ostler_api::machine_deployment::MachineDeploymentConditionType as Type;

use super::conditions::{self, find};
use super::pass::Pass;
use crate::autoscaler::{capacity, limits::limits};
use crate::plan::EventReason;

impl Pass<'_> {
    /// Shows in a condition, which is there only meanwhile, that an annotation cannot be followed, and says so once. Shows
    /// what the class says of a Node, so that an autoscaler scales from nothing.
    pub(super) fn show_to_autoscalers(&mut self) {
        let seen = self.snapshot.deployment.as_ref();
        match limits(&seen.metadata) {
            Ok(_) => conditions::remove(&mut self.status.conditions, &Type::AutoscalerLimits),
            Err(why) => {
                let shown = find(&self.status.conditions, &Type::AutoscalerLimits);
                if shown.is_none_or(|shown| shown.message.as_deref() != Some(&why)) {
                    self.warn(EventReason::AnnotationInvalid, why.clone());
                    let what =
                        (Type::AutoscalerLimits, "False", EventReason::AnnotationInvalid.name());
                    let now = self.snapshot.now;
                    conditions::refresh(&mut self.status.conditions, what, why, now);
                }
            }
        }
        let class = self.snapshot.class.as_deref();
        capacity::derive(&mut self.deployment.metadata, class, &seen.spec.template.spec);
    }
}

//! What the actions of a plan do.

use ostler_lifecycle::{
    plan::{Action, OnFailure, Performed, Plan},
    snapshot::{BootstrapToken, Observed},
};

use crate::machine::world::World;

impl World {
    pub fn perform_all(&mut self, plan: &Plan) -> Vec<Performed> {
        let mut stopped = false;
        let performed = plan.actions.iter().map(|action| {
            if stopped {
                return Performed::Skipped;
            }
            if self.fails.contains(action.name()) {
                stopped = action.on_failure() == OnFailure::Stop;
                return Performed::Failed("denied".to_owned());
            }
            self.perform(action)
        });
        performed.collect()
    }

    fn perform(&mut self, action: &Action) -> Performed {
        match action {
            Action::ConfirmNode { .. } | Action::AskReview(_) => {}
            Action::ClaimReplacement { seen, .. } => {
                if *seen != self.siblings.last_failure {
                    return Performed::Conflict;
                }
                self.siblings.last_failure = Some(self.now);
            }
            Action::UpdateSlot { wanted, .. } => self.slot.has = *wanted,
            Action::PatchMachine(patch) => self.patch_machine(patch),
            Action::OwnConfig(own) => self.own_config(own),
            Action::DeleteConfig { .. } => self.delete_config(),
            Action::EnsureBootstrapToken(request) => {
                self.token = Observed::Known(BootstrapToken {
                    owner: Some(request.owner.clone()),
                    secret: request.secret.clone(),
                    expires: Some(request.expires),
                    node: request.node.clone(),
                });
            }
            Action::DeleteBootstrapToken { .. } => self.token = Observed::Absent,
            Action::PatchNode(patch) => self.patch_node(patch),
            Action::PatchNodeStatus(patch) => self.patch_node_status(patch),
            Action::Evict(pod) | Action::EndPod(pod) => return self.evict_or_end(pod),
            Action::DeletePod(pod) => self.remove_pod(pod.uid.as_str()),
            Action::MarkNode { cause, name } => self.mark_node(name, cause),
            Action::DeleteAttachment { name, .. } => self.delete_attachment(name),
            Action::DeleteNode { name, .. } => self.remove_node(name),
            Action::DeleteMachine => self.delete(),
            Action::RemoveFinalizer => self.let_go(),
        }
        Performed::Done
    }
}

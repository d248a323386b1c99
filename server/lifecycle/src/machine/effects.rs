//! A pass's effects beside the status write: writes, the request and the events.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use ostler_api::OperationId;

use crate::{
    hint::HintUse,
    operation::Dispatch,
    plan::{Action, Event, EventReason, MachinePatch, NodePatch, NodeStatusPatch},
};

/// The effects of a pass on one Node.
#[derive(Debug, Default)]
pub(crate) struct NodeEffects {
    pub(crate) patch: NodePatch,
    /// The part of the patch that is mere upkeep: each pass compares it with the Node anew.
    pub(super) upkeep: NodePatch,
    /// Written in a pass that changes nothing else on the Node: either changes its version.
    pub(crate) status: NodeStatusPatch,
}

/// The effects of a pass beside the status write. The states add effects, [`Pass::finish`] orders
/// them.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) patch: MachinePatch,
    /// By name and UID of the Node.
    pub(super) nodes: BTreeMap<(String, String), NodeEffects>,
    pub(super) before: Vec<Action>,
    pub(super) after: Vec<Action>,
    pub(super) dispatch: Option<Dispatch>,
    pub(crate) cancel: Option<OperationId>,
    pub(super) acknowledge: Option<OperationId>,
    pub(super) hint: Option<HintUse>,
    pub(super) events: Vec<Event>,
    /// See [`Plan::status_waits`](crate::plan::Plan::status_waits).
    pub(crate) status_waits: bool,
    /// Whether the Machine gets the finalizer once something was asked for it.
    pub(crate) holds: bool,
}

impl Effects {
    /// The effects on the given Node.
    pub(crate) fn node(&mut self, node: &Node) -> &mut NodeEffects {
        let name = node.metadata.name.clone().unwrap_or_default();
        let uid = node.metadata.uid.clone().unwrap_or_default();
        self.nodes.entry((name, uid)).or_default()
    }

    /// The patch of the given Node, for a single write.
    pub(crate) fn node_patch(&mut self, node: &Node) -> &mut NodePatch {
        &mut self.node(node).patch
    }

    /// An action before everything else.
    pub(crate) fn act(&mut self, action: Action) {
        self.before.push(action);
    }

    /// An action after everything else.
    pub(crate) fn act_last(&mut self, action: Action) {
        self.after.push(action);
    }

    /// Whether the bootstrap token goes with this pass.
    pub(crate) fn deletes_token(&self) -> bool {
        self.after.iter().any(|action| matches!(action, Action::DeleteBootstrapToken { .. }))
    }

    pub(crate) fn event(&mut self, warning: bool, reason: EventReason, message: String) {
        self.events.push(Event { warning, ..Event::normal(reason, message) });
    }

    /// An event that is recorded for the Node as well.
    pub(crate) fn event_on_node(&mut self, warning: bool, reason: EventReason, message: String) {
        self.events.push(Event { warning, on_node: true, ..Event::normal(reason, message) });
    }
}

//! Preservation: a Machine, and the Node of a failed one, are kept for a user who wants to look
//! at them. Asked for by an annotation on the Machine or on the Node; it ends by itself.
//!
//! The Node's annotation wins while present, and its removal ends its effect: the Machine notes the last value of the
//! Node.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use ostler_api::{
    machine::{MachineConditionType, MachinePhase, WaitReason},
    names::{annotation, node_condition, taint},
    timeout::Timeout,
};

use super::{
    conditions, evacuating,
    node_notes::{self, edit_taints, no_schedule},
    pass::Pass,
};
use crate::{
    plan::{EventReason, Next},
    snapshot::NodeView,
    time::after,
};

/// The wish of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    /// Keep the Machine in any phase.
    Now,
    /// Keep the Machine once it is Failed.
    WhenFailed,
    /// Like the wish before, but from a MachineSet.
    Auto,
    /// Do not.
    No,
}

impl Wish {
    /// `None`: no such value.
    fn read(text: &str) -> Option<Self> {
        match text {
            "now" => Some(Self::Now),
            "when-failed" => Some(Self::WhenFailed),
            "auto-preserved" => Some(Self::Auto),
            "" | "false" => Some(Self::No),
            _ => None,
        }
    }
}

/// Begins or ends the preservation, as asked.
pub(crate) fn follow_wish(pass: &mut Pass<'_>) {
    let expired = until(pass).is_some_and(|until| pass.snap.now >= until);
    let wish = match &pass.snap.node {
        NodeView::Unknown | NodeView::Ambiguous(_) => return,
        NodeView::Absent => own_wish(pass),
        NodeView::Known(_) | NodeView::Several(..) => {
            match pass.node().map(|_| wish_of_nodes(pass)) {
                None => own_wish(pass),
                Some(Some(wish)) => wish,
                Some(None) if expired => Wish::No,
                // Whatever the meaning: a preserved Machine stays, and no new one is preserved.
                Some(None) => return,
            }
        }
    };
    let failed = pass.status.machine_phase() == MachinePhase::Failed;
    let wanted = match wish {
        Wish::Now => true,
        Wish::WhenFailed | Wish::Auto => failed,
        Wish::No => false,
    };
    if wanted && !expired {
        preserve(pass, wish, failed);
        return;
    }
    if expired || (wish == Wish::Auto && !failed) {
        forget(pass, expired && failed && pass.machine.has_machine_set());
    }
    end(pass, expired);
}

/// Until when the Machine is preserved.
pub(crate) fn until(pass: &Pass<'_>) -> Option<Timestamp> {
    let current = pass.status.current_status.as_ref()?;
    current.preserve_expiry_time.as_ref().map(|time| time.0)
}

/// When to look again, so that preservation ends in time. If it could not be ended then, something that changes has to
/// come first.
pub(crate) fn wake_at_expiry(pass: &Pass<'_>, next: Next) -> Next {
    match until(pass).filter(|until| *until > pass.snap.now) {
        Some(until) => next.by(WaitReason::Preserved, until),
        None => next,
    }
}

fn own_wish(pass: &mut Pass<'_>) -> Wish {
    let text = pass.machine.annotation(annotation::PRESERVE).unwrap_or_default();
    let wish = Wish::read(text);
    complain(pass, wish.is_none().then(|| format!("the machine's value {text:?}")));
    wish.unwrap_or(Wish::No)
}

/// The wish on the Node or, while its kubelet is silent, on the Node that serves in its place. Any kubelet may claim
/// the provider id of another. `None`: the value has no meaning.
fn wish_of_nodes(pass: &mut Pass<'_>) -> Option<Wish> {
    let asked = pass.node().into_iter().chain(pass.serving());
    let mut values = asked.filter_map(|node| node_notes::annotation_of(node, annotation::PRESERVE));
    let value = values.find(|value| !value.is_empty()).unwrap_or_default();
    let last = pass.machine.annotation(annotation::LAST_NODE_PRESERVE).unwrap_or_default();
    if value.is_empty() && last.is_empty() {
        return Some(own_wish(pass));
    }
    let wish = Wish::read(value);
    complain(pass, wish.is_none().then(|| format!("the node's value {value:?}")));
    let wish = wish?;
    let changes = &mut pass.effects.patch.annotations;
    if pass.machine.annotation(annotation::PRESERVE).is_some() {
        changes.insert(annotation::PRESERVE.to_owned(), None);
    }
    if value != last {
        let value = Some(value.to_owned()).filter(|value| !value.is_empty());
        changes.insert(annotation::LAST_NODE_PRESERVE.to_owned(), value);
    }
    Some(wish)
}

/// `what`: the subject with an invalid value.
fn complain(pass: &mut Pass<'_>, what: Option<String>) {
    let key = annotation::PRESERVE;
    let words = "none of now, when-failed, auto-preserved, false";
    let complaint = what.map(|what| format!("{what} of {key} is {words}"));
    let (type_, event) =
        (MachineConditionType::PreserveValueInvalid, EventReason::PreserveValueInvalid);
    conditions::set_complaint(pass, &type_, "Invalid", event, complaint);
}

fn preserve(pass: &mut Pass<'_>, wish: Wish, failed: bool) {
    let until = until(pass).unwrap_or_else(|| begin(pass));
    if !failed {
        evacuating::forget(pass);
    }
    for node in pass.nodes() {
        preserve_node(pass, node, (wish, failed, until));
    }
}

fn preserve_node(pass: &mut Pass<'_>, node: &Node, (wish, failed, until): (Wish, bool, Timestamp)) {
    if node_notes::annotation_of(node, annotation::SCALE_DOWN_DISABLED) != Some("true") {
        for key in [annotation::SCALE_DOWN_DISABLED, annotation::SCALE_DOWN_DISABLED_BY_US] {
            let yes = Some("true".to_owned());
            pass.effects.node_patch(node).annotations.insert(key.to_owned(), yes);
        }
    }
    if failed {
        edit_taints(pass, node, |taints| {
            if !taints.iter().any(|one| one.key == taint::PRESERVED) {
                taints.push(no_schedule(taint::PRESERVED));
            }
        });
    } else {
        edit_taints(pass, node, |taints| taints.retain(|one| one.key != taint::PRESERVED));
    }
    let reason = if wish == Wish::Auto { BY_US } else { BY_USER };
    let (holds, drained) = match (failed, evacuating::is_done(pass), evacuating::is_stuck(pass)) {
        (true, true, _) => (true, DRAINED),
        (true, false, true) => (false, NOT_DRAINED),
        (true, false, false) | (false, _, _) => (true, ""),
    };
    mark(pass, node, holds, reason, &format!("{drained}Machine preserved until {until}."));
}

/// The timers of health go on as they were: preservation makes no Node healthier.
fn begin(pass: &mut Pass<'_>) -> Timestamp {
    let own = pass.machine.spec.machine_preserve_timeout.as_ref().and_then(Timeout::duration);
    let until = after(pass.snap.now, own.unwrap_or(pass.snap.settings.preserve_timeout));
    pass.preserve_until(Some(until));
    pass.effects.event(false, EventReason::Preserved, format!("the machine is kept until {until}"));
    until
}

/// The annotations have done their work. `spent`: its set is to replace the Machine, and not to preserve it again.
fn forget(pass: &mut Pass<'_>, spent: bool) {
    let refusal = spent.then_some("false");
    for (key, value) in [(annotation::PRESERVE, refusal), (annotation::LAST_NODE_PRESERVE, None)] {
        if pass.machine.annotation(key) != value || pass.effects.patch.annotations.contains_key(key)
        {
            pass.effects.patch.annotations.insert(key.to_owned(), value.map(str::to_owned));
        }
    }
    for node in pass.nodes() {
        if node_notes::annotation_of(node, annotation::PRESERVE).is_some() {
            let key = annotation::PRESERVE.to_owned();
            pass.effects.node_patch(node).annotations.insert(key, None);
        }
    }
}

/// Removes the marks of preservation, as far as still present.
fn end(pass: &mut Pass<'_>, expired: bool) {
    if until(pass).is_some() {
        pass.preserve_until(None);
        evacuating::forget(pass);
        let text = if expired {
            "the preservation timeout has expired"
        } else {
            "preservation is not requested any more"
        };
        pass.effects.event(false, EventReason::PreservationEnded, text.to_owned());
    }
    for node in pass.nodes() {
        end_on(pass, node);
    }
}

fn end_on(pass: &mut Pass<'_>, node: &Node) {
    if node_notes::annotation_of(node, annotation::SCALE_DOWN_DISABLED_BY_US) == Some("true")
        && is_marked(node)
    {
        for key in [annotation::SCALE_DOWN_DISABLED, annotation::SCALE_DOWN_DISABLED_BY_US] {
            pass.effects.node_patch(node).annotations.insert(key.to_owned(), None);
        }
    }
    edit_taints(pass, node, |taints| taints.retain(|one| one.key != taint::PRESERVED));
    if is_marked(node) {
        mark(pass, node, false, STOPPED, "");
    }
}

/// Upstream's MachineSets look for these words.
const DRAINED: &str = "Preserved node drained successfully. ";
const NOT_DRAINED: &str = "Preserved node could not be drained. ";
const BY_US: &str = "Preserved by MCM.";
const BY_USER: &str = "Preserved by user.";
const STOPPED: &str = "Preservation stopped.";

fn is_marked(node: &Node) -> bool {
    node_notes::condition(node, node_condition::PRESERVED)
        .is_some_and(|one| one.reason.as_deref() != Some(STOPPED))
}

/// Shows the preservation on the Node.
fn mark(pass: &mut Pass<'_>, node: &Node, holds: bool, reason: &str, message: &str) {
    node_notes::set_condition(pass, node, node_condition::PRESERVED, holds, reason, message);
}

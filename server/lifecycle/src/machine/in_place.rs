//! The Node is updated in place: its pods leave, then an agent on it brings operating system and
//! kubelet to another version, and the instance stays.
//!
//! Labels on the Node have the wish and the result; the condition `InPlaceUpdate` of the Node has the stage, in
//! machine-controller-manager's words. The agent begins when the reason is `ReadyForUpdate`. The later work on the Node
//! of a MachineSet is done by its MachineDeployment, which also chooses the Nodes.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::Time};
use ostler_api::{
    machine::{DrainPurpose, MachinePhase, MachineStep, WaitReason},
    names::{annotation, label, node_condition, taint},
    timeout::Timeout,
};

use super::{
    checked,
    draining::drain,
    health, instance_check,
    last_operation::Activity,
    node_notes, own_node,
    pass::Pass,
    transition::{Outcome, Transition, wait},
    unhealthy, volumes,
};
use crate::{node::has_critical_components, plan::EventReason, time::after};

/// The stage, from the condition of the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The Node may be selected.
    Candidate,
    /// The pods of the Node have to leave.
    Selected,
    /// The pods have left.
    Drained,
    /// Another controller may update it.
    Ready,
    /// The Node was updated.
    Successful,
    /// The update failed.
    Failed,
}

impl Stage {
    const WORDS: [(Self, &'static str); 6] = [
        (Self::Candidate, "CandidateForUpdate"),
        (Self::Selected, "SelectedForUpdate"),
        (Self::Drained, "DrainSuccessful"),
        (Self::Ready, "ReadyForUpdate"),
        (Self::Successful, "UpdateSuccessful"),
        (Self::Failed, "UpdateFailed"),
    ];

    fn of(node: &Node) -> Option<Self> {
        let reason =
            node_notes::condition(node, node_condition::IN_PLACE_UPDATE)?.reason.as_deref();
        Self::WORDS.iter().find(|(_, word)| Some(*word) == reason).map(|(stage, _)| *stage)
    }

    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(stage, _)| *stage == self).map_or("", |(_, word)| word)
    }
}

/// The labels of the Node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Labels {
    candidate: bool,
    selected: bool,
    /// Whether the update went well; `None`: the updating controller has not said.
    result: Option<bool>,
}

impl Labels {
    fn of(node: &Node) -> Self {
        let value = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key));
        Self {
            candidate: value(label::CANDIDATE_FOR_UPDATE).is_some(),
            selected: value(label::SELECTED_FOR_UPDATE).is_some(),
            result: match value(label::UPDATE_RESULT).map(String::as_str) {
                Some("successful") => Some(true),
                Some("failed") => Some(false),
                Some(_) | None => None,
            },
        }
    }
}

/// The next stage of the condition; `None`: unchanged.
fn next_stage(stage: Option<Stage>, labels: Labels, phase: &MachinePhase) -> Option<Stage> {
    use Stage::{Candidate, Drained, Failed, Ready, Selected, Successful};
    // The pods have left for this update.
    let drained =
        matches!(phase, MachinePhase::InPlaceUpdating | MachinePhase::InPlaceUpdateSuccessful);
    let result = labels.result.map(|well| if well { Successful } else { Failed });
    let next = match stage {
        Some(Selected) if drained => Some(Drained),
        // The agent's result is true, even after the rollback of the rollout.
        _ if drained && result.is_some() => result,
        // Pods may run on it again: no agent may begin.
        Some(Drained | Ready) if *phase == MachinePhase::Running && result.is_none() => {
            Some(if labels.selected { Selected } else { Candidate })
        }
        _ if !labels.candidate => None,
        None => Some(Candidate),
        Some(Candidate) if labels.selected => Some(Selected),
        Some(Selected) => (!labels.selected).then_some(Candidate),
        Some(Successful) => result.or(Some(Candidate)),
        Some(Drained) => result.or(Some(Ready)),
        // A user who removes the result wants it to be tried again, or not at all.
        Some(Failed) => result.or(Some(if labels.selected { Selected } else { Candidate })),
        Some(Candidate | Ready) => result,
    };
    next.filter(|next| Some(*next) != stage)
}

/// Says on the Node how far it is.
fn show_stage(pass: &mut Pass<'_>, node: &Node) {
    let (stage, labels) = (Stage::of(node), Labels::of(node));
    let Some(next) = next_stage(stage, labels, &pass.status.machine_phase()) else { return };
    let message = match next {
        Stage::Candidate => "Node may be selected for an in-place update".to_owned(),
        Stage::Selected => "Node is selected for an in-place update".to_owned(),
        Stage::Drained => "Node draining successful".to_owned(),
        Stage::Ready => "Node is ready for in-place update".to_owned(),
        Stage::Successful => "Node is successfully updated".to_owned(),
        Stage::Failed => failure(node),
    };
    node_notes::set_condition(
        pass,
        node,
        node_condition::IN_PLACE_UPDATE,
        true,
        next.word(),
        &message,
    );
}

/// The updating controller's message.
fn failure(node: &Node) -> String {
    let reason = node_notes::annotation_of(node, annotation::UPDATE_FAILED_REASON);
    health::short(reason.unwrap_or("no reason given"), health::TEXT_BYTES).to_owned()
}

/// Whether a healthy Node's turn for its update has come. Shows the stage on the Node. An operation on the instance is
/// finished first.
pub(crate) fn is_chosen(pass: &mut Pass<'_>, node: &Node) -> bool {
    show_stage(pass, node);
    let labels = Labels::of(node);
    let chosen = labels.selected
        && match Stage::of(node) {
            Some(Stage::Selected | Stage::Drained | Stage::Ready) => true,
            Some(Stage::Failed) => labels.result == Some(false),
            Some(Stage::Candidate | Stage::Successful) | None => false,
        };
    if !chosen {
        drain::give_back(pass, &DrainPurpose::InPlaceUpdate);
    }
    chosen && pass.status.operation.is_none()
}

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    let phase = pass.status.machine_phase();
    // A Running Machine was examined before its turn.
    let node =
        if phase == MachinePhase::Running { pass.serving() } else { own_node::observe(pass)? };
    match (phase, node) {
        (MachinePhase::InPlaceUpdating, node) => updating(pass, node),
        (_, None) => {
            let (reason, complaint) = own_node::missing(pass);
            unhealthy::plan(pass, reason, &complaint)
        }
        (phase, Some(node)) => {
            if let Some(complaint) = checked::complaint(pass) {
                return unhealthy::plan(pass, WaitReason::NodeUnhealthy, &complaint);
            }
            show_stage(pass, node);
            match (Stage::of(node), Labels::of(node)) {
                (Some(Stage::Selected), Labels { selected: true, .. }) => empty(pass, node),
                // A status was not written, or a user uncordoned it.
                (Some(Stage::Drained | Stage::Ready), _) if phase == MachinePhase::Running => {
                    empty(pass, node)
                }
                (_, labels) => Ok(after_failure(pass, node, labels)),
            }
        }
    }
}

/// The pods leave, as in a deletion, and the volumes after them; nothing is taken by force that the
/// Node still needs.
fn empty(pass: &mut Pass<'_>, node: &Node) -> Outcome {
    // The time of a later stage belongs to another drain.
    let said = node_notes::condition(node, node_condition::IN_PLACE_UPDATE)
        .filter(|_| Stage::of(node) == Some(Stage::Selected));
    let selected_at = said.and_then(|said| said.last_transition_time.clone());
    empty_node(pass, selected_at)?;
    begin(pass);
    show_stage(pass, node);
    updating(pass, Some(node))
}

/// Drains a Node for an update, since then or from now on.
///
/// # Errors
/// The drain's wait reason.
pub(super) fn empty_node(pass: &mut Pass<'_>, since: Option<Time>) -> Outcome<()> {
    drain::begin(pass, DrainPurpose::InPlaceUpdate, since);
    pass.show(Activity::DrainForUpdate);
    let force = drain::must_force(pass);
    drain::cordon(pass, force)?;
    let forced = drain::evict_pods(pass, force)?;
    if !force {
        volumes::wait_for_detach(pass)?;
    }
    drain::finish(pass, forced);
    Ok(())
}

/// The time of the updating controller counts from now on.
fn begin(pass: &mut Pass<'_>) {
    pass.machine_phase(&MachinePhase::InPlaceUpdating);
    let text = pass.show(Activity::UpdateInPlace);
    pass.effects.event_on_node(false, EventReason::InPlaceUpdateReady, text);
    pass.step(Some(MachineStep::UpdateNode));
}

/// Another controller updates the Node, which may be gone or not ready meanwhile.
fn updating(pass: &mut Pass<'_>, node: Option<&Node>) -> Outcome {
    pass.step(Some(MachineStep::UpdateNode));
    if let Some(node) = node {
        show_stage(pass, node);
    }
    match node.map(Labels::of).and_then(|labels| labels.result) {
        Some(true) => return Ok(succeed(pass)),
        Some(false) => return Ok(fail_as_reported(pass, node)),
        None => {}
    }
    let complaint = match node {
        Some(_) => own_node::complaint(pass),
        None => Some(own_node::missing(pass).1),
    };
    let look = if complaint.is_some() { instance_check::check(pass)? } else { None };
    let (due, limit) = due(pass);
    if pass.snap.now >= due {
        let text = timed_out(pass, limit);
        return Ok(fail(pass, &text));
    }
    let state = complaint.map(|it| format!("; now {it}")).unwrap_or_default();
    let text = format!("{}{state}", awaited(node));
    let until = look.map_or(due, |look| look.min(due));
    Ok(wait(WaitReason::NodeUpdating, Some(text), Some(until)))
}

fn timed_out(pass: &Pass<'_>, limit: Duration) -> String {
    let minutes = limit.as_secs() / 60;
    format!("Machine {} failed to in-place update in {minutes} minutes", pass.name())
}

/// The awaited report of the agent.
fn awaited(node: Option<&Node>) -> String {
    let (key, values) = (label::UPDATE_RESULT, "successful or failed");
    let labels = node.and_then(|node| node.metadata.labels.as_ref());
    if let Some(other) = labels.and_then(|labels| labels.get(key)) {
        return format!("label {key} of the node is \"{other}\": it has to be {values}");
    }
    let back = node.is_some_and(|node| !Labels::of(node).candidate);
    let then =
        if back { "; its rollout was taken back, and it takes pods again after that" } else { "" };
    format!("the agent that updates the node sets its label {key} to {values}{then}")
}

/// When an update without a result counts as failed, with the time that was lost to outages.
pub(super) fn due(pass: &Pass<'_>) -> (Timestamp, Duration) {
    let own = pass.machine.spec.in_place_update_timeout.as_ref().and_then(Timeout::duration);
    let limit = own.unwrap_or(pass.snap.settings.in_place_timeout);
    let current = pass.status.current_status.as_ref();
    let since = current.and_then(|current| current.last_update_time.as_ref());
    let since = since.map_or(pass.snap.now, |time| time.0);
    (after(after(since, limit), pass.snap.api.lost(since, pass.snap.now)), limit)
}

pub(super) fn show_success(pass: &mut Pass<'_>) {
    let text = pass.show(Activity::UpdatedInPlace);
    pass.effects.event_on_node(false, EventReason::InPlaceUpdated, text);
}

pub(super) fn succeed(pass: &mut Pass<'_>) -> Transition {
    show_success(pass);
    pass.machine_phase(&MachinePhase::InPlaceUpdateSuccessful);
    pass.step(None);
    wait_for_node(pass)
}

/// The agent on the Node reports that the update failed.
fn fail_as_reported(pass: &mut Pass<'_>, node: Option<&Node>) -> Transition {
    let why = node.map(failure).unwrap_or_default();
    let text = format!("Machine {} failed to update dependencies: {why}", pass.name());
    fail(pass, &text)
}

fn fail(pass: &mut Pass<'_>, text: &str) -> Transition {
    let wait = report_failure(pass, text);
    pass.step(None);
    wait
}

/// Reports the failed update. The report has no other consequence here.
pub(super) fn report_failure(pass: &mut Pass<'_>, text: &str) -> Transition {
    if pass.status.machine_phase() != MachinePhase::InPlaceUpdateFailed {
        pass.machine_phase(&MachinePhase::InPlaceUpdateFailed);
        pass.effects.event_on_node(true, EventReason::InPlaceUpdateFailed, text.to_owned());
    }
    pass.show(Activity::UpdateInPlaceFailed(text));
    wait(WaitReason::InPlaceUpdateFailed, Some(text.to_owned()), None)
}

/// The written Node is looked at before anything follows from the write.
pub(super) fn wait_for_node(pass: &Pass<'_>) -> Transition {
    const SOON: Duration = Duration::from_secs(1);
    let until = after(pass.snap.now, SOON);
    let what = "the result of the update is not visible on the node yet".to_owned();
    wait(WaitReason::NodeUpdating, Some(what), Some(until))
}

/// The Node is healthy again: an update whose drain had ended is where it was. The update begins again only if a user
/// says so.
pub(crate) fn resume(pass: &mut Pass<'_>, node: &Node) -> Outcome<()> {
    let labels = Labels::of(node);
    let stays = labels.selected
        && matches!(Stage::of(node), Some(Stage::Drained | Stage::Ready))
        && drain::is_finished(pass, &DrainPurpose::InPlaceUpdate);
    if stays { Err(after_failure(pass, node, labels)) } else { Ok(()) }
}

/// The update failed, by word or by time: it stays so until a user says otherwise.
fn after_failure(pass: &mut Pass<'_>, node: &Node, labels: Labels) -> Transition {
    let again = pass.machine.annotation(annotation::RETRY_UPDATE).is_some();
    match labels.result {
        Some(true) => succeed(pass),
        Some(false) if again => {
            // First the Node, then the annotation: a pass that ends in between is repeated.
            let patch = pass.effects.node_patch(node);
            patch.labels.insert(label::UPDATE_RESULT.to_owned(), None);
            patch.annotations.insert(annotation::UPDATE_FAILED_REASON.to_owned(), None);
            wait_for_node(pass)
        }
        None if again => {
            pass.effects.patch.annotations.insert(annotation::RETRY_UPDATE.to_owned(), None);
            pass.machine_phase(&MachinePhase::Running);
            drain::begin(pass, DrainPurpose::InPlaceUpdate, None);
            wait_for_node(pass)
        }
        Some(false) => fail_as_reported(pass, Some(node)),
        None if !labels.selected => {
            drain::give_back(pass, &DrainPurpose::InPlaceUpdate);
            pass.machine_phase(&MachinePhase::Running);
            wait_for_node(pass)
        }
        None => {
            let said = pass.status.machine_phase() == MachinePhase::InPlaceUpdateFailed;
            let last = pass.status.last_operation.as_ref().filter(|_| said);
            let text = last.and_then(|last| last.description.clone());
            let text = text.unwrap_or_else(|| timed_out(pass, due(pass).1));
            fail(pass, &text)
        }
    }
}

/// The Node was updated and is healthy. Without a MachineSet, the Node is restored here: the Node takes pods once its
/// critical components run. A wait: not yet.
pub(crate) fn conclude(pass: &mut Pass<'_>, node: &Node) -> Outcome<()> {
    let labels = Labels::of(node);
    let says_so = Stage::of(node) == Some(Stage::Successful);
    if labels.result == Some(true) && !says_so {
        show_stage(pass, node);
        return Err(wait_for_node(pass));
    }
    // After the rollback of a rollout, the deployment ignores the agent's result.
    if pass.machine.has_machine_set() && (labels.candidate || labels.result.is_none()) {
        match labels.result {
            // The deployment uncordons the Node when it removes the labels.
            Some(_) => drain::forget(pass, &DrainPurpose::InPlaceUpdate),
            None => drain::give_back(pass, &DrainPurpose::InPlaceUpdate),
        }
        return Ok(());
    }
    let patch = pass.effects.node_patch(node);
    for key in [label::CANDIDATE_FOR_UPDATE, label::SELECTED_FOR_UPDATE, label::UPDATE_RESULT] {
        patch.labels.insert(key.to_owned(), None);
    }
    patch.annotations.insert(annotation::UPDATE_FAILED_REASON.to_owned(), None);
    if has_critical_components(node) {
        node_notes::edit_taints(pass, node, |taints| {
            let key = taint::CRITICAL_COMPONENTS_NOT_READY;
            if !taints.iter().any(|one| one.key == key) {
                taints.push(node_notes::no_schedule(key));
            }
        });
    }
    drain::give_back(pass, &DrainPurpose::InPlaceUpdate);
    Ok(())
}

//! Hot update: brings a running instance to the current spec of its class.
//!
//! An update that has begun is driven on until one succeeds, even if the class is changed back in
//! between: some of the instance's resources may have got the spec in the middle.

use ostler_api::SpecDigest;
use ostler_api::{
    driver::{Certainty, ErrorCode, OperationKind},
    machine::{
        HotUpdate, HotUpdateState, MachineConditionType, MachineOperationType, MachineState,
        MachineStep, WaitReason,
    },
    names,
};

use super::{
    State, conditions, instance,
    last_operation::Activity,
    pass::Pass,
    preconditions,
    reading::Reading,
    retry::{self, RetryAction},
    settled,
    transition::{Outcome, Transition, wait},
};
use crate::{
    digest,
    hot_update::{Question, ReviewView},
    operation::{Failure, Request},
    plan::{Action, EventReason, Next},
    snapshot::{ClassFacts, ClassView, DriverFacts, DriverView},
};

/// Of the paths that a driver changed: so many are shown, each cut to so many bytes.
const PATHS_SHOWN: usize = 8;
const PATH_BYTES: usize = 64;

pub(crate) fn plan(pass: &mut Pass<'_>) -> Outcome {
    if pass.machine.has_pool() {
        // The group has the model; its pool replaces instances of an old one.
        return Ok(Transition::Rest(Next::OnChange));
    }
    pass.unless_working()?;
    let Ok(class) = preconditions::class(pass.snap) else {
        return Ok(Transition::Rest(Next::OnChange));
    };
    preconditions::provider(pass.snap, class)?;
    if has_spec(pass, class) {
        return Ok(settle_down(pass));
    }
    note_adopted(pass, class);
    let (class, driver) = preconditions::check(pass.snap)?;
    let updates = driver.has(OperationKind::UpdateMachine);
    if !updates
        && (was_made_with(pass, class)
            || is_as_adopted(pass, class)
            || settle(pass, &[]) && has_spec(pass, class))
    {
        return Ok(settle_down(pass));
    }
    refused(pass, class, driver)?;
    if !updates {
        let text = "the driver cannot change running instances";
        refuse(pass, HotUpdateState::Unsupported, &class.spec_digest, text);
        return Ok(wait_refused(pass));
    }
    look_first(pass, class, driver)?;
    review(pass, class, driver)?;
    if has_spec(pass, class) {
        return Ok(settle_down(pass));
    }
    slot(pass, class)?;
    Ok(update(pass, class))
}

/// Whether an earlier update has begun and not succeeded. The last operation is asked too: it is
/// all that a Machine of another controller has.
fn is_pending(pass: &Pass<'_>) -> bool {
    let ours = pass.status.hot_update.as_ref().is_some_and(|update| {
        update.dirty || matches!(update.state, HotUpdateState::Processing | HotUpdateState::Failed)
    });
    let last = pass.status.last_operation.as_ref().is_some_and(|last| {
        last.type_ == Some(MachineOperationType::Update)
            && last.state != Some(MachineState::Successful)
    });
    ours || last
}

/// Whether the instance was made with this spec, as far as is known: the outcome of its create was lost, and no other
/// spec was ever sent.
fn was_made_with(pass: &Pass<'_>, class: &ClassFacts) -> bool {
    !is_pending(pass)
        && applied_spec(pass).is_none()
        && pass.status.creation_spec_digest.as_ref() == Some(&class.spec_digest)
}

/// Writes down which spec the class has at the first look at an instance that another controller made. The spec of the
/// instance is not known, and no driver reported it (INV-6): the note only tells whether the class has changed since.
fn note_adopted(pass: &mut Pass<'_>, class: &ClassFacts) {
    let unknown = applied_spec(pass).is_none()
        && pass.status.creation_spec_digest.is_none()
        && !instance::was_made(&pass.status);
    if unknown && !is_pending(pass) && pass.status.adopted_spec_digest.is_none() {
        pass.status.adopted_spec_digest = Some(class.spec_digest.clone());
    }
}

/// Whether the class has not changed since the instance was adopted.
fn is_as_adopted(pass: &Pass<'_>, class: &ClassFacts) -> bool {
    !is_pending(pass)
        && applied_spec(pass).is_none()
        && pass.status.adopted_spec_digest.as_ref() == Some(&class.spec_digest)
}

/// Whether nothing is left to do: the instance counts as having the spec of its class, and no update is pending.
fn has_spec(pass: &Pass<'_>, class: &ClassFacts) -> bool {
    let digest = settled::standing_spec(pass).map(|text| digest::of_text(&text));
    !is_pending(pass) && digest.as_deref() == Some(class.spec_digest.as_str())
}

/// The spec that a driver last reported as fully applied, in its canonical form.
fn applied_spec(pass: &Pass<'_>) -> Option<String> {
    let key = names::annotation::LAST_APPLIED_PROVIDER_SPEC;
    if let Some(Some(text)) = pass.effects.patch.annotations.get(key) {
        return Some(text.clone());
    }
    digest::canonical_text(pass.machine.annotation(key)?)
}

/// The instance has the spec of its class.
fn settle_down(pass: &mut Pass<'_>) -> Transition {
    if pass.status.hot_update.take().is_some() {
        conditions::remove(&mut pass.status, &MachineConditionType::HotUpdateRefused);
    }
    if pass.status.step == Some(MachineStep::UpdateInstance) {
        pass.step(None);
    }
    Transition::Rest(Next::OnChange)
}

/// A refusal holds until the class or the driver is another one.
fn refused(pass: &Pass<'_>, class: &ClassFacts, driver: &DriverFacts) -> Outcome<()> {
    let Some(update) = &pass.status.hot_update else { return Ok(()) };
    let same_driver = update.driver.as_deref() == Some(driver.identity.as_str());
    let holds = match update.state {
        HotUpdateState::Refused => same_driver && update.spec_digest == class.spec_digest,
        HotUpdateState::Unsupported => same_driver,
        HotUpdateState::Processing | HotUpdateState::Failed | HotUpdateState::Other(_) => false,
    };
    if holds && !settled::may_settle(pass) { Err(wait_refused(pass)) } else { Ok(()) }
}

/// The wait for a refused update, with the message of the condition.
fn wait_refused(pass: &Pass<'_>) -> Transition {
    let why = conditions::message(&pass.status, &MachineConditionType::HotUpdateRefused);
    wait(WaitReason::HotUpdateRefused, why.map(str::to_owned), None)
}

/// Waits out a retry, and reads before an update whose forerunner's outcome is unknown.
fn look_first(pass: &mut Pass<'_>, class: &ClassFacts, driver: &DriverFacts) -> Outcome<()> {
    match pass.learned.reading.take() {
        Some(Reading::Failed(failure)) => {
            retry::remember(pass, OperationKind::GetMachineStatus, &failure);
        }
        Some(Reading::NotFound) => {
            let text = "the driver does not find the instance any more";
            let failure = Failure::new(ErrorCode::NotFound, Certainty::NotApplied, text);
            retry::remember(pass, OperationKind::UpdateMachine, &failure);
        }
        Some(Reading::Found(_) | Reading::Uninitialized | Reading::CannotRead) | None => {}
    }
    retry::gate(pass)?;
    let reads = pass.is_unresolved() && driver.has(OperationKind::GetMachineStatus);
    if reads { Err(pass.send_read(class)) } else { Ok(()) }
}

/// The driver's review of the change as a whole, before any part is tried.
fn review(pass: &mut Pass<'_>, class: &ClassFacts, driver: &DriverFacts) -> Outcome<()> {
    let old_spec = settled::standing_spec(pass).unwrap_or_default();
    let Some(question) = Question::about(old_spec, class, driver) else { return Ok(()) };
    // This pass may have learned of a newer spec than the spec in the question to the driver.
    let observed = Question::of(pass.machine, class, driver).as_ref() == Some(&question);
    let view = if observed { &pass.snap.review } else { &ReviewView::NotAsked };
    let review = match view {
        ReviewView::Known(review) => review.clone(),
        ReviewView::NoAnswer => return Ok(()),
        ReviewView::Failed { reason, message } => {
            return Err(wait(reason.clone(), Some(message.clone()), None));
        }
        ReviewView::Asked => return Err(wait_for_review(class)),
        ReviewView::NotAsked => {
            pass.effects.act(Action::AskReview(question));
            return Err(wait_for_review(class));
        }
    };
    if !review.violations.is_empty() {
        let text =
            format!("class {} revision {}: {}", class.name, class.revision, review.complaint());
        return Err(wait(WaitReason::InvalidSpec, Some(text), None));
    }
    if !question.old_spec.is_empty() && !review.hot {
        if settle(pass, &review.fixed_paths) {
            return self::review(pass, class, driver);
        }
        refuse(pass, HotUpdateState::Refused, &class.spec_digest, &review.refusal());
        return Err(wait_refused(pass));
    }
    Ok(())
}

fn wait_for_review(class: &ClassFacts) -> Transition {
    let text = format!("the driver is asked about class {}", class.name);
    wait(WaitReason::ClassReview, Some(text), None)
}

/// An edit of a class with thousands of Machines must not storm a cloud.
fn slot(pass: &Pass<'_>, class: &ClassFacts) -> Outcome<()> {
    let slot = &pass.snap.slot;
    if slot.is_granted() {
        return Ok(());
    }
    let text = format!(
        "{} of class {} are updated at the same time, {} wait before this one",
        slot.limit, class.name, slot.ahead
    );
    Err(wait(WaitReason::HotUpdateBudget, Some(text), None))
}

fn update(pass: &mut Pass<'_>, class: &ClassFacts) -> Transition {
    let dirty = is_pending(pass);
    pass.status.hot_update = Some(HotUpdate {
        state: HotUpdateState::Processing,
        spec_digest: class.spec_digest.clone(),
        dirty,
        driver: None,
    });
    pass.step(Some(MachineStep::UpdateInstance));
    pass.show(Activity::Update);
    let request = Request::Update {
        provider_id: pass.provider_id().cloned().unwrap_or_default(),
        last_applied_spec_json: settled::standing_text(pass),
    };
    pass.send(class, request)
}

/// The driver applied the spec that the intent was about, or could not.
pub(crate) fn answered(
    pass: &mut Pass<'_>,
    result: Result<&[String], &Failure>,
    state: State,
) -> Transition {
    match result {
        Ok(paths) => succeeded(pass, &applied(paths)),
        Err(failure) => failed(pass, failure),
    }
    Transition::To(state)
}

/// The driver's list of changes, shortened for people.
pub(crate) fn applied(paths: &[String]) -> String {
    let shown = paths.iter().take(PATHS_SHOWN);
    let shown: Vec<_> = shown.map(|it| &it[..it.floor_char_boundary(PATH_BYTES)]).collect();
    match (shown.join(", "), paths.len().saturating_sub(PATHS_SHOWN)) {
        (none, _) if none.is_empty() => {
            "the instance has the spec of its class; the driver does not say what it changed"
                .to_owned()
        }
        (shown, 0) => format!("changed {shown}"),
        (shown, more) => format!("changed {shown} and {more} more"),
    }
}

fn succeeded(pass: &mut Pass<'_>, applied: &str) {
    let intent = pass.end_operation();
    retry::clear(pass);
    let digest = intent.as_ref().and_then(|intent| intent.spec_digest.as_ref());
    if !note_applied(pass, digest) {
        // The class is another one by now, or gone. The applied spec is not the wanted one.
        if let Some(update) = &mut pass.status.hot_update {
            update.dirty = true;
        }
        return;
    }
    forget(pass);
    conditions::remove(&mut pass.status, &MachineConditionType::HotUpdateRefused);
    conditions::set(pass, &MachineConditionType::HotUpdated, true, "Updated", applied);
    pass.effects.event(false, EventReason::HotUpdated, applied.to_owned());
    if pass.is_over() {
        return;
    }
    pass.step(None);
    pass.show(Activity::Updated);
}

/// INV-6: the annotation names a spec only when a driver reported exactly this spec as applied. If the class changed
/// while the driver worked, the text of the applied spec is not known any more.
pub(crate) fn note_applied(pass: &mut Pass<'_>, digest: Option<&SpecDigest>) -> bool {
    let ClassView::Known(class) = &pass.snap.class else { return false };
    if digest != Some(&class.spec_digest) {
        return false;
    }
    let key = names::annotation::LAST_APPLIED_PROVIDER_SPEC.to_owned();
    pass.effects.patch.annotations.insert(key, Some(class.provider_spec.clone()));
    settled::forget(pass);
    true
}

/// No update is due or running.
pub(crate) fn forget(pass: &mut Pass<'_>) {
    pass.status.hot_update = None;
}

fn failed(pass: &mut Pass<'_>, failure: &Failure) {
    let rule = retry::remember_mutation(pass, OperationKind::UpdateMachine, failure);
    if pass.is_over() {
        return;
    }
    let text = failure.text();
    if let RetryAction::Refuse(state) = rule.then {
        let paths: Vec<_> = failure.violations.iter().map(|(path, _)| path.clone()).collect();
        if settle(pass, &paths) {
            return withdraw(pass);
        }
        // The sent spec was refused; the class may have another spec by now.
        let sent = pass.status.hot_update.as_ref().map(|update| update.spec_digest.clone());
        return refuse(pass, state, &sent.unwrap_or_default(), &text);
    }
    if let Some(update) = &mut pass.status.hot_update {
        update.state = HotUpdateState::Failed;
        update.dirty |= failure.certainty != Certainty::NotApplied;
    }
    let code = failure.code.name();
    conditions::set(pass, &MachineConditionType::HotUpdated, false, code, &text);
    pass.show(Activity::UpdateFailed(failure));
    pass.effects.event(true, EventReason::HotUpdateFailed, format!("{code}: {text}"));
}

/// Settles paths that the driver refuses to change: an update in place may have changed them. Returns whether any path
/// changed.
fn settle(pass: &mut Pass<'_>, fixed_paths: &[String]) -> bool {
    let Some(text) = settled::settle(pass, fixed_paths) else { return false };
    conditions::set(pass, &MachineConditionType::HotUpdated, true, "UpdatedInPlace", &text);
    true
}

/// Nothing was changed, and nothing is left to change: the update in place did the work. Updates begun earlier are
/// still finished.
fn withdraw(pass: &mut Pass<'_>) {
    pass.end_operation();
    retry::clear(pass);
    pass.step(None);
    pass.status.hot_update = pass.status.hot_update.take().filter(|update| update.dirty);
    pass.show(Activity::UpdateRefused);
}

/// Shows a refusal, once. Nothing was changed: the last operation is not an update.
fn refuse(pass: &mut Pass<'_>, state: HotUpdateState, spec_digest: &SpecDigest, text: &str) {
    let word = state.as_str().to_owned();
    pass.end_operation();
    retry::clear(pass);
    pass.step(None);
    let dirty = pass.status.hot_update.take().is_some_and(|update| update.dirty);
    let driver = match &pass.snap.driver {
        DriverView::Ready(driver) => Some(driver.identity.clone()),
        DriverView::Unavailable | DriverView::NotReady(_) => None,
    };
    let spec_digest = spec_digest.clone();
    pass.status.hot_update = Some(HotUpdate { state, spec_digest, dirty, driver });
    let message = pass.snap.class.known().map_or_else(
        || text.to_owned(),
        |class| format!("class {} revision {}: {text}", class.name, class.revision),
    );
    conditions::set(pass, &MachineConditionType::HotUpdateRefused, true, &word, &message);
    pass.show(Activity::UpdateRefused);
    pass.effects.event(true, EventReason::HotUpdateRefused, message);
}

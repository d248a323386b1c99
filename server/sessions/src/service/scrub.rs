//! Drivers' texts are for people's eyes: they must not hold the secrets of drivers.

use ostler_proto::Scrubber;
use ostler_proto::v1alpha1::operation_completed::Outcome;
use ostler_proto::v1alpha1::operation_result::Response;
use ostler_proto::v1alpha1::register_request::Frame;
use ostler_proto::v1alpha1::{FieldViolation, ObjectRevision, OperationError, OperationResult};

use crate::convert::{FEW, MESSAGE_BYTES, VIOLATIONS, WORD_BYTES, few};
use crate::hub::{CHECKPOINT_BYTES, SessionKey};
use crate::shell::Shell;

/// The confidential values of the class of the last frames: preparing the search takes longer than searching. Kept only
/// for frames that come together, so the values are those of the current revision.
pub(crate) type Last = Option<(ObjectRevision, Scrubber)>;

/// Takes the secret and the user data of an operation out of what its driver says about it. The
/// driver should have done so; not every driver does.
pub(crate) fn frame(shell: &Shell, key: SessionKey, frame: &mut Frame, last: &mut Last) {
    let Some((operation_id, texts)) = texts(frame) else { return };
    if texts.iter().all(|it| it.said.is_empty()) {
        return;
    }
    let class = shell.with(|hub, _| hub.class_of(key, &operation_id)).unwrap_or_default();
    let same = last.take().filter(|(of, _)| *of == class);
    let (_, scrubber) = last.insert(same.unwrap_or_else(|| {
        let values = shell.classes.confidential(&class.namespace, &class.name);
        (class, Scrubber::new(values.iter().map(Vec::as_slice)))
    }));
    for Text { said, most, whole } in texts {
        let scrubbed = scrubber.scrub_start(said, most);
        if whole && scrubbed != *said {
            tracing::warn!(
                operation_id,
                "a checkpoint that is too long, or has a secret in it, was not kept"
            );
            said.clear();
        } else {
            *said = scrubbed;
        }
    }
}

/// A free text and its longest kept size in bytes.
struct Text<'a> {
    said: &'a mut String,
    most: usize,
    /// The text is kept whole or not at all: the driver gets it back.
    whole: bool,
}

fn message(text: &mut String) -> Text<'_> {
    Text { said: text, most: MESSAGE_BYTES, whole: false }
}

fn word(text: &mut String) -> Text<'_> {
    Text { said: text, most: WORD_BYTES, whole: false }
}

fn checkpoint(text: &mut String) -> Text<'_> {
    Text { said: text, most: CHECKPOINT_BYTES, whole: true }
}

/// The operation that a frame is about, and the free texts in it. Ids are none: a changed id is
/// worth nothing.
fn texts(frame: &mut Frame) -> Option<(String, Vec<Text<'_>>)> {
    match frame {
        Frame::Progress(it) => Some((
            it.operation_id.clone(),
            vec![word(&mut it.stage), message(&mut it.message), checkpoint(&mut it.checkpoint)],
        )),
        Frame::Completed(completed) => {
            let mut texts = Vec::new();
            texts.extend(Some(&mut completed.checkpoint).filter(|it| !it.is_empty()).map(checkpoint));
            match &mut completed.outcome {
                Some(Outcome::Error(error)) => texts.extend(texts_of(error)),
                Some(Outcome::Result(result)) => texts_of_result(result, &mut texts),
                None => {}
            }
            Some((completed.operation_id.clone(), texts))
        }
        Frame::Page(page) => {
            let operation_id = page.operation_id.clone();
            Some((operation_id, page.faults_mut().into_iter().flat_map(texts_of).collect()))
        }
        Frame::Hello(_)
        | Frame::Accepted(_)
        | Frame::State(_)
        | Frame::Heartbeat(_)
        // The class is not known here, see `Sessions::scrub`.
        | Frame::Event(_) => None,
    }
}

/// The parts of an answer in events and status: the applied paths, findings in a spec, faults of an instance or a
/// group, and reasons against the deletion of an instance.
fn texts_of_result<'a>(result: &'a mut OperationResult, texts: &mut Vec<Text<'a>>) {
    let Some(response) = &mut result.response else { return };
    if let Response::UpdateMachine(it) = response {
        texts.extend(few_of(&mut it.applied_paths).map(word));
    } else if let Response::ValidateClass(it) = response {
        texts.extend(of_violations(&mut it.violations));
        texts.extend(few_of(&mut it.not_hot_updatable_paths).map(word));
        texts.extend(few_of(&mut it.warnings).map(message));
    } else {
        if let Response::DeletePoolMachines(it) = response {
            few(&mut it.not_deleted, FEW);
        }
        texts.extend(response.faults_mut().into_iter().flat_map(texts_of));
    }
}

fn texts_of(error: &mut OperationError) -> impl Iterator<Item = Text<'_>> {
    [
        message(&mut error.message),
        word(&mut error.reason),
        word(&mut error.provider_code),
        word(&mut error.provider_request_id),
    ]
    .into_iter()
    .chain(of_violations(&mut error.violations))
}

// No more are kept, so no more are looked through.

fn of_violations(all: &mut Vec<FieldViolation>) -> impl Iterator<Item = Text<'_>> {
    few(all, VIOLATIONS);
    all.iter_mut().map(|one| message(&mut one.description))
}

fn few_of<T>(all: &mut Vec<T>) -> std::slice::IterMut<'_, T> {
    few(all, FEW);
    all.iter_mut()
}

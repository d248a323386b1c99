//! What drivers say is for people's eyes: it must not hold what only drivers may know.

use ostler_proto::v1alpha1::operation_completed::Outcome;
use ostler_proto::v1alpha1::operation_result::Response;
use ostler_proto::v1alpha1::register_request::Frame;
use ostler_proto::v1alpha1::{OperationError, OperationResult, RegisterRequest};
use ostler_proto::{scrub, scrub_bootstrap_tokens};

use crate::hub::SessionKey;
use crate::shell::Shell;

/// Takes the secret and the user data of an operation out of what its driver says about it. The
/// driver should have done so; not every driver does.
pub(super) fn frame(shell: &Shell, key: SessionKey, request: &mut RegisterRequest) {
    let Some(frame) = &mut request.frame else { return };
    let Some((operation_id, texts)) = texts(frame) else { return };
    if texts.iter().all(|text| text.is_empty()) {
        return;
    }
    let class = shell.with(|hub, _| hub.class_of(key, operation_id));
    let confidential = class
        .map(|class| shell.classes.confidential(&class.namespace, &class.name))
        .unwrap_or_default();
    for text in texts {
        *text = scrub_bootstrap_tokens(&scrub(text, confidential.iter().map(Vec::as_slice)));
    }
}

/// The operation that a frame is about, and the free texts in it. Ids are none: a changed id is
/// worth nothing.
fn texts(frame: &mut Frame) -> Option<(&str, Vec<&mut String>)> {
    match frame {
        Frame::Progress(progress) => Some((
            &progress.operation_id,
            vec![&mut progress.stage, &mut progress.message, &mut progress.checkpoint],
        )),
        Frame::Completed(completed) => {
            let mut texts = vec![&mut completed.checkpoint];
            match &mut completed.outcome {
                Some(Outcome::Error(error)) => texts.extend(texts_of(error)),
                Some(Outcome::Result(result)) => texts.extend(paths_of(result)),
                None => {}
            }
            Some((&completed.operation_id, texts))
        }
        Frame::Hello(_)
        | Frame::Accepted(_)
        | Frame::Page(_)
        | Frame::State(_)
        | Frame::Heartbeat(_)
        // Its class is not known here, see `Sessions::scrub`.
        | Frame::Event(_) => None,
    }
}

/// Events and status show the paths that a driver says it applied.
fn paths_of(result: &mut OperationResult) -> impl Iterator<Item = &mut String> {
    let applied = match &mut result.response {
        Some(Response::UpdateMachine(update)) => Some(&mut update.applied_paths),
        _ => None,
    };
    applied.into_iter().flatten()
}

fn texts_of(error: &mut OperationError) -> impl Iterator<Item = &mut String> {
    let violations = error.violations.iter_mut().map(|violation| &mut violation.description);
    [
        &mut error.message,
        &mut error.reason,
        &mut error.provider_code,
        &mut error.provider_request_id,
    ]
    .into_iter()
    .chain(violations)
}

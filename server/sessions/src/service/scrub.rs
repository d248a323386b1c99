//! What drivers say is for people's eyes: it must not hold what only drivers may know.

use ostler_proto::v1alpha1::operation_completed::Outcome;
use ostler_proto::v1alpha1::operation_result::Response;
use ostler_proto::v1alpha1::register_request::Frame;
use ostler_proto::v1alpha1::{
    MachineRecord, OperationError, OperationResult, PoolMachineRecord, PoolRecord, RegisterRequest,
};
use ostler_proto::{Scrubber, scrub_bootstrap_tokens};

use crate::convert::{VIOLATIONS, few};
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
    let scrubber = Scrubber::new(confidential.iter().map(Vec::as_slice));
    for text in texts {
        *text = scrub_bootstrap_tokens(&scrubber.scrub(text));
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
            let mut texts = Vec::new();
            texts.extend(Some(&mut completed.checkpoint).filter(|it| !it.is_empty()));
            match &mut completed.outcome {
                Some(Outcome::Error(error)) => texts.extend(texts_of(error)),
                Some(Outcome::Result(result)) => texts_of_result(result, &mut texts),
                None => {}
            }
            Some((&completed.operation_id, texts))
        }
        Frame::Page(page) => {
            let mut texts = Vec::new();
            of_machines(&mut page.machines, &mut texts);
            of_pools(&mut page.pools, &mut texts);
            of_instances(&mut page.pool_machines, &mut texts);
            Some((&page.operation_id, texts))
        }
        Frame::Hello(_)
        | Frame::Accepted(_)
        | Frame::State(_)
        | Frame::Heartbeat(_)
        // Its class is not known here, see `Sessions::scrub`.
        | Frame::Event(_) => None,
    }
}

/// What events and status show of an answer: the paths that a driver says it applied, what it finds in a spec, what is
/// wrong with an instance or a group, and why it deleted an instance not.
fn texts_of_result<'a>(result: &'a mut OperationResult, texts: &mut Vec<&'a mut String>) {
    let Some(response) = &mut result.response else { return };
    match response {
        Response::UpdateMachine(it) => texts.extend(&mut it.applied_paths),
        Response::ValidateClass(it) => {
            texts.extend(it.violations.iter_mut().map(|one| &mut one.description));
            texts.extend(&mut it.not_hot_updatable_paths);
            texts.extend(&mut it.warnings);
        }
        Response::CreateMachine(it) => of_machines(&mut it.machine, texts),
        Response::InitializeMachine(it) => of_machines(&mut it.machine, texts),
        Response::GetMachineStatus(it) => of_machines(&mut it.machine, texts),
        Response::ListMachines(it) => of_machines(&mut it.machines, texts),
        Response::CreatePool(it) => of_pools(&mut it.pool, texts),
        Response::UpdatePool(it) => of_pools(&mut it.pool, texts),
        Response::ListPools(it) => of_pools(&mut it.pools, texts),
        Response::GetPoolStatus(it) => {
            of_pools(&mut it.pool, texts);
            of_instances(&mut it.machines, texts);
        }
        Response::DeletePoolMachines(it) => {
            of_pools(&mut it.pool, texts);
            let errors = it.not_deleted.iter_mut().filter_map(|one| one.error.as_mut());
            texts.extend(errors.flat_map(texts_of));
        }
        Response::UpdatePoolMachine(it) => of_instances(&mut it.machine, texts),
        Response::DeleteMachine(_) | Response::DeletePool(_) | Response::GetVolumeIds(_) => {}
    }
}

fn of_machines<'a>(
    machines: impl IntoIterator<Item = &'a mut MachineRecord>,
    texts: &mut Vec<&'a mut String>,
) {
    let faults = machines.into_iter().filter_map(|one| one.fault.as_deref_mut());
    texts.extend(faults.flat_map(texts_of));
}

fn of_instances<'a>(
    instances: impl IntoIterator<Item = &'a mut PoolMachineRecord>,
    texts: &mut Vec<&'a mut String>,
) {
    of_machines(instances.into_iter().filter_map(|one| one.machine.as_mut()), texts);
}

fn of_pools<'a>(
    pools: impl IntoIterator<Item = &'a mut PoolRecord>,
    texts: &mut Vec<&'a mut String>,
) {
    let faults = pools.into_iter().filter_map(|one| one.fault.as_deref_mut());
    texts.extend(faults.flat_map(texts_of));
}

fn texts_of(error: &mut OperationError) -> impl Iterator<Item = &mut String> {
    // No more are kept, so no more are looked through.
    few(&mut error.violations, VIOLATIONS);
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

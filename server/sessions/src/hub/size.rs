//! The limits of a frame. Checked before anything is queued.

use ostler_proto::v1alpha1::{
    CreateMachineRequest, CreatePoolRequest, InitializeMachineRequest, Operation,
    UpdatePoolRequest, operation,
};
use prost::Message;

use crate::{ClassContent, FramePart, SubmitError};

/// A provider spec, in bytes.
pub(crate) const PROVIDER_SPEC: usize = 128 << 10;
const USER_DATA: usize = 256 << 10;
const CHECKPOINT: usize = 4 << 10;
const REST: usize = 64 << 10;
/// Sequence numbers, tag and length of the frame around an operation.
const ENVELOPE: usize = 64;

/// The size of an operation, if every part is within its limit and the whole within `frame` bytes.
pub(crate) fn check(
    operation: &Operation,
    class: Option<&ClassContent>,
    frame: usize,
) -> Result<usize, SubmitError> {
    let spec = class.map_or(0, |class| class.provider_spec_json.len());
    within(FramePart::ProviderSpec, spec, PROVIDER_SPEC)?;
    within(FramePart::Checkpoint, operation.checkpoint.len(), CHECKPOINT)?;
    let exempt = exempt_bytes(operation)?;
    let whole = operation.encoded_len() + ENVELOPE;
    within(FramePart::Rest, whole.saturating_sub(exempt), REST)?;
    within(FramePart::Frame, whole, frame)?;
    Ok(whole)
}

/// Bytes of user data and provider specs, each within its own limit.
fn exempt_bytes(operation: &Operation) -> Result<usize, SubmitError> {
    use operation::Request;
    let Some(request) = &operation.request else { return Ok(0) };
    match request {
        Request::CreateMachine(CreateMachineRequest { bootstrap, .. })
        | Request::InitializeMachine(InitializeMachineRequest { bootstrap, .. }) => {
            let bytes = bootstrap.as_ref().map_or(0, |data| data.user_data.len());
            within(FramePart::UserData, bytes, USER_DATA)
        }
        Request::CreatePool(CreatePoolRequest { model, .. })
        | Request::UpdatePool(UpdatePoolRequest { model, .. }) => {
            let bootstrap = model.as_ref().and_then(|model| model.bootstrap.as_ref());
            let bytes = bootstrap.map_or(0, |data| data.user_data.len());
            within(FramePart::UserData, bytes, USER_DATA)
        }
        Request::UpdateMachine(update) => {
            within(FramePart::ProviderSpec, update.last_applied_spec_json.len(), PROVIDER_SPEC)
        }
        Request::ValidateClass(validate) => {
            let new = validate.provider_spec_json.len();
            let old = validate.old_provider_spec_json.len();
            Ok(within(FramePart::ProviderSpec, new, PROVIDER_SPEC)?
                + within(FramePart::ProviderSpec, old, PROVIDER_SPEC)?)
        }
        Request::DeleteMachine(_)
        | Request::GetMachineStatus(_)
        | Request::ListMachines(_)
        | Request::GetVolumeIds(_)
        | Request::DeletePool(_)
        | Request::GetPoolStatus(_)
        | Request::ListPools(_)
        | Request::DeletePoolMachines(_)
        | Request::UpdatePoolMachine(_) => Ok(0),
    }
}

fn within(part: FramePart, bytes: usize, limit: usize) -> Result<usize, SubmitError> {
    if bytes <= limit { Ok(bytes) } else { Err(SubmitError::FrameTooLarge { part, bytes, limit }) }
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::{
        BootstrapData, GetVolumeIdsRequest, UpdateMachineRequest, ValidateClassRequest,
    };

    use super::*;

    const FRAME: usize = 1 << 20;

    fn of(request: operation::Request) -> Operation {
        Operation { request: Some(request), ..Default::default() }
    }

    fn create(user_data: usize) -> Operation {
        let bootstrap = Some(BootstrapData { user_data: vec![b'x'; user_data], ..<_>::default() });
        let create = CreateMachineRequest { bootstrap, ..Default::default() };
        of(operation::Request::CreateMachine(create))
    }

    fn update(spec: usize) -> Operation {
        let last_applied_spec_json = "x".repeat(spec);
        let update = UpdateMachineRequest { last_applied_spec_json, ..Default::default() };
        of(operation::Request::UpdateMachine(update))
    }

    fn validate(spec: usize) -> Operation {
        let provider_spec_json = "x".repeat(spec);
        let old_provider_spec_json = provider_spec_json.clone();
        let validate = ValidateClassRequest {
            provider_spec_json,
            old_provider_spec_json,
            ..Default::default()
        };
        of(operation::Request::ValidateClass(validate))
    }

    fn volumes(bytes: usize) -> Operation {
        let pv_specs_json = vec!["x".repeat(bytes)];
        of(operation::Request::GetVolumeIds(GetVolumeIdsRequest {
            pv_specs_json,
            ..Default::default()
        }))
    }

    #[test]
    fn each_part_may_be_as_large_as_its_limit_and_no_larger() {
        assert!(check(&create(USER_DATA), None, FRAME).is_ok());
        assert!(check(&update(PROVIDER_SPEC), None, FRAME).is_ok());
        assert!(check(&validate(PROVIDER_SPEC), None, FRAME).is_ok());
        assert!(check(&volumes(REST / 2), None, FRAME).is_ok());
        let checkpoint = Operation { checkpoint: "x".repeat(CHECKPOINT + 1), ..create(0) };
        let cases = [
            (create(USER_DATA + 1), FramePart::UserData),
            (update(PROVIDER_SPEC + 1), FramePart::ProviderSpec),
            (validate(PROVIDER_SPEC + 1), FramePart::ProviderSpec),
            (volumes(REST), FramePart::Rest),
            (checkpoint, FramePart::Checkpoint),
        ];
        for (operation, expected) in cases {
            match check(&operation, None, FRAME) {
                Err(SubmitError::FrameTooLarge { part, .. }) => assert_eq!(part, expected),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_spec_of_the_class_is_checked_though_it_does_not_travel_in_the_frame() {
        let provider_spec_json = "x".repeat(PROVIDER_SPEC + 1);
        let class = ClassContent { provider_spec_json, ..Default::default() };
        let refused = check(&create(0), Some(&class), FRAME).unwrap_err();
        assert!(matches!(
            refused,
            SubmitError::FrameTooLarge { part: FramePart::ProviderSpec, .. }
        ));
    }

    #[test]
    fn a_driver_with_smaller_frames_gets_no_larger_ones() {
        let refused = check(&create(USER_DATA), None, 100 << 10).unwrap_err();
        assert!(matches!(refused, SubmitError::FrameTooLarge { part: FramePart::Frame, .. }));
    }
}

//! The operation of a Machine, as the sessions know it.

use ostler_api::ProviderName;
use ostler_api::driver::{Certainty, ErrorCode};
use ostler_lifecycle::operation::{Dispatch, Failure, Finished, OperationView, Reason};
use ostler_sessions::SubmitError;

/// The operation of a machine whose instance, or else class, has this provider, if the provider is known. The answer of
/// another provider's driver does not count: it may not even know this infrastructure. `refused`: the operation that
/// the sessions refused for good.
pub(super) fn of_machine(
    mut view: OperationView,
    refused: impl Fn() -> Option<Finished>,
    provider: Option<&ProviderName>,
) -> OperationView {
    let is_foreign = |of: &ProviderName| provider.is_some_and(|provider| provider != of);
    match &mut view {
        OperationView::Idle => return refused().map_or(view, OperationView::Finished),
        OperationView::InFlight(flight) if is_foreign(&flight.provider) => flight.progress = None,
        OperationView::Finished(finished) if is_foreign(&finished.provider) => {
            let text = format!(
                "the answer came from a driver of {}, which is not the provider of the machine",
                finished.provider
            );
            let (code, reason) = (ErrorCode::Internal, Reason::ForeignProvider);
            // The effect is unknown: the next operation must be a read.
            finished.outcome = Err(Failure::by_core(code, reason, &text, Certainty::Unknown));
            finished.checkpoint = None;
        }
        OperationView::Expected(_) | OperationView::InFlight(_) | OperationView::Finished(_) => {}
    }
    view
}

/// An operation refused for good by the sessions, as a failed one; `None`: the sessions may accept it later.
pub(super) fn never_sent(dispatch: &Dispatch, refused: &SubmitError) -> Option<Finished> {
    match refused {
        SubmitError::FrameTooLarge { .. } | SubmitError::KindUnsupported { .. } => Some(Finished {
            id: dispatch.id.clone(),
            provider: dispatch.provider.clone(),
            kind: dispatch.kind(),
            idempotency_key: dispatch.idempotency_key.clone(),
            outcome: Err(refused.failure()),
            checkpoint: Some(dispatch.checkpoint.clone()),
        }),
        SubmitError::NoDriver { .. }
        | SubmitError::LooksOnly { .. }
        | SubmitError::TargetBusy { .. }
        | SubmitError::QueueFull { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ostler_api::driver::OperationKind;
    use ostler_lifecycle::operation::{InFlight, InstanceRecord, Place, Progress, Success};

    use super::*;

    fn finished(success: Success, kind: OperationKind) -> OperationView {
        OperationView::Finished(Finished {
            id: "op-1".into(),
            provider: "a.example.com".into(),
            kind,
            idempotency_key: "u:x".into(),
            outcome: Ok(success),
            checkpoint: Some("of a".into()),
        })
    }

    fn of(provider: Option<&str>, view: OperationView) -> OperationView {
        of_machine(view, || None, provider.map(ProviderName::from).as_ref())
    }

    #[test]
    fn an_answer_of_another_provider_counts_as_unknown_and_is_followed_by_a_read() {
        let gone = Success::Deleted { was_absent: false };
        let made = InstanceRecord { provider_id: "a:///vm".into(), ..<_>::default() };
        for (success, kind) in [
            (gone, OperationKind::DeleteMachine),
            (Success::Created(made), OperationKind::CreateMachine),
        ] {
            let view = || finished(success.clone(), kind);
            let OperationView::Finished(foreign) = of(Some("b.example.com"), view()) else {
                panic!()
            };
            let failure = foreign.outcome.unwrap_err();
            assert_eq!(failure.certainty, Certainty::Unknown);
            assert_eq!((foreign.checkpoint, foreign.kind), (None, kind));
            for provider in [Some("a.example.com"), None] {
                let OperationView::Finished(own) = of(provider, view()) else { panic!() };
                assert!(own.outcome.is_ok(), "{provider:?}");
                assert_eq!(own.checkpoint.as_deref(), Some("of a"));
            }
        }
    }

    #[test]
    fn progress_reported_by_a_driver_of_another_provider_is_dropped() {
        let progress = Progress {
            stage: "Boot".into(),
            message: String::new(),
            percent: 7,
            checkpoint: "of a".into(),
        };
        let view = OperationView::InFlight(InFlight {
            id: "op-1".into(),
            provider: "a.example.com".into(),
            kind: OperationKind::CreateMachine,
            idempotency_key: "u:c".into(),
            age: Duration::ZERO,
            cancelled: false,
            progress: Some(progress.clone()),
            stalled: false,
            place: Place::Sent,
        });
        let OperationView::InFlight(flight) = of(Some("b.example.com"), view.clone()) else {
            panic!()
        };
        assert_eq!(flight.progress, None);
        let OperationView::InFlight(flight) = of(Some("a.example.com"), view) else { panic!() };
        assert_eq!(progress.to_string(), "Boot");
        assert_eq!(flight.progress, Some(progress));
    }
}

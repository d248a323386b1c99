//! The relation between the operation in the status and the operation in the sessions. Here a crash
//! at any point is found out.

use ostler_api::machine::OperationIntent;

use crate::operation::{Finished, OperationView};

/// Where the operation of a Machine stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OperationState<'a> {
    /// No mutation is intended, nothing is in flight.
    Free,
    /// A driver works on something, or will: nothing else may be sent.
    Working,
    /// A mutation was intended, and its outcome is unknown: the core died between writing
    /// and sending, or the result was lost, or the driver could not tell. A read decides.
    Unresolved,
    /// A result that has not been recorded.
    Answer(&'a Finished),
    /// A result that was recorded already, or of an intent that is no more.
    Stale(&'a Finished),
}

/// Compares the two.
pub(crate) fn compare<'a>(
    intent: Option<&OperationIntent>,
    view: &'a OperationView,
) -> OperationState<'a> {
    match view {
        OperationView::InFlight(_) => OperationState::Working,
        // Without an intent nothing was ever sent that could come back.
        OperationView::Expected(_) if intent.is_some() => OperationState::Working,
        OperationView::Idle if intent.is_some() => OperationState::Unresolved,
        OperationView::Idle | OperationView::Expected(_) => OperationState::Free,
        OperationView::Finished(finished) => {
            if !finished.kind.is_mutation() || intent.is_some_and(|intent| fits(intent, finished)) {
                OperationState::Answer(finished)
            } else {
                OperationState::Stale(finished)
            }
        }
    }
}

/// The same operation, or another delivery of the same intent: both speak of the same work.
fn fits(intent: &OperationIntent, finished: &Finished) -> bool {
    intent.id == finished.id
        || (intent.idempotency_key == finished.idempotency_key
            && intent.operation_kind() == Some(finished.kind))
}

#[cfg(test)]
mod tests {
    use ostler_api::driver::OperationKind;

    use super::*;
    use crate::operation::{InFlight, Success};

    fn intent() -> OperationIntent {
        OperationIntent {
            id: "1".into(),
            kind: OperationKind::DeleteMachine.into(),
            idempotency_key: "u:d".into(),
            class_revision: None,
            spec_digest: None,
            term: 1,
            attempt: 1,
            started_at: None,
            provider_id: None,
            outcome_unknown: false,
        }
    }

    fn finished(id: &str, key: &str, kind: OperationKind) -> OperationView {
        OperationView::Finished(Finished {
            id: id.into(),
            provider: "".into(),
            kind,
            idempotency_key: key.into(),
            outcome: Ok(Success::Deleted { was_absent: false }),
            checkpoint: None,
        })
    }

    fn in_flight() -> OperationView {
        OperationView::InFlight(InFlight {
            id: "9".into(),
            provider: "".into(),
            kind: OperationKind::GetMachineStatus,
            idempotency_key: "u:s".into(),
            age: std::time::Duration::ZERO,
            cancelled: false,
            progress: None,
            stalled: false,
            place: crate::operation::Place::Sent,
        })
    }

    #[test]
    fn only_an_intent_waits_for_drivers_that_may_come_back() {
        let expected = OperationView::Expected(std::time::Duration::from_secs(9));
        assert_eq!(compare(Some(&intent()), &expected), OperationState::Working);
        assert_eq!(compare(None, &expected), OperationState::Free);
    }

    #[test]
    fn an_intent_that_nobody_works_on_is_unresolved() {
        assert_eq!(compare(Some(&intent()), &OperationView::Idle), OperationState::Unresolved);
        assert_eq!(compare(None, &OperationView::Idle), OperationState::Free);
    }

    #[test]
    fn whatever_is_in_flight_is_waited_for() {
        assert_eq!(compare(Some(&intent()), &in_flight()), OperationState::Working);
        assert_eq!(compare(None, &in_flight()), OperationState::Working);
    }

    #[test]
    fn a_result_of_the_intent_or_of_another_delivery_of_it_is_an_answer() {
        for (id, key) in [("1", "u:d"), ("2", "u:d"), ("1", "other")] {
            let view = finished(id, key, OperationKind::DeleteMachine);
            assert!(
                matches!(compare(Some(&intent()), &view), OperationState::Answer(_)),
                "{id} {key}"
            );
        }
    }

    #[test]
    fn a_result_of_another_intent_is_stale() {
        let view = finished("7", "u:c", OperationKind::CreateMachine);
        assert!(matches!(compare(Some(&intent()), &view), OperationState::Stale(_)));
        assert!(matches!(compare(None, &view), OperationState::Stale(_)));
    }

    #[test]
    fn the_result_of_a_read_is_always_an_answer() {
        let view = finished("7", "u:s", OperationKind::GetMachineStatus);
        assert!(matches!(compare(Some(&intent()), &view), OperationState::Answer(_)));
        assert!(matches!(compare(None, &view), OperationState::Answer(_)));
    }
}

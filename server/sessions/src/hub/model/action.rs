//! Possible events, and their frequency.

use ostler_proto::v1alpha1::Readiness;
use proptest::prelude::*;

use super::TARGETS;

/// A possible event. Numbers pick among the existing things.
#[derive(Debug, Clone, Copy)]
pub(super) enum Action {
    /// A stream is opened and says Hello as any of three instances. The driver holds its own
    /// operations, or nothing, as after a restart, or operations unknown to this core.
    Dial {
        instance: u8,
        retains: bool,
        holds: Holds,
    },
    State {
        session: u8,
        readiness: Readiness,
        credit: u8,
    },
    Accept {
        session: u8,
        operation: u8,
    },
    Complete {
        session: u8,
        operation: u8,
        error: Failing,
    },
    Progress {
        session: u8,
        operation: u8,
        checkpoint: u8,
    },
    /// The stream ends: by the driver, or broken.
    Break {
        session: u8,
        in_order: bool,
    },
    Submit {
        target: u8,
        mutation: bool,
    },
    Call {
        target: u8,
        mutation: bool,
    },
    Cancel {
        operation: u8,
    },
    Acknowledge {
        operation: u8,
    },
    Abandon {
        target: u8,
    },
    Pass {
        seconds: u16,
    },
    /// The driver answers a heartbeat, and lists its running operations or nothing at all.
    Beat {
        session: u8,
        honest: bool,
    },
    /// A caller asks a session to dial again, or ends it.
    Retire {
        session: u8,
        at_once: bool,
    },
    /// The driver ends in so many seconds.
    Leave {
        session: u8,
        seconds: i64,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Holds {
    Nothing,
    Own,
    /// Operations sent and recorded by an earlier core.
    Strange,
    /// Operations that the core never sent.
    MadeUp,
}

/// How an operation fails.
#[derive(Debug, Clone, Copy)]
pub(super) enum Failing {
    Somehow,
    Throttled,
    /// The operation reached an ending driver.
    Draining,
}

pub(super) fn action() -> impl Strategy<Value = Action> {
    let readiness = prop_oneof![
        4 => Just(Readiness::Ready),
        1 => Just(Readiness::NotReady),
        1 => Just(Readiness::Draining),
    ];
    let holds = prop_oneof![
        Just(Holds::Nothing),
        Just(Holds::Own),
        Just(Holds::Strange),
        Just(Holds::MadeUp),
    ];
    prop_oneof![
        2 => (0..3_u8, any::<bool>(), holds)
            .prop_map(|(instance, retains, holds)| Action::Dial { instance, retains, holds }),
        3 => (any::<u8>(), readiness, 0..4_u8)
            .prop_map(|(session, readiness, credit)| Action::State { session, readiness, credit }),
        4 => (any::<u8>(), any::<u8>())
            .prop_map(|(session, operation)| Action::Accept { session, operation }),
        4 => (any::<u8>(), any::<u8>(), failing())
            .prop_map(|(session, operation, error)| Action::Complete { session, operation, error }),
        1 => (any::<u8>(), any::<u8>(), any::<u8>()).prop_map(
            |(session, operation, checkpoint)| Action::Progress { session, operation, checkpoint }
        ),
        1 => (any::<u8>(), any::<bool>())
            .prop_map(|(session, in_order)| Action::Break { session, in_order }),
        5 => (0..TARGETS, any::<bool>())
            .prop_map(|(target, mutation)| Action::Submit { target, mutation }),
        2 => (0..TARGETS, any::<bool>())
            .prop_map(|(target, mutation)| Action::Call { target, mutation }),
        1 => any::<u8>().prop_map(|operation| Action::Cancel { operation }),
        2 => any::<u8>().prop_map(|operation| Action::Acknowledge { operation }),
        1 => (0..TARGETS).prop_map(|target| Action::Abandon { target }),
        2 => (0..90_u16).prop_map(|seconds| Action::Pass { seconds }),
        2 => (any::<u8>(), any::<bool>())
            .prop_map(|(session, honest)| Action::Beat { session, honest }),
        1 => (any::<u8>(), any::<bool>())
            .prop_map(|(session, at_once)| Action::Retire { session, at_once }),
        1 => (any::<u8>(), prop_oneof![9 => 1..60_i64, 1 => Just(i64::MAX)])
            .prop_map(|(session, seconds)| Action::Leave { session, seconds }),
    ]
}

fn failing() -> impl Strategy<Value = Failing> {
    prop_oneof![
        3 => Just(Failing::Somehow),
        1 => Just(Failing::Throttled),
        1 => Just(Failing::Draining),
    ]
}

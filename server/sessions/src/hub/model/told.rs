//! The controllers' events about running operations: stalls and losses.

use ostler_proto::v1alpha1::Readiness;

use super::action::{Action, Failing, Holds};
use super::{Owner, Place, World};

/// The controllers' knowledge about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Told {
    pub(super) stalled: bool,
    pub(super) lost: bool,
}

impl World {
    /// The controllers' knowledge about an operation without an outcome. An event was true when the hub sent it, and
    /// may be over: several timers may be due in one step.
    pub(super) fn tell(&mut self, id: &str) -> &mut Told {
        assert_eq!(self.outcomes.get(id), Some(&0), "{id} does not run");
        self.told.entry(id.to_owned()).or_default()
    }

    /// The controllers know the shown state.
    pub(super) fn check_told(&self) {
        for (id, operation) in &self.hub.operations {
            if matches!(operation.owner, Owner::Target) {
                let lost = matches!(operation.place, Place::Away(_));
                let shown = Told { stalled: operation.stalled, lost };
                // No state of an ended operation.
                let told = self.told.get(id.as_str()).copied().unwrap_or_default();
                assert_eq!(told, shown, "{id}: {:?}", operation.place);
            }
        }
    }
}

/// With a driver to which a mutation was sent.
fn with_one_sent() -> World {
    let mut world = World::new();
    world.act(Action::Dial { instance: 0, retains: true, holds: Holds::Nothing });
    world.act(Action::State { session: 0, readiness: Readiness::Ready, credit: 1 });
    world.act(Action::Submit { target: 0, mutation: true });
    world
}

/// Found by the property: an operation stalls in the moment in which the drain of its session is over.
/// The controllers hear about both, in this order.
#[test]
fn an_operation_stalls_in_the_moment_in_which_its_session_ends() {
    let mut world = with_one_sent();
    world.act(Action::Accept { session: 0, operation: 0 });
    world.act(Action::Pass { seconds: 60 });
    world.act(Action::Retire { session: 0, at_once: false });
    assert_eq!(world.told.get("op-0"), None);
    world.act(Action::Pass { seconds: 30 });
    assert_eq!(world.told["op-0"], Told { stalled: true, lost: true });
    // The driver comes back with the operation, and is watched anew.
    world.act(Action::Dial { instance: 0, retains: true, holds: Holds::Own });
    assert_eq!(world.told["op-0"], Told::default());
    world.end();
}

/// Found by the property: of an operation that was lost on its way, and is sent again, the controllers
/// were not told that it is lost no more.
#[test]
fn an_operation_that_never_arrived_is_told_to_be_lost_no_more() {
    let mut world = with_one_sent();
    world.act(Action::Break { session: 0, in_order: false });
    assert_eq!(world.told["op-0"], Told { stalled: false, lost: true });
    world.act(Action::Dial { instance: 0, retains: true, holds: Holds::Nothing });
    assert_eq!(world.told["op-0"], Told::default());
    world.end();
}

/// An operation that stalled and ended without another word is not shown as stalled.
#[test]
fn an_operation_that_stalled_and_ended_is_not_stalled() {
    let mut world = with_one_sent();
    world.act(Action::Accept { session: 0, operation: 0 });
    world.act(Action::Pass { seconds: 90 });
    assert!(world.told["op-0"].stalled && world.hub.operations["op-0"].stalled);
    world.act(Action::Complete { session: 0, operation: 0, error: Failing::Somehow });
    assert!(!world.hub.operations["op-0"].stalled);
    world.end();
}

//! What is recorded when a write did not come through.

use ostler_api::{machine::WaitReason, names::label};
use ostler_lifecycle::{
    machine,
    plan::{Action, Next, Performed},
    record::record,
};

use crate::world::{World, seconds};

#[test]
fn what_could_not_be_said_on_a_node_is_said_again_soon() {
    let mut world = World::running();
    let mut node = world.node().clone();
    let labels = node.metadata.labels.get_or_insert_default();
    labels.insert(label::CANDIDATE_FOR_UPDATE.to_owned(), "true".to_owned());
    world.node = ostler_lifecycle::snapshot::NodeView::Known(node.into());
    let snapshot = world.snapshot();
    let plan = machine::plan(&snapshot);
    assert!(matches!(plan.actions.as_slice(), [Action::PatchNodeStatus(_)]), "{:?}", plan.actions);
    assert_eq!(plan.next, Next::OnChange);
    for (performed, again) in [
        (Performed::Conflict, true),
        (Performed::Failed("500".to_owned()), true),
        (Performed::Done, false),
        (Performed::Gone, false),
    ] {
        let recorded = record(&snapshot, &plan, std::slice::from_ref(&performed));
        let soon = Next::Wait { reason: WaitReason::ApiWriteFailed, until: seconds(world.now, 2) };
        let expected = if again { soon } else { Next::OnChange };
        assert_eq!((recorded.proceed, recorded.next), (true, expected), "{performed:?}");
    }
}

#[test]
fn a_status_is_of_the_generation_that_the_own_patch_of_its_pass_made() {
    let mut world = World::new();
    world.pass();
    world.answer();
    let snapshot = world.snapshot();
    let plan = machine::plan(&snapshot);
    let performed = vec![Performed::Done; plan.actions.len()];
    let recorded = record(&snapshot, &plan, &performed).observing(Some(7));
    assert_eq!(recorded.unwritten.unwrap().status.observed_generation, Some(7));
    world.pass();
    world.later(2);
    let snapshot = world.snapshot();
    let plan = machine::plan(&snapshot);
    let recorded = record(&snapshot, &plan, &[]).observing(Some(8));
    assert_eq!(recorded.status.unwrap()["observedGeneration"], 8);
}

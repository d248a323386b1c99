//! Whose a Node is, as it says beside our finalizer.

use std::sync::Arc;

use ostler_api::names::annotation::CLUSTER_ID;
use ostler_lifecycle::snapshot::NodeView;

use crate::world::World;

fn noted(world: &World) -> Option<&str> {
    world.node().metadata.annotations.as_ref()?.get(CLUSTER_ID).map(String::as_str)
}

#[test]
fn a_node_says_the_core_of_which_cluster_holds_it() {
    for (what, there, held, expected) in [
        ("an older core held it", None, true, "ours"),
        ("the cluster has another id since", Some("before"), true, "ours"),
        ("another core calls it its own, too", Some("theirs"), true, "theirs"),
        ("another core released it", Some("theirs"), false, "ours"),
    ] {
        let mut world = World::running();
        assert_eq!(noted(&world), Some("ours"));
        world.cluster.previous.push("before".to_owned());
        let mut node = world.node().clone();
        let notes = node.metadata.annotations.as_mut().unwrap();
        notes.remove(CLUSTER_ID);
        notes.extend(there.map(|id| (CLUSTER_ID.to_owned(), id.to_owned())));
        if !held {
            node.metadata.finalizers = None;
        }
        world.node = NodeView::Known(Arc::new(node));
        world.settle();
        assert_eq!(noted(&world), Some(expected), "{what}");
        assert!(world.pass().actions.is_empty(), "{what}");
    }
}

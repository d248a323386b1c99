use ostler_lifecycle::{
    class::FinalizerChange as Finalizer,
    set::{Blind, Blocker, decide as plan},
};
use serde_json::json;

use crate::set::objects::{decide, deleting, running, set, snapshot, victims};

fn gone(finalizers: serde_json::Value) -> ostler_api::MachineSet {
    let deletion = "2026-01-01T11:00:00Z";
    set(3, json!({ "metadata": { "deletionTimestamp": deletion, "finalizers": finalizers } }))
}

const OURS: &str = "machine.sapcloud.io/machine-controller-manager";

#[test]
fn the_finalizer_comes_before_the_first_machine() {
    let plan = decide(set(3, json!({ "metadata": { "finalizers": null } })), Vec::new());
    assert_eq!((plan.finalizer, plan.create), (Finalizer::Add, 0));
}

#[test]
fn a_deleted_set_deletes_its_machines_and_goes_after_the_last_one() {
    let mut all = running(2);
    all.push(deleting("x"));
    let plan = decide(gone(json!([OURS])), all);
    assert_eq!((victims(&plan), plan.finalizer), (vec!["m0", "m1"], Finalizer::Keep));
    let plan = decide(gone(json!([OURS])), vec![deleting("x")]);
    assert!(plan.is_idle());
    assert_eq!(decide(gone(json!([OURS])), Vec::new()).finalizer, Finalizer::Remove);
}

#[test]
fn it_does_not_go_while_one_of_its_creations_may_still_arrive() {
    let mut snap = snapshot(gone(json!([OURS])), Vec::new());
    snap.unanswered = vec!["s-a".into()];
    assert_eq!(plan(&snap).finalizer, Finalizer::Keep);
    let mut snap = snapshot(gone(json!([OURS])), Vec::new());
    snap.blind = Some(Blind::Predecessor);
    assert_eq!(plan(&snap).finalizer, Finalizer::Keep);
}

#[test]
fn a_deletion_with_cascade_orphan_deletes_no_machine() {
    let plan = decide(gone(json!([OURS, "orphan"])), running(2));
    assert_eq!((plan.is_idle(), plan.blocker), (true, Some(Blocker::Orphaning)));
    assert_eq!(decide(gone(json!([OURS])), Vec::new()).finalizer, Finalizer::Remove);
}

//! What reads of a group show, and how often.

use std::sync::Arc;

use jiff::Timestamp;
use ostler_api::{
    Machine, MachinePool,
    driver::{Certainty, ErrorCode, OperationKind},
    operation::{Failure, Finished, InstanceRecord, PoolInstance, PoolRecord, Success},
};
use ostler_lifecycle::pool::{GroupView, Known, Read, Reading, expected};
use serde_json::json;

use crate::pool::world::World;

/// The driver's answer for a group with these instances.
fn reading(ids: &[&str]) -> Reading {
    let record = PoolRecord { provider_id: "group".into(), ..PoolRecord::default() };
    Reading::new(record, ids.iter().map(|id| instance(id, "")).collect(), Timestamp::UNIX_EPOCH)
}

fn instance(id: &str, model: &str) -> PoolInstance {
    let instance = InstanceRecord { provider_id: id.into(), ..InstanceRecord::default() };
    PoolInstance { instance, model_hash: model.to_owned(), ..PoolInstance::default() }
}

fn machine(id: &str, step: Option<&str>) -> Arc<Machine> {
    let machine = json!({
        "metadata": {
            "name": id, "uid": id, "deletionTimestamp": step.map(|_| "2026-01-01T00:00:00Z")
        },
        "spec": { "providerID": id }, "status": { "step": step }
    });
    Arc::new(serde_json::from_value(machine).unwrap())
}

/// A pool with an operation on instances.
fn asked(id: &str, kind: &str, ids: &[&str]) -> MachinePool {
    let mut pool = World::new(1, json!({})).pool;
    let status = json!({ "operation": {
        "id": id, "kind": kind, "idempotencyKey": "k", "term": 1, "attempt": 1,
        "startedAt": "2026-01-01T00:00:00Z", "providerIDs": ids,
    } });
    pool.status = Some(serde_json::from_value(status).unwrap());
    pool
}

fn finished(id: &str, kind: OperationKind, success: Success) -> Finished {
    Finished {
        id: id.into(),
        provider: "fake.ostler.dev".into(),
        kind,
        idempotency_key: "k".into(),
        outcome: Ok(success),
        checkpoint: None,
    }
}

#[test]
fn a_look_that_something_is_missing_counts_only_if_it_is_apart_from_the_one_before() {
    let mut known = Known::default();
    let machines =
        [machine("a", None), machine("b", None), machine("done", Some("DeleteInstance"))];
    let machines: Vec<&Machine> = machines.iter().map(AsRef::as_ref).collect();
    let mut looks = |there: &[&str], soon| {
        known.take(Read::Found(reading(there)), &machines, soon);
        let absent = &known.view.known().unwrap().absent;
        ["a", "b", "done"].map(|uid| absent.get(uid).copied().unwrap_or(0))
    };
    assert_eq!(looks(&["b", "done"], false), [1, 0, 0]);
    assert_eq!(looks(&[], true), [1, 0, 1], "one that is drained needs no second look");
    assert_eq!(looks(&[], false), [2, 1, 2]);
    assert_eq!(looks(&["a", "b", "done"], false), [0, 0, 0]);

    let mut nothing = |soon| {
        known.take(Read::Missed, &[], soon);
        known.view.clone()
    };
    assert_eq!(nothing(false), GroupView::Absent(1));
    assert_eq!(nothing(true), GroupView::Absent(1), "immediately");
    assert_eq!(nothing(false), GroupView::Absent(2));
}

/// A group that cannot make a replacement names no instance: the machine stayed Terminating.
#[test]
fn what_the_driver_says_that_it_deleted_is_gone_also_if_the_next_read_names_no_instance() {
    let mut known = Known::default();
    let machines = ["deleted", "refused", "other"].map(|id| machine(id, None));
    let pool = asked("op", "DeletePoolMachines", &["deleted", "refused"]);
    let refused = Failure::new(ErrorCode::Internal, Certainty::NotApplied, "no");
    let all: Vec<&Machine> = machines.iter().map(AsRef::as_ref).collect();
    let mut absent = |id: &str, there: &[&str]| {
        let not_deleted = vec![("refused".into(), refused.clone())];
        let success = Success::PoolMachinesDeleted { pool: PoolRecord::default(), not_deleted };
        let finished = finished(id, OperationKind::DeletePoolMachines, success);
        known.succeeded(&finished, (&pool, &machines), Timestamp::UNIX_EPOCH);
        known.take(Read::Found(Reading { desired: 1, ..reading(there) }), &all, false);
        known.view.known().unwrap().absent.keys().cloned().collect::<Vec<_>>()
    };
    assert!(absent("another", &[]).is_empty(), "it was asked for something else");
    assert_eq!(absent("op", &[]), ["deleted"]);
    assert_eq!(absent("op", &[]), ["deleted"], "in doubt it stays so");
    assert!(absent("op", &["deleted", "refused", "other"]).is_empty(), "it is there");
}

/// The read that was begun before the update shows the old model: the instance would be updated again.
#[test]
fn what_is_said_of_an_instance_while_the_group_is_read_counts_more_than_the_read() {
    let mut known = Known::default();
    known.begin();
    let told = Success::PoolMachineUpdated(instance("a", "new"));
    let told = finished("op", OperationKind::UpdatePoolMachine, told);
    let pool = asked("op", "UpdatePoolMachine", &["a"]);
    known.succeeded(&told, (&pool, &[]), Timestamp::UNIX_EPOCH);
    let models = |known: &mut Known| {
        known.take(Read::Found(reading(&["a", "b"])), &[], false);
        let all = &known.view.known().unwrap().instances;
        all.iter().map(|it| it.model_hash.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(models(&mut known), ["new", ""]);
    known.begin();
    assert_eq!(models(&mut known), ["", ""], "one that began later has the last word");
}

#[test]
fn an_instance_that_is_made_anew_in_its_update_is_not_gone_meanwhile() {
    let machines = [machine("fake:///1", None), machine("fake:///2", None)];
    let none = asked("o", "DeletePoolMachines", &["fake:///1"]);
    let update = asked("o", "UpdatePoolMachine", &["fake:///1"]);
    for (pools, counted) in [([&none, &none], 2), ([&update, &none], 1), ([&none, &update], 1)] {
        assert_eq!(expected(pools, &machines).len(), counted);
    }
}

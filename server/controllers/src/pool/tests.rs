use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::runtime::watcher::Event;
use ostler_api::Machine;
use ostler_api::driver::{Certainty, ErrorCode, OperationKind};
use ostler_api::machine::{InstanceState, InstanceStatus};
use ostler_api::operation::{Failure, Finished, InstanceRecord, PoolInstance, PoolRecord, Success};
use ostler_lifecycle::pool::{Cause, GroupView, Instance, Reading, Victim};
use ostler_lifecycle::snapshot::ClassFacts;
use serde_json::json;
use tokio::time::advance;

use super::*;
use crate::bench::{Bench, put};
use crate::client::PATIENCE;
use crate::election::Predecessor;
use crate::set::Stage;

fn controller(bench: &Bench) -> Pools {
    Pools {
        writer: bench.writer(),
        stores: bench.stores.clone(),
        sessions: bench.sessions.clone(),
        settings: Arc::clone(&bench.settings),
        clock: DebugClock(Arc::new(|| Timestamp::UNIX_EPOCH)),
        recorder: bench.recorder(),
        groups: Arc::default(),
        handover: Handover::over(),
        reads: Reads::default(),
        term: Term(1),
    }
}

fn pool(uid: &str) -> MachinePool {
    serde_json::from_value(json!({
        "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
        "metadata": { "name": "p", "namespace": "default", "uid": uid },
        "spec": { "template": { "spec": { "class": { "kind": "MachineClass", "name": "c" } } } }
    }))
    .unwrap()
}

fn machine() -> Machine {
    serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": "m", "namespace": "default", "uid": "m", "resourceVersion": "7" },
        "spec": {}
    }))
    .unwrap()
}

async fn delete(bench: &Bench, cause: Cause) -> (Wrote, bool) {
    let (pools, pool) = (controller(bench), pool("p"));
    let api = bench.writer().api::<Machine>("default");
    let victim = Victim { machine: Arc::new(machine()), cause };
    let wrote = pools.delete_one(&pool, &api, &victim).await;
    (wrote, pools.groups.with(&pool, |group| group.deleted.contains_key("m")))
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_changed_since_it_was_chosen_is_not_deleted_and_the_pool_chooses_again() {
    let bench = Bench::new().refusing(409);
    // No failure, for which the next pass would wait longer and longer.
    assert_eq!(delete(&bench, Cause::Surplus).await, (Wrote::Outdated, false));
    assert_eq!(bench.writes()[0].1["preconditions"]["resourceVersion"], "7");
}

/// A Machine that boots is written by its own controller at the same time: the pool of 3,000 waited longer and longer.
#[tokio::test(start_paused = true)]
async fn a_machine_that_another_wrote_meanwhile_is_no_failure_of_its_pool() {
    let bench = Bench::new().refusing(409);
    let said = json!({ "provisioningState": "Succeeded", "latestModelApplied": true });
    let said: InstanceStatus = serde_json::from_value(said).unwrap();
    let instances = vec![(Arc::new(machine()), said)];
    let plan = Plan { instances, ..Plan::default() };
    let api = bench.writer().api::<Machine>("default");
    let wrote = controller(&bench).patch_all(&pool("p"), &api, &plan).await;
    assert_eq!(wrote, [Wrote::Outdated]);
}

/// It was told that its instance is gone in the same pass, so its version is another one.
#[tokio::test(start_paused = true)]
async fn a_machine_that_goes_whatever_it_is_like_is_deleted_in_any_version() {
    for cause in [Cause::InstanceGone, Cause::PoolGone] {
        let bench = Bench::new();
        assert_eq!(delete(&bench, cause).await, (Wrote::Fine, true));
        assert_eq!(bench.writes()[0].1["preconditions"], json!({ "uid": "m" }));
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_a_pool_that_is_gone_or_was_made_again() {
    let bench = Bench::new();
    let pools = controller(&bench);
    let listed = |uid: &str| pools.groups.with(&pool(uid), |group| group.listed);
    pools.groups.with(&pool("p"), |group| group.listed = true);
    assert!(listed("p"));
    assert!(!listed("another"), "one of the same name");
    pools.groups.with(&pool("p"), |group| group.listed = true);
    // Its finalizer was removed by force: the cache does not have it.
    assert!(pools.observe(&ObjectName::of(&pool("p"))).await.unwrap().is_none());
    assert!(!listed("p"));
}

/// Whether it can be made, what is written, and whether the pool takes it for refused.
async fn create_beside(found: serde_json::Value) -> (bool, Option<serde_json::Value>, bool) {
    let bench = Bench::new().having_already(found);
    let (pools, pool) = (controller(&bench), pool("p"));
    let api = bench.writer().api::<Machine>("default");
    let mut machine = machine();
    machine.spec.provider_id = Some("fake:///1".into());
    let fine = Box::pin(pools.create_one(&pool, &api, &machine)).await == Wrote::Fine;
    let patched = bench.writes().into_iter().find(|(what, _)| what.starts_with("PATCH"));
    let refused = pools.groups.with(&pool, |group| group.refused_machines);
    (fine, patched.map(|(_, body)| body), refused)
}

#[tokio::test(start_paused = true)]
async fn a_machine_whose_reference_to_its_pool_was_removed_is_taken_back_and_no_other_one() {
    let found = |id: &str, owners: serde_json::Value| {
        let mut found = serde_json::to_value(machine()).unwrap();
        found["spec"]["providerID"] = json!(id);
        found["metadata"]["ownerReferences"] = owners;
        found
    };
    let owner = |controller: bool| json!([{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": controller }]);
    let (fine, patched, refused) = create_beside(found("fake:///1", owner(false))).await;
    let patched = &patched.unwrap()["metadata"];
    assert!(fine && !refused);
    assert_eq!(
        (&patched["resourceVersion"], &patched["ownerReferences"][0]["uid"]),
        (&json!("7"), &json!("x"))
    );
    assert_eq!(patched["ownerReferences"][1]["uid"], "p");
    // The instance may have a Node: its group does not go meanwhile.
    assert_eq!(create_beside(found("fake:///1", owner(true))).await, (false, None, false));
    assert_eq!(create_beside(found("fake:///2", json!([]))).await, (false, None, true));
    let mut before = found("fake:///2", owner(true));
    before["metadata"]["ownerReferences"][0]["uid"] = json!("p");
    assert_eq!(create_beside(before).await, (true, None, false), "its own, of the instance before");
}

/// It was taken for that of an instance before it, and its instance had none.
#[tokio::test(start_paused = true)]
async fn a_machine_of_the_pool_without_any_id_gets_that_of_its_instance_unless_it_is_being_deleted()
{
    for (owner, deleted, id) in [
        ("p", None, json!("fake:///1")),
        ("p", Some("2026-01-01T00:00:00Z"), json!(null)),
        ("x", None, json!(null)),
    ] {
        let mut found = serde_json::to_value(machine()).unwrap();
        found["metadata"]["deletionTimestamp"] = json!(deleted);
        found["metadata"]["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "X", "name": "p", "uid": owner, "controller": true }]);
        let (fine, patched, _) = create_beside(found).await;
        let patched = patched.unwrap_or_default();
        assert_eq!(
            (fine, &patched["spec"]["providerID"]),
            (owner == "p", &id),
            "{owner} {deleted:?}"
        );
        let version = if id.is_null() { json!(null) } else { json!("7") };
        assert_eq!(patched["metadata"]["resourceVersion"], version);
    }
}

/// Of two instances whose names differ in letters that no object can have.
#[tokio::test(start_paused = true)]
async fn an_instance_whose_machine_would_have_the_name_of_that_of_another_is_told_of() {
    for (there, told) in [(&["fake:///1", "fake:///2"][..], true), (&["fake:///1"], false)] {
        let mut found = serde_json::to_value(machine()).unwrap();
        found["spec"]["providerID"] = json!("fake:///2");
        let owner = json!([{ "apiVersion": "v1", "kind": "X", "name": "p", "uid": "p", "controller": true }]);
        found["metadata"]["ownerReferences"] = owner;
        let bench = Bench::new().having_already(found);
        let (recorder, events) = bench.recorder_and_writer();
        let (pools, pool) = (Pools { recorder, ..controller(&bench) }, pool("p"));
        pools.groups.with(&pool, |group| group.found(reading(there), &[]));
        let mut machine = machine();
        machine.spec.provider_id = Some("fake:///1".into());
        let api = bench.writer().api::<Machine>("default");
        assert_eq!(Box::pin(pools.create_one(&pool, &api, &machine)).await, Wrote::Fine);
        assert_eq!(bench.told(events).await.contains(&"FailedCreate".to_owned()), told);
    }
}

/// A leader of a thousand pools listed all Machines of the namespace for each of them.
#[tokio::test(start_paused = true)]
async fn what_the_process_before_did_last_is_listed_once_for_all_pools_and_awaited_in_the_cache() {
    let of_pool = |name: &str, deleting: bool| {
        let mut machine = serde_json::to_value(machine()).unwrap();
        let meta = &mut machine["metadata"];
        (meta["name"], meta["uid"]) = (json!(name), json!(name));
        if deleting {
            meta["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        meta["ownerReferences"] = json!([{ "apiVersion": "v1", "kind": "X", "name": "p", "uid": "p", "controller": true }]);
        machine["spec"]["providerID"] = json!(format!("fake:///{name}"));
        machine
    };
    let items = [of_pool("created", false), of_pool("deleted", true), of_pool("known", false)];
    let list = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineList", "metadata": {},
        "items": items
    });
    let bench = Bench::new().having(list);
    put(&bench.stores.pools, serde_json::to_value(pool("p")).unwrap());
    for name in ["deleted", "known"] {
        put(&bench.stores.machines, of_pool(name, false));
    }
    let handover = Handover::new(Predecessor::Ended);
    let (pools, pool) = (Pools { handover, ..controller(&bench) }, pool("p"));
    assert_eq!(pools.machines_of(&pool).await.unwrap().len(), 2, "those of the cache");
    pools.groups.with(&pool, |group| {
        assert_eq!(group.created.keys().collect::<Vec<_>>(), ["fake:///created"]);
        assert_eq!(group.deleted.keys().collect::<Vec<_>>(), ["deleted"]);
    });
    assert!(matches!(pools.handover.stage().await, Stage::Over), "no other pool lists them again");
}

#[tokio::test(start_paused = true)]
async fn a_group_gets_neither_the_instance_nor_the_node_of_a_machine_of_another() {
    let created = async |id: &str| {
        let bench = Bench::new();
        let theirs = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": "theirs", "namespace": "default", "uid": "t", "labels": { "node": "n" }
            },
            "spec": { "providerID": "other:///1" }
        });
        put(&bench.stores.machines, theirs);
        let (pools, pool) = (controller(&bench), pool("p"));
        let mut machine = machine();
        machine.metadata.uid = None;
        machine.metadata.labels = Some([("node".to_owned(), "n".to_owned())].into());
        machine.spec.provider_id = Some(id.into());
        let api = bench.writer().api::<Machine>("default");
        let wrote = Box::pin(pools.create_one(&pool, &api, &machine)).await;
        let refused = pools.groups.with(&pool, |group| group.refused_machines);
        let labels = bench.writes().first().map(|(_, body)| body["metadata"]["labels"].clone());
        (wrote, refused, labels)
    };
    assert_eq!(created("other:///1").await, (Wrote::Failed, true, None));
    assert_eq!(created("fake:///1").await, (Wrote::Fine, false, Some(json!({}))));
}

#[test]
fn an_instance_that_is_made_anew_in_its_update_is_not_gone_meanwhile() {
    let mut pool = serde_json::to_value(pool("p")).unwrap();
    let with_id = |id: &str| {
        let mut machine = machine();
        machine.spec.provider_id = Some(id.into());
        Arc::new(machine)
    };
    let machines = [with_id("fake:///1"), with_id("fake:///2")];
    for (kind, counted) in [("UpdatePoolMachine", 1), ("DeletePoolMachines", 2)] {
        pool["status"] = json!({ "operation": {
            "id": "o", "kind": kind, "idempotencyKey": "k", "term": 1, "attempt": 1,
            "startedAt": "2026-01-01T00:00:00Z", "providerIDs": ["fake:///1"],
        } });
        let pool: MachinePool = serde_json::from_value(pool.clone()).unwrap();
        assert_eq!(observe::expected(&pool, &machines).len(), counted, "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_refuses_no_machine() {
    for (code, refuses) in [(403, true), (422, true), (503, false), (500, false), (401, false)] {
        let bench = Bench::new().refusing(code);
        let (pools, pool) = (controller(&bench), pool("p"));
        let api = bench.writer().api::<Machine>("default");
        Box::pin(pools.create_one(&pool, &api, &machine())).await;
        let refused = pools.groups.with(&pool, |group| group.refused_machines);
        assert_eq!(refused, refuses, "{code}");
    }
}

/// It was created again in each pass while the watch lagged: eight times a second.
#[tokio::test(start_paused = true)]
async fn a_machine_is_created_once_although_the_watch_shows_it_late() {
    let mut pool = serde_json::to_value(pool("p")).unwrap();
    pool["metadata"]["finalizers"] = json!(["ostler.dev/machine-pool"]);
    pool["spec"]["replicas"] = json!(1);
    let bench = Bench::new().having(pool.clone());
    put(&bench.stores.pools, pool.clone());
    let pools = controller(&bench);
    let pool: MachinePool = serde_json::from_value(pool).unwrap();
    let instance = Instance {
        provider_id: "fake:///1".into(),
        id: "1".to_owned(),
        name: String::new(),
        node_name: String::new(),
        state: InstanceState::Succeeded,
        model_hash: "".into(),
        fault: None,
    };
    pools.groups.with(&pool, |group| {
        group.listed = true;
        group.view = GroupView::Known(Arc::new(Reading {
            provider_id: "fake:///group".into(),
            cluster_id: String::new(),
            desired: 1,
            model_hash: "".into(),
            fault: None,
            instances: vec![instance],
            absent: BTreeMap::new(),
            began: Timestamp::UNIX_EPOCH,
        }));
    });
    let name = ObjectName::of(&pool);
    let created = async || {
        let snapshot = pools.observe(&name).await.unwrap().unwrap();
        pools.execute(&snapshot, &Pools::plan(&snapshot)).await.unwrap();
        bench.writes().iter().filter(|(path, _)| path.starts_with("POST")).count()
    };
    assert_eq!((created().await, created().await), (1, 1));
    // It is seen, and a user deletes it.
    let (_, made) = bench.writes().remove(0);
    put(&bench.stores.machines, made.clone());
    assert_eq!(created().await, 1);
    bench.stores.machines.apply(Event::Delete(serde_json::from_value(made).unwrap()));
    assert_eq!((created().await, created().await), (2, 2));
    // It is never seen.
    tokio::time::advance(2 * PATIENCE).await;
    assert_eq!(created().await, 3);
}

/// What the driver says of a group with these instances.
fn reading(ids: &[&str]) -> Reading {
    let instance = |id: &&str| PoolInstance {
        instance: InstanceRecord { provider_id: (*id).into(), ..InstanceRecord::default() },
        ..PoolInstance::default()
    };
    let record = PoolRecord { provider_id: "group".into(), ..PoolRecord::default() };
    Reading::new(record, ids.iter().map(instance).collect(), Timestamp::UNIX_EPOCH)
}

#[tokio::test(start_paused = true)]
async fn a_look_that_something_is_missing_counts_only_if_it_is_apart_from_the_one_before() {
    let (groups, pool) = (Groups::default(), pool("p"));
    let of = |uid: &str, step: Option<&str>| -> Machine {
        serde_json::from_value(json!({
            "metadata": {
                "name": uid, "uid": uid,
                "deletionTimestamp": step.map(|_| "2026-01-01T00:00:00Z")
            },
            "spec": { "providerID": uid }, "status": { "step": step }
        }))
        .unwrap()
    };
    let machines = [of("a", None), of("b", None), of("done", Some("DeleteInstance"))];
    let machines: Vec<&Machine> = machines.iter().collect();
    let looks = |there: &[&str]| {
        groups.with(&pool, |group| {
            group.found(reading(there), &machines);
            let absent = group.view.known().unwrap().absent.clone();
            ["a", "b", "done"].map(|uid| absent.get(uid).copied().unwrap_or(0))
        })
    };
    assert_eq!(looks(&["b", "done"]), [1, 0, 0]);
    advance(Duration::from_secs(1)).await;
    assert_eq!(looks(&[]), [1, 0, 1], "one that is done needs no second look");
    advance(BUSY).await;
    assert_eq!(looks(&[]), [2, 1, 2]);
    advance(BUSY).await;
    assert_eq!(looks(&["a", "b", "done"]), [0, 0, 0]);

    let nothing = || {
        groups.with(&pool, |group| {
            group.missed();
            group.view.clone()
        })
    };
    assert_eq!(nothing(), GroupView::Absent(1));
    assert_eq!(nothing(), GroupView::Absent(1), "immediately");
    advance(BUSY).await;
    assert_eq!(nothing(), GroupView::Absent(2));
}

/// A group that cannot make another one in its place names none: its machine stayed Terminating.
#[tokio::test(start_paused = true)]
async fn what_the_driver_says_that_it_deleted_is_gone_also_if_the_next_read_names_no_instance() {
    let (groups, pool) = (Groups::default(), pool("p"));
    let of = |id: &str| {
        let mut machine = machine();
        machine.metadata.uid = Some(id.to_owned());
        machine.spec.provider_id = Some(id.into());
        Arc::new(machine)
    };
    let machines = [of("deleted"), of("refused"), of("other")];
    let intent = json!({
        "id": "op", "kind": "DeletePoolMachines", "idempotencyKey": "k",
        "providerIDs": ["deleted", "refused"]
    });
    let intent = serde_json::from_value(intent).unwrap();
    let refused = Failure::new(ErrorCode::Internal, Certainty::NotApplied, "no");
    let success = Success::PoolMachinesDeleted {
        pool: PoolRecord::default(),
        not_deleted: vec![("refused".into(), refused)],
    };
    let finished = |id: &str| Finished {
        id: id.into(),
        provider: "fake.ostler.dev".into(),
        kind: OperationKind::DeletePoolMachines,
        idempotency_key: "k".into(),
        outcome: Ok(success.clone()),
        checkpoint: None,
    };
    let all: Vec<&Machine> = machines.iter().map(AsRef::as_ref).collect();
    let absent = |id: &str, there: &[&str]| {
        groups.with(&pool, |group| {
            let with = (Some(&intent), &machines[..]);
            group.succeeded(&finished(id), &success, with, Timestamp::UNIX_EPOCH);
            group.found(Reading { desired: 1, ..reading(there) }, &all);
            group.view.known().unwrap().absent.keys().cloned().collect::<Vec<_>>()
        })
    };
    assert!(absent("another", &[]).is_empty(), "it was asked for something else");
    assert_eq!(absent("op", &[]), ["deleted"]);
    assert_eq!(absent("op", &[]), ["deleted"], "in doubt it stays so");
    assert!(absent("op", &["deleted", "refused", "other"]).is_empty(), "it is there");
}

#[tokio::test(start_paused = true)]
async fn a_group_of_which_events_tell_is_read_soon_and_not_for_each_of_them() {
    let (groups, pool) = (Groups::default(), pool("p"));
    let with = ("r1".into(), None);
    let is_due = || {
        groups.with(&pool, |group| {
            let is_due = group.is_due(&with);
            if is_due {
                group.begin();
            }
            is_due
        })
    };
    assert!(is_due());
    groups.doubt(&pool);
    groups.with(&pool, |group| group.found(reading(&[]), &[]));
    assert!(!is_due(), "it was read just now");
    advance(Duration::from_secs(2)).await;
    assert!(is_due(), "what happened during the read");
    groups.with(&pool, |group| group.found(reading(&[]), &[]));
    advance(Duration::from_secs(2)).await;
    assert!(!is_due());
    groups.reread(&pool);
    assert!(is_due(), "after an operation immediately");
}

#[tokio::test(start_paused = true)]
async fn a_read_that_failed_waits_as_the_table_says_whatever_happens_but_not_for_other_credentials()
{
    let (groups, pool) = (Groups::default(), pool("p"));
    let with = |secret: &str| ("r1".into(), Some(secret.into()));
    let is_due = |secret: &str| groups.with(&pool, |group| group.is_due(&with(secret)));
    let fail = |secret: &str| {
        let failure = Failure::new(ErrorCode::Unauthenticated, Certainty::NotApplied, "no");
        let room = Duration::from_mins(10);
        groups.with(&pool, |group| group.unreadable(failure, with(secret), room));
    };
    fail("s1");
    for wait in [3, 6, 12] {
        groups.doubt(&pool);
        groups.reread(&pool);
        advance(Duration::from_secs(wait * 60 - 1)).await;
        assert!(!is_due("s1"), "{wait} min");
        let unreadable = groups.with(&pool, |group| matches!(group.view, GroupView::Unreadable(_)));
        assert!(unreadable, "it is still told");
        advance(Duration::from_secs(1)).await;
        assert!(is_due("s1"), "{wait} min");
        fail("s1");
    }
    assert!(is_due("s2"), "another secret");
    fail("s2");
    advance(Duration::from_mins(3)).await;
    assert!(is_due("s2"), "from the beginning");
}

#[tokio::test(start_paused = true)]
async fn a_group_is_elsewhere_if_its_provider_has_another_driver_than_that_of_the_class() {
    let bench = Bench::new();
    let aliases = [("AWS".into(), "aws.example.com".into())].into();
    let settings = Arc::new(Settings { aliases, ..Settings::default() });
    let pools = Pools { settings, ..controller(&bench) };
    for (holder, provider, elsewhere) in [
        (None, "other", false),
        (Some("aws.example.com"), "aws.example.com", false),
        (Some("AWS"), "aws.example.com", false),
        (Some("aws.example.com"), "AWS", false),
        (Some("AWS"), "other", true),
    ] {
        let mut pool = serde_json::to_value(pool("p")).unwrap();
        pool["status"] = json!({ "provider": holder, "providerID": "group" });
        let pool = serde_json::from_value(pool).unwrap();
        let class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": { "name": "c" }, "provider": provider, "providerSpec": {}
        });
        let class = ClassFacts::of(&serde_json::from_value(class).unwrap());
        let expected = holder.filter(|_| elsewhere).map(Into::into);
        assert_eq!(pools.elsewhere(&pool, &class), expected, "{holder:?} {provider}");
    }
}

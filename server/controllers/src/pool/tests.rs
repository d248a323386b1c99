use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::watcher::Event;
use ostler_api::Machine;
use ostler_api::driver::{Certainty, ErrorCode};
use ostler_api::machine::InstanceState;
use ostler_api::operation::{Failure, InstanceRecord, PoolInstance, PoolRecord};
use ostler_lifecycle::pool::{GroupView, Instance, Read, Reading};
use ostler_lifecycle::snapshot::{ClassFacts, ClassView};
use ostler_lifecycle::write::Verb;
use serde_json::json;
use tokio::time::advance;

use super::groups::Group;
use super::*;
use crate::bench::{Bench, put};
use crate::client::PATIENCE;
use crate::fleet::Fleet;
use crate::handover::Stage;
use crate::kind::Kind as _;
use crate::settings::Settings;
use crate::unseen::{ARRIVES, Effect};

fn controller(bench: &Bench) -> Pools {
    Pools {
        tools: bench.tools(),
        groups: Arc::default(),
        reads: Bench::queue(),
        configs: bench.configs(),
        handover: Handover::over(),
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

#[tokio::test(start_paused = true)]
async fn nothing_is_remembered_of_a_pool_that_is_gone_or_was_made_again() {
    let bench = Bench::new();
    let pools = controller(&bench);
    let listed = |uid: &str| pools.groups.look(&pool(uid), |group| group.listed);
    pools.groups.with(&pool("p"), |group| group.listed = true);
    assert!(listed("p"));
    assert!(!listed("another"), "one of the same name");
    assert!(listed("p"), "a look changes nothing");
    pools.groups.forget(&ObjectName::of(&pool("p")));
    assert!(!listed("p"));
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
        meta["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "MachinePool", "name": "p", "uid": "p", "controller": true
        }]);
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
    let handover = Handover::new(Duration::ZERO);
    let (pools, pool) = (Pools { handover, ..controller(&bench) }, pool("p"));
    assert_eq!(pools.machines_of(&pool).await.unwrap().len(), 2, "those of the cache");
    let open = bench.stores.unseen.open("p").unwrap();
    assert_eq!(open.keys(Effect::Created).collect::<Vec<_>>(), ["fake:///created"]);
    assert_eq!(open.keys(Effect::Deleted).collect::<Vec<_>>(), ["deleted"]);
    assert!(matches!(pools.handover.stage().await, Stage::Over), "no other pool lists them again");
}

#[tokio::test(start_paused = true)]
async fn only_an_api_server_that_refuses_a_machine_keeps_the_pool_from_waiting_for_it() {
    let bench = Bench::new();
    let (pools, pool) = (controller(&bench), pool("p"));
    let write = Write::new(Object::Machine(Arc::new(machine())), Verb::Refuse(String::new()));
    for (answer, refused) in [
        (Err(WriteError::Forbidden(String::new())), true),
        (Err(WriteError::NoAnswer), false),
        (Err(WriteError::Invalid(String::new())), true),
        (Err(WriteError::Internal(String::new())), false),
        (Ok(()), false),
    ] {
        pools.note(&pool, (Part::Create, &write), answer.as_ref().map(drop));
        assert_eq!(pools.groups.look(&pool, |it| it.refused_machines), refused, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_creation_is_repeated_and_a_lost_deletion_is_awaited() {
    let bench = Bench::new();
    let (pools, pool, alive) = (controller(&bench), pool("p"), [Arc::new(machine())]);
    bench.stores.unseen.sent("p", None, (Effect::Created, "fake:///1"));
    bench.stores.unseen.sent("p", None, (Effect::Deleted, "m"));
    let (deleted, created) = pools.unseen(&pool, &alive);
    assert_eq!((deleted, created), (["m".to_owned()].into(), [].into()));
    bench.stores.unseen.listed("p", (Effect::Created, "fake:///1"));
    assert_eq!(pools.unseen(&pool, &alive).1, ["fake:///1".into()].into());
    tokio::time::advance(ARRIVES).await;
    assert_eq!(pools.unseen(&pool, &alive), ([].into(), [].into()));
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
        group.known.view = GroupView::Known(Arc::new(Reading {
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
    let (name, pools) = (ObjectName::of(&pool), Fleet(Arc::new(pools)));
    let created = async || {
        let snapshot = pools.observe(&name).await.unwrap().unwrap();
        let plan = Pools::plan(&snapshot);
        let done = Box::pin(pools.execute(&snapshot, &plan)).await.unwrap();
        Box::pin(pools.record(snapshot, plan, done)).await.unwrap();
        bench.writes().iter().filter(|(path, _)| path.starts_with("POST")).count()
    };
    assert_eq!((created().await, created().await), (1, 1));
    // The cache shows the Machine, and a user deletes it.
    let (_, made) = bench.writes().remove(0);
    put(&bench.stores.machines, made.clone());
    assert_eq!(created().await, 1);
    bench.stores.machines.apply(Event::Delete(serde_json::from_value(made).unwrap()));
    assert_eq!((created().await, created().await), (2, 2));
    // The cache never shows the Machine.
    tokio::time::advance(2 * PATIENCE).await;
    assert_eq!(created().await, 3);
}

/// The driver's answer for a group with these instances.
fn reading(ids: &[&str]) -> Reading {
    let instance = |id: &&str| PoolInstance {
        instance: InstanceRecord { provider_id: (*id).into(), ..InstanceRecord::default() },
        ..PoolInstance::default()
    };
    let record = PoolRecord { provider_id: "group".into(), ..PoolRecord::default() };
    Reading::new(record, ids.iter().map(instance).collect(), Timestamp::UNIX_EPOCH)
}

/// Finished reads, and whether the next one is due.
struct Readings<'a> {
    pools: &'a Pools,
    pool: MachinePool,
}

impl Readings<'_> {
    fn with<T>(&self, change: impl FnOnce(&mut Group) -> T) -> T {
        self.pools.groups.with(&self.pool, change)
    }

    fn is_due(&self, secret: &str) -> bool {
        self.with(|group| group.fresh_for(&with(secret))).is_zero()
    }

    fn ended(&self, read: Read, epoch: u64, secret: &str) -> bool {
        self.with(|group| group.ended(read, &[], (epoch, &with(secret), Duration::from_mins(10))))
    }
}

fn with(secret: &str) -> groups::ReadWith {
    ("r1".into(), Some(secret.into()))
}

#[tokio::test(start_paused = true)]
async fn a_group_of_which_events_tell_is_read_soon_and_not_for_each_of_them() {
    let bench = Bench::new();
    let pools = controller(&bench);
    let group = Readings { pools: &pools, pool: pool("p") };
    assert!(group.is_due("s"));
    group.with(Group::begin);
    pools.groups.doubt(&group.pool);
    group.ended(Read::Found(reading(&[])), 0, "s");
    assert!(!group.is_due("s"), "it was read just now");
    advance(Duration::from_secs(2)).await;
    assert!(group.is_due("s"), "what happened during the read");
    group.with(Group::begin);
    group.ended(Read::Found(reading(&[])), 0, "s");
    advance(Duration::from_secs(2)).await;
    assert!(!group.is_due("s"));
    group.with(Group::outdate);
    assert!(group.is_due("s"), "after an operation immediately");
}

/// The read shows the former state: the pool would ask for the same again.
#[tokio::test(start_paused = true)]
async fn a_read_that_was_begun_before_an_operation_ended_is_not_looked_at() {
    let bench = Bench::new();
    let pools = controller(&bench);
    let group = Readings { pools: &pools, pool: pool("p") };
    let epoch = group.with(|group| group.epoch());
    group.with(Group::outdate);
    assert!(!group.ended(Read::Found(reading(&[])), epoch, "s"));
    assert!(group.is_due("s") && group.with(|group| group.is_unread()));
    let epoch = group.with(|group| group.epoch());
    assert!(group.ended(Read::Found(reading(&[])), epoch, "s"));
    assert!(!group.is_due("s") && !group.with(|group| group.is_unread()));
}

#[tokio::test(start_paused = true)]
async fn a_read_that_failed_waits_as_the_table_says_whatever_happens_but_not_for_other_credentials()
{
    let bench = Bench::new();
    let pools = controller(&bench);
    let group = Readings { pools: &pools, pool: pool("p") };
    let fail = |secret: &str| {
        let failure = Failure::new(ErrorCode::Unauthenticated, Certainty::NotApplied, "no");
        let epoch = group.with(|group| group.epoch());
        group.ended(Read::Failed(failure), epoch, secret);
    };
    fail("s1");
    for wait in [3, 6, 12] {
        pools.groups.doubt(&group.pool);
        group.with(Group::outdate);
        advance(Duration::from_secs(wait * 60 - 1)).await;
        assert!(!group.is_due("s1"), "{wait} min");
        let view = group.with(|group| group.known.view.clone());
        assert!(matches!(view, GroupView::Unreadable(_)), "it is still told");
        advance(Duration::from_secs(1)).await;
        assert!(group.is_due("s1"), "{wait} min");
        fail("s1");
    }
    assert!(group.is_due("s2"), "another secret");
    fail("s2");
    advance(Duration::from_mins(3)).await;
    assert!(group.is_due("s2"), "from the beginning");
}

#[tokio::test(start_paused = true)]
async fn a_group_is_elsewhere_if_its_provider_has_another_driver_than_that_of_the_class() {
    let bench = Bench::new();
    let aliases = [("AWS".into(), "aws.example.com".into())].into();
    let settings = Arc::new(Settings { aliases, ..Settings::default() });
    let tools = Tools { settings, ..bench.tools() };
    let pools = Pools { tools, ..controller(&bench) };
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

#[tokio::test(start_paused = true)]
async fn a_class_whose_finalizer_is_about_to_be_written_is_awaited_and_not_called_missing() {
    let bench = Bench::new();
    let pools = controller(&bench);
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": "c", "namespace": "default" }, "provider": "a", "providerSpec": {}
    });
    put(&bench.stores.classes, class);
    assert!(matches!(pools.class_of(&pool("p")), Err(PassError::NotYet(_))));
    bench.stores.unheld.note(&ObjectName::new("default", "c"), Some("no right".to_owned()));
    assert!(matches!(pools.class_of(&pool("p")), Ok(ClassView::NotHeld(why)) if why == "no right"));
}

use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use ostler_api::names;
use ostler_lifecycle::orphans::OrphanIdentity;

use crate::bench::{Bench, put};

const PROVIDER: &str = "a.example.com";

fn orphans(bench: &Bench) -> Orphans {
    let scans = OrphanScans::new(Bench::queue());
    let parts = OrphanAdminParts {
        home: Arc::new(bench.settings.home_namespace(bench.client())),
        writer: bench.writer(),
        stores: bench.stores.clone(),
        sessions: bench.sessions.clone(),
        settings: Arc::clone(&bench.settings),
        clock: Arc::new(|| jiff::Timestamp::UNIX_EPOCH),
        recorder: bench.recorder(),
        scans: scans.clone(),
    };
    Orphans {
        writer: bench.writer(),
        stores: bench.stores.clone(),
        sessions: bench.sessions.clone(),
        settings: Arc::clone(&bench.settings),
        recorder: bench.recorder(),
        metrics: OrphanMetrics::register(&mut Registry::default()),
        scans,
        admin: OrphanAdmin::new(parts, &mut Registry::default()),
        lease: "lease".to_owned(),
        ledgers: Mutex::default(),
    }
}

fn with_class() -> Bench {
    with_classes_of(&["default"])
}

/// With a class of the same name in each of the namespaces.
fn with_classes_of(namespaces: &[&str]) -> Bench {
    let bench = Bench::new();
    for namespace in namespaces {
        let class = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
            "metadata": { "name": "c", "namespace": namespace },
            "provider": PROVIDER, "providerSpec": {}
        });
        put(&bench.stores.classes, class);
    }
    bench
}

/// How long the next scan has to wait; `None`: there is nothing to scan.
async fn wait(orphans: &Orphans) -> Option<Duration> {
    match orphans.observe(&PROVIDER.into()).await {
        Err(PassError::NotYet(wait)) => Some(wait),
        Ok(None) => None,
        Ok(Some(_)) | Err(_) => panic!("a scan"),
    }
}

#[tokio::test(start_paused = true)]
async fn while_drivers_may_come_back_with_operations_no_instance_is_listed() {
    let bench = with_class();
    bench.sessions.lead(ostler_sessions::Term(1));
    assert_eq!(wait(&orphans(&bench)).await, Some(ADOPTION));
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_a_driver_or_with_unreadable_machines_waits_for_a_period() {
    let bench = with_class();
    let orphans = orphans(&bench);
    let period = bench.settings.orphans.period;
    assert_eq!(wait(&orphans).await, Some(period), "there is no driver to list them");
    bench.a_machine_cannot_be_read();
    assert_eq!(wait(&orphans).await, Some(period));
}

#[tokio::test(start_paused = true)]
async fn what_scans_showed_of_a_provider_goes_with_its_last_class() {
    let bench = Bench::new();
    let orphans = orphans(&bench);
    orphans.ledgers.lock().insert(PROVIDER.into(), Ledger::default());
    orphans.scans.ask(&PROVIDER.into());
    assert_eq!(wait(&orphans).await, None);
    assert!(orphans.ledgers.lock().is_empty());
    assert!(!orphans.scans.is_asked_for(&PROVIDER.into()));
}

/// A scan of both classes `c`, of which the lists of `listed` came.
async fn scan(orphans: &Orphans, began: Duration, listed: &[(&str, &[Listed])]) -> Observed {
    let classes = orphans.classes_of(&PROVIDER.into());
    let class = |namespace: &str| {
        let named = classes.iter().find(|it| it.metadata.namespace.as_deref() == Some(namespace));
        Arc::clone(named.unwrap())
    };
    let lists: Vec<ClassList> = listed
        .iter()
        .map(|(namespace, records)| (class(namespace), Arc::new(records.to_vec())))
        .collect();
    let provider: ProviderName = PROVIDER.into();
    let shown = Some(orphans.shown(&provider, false, began, &lists).await);
    Observed { provider, classes, began, by_name: false, failed: Vec::new(), shown }
}

/// Nothing keeps the core with this Lease from deleting orphans.
fn free() -> serde_json::Value {
    json!({ "lease": "lease" })
}

#[tokio::test(start_paused = true)]
async fn no_orphan_is_deleted_after_the_api_was_restored_under_the_core() {
    let bench = with_class();
    *bench.config_map.lock() = Some(free());
    orphans(&bench).admin.api_was_restored().await;
    let (_, written) = bench.writes().remove(0);
    assert_eq!(written["data"]["orphans"], "report-only");
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_not_deleted_once_a_hold_or_a_pause_came_during_the_scan() {
    let mark = json!({ "lease": "lease", "orphans": "report-only" });
    for (paused, data, called_off) in [
        (false, free(), false),
        (true, free(), true),
        (false, mark, true),
        (false, json!(null), true),
    ] {
        let bench = with_class();
        *bench.config_map.lock() = Some(free());
        let orphans = orphans(&bench);
        let lost = [Listed { owner: Owner::Machine, ..group("gone") }];
        scan(&orphans, Duration::ZERO, &[("default", &lost)]).await;
        let last = scan(&orphans, Duration::from_hours(1), &[("default", &lost)]).await;
        let due = last.shown.as_ref().unwrap().due.first().unwrap();
        *bench.config_map.lock() = Some(data.clone()).filter(|data| !data.is_null());
        if paused {
            let mut class = json!(bench.stores.classes.all().first().unwrap().as_ref());
            class["metadata"]["annotations"] = json!({ (names::annotation::PAUSED): "true" });
            put(&bench.stores.classes, class);
        }
        // There is no driver.
        let acted = orphans.act(&last, due, &Fate::Delete).await;
        let expected = if called_off { Acted::NotNow } else { Acted::Failed };
        let same = std::mem::discriminant(&acted) == std::mem::discriminant(&expected);
        assert!(same, "paused: {paused}, {data}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphan_is_counted_until_it_is_deleted() {
    let bench = with_class();
    *bench.config_map.lock() = Some(free());
    let mut registry = Registry::default();
    let metrics = OrphanMetrics::register(&mut registry);
    let orphans = Orphans { metrics, ..orphans(&bench) };
    let lost = [Listed { owner: Owner::Machine, ..group("gone") }];
    scan(&orphans, Duration::ZERO, &[("default", &lost)]).await;
    for (hour, acted, left) in [(1, Acted::Failed, 1), (2, Acted::Deleted, 0)] {
        let last = scan(&orphans, Duration::from_hours(hour), &[("default", &lost)]).await;
        let due = last.shown.as_ref().unwrap().due.first().unwrap().clone();
        orphans.record(last, Plan::default(), vec![(due, acted)]).await.unwrap();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let line = format!("ostler_orphans{{provider=\"{PROVIDER}\"}} {left}");
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphan_goes_with_the_class_that_listed_it_and_not_with_its_namesake_elsewhere() {
    let bench = with_classes_of(&["a", "b"]);
    *bench.config_map.lock() = Some(free());
    let (recorder, events) = bench.recorder_and_writer();
    let orphans = Orphans { recorder, ..orphans(&bench) };
    let lost = [Listed { owner: Owner::Machine, ..group("gone") }];
    let first = scan(&orphans, Duration::ZERO, &[("a", &[]), ("b", &lost)]).await;
    assert!(first.shown.unwrap().due.is_empty());
    // A list of the namesake alone says nothing about it.
    scan(&orphans, Duration::from_mins(5), &[("a", &[])]).await;
    let last = scan(&orphans, Duration::from_hours(1), &[("a", &[]), ("b", &lost)]).await;
    let [orphan] = last.shown.as_ref().unwrap().due.as_slice() else { panic!("no orphan") };
    assert_eq!(orphan.class, "b/c");
    // There is no driver.
    let acted = orphans.act(&last, orphan, &Fate::Delete).await;
    assert!(matches!(acted, Acted::Failed));
    assert_eq!(bench.told(events).await, ["OrphanFound", "OrphanDeleteFailed"]);
    let events = bench.writes().into_iter().filter(|(path, _)| path.ends_with("/events"));
    for (path, event) in events {
        assert_eq!(event["regarding"]["namespace"], "b", "{path}");
    }
}

fn group(uid: &str) -> Listed {
    Listed {
        owner: Owner::Pool,
        provider_id: "a:///g".into(),
        machine_name: "p".to_owned(),
        machine_uid: uid.into(),
        ..Listed::default()
    }
}

fn pool(uid: &str, provider_id: Option<&str>) -> serde_json::Value {
    json!({
        "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool",
        "metadata": {
            "name": "p", "namespace": "default", "uid": uid,
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]
        },
        "spec": { "template": {} }, "status": { "providerID": provider_id }
    })
}

#[tokio::test(start_paused = true)]
async fn a_group_is_kept_while_its_pool_is_there_whatever_its_state_or_may_take_it_over() {
    for (uid, id, expected) in [
        ("own", None, Some(KeepReason::MachineExists)),
        ("other", Some("a:///g"), Some(KeepReason::ProviderIdInUse)),
        ("other", None, Some(KeepReason::MayBeAdopted)),
        ("other", Some("a:///another"), None),
    ] {
        let bench = with_class();
        put(&bench.stores.pools, pool(uid, id));
        let keep = orphans(&bench).keep(&PROVIDER.into(), &group("own"), false);
        assert_eq!(keep, expected, "{uid} {id:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_whose_pool_is_gone_stays_until_its_machines_are_drained() {
    for (step, expected) in
        [("DrainNode", Some(KeepReason::MachineExists)), ("DeleteInstance", None)]
    {
        let bench = with_class();
        let machine = json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": {
                "name": "p-1", "namespace": "default", "uid": "m",
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"],
                "ownerReferences": [{
                    "apiVersion": "ostler.dev/v1alpha1", "kind": "MachinePool", "name": "p",
                    "uid": "own", "controller": true
                }]
            },
            "spec": {}, "status": { "step": step }
        });
        put(&bench.stores.machines, machine);
        let keep = orphans(&bench).keep(&PROVIDER.into(), &group("own"), false);
        assert_eq!(keep, expected, "{step}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_definition_of_pools_no_group_counts_as_an_orphan() {
    let bench = with_class();
    let orphan = Orphan {
        identity: OrphanIdentity::Uid("own".into()),
        owner: Owner::Pool,
        kind: OrphanKind::Ours,
        machine_name: "p".to_owned(),
        provider_ids: vec!["a:///g".into()],
        parts: Vec::new(),
        class: "c".to_owned(),
        new: true,
    };
    assert!(orphans(&bench).claimed_live(&PROVIDER.into(), &orphan).await.is_err());
}

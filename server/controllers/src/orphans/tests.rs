use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use ostler_lifecycle::orphans::Identity;

use crate::bench::{Bench, put};

const PROVIDER: &str = "a.example.com";

fn orphans(bench: &Bench) -> Orphans {
    let scans = OrphanScans::new(Bench::queue());
    let parts = OrphanAdminParts {
        client: bench.client(),
        writer: bench.writer(),
        stores: bench.stores.clone(),
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
    let bench = Bench::new();
    let class = json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineClass",
        "metadata": { "name": "c", "namespace": "default" },
        "provider": PROVIDER, "providerSpec": {}
    });
    put(&bench.stores.classes, class);
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
        ("own", None, Some(Keep::MachineExists)),
        ("other", Some("a:///g"), Some(Keep::ProviderIdInUse)),
        ("other", None, Some(Keep::MayBeAdopted)),
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
    for (step, expected) in [("DrainNode", Some(Keep::MachineExists)), ("DeleteInstance", None)] {
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
        identity: Identity::Uid("own".into()),
        owner: Owner::Pool,
        kind: OrphanKind::Ours,
        machine_name: "p".to_owned(),
        provider_ids: vec!["a:///g".into()],
        class: "c".to_owned(),
        new: true,
    };
    assert!(orphans(&bench).claimed_live(&PROVIDER.into(), &orphan).await.is_err());
}

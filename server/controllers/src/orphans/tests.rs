use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
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

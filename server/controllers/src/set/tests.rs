use jiff::Timestamp;
use ostler_api::{Machine, MachineSet};
use ostler_lifecycle::set::{Cause, Victim};
use prometheus_client::registry::Registry;
use serde_json::json;

use super::*;
use crate::bench::Bench;
use crate::election::Predecessor;
use crate::metrics::register_sets;

/// Beside a machine controller of another process.
fn controller(bench: &Bench) -> Sets {
    Sets {
        writer: bench.writer(),
        stores: bench.stores.clone(),
        settings: Arc::clone(&bench.settings),
        clock: DebugClock(Arc::new(|| Timestamp::UNIX_EPOCH)),
        recorder: bench.recorder(),
        metrics: register_sets(&mut Registry::default(), &bench.stores),
        pending: Arc::default(),
        handover: Handover::new(Predecessor::None),
        roll: Mutex::default(),
        runs_machines: false,
    }
}

/// #984: a Machine whose deletion was refused was shown as Terminating, and then no controller deleted it.
#[tokio::test(start_paused = true)]
async fn only_a_machine_whose_deletion_was_accepted_is_shown_as_terminating() {
    let set: MachineSet = serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "MachineSet",
        "metadata": { "name": "s", "namespace": "default", "uid": "s" }, "spec": {}
    }))
    .unwrap();
    let machine: Machine = serde_json::from_value(json!({
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": { "name": "m", "namespace": "default", "uid": "m" }, "spec": {}
    }))
    .unwrap();
    let victim = Victim { machine: Arc::new(machine), cause: Cause::Surplus };
    for (bench, shown) in [(Bench::new(), true), (Bench::new().refusing(403), false)] {
        let deleted = controller(&bench).delete(&set, std::slice::from_ref(&victim)).await;
        assert_eq!(deleted.is_ok(), shown);
        let writes = bench.writes();
        assert!(writes[0].0.starts_with("DELETE"), "{writes:?}");
        let terminating = |(path, sent): &(String, serde_json::Value)| {
            path.starts_with("PATCH") && sent["status"]["currentStatus"]["phase"] == "Terminating"
        };
        assert_eq!(writes.iter().any(terminating), shown, "{writes:?}");
    }
}

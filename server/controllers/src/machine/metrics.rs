//! Metrics of machines, computed from the caches at each scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ostler_api::machine::{MachinePhase, MachineStatus, WaitReason};
use ostler_api::{Machine, MachinePool};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::State;
use crate::metrics::{Leads, Series, condition, gauges, info, name_of, number, total};
use crate::stores::{MachineIndex, PoolIndex, Stores};
use crate::watch::Cache;

/// Collects the metrics of machines at each scrape.
struct MachineCollector {
    machines: Arc<Cache<MachineIndex>>,
    pools: Arc<Cache<PoolIndex>>,
}

impl fmt::Debug for MachineCollector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineCollector").finish_non_exhaustive()
    }
}

/// Registers the metrics of machines.
pub(crate) fn register_machines(
    registry: &mut Registry,
    stores: &Stores,
    state: &Arc<State>,
    leads: &Leads,
) {
    let (machines, pools) = (Arc::clone(&stores.machines), Arc::clone(&stores.pools));
    leads.register_collector(registry, MachineCollector { machines, pools });
    registry.register_collector(Box::new(UpdateCollector { state: Arc::clone(state) }));
}

/// Collects the hot updates at each scrape.
#[derive(Debug)]
struct UpdateCollector {
    state: Arc<State>,
}

impl Collector for UpdateCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut to = encoder.encode_descriptor(
            "ostler_hot_updates",
            "Machines that are hot updated, and those that wait for an update slot",
            None,
            MetricType::Gauge,
        )?;
        let (running, waiting) = self.state.slots.count();
        for (state, count) in [("running", running), ("waiting", waiting)] {
            let labels = [("state", state)];
            ConstGauge::new(number(count)).encode(to.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for MachineCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let machines = self.machines.all();
        total(&mut encoder, "mcm_machine_items_total", "Machines served", machines.len())?;
        // Machines are in memory, so no scrape fails; dashboards expect the series.
        let help = "Scrapes that could not list machines: always 0";
        let mut to = encoder.encode_descriptor(
            "mcm_misc_scrape_failure",
            help,
            None,
            MetricType::Counter,
        )?;
        let labels = [("kind", "Machine-count"), ("binary", "machine-controller-manager-provider")];
        ConstCounter::new(0_u64).encode(to.encode_family(&labels)?)?;
        let phase = |it: &Arc<Machine>| (name_of(it.as_ref()), phase_number(&it.phase()));
        let mut gauges = |name, help, series| gauges(&mut encoder, name, help, series);
        gauges(
            "mcm_machine_current_status_phase",
            "Phase of a machine as a number",
            machines.iter().map(phase).collect(),
        )?;
        let infos = machines.iter().map(|machine| what_it_is(machine)).collect();
        gauges("mcm_machine_info", "What a machine is", infos)?;
        gauges(
            "mcm_machine_status_condition",
            "A condition of a machine: 1 True, 0 False, 2 Unknown",
            machines.iter().flat_map(|machine| conditions(machine)).collect(),
        )?;
        gauges("ostler_machines", "Machines by phase", phases(&machines))?;
        let help = "Instances that machines have, by what becomes of the machine";
        gauges("ostler_machine_instances", help, instances(&machines))?;
        gauges(
            "ostler_pool_instances_without_machine",
            "Instances of the group of a pool that have no machine",
            self.pools.all().iter().map(|pool| without_machine(pool)).collect(),
        )?;
        gauges("ostler_machines_waiting", "Machines by what they wait for", waits(&machines))
    }
}

fn what_it_is(machine: &Machine) -> Series {
    let class = &machine.spec.class;
    info(
        machine,
        [
            ("spec_provider_id", machine.provider_id().cloned().unwrap_or_default().into()),
            ("spec_class_api_group", class.api_group.clone().unwrap_or_default()),
            ("spec_class_kind", class.kind.clone()),
            ("spec_class_name", class.name.clone()),
            ("node_name", machine.node_name().unwrap_or_default().to_owned()),
        ],
    )
}

fn conditions(machine: &Machine) -> Vec<Series> {
    let all = machine.status.iter().flat_map(|status| &status.conditions);
    all.map(|it| condition(machine, it.type_.clone(), &it.status)).collect()
}

fn phases(machines: &[Arc<Machine>]) -> Vec<Series> {
    let count = |phase: &str| machines.iter().filter(|one| one.phase().as_str() == phase).count();
    MachinePhase::WORDS
        .iter()
        .map(|phase| {
            let label = if phase.is_empty() { "New" } else { phase };
            (vec![("phase", label.to_owned())], number(count(phase)))
        })
        .collect()
}

fn without_machine(pool: &MachinePool) -> Series {
    let observed = pool.status.as_ref().and_then(|status| status.observed.as_ref());
    (name_of(pool), observed.map_or(0, |it| it.without_machine.into()))
}

/// An instance that costs money is counted, even once its Machine is given up.
fn instances(machines: &[Arc<Machine>]) -> Vec<Series> {
    let state = |machine: &Machine| match machine.phase() == MachinePhase::Failed {
        _ if machine.is_deleting() => "deleting",
        true => "failed",
        false => "live",
    };
    let with: Vec<_> =
        machines.iter().filter(|it| it.instance_id().is_some()).map(|it| state(it)).collect();
    let count = |state: &str| number(with.iter().filter(|it| **it == state).count());
    ["live", "failed", "deleting"].map(|it| (vec![("state", it.to_owned())], count(it))).to_vec()
}

/// Counts by reason; unknown reasons count as one.
fn waits(machines: &[Arc<Machine>]) -> Vec<Series> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for status in machines.iter().filter_map(|machine| machine.status.as_ref()) {
        if let Some(wait) = wait(status) {
            *counts.entry(reason(wait)).or_default() += 1;
        }
    }
    let series = counts.into_iter();
    series.map(|(reason, count)| (vec![("reason", reason.to_owned())], number(count))).collect()
}

/// The wait reason of a machine. A new attempt does not end the wait of a failure, so that an alert sees the wait all
/// along.
fn wait(status: &MachineStatus) -> Option<&WaitReason> {
    let shown = status.waiting_for.as_ref().map(|wait| &wait.reason);
    let retry = status.retry.as_ref().zip(status.operation.as_ref());
    let retried = retry.filter(|(retry, running)| retry.kind == running.kind);
    match (shown, retried) {
        (
            None | Some(WaitReason::DriverWorking | WaitReason::OperationQueued),
            Some((retry, _)),
        ) => Some(&retry.reason),
        (shown, _) => shown,
    }
}

fn reason(reason: &WaitReason) -> &str {
    let reason = reason.as_str();
    WaitReason::WORDS.iter().find(|known| **known == reason).copied().unwrap_or("Other")
}

/// The numbers that upstream's dashboards know.
fn phase_number(phase: &MachinePhase) -> i64 {
    match phase {
        MachinePhase::Terminating => -4,
        MachinePhase::Failed => -3,
        MachinePhase::CrashLoopBackOff => -2,
        MachinePhase::Unknown => -1,
        MachinePhase::Running => 1,
        MachinePhase::New
        | MachinePhase::Pending
        | MachinePhase::Available
        | MachinePhase::InPlaceUpdating
        | MachinePhase::InPlaceUpdateSuccessful
        | MachinePhase::InPlaceUpdateFailed
        | MachinePhase::Other(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_waits_for_the_same_while_another_attempt_runs() {
        let status = |waiting: &str, running: &str| -> MachineStatus {
            let waiting = (!waiting.is_empty()).then(|| json!({ "reason": waiting }));
            let running = (!running.is_empty()).then(
                || json!({ "id": "o", "kind": running, "idempotencyKey": "k", "attempt": 2 }),
            );
            let retry =
                json!({ "kind": "CreateMachine", "code": "X", "reason": "CapacityExhausted" });
            serde_json::from_value(
                json!({ "waitingFor": waiting, "operation": running, "retry": retry }),
            )
            .unwrap()
        };
        for (waiting, running, counted) in [
            ("CapacityExhausted", "", "CapacityExhausted"),
            ("", "CreateMachine", "CapacityExhausted"),
            ("DriverWorking", "CreateMachine", "CapacityExhausted"),
            ("OperationQueued", "CreateMachine", "CapacityExhausted"),
            ("DriverLost", "CreateMachine", "DriverLost"),
            ("DriverWorking", "DeleteMachine", "DriverWorking"),
            ("", "", ""),
        ] {
            let status = status(waiting, running);
            let found = wait(&status).map(WaitReason::as_str).unwrap_or_default();
            assert_eq!(found, counted, "{waiting} {running}");
        }
    }

    #[test]
    fn a_machine_that_is_gone_leaves_no_series_behind() {
        let (mut registry, stores) = (Registry::default(), Stores::default());
        let (leads, state) = (Leads::default(), Arc::new(State::of(&stores.machines)));
        register_machines(&mut registry, &stores, &state, &leads);
        let machine: Machine = serde_json::from_value(json!({
            "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
            "metadata": { "name": "m", "namespace": "default" }, "spec": {},
            "status": { "currentStatus": { "phase": "Running" } }
        }))
        .unwrap();
        let scrape = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        stores.machines.apply(Event::Apply(machine.clone()));
        assert!(!scrape().contains("mcm_machine_items"), "another process leads");
        let leading = leads.begin();
        let text = scrape();
        assert!(text.contains("mcm_machine_items_total 1"), "{text}");
        let series = r#"mcm_machine_current_status_phase{name="m",namespace="default"} 1"#;
        assert!(text.contains(series), "{text}");
        assert!(text.contains(r#"ostler_machines{phase="Running"} 1"#), "{text}");
        stores.machines.apply(Event::Delete(machine));
        assert!(!scrape().contains(r#"name="m""#));
        drop(leading);
        assert!(!scrape().contains("mcm_machine_items"), "it leads no more");
    }
}

//! Metrics of MachineReserves, computed from the cache at each scrape.

use std::fmt;
use std::sync::Arc;

use ostler_api::machine_reserve::MachineReserveStatus;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::registry::Registry;

use crate::metrics::{Leads, condition, gauges, name_of};
use crate::stores::{ReserveIndex, Stores};
use crate::watch::Cache;

/// Registers the metrics of reserves.
pub(crate) fn register_reserves(registry: &mut Registry, stores: &Stores, leads: &Leads) {
    leads.register_collector(registry, Reserves(Arc::clone(&stores.reserves)));
}

#[derive(Debug)]
struct Reserves(Arc<Cache<ReserveIndex>>);

/// One number of a reserve.
type Number = fn(&MachineReserveStatus) -> i64;

const NUMBERS: [(&str, &str, Number); 3] = [
    ("ostler_machine_reserve_replicas", "Machines in reserve", |it| it.replicas.into()),
    ("ostler_machine_reserve_ready_replicas", "Machines in reserve that a set may take", |it| {
        it.ready_replicas.into()
    }),
    ("ostler_machine_reserve_given", "Machines that sets took from a reserve", |it| it.given),
];

impl Collector for Reserves {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let reserves = self.0.all();
        let with_status = || reserves.iter().filter_map(|it| Some((it, it.status.as_ref()?)));
        for (name, help, number) in NUMBERS {
            let series = with_status().map(|(it, status)| (name_of(it.as_ref()), number(status)));
            gauges(&mut encoder, name, help, series)?;
        }
        let conditions = with_status().flat_map(|(reserve, status)| {
            let all = status.conditions.iter();
            all.map(|it| condition(reserve.as_ref(), it.type_.clone(), &it.status))
        });
        let help = "A condition of a reserve: 1 True, 0 False, 2 Unknown";
        gauges(&mut encoder, "ostler_machine_reserve_condition", help, conditions)
    }
}

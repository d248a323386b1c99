//! The values looked up at every scrape.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Weak};

use ostler_trace::Traces;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::ProviderState;
use crate::metrics::register;
use crate::shell::Shell;

/// Registers everything, for the sessions behind `shell`.
pub(crate) fn register(shell: &Arc<Shell>, registry: &mut Registry) {
    shell.metrics.register(registry);
    let registry = registry.sub_registry_with_prefix("ostler_driver");
    register! { registry;
        "debug_tails": "People who read frames along", shell.tail.reading;
        "debug_frames_lost": "Frames that a reader was too slow for", shell.tail.lost;
    }
    shell.gate.register_metrics("port", registry);
    registry.register_collector(Box::new(LostSpans(shell.options.traces.clone())));
    registry.register_collector(Box::new(Now(Arc::downgrade(shell))));
}

/// Spans that no collector of traces got. No series while spans are not wanted.
#[derive(Debug)]
struct LostSpans(Traces);

impl Collector for LostSpans {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if !self.0.is_on() {
            return Ok(());
        }
        let lost = ConstCounter::new(self.0.lost());
        let help = "Spans of operations that the collector of traces did not get";
        lost.encode(encoder.encode_descriptor(
            "trace_spans_lost",
            help,
            None,
            lost.metric_type(),
        )?)
    }
}

fn count(number: usize) -> f64 {
    u32::try_from(number).unwrap_or(u32::MAX).into()
}

/// The current states; while this core leads, with a state for each provider of a class without a driver.
fn states(shell: &Shell) -> Vec<ProviderState> {
    let mut states = shell.with(|hub, now| hub.provider_states(now));
    if *shell.leading.borrow() {
        let here: HashSet<_> = states.iter().map(|it| it.provider.clone()).collect();
        let named = shell.classes.providers();
        let named: BTreeSet<_> =
            named.iter().map(|it| shell.options.canonical(it.as_str())).collect();
        let lacking = named.into_iter().filter(|it| !here.contains(it));
        states
            .extend(lacking.map(|provider| ProviderState { provider, ..ProviderState::default() }));
    }
    states
}

/// The current state, looked up at each scrape.
#[derive(Debug)]
struct Now(Weak<Shell>);

type Read = fn(&ProviderState) -> f64;

impl Collector for Now {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(shell) = self.0.upgrade() else { return Ok(()) };
        let states = states(&shell);
        let gauges: [(&str, &str, Read); 8] = [
            ("ready", "Whether operations are sent", |it| it.ready.into()),
            ("sessions", "Live sessions, the active one and standbys", |it| count(it.sessions)),
            ("in_flight", "Operations sent and not answered", |it| count(it.in_flight)),
            ("queued", "Operations that wait for credit", |it| count(it.queued)),
            ("oldest_wait_seconds", "Wait of the oldest operation that nothing holds back", |it| {
                it.oldest_wait.as_secs_f64()
            }),
            ("slow", "Whether operations wait too long for credit", |it| it.slow.into()),
            ("clock_ahead_seconds", "By how much the driver's clock is ahead", |it| {
                let milliseconds = it.clock_ahead.unwrap_or(0);
                f64::from(i32::try_from(milliseconds).unwrap_or(i32::MAX)) / 1000.0
            }),
            ("paused_seconds", "For how long creates pause, since it throttles", |it| {
                it.paused.map_or(0.0, |left| left.as_secs_f64().max(1.0))
            }),
        ];
        for (name, help, read) in gauges {
            let gauge = ConstGauge::new(0.0);
            let mut family = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            for state in &states {
                let labels = [("provider", state.provider.as_str())];
                ConstGauge::new(read(state)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

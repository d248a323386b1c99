//! How often one line of the program may be written. Whatever a peer does again and again, and
//! whatever peer it is, the log tells the first times and then how often.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tracing::callsite::Identifier;
use tracing::{Level, Metadata};

/// Lines of a place of the program in an interval. Debug lines have no budget: a user who asks for them wants all.
const LINES: u32 = 50;

static WITHHELD: LazyLock<Counter> = LazyLock::new(Counter::default);

pub(super) fn register(registry: &mut Registry) {
    let help = "Log lines that were not written, because one place of the program wrote too many";
    registry.register("ostler_log_lines_withheld", help, WITHHELD.clone());
}

/// Counts lines by the writing place of the program, a bounded number. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Budget(Arc<Mutex<HashMap<Identifier, Spent>>>);

#[derive(Debug)]
struct Spent {
    place: String,
    lines: u32,
    withheld: u64,
}

impl Budget {
    /// Whether a line of this place may be written. Asked by the writer of lines, not by a filter of the layer: a
    /// filter that refuses an event after allowing it before leaves the layer out of step.
    pub(super) fn allows(&self, at: &Metadata<'_>) -> bool {
        if *at.level() > Level::INFO {
            return true;
        }
        let mut places = self.0.lock();
        let spent = places.entry(at.callsite()).or_insert_with(|| {
            let place = format!("{}:{}", at.target(), at.line().unwrap_or_default());
            Spent { place, lines: 0, withheld: 0 }
        });
        if spent.lines < LINES {
            spent.lines += 1;
            return true;
        }
        spent.withheld += 1;
        WITHHELD.inc();
        false
    }

    /// Reports the held-back lines, and begins anew.
    pub(super) fn settle(&self) {
        let places = std::mem::take(&mut *self.0.lock());
        for Spent { place, withheld, .. } in places.into_values().filter(|it| it.withheld > 0) {
            tracing::warn!(withheld, place, "more lines like those were not written");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::fmt::writer::MakeWriterExt as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::super::{AUDIT, is_diagnostic, tests::Lines};
    use super::*;

    #[expect(clippy::cognitive_complexity, reason = "the macros of tracing count")]
    #[test]
    fn a_line_that_comes_again_and_again_is_told_by_number() {
        let (lines, budget) = (Lines::default(), Budget::default());
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_ansi(false)
            .with_writer((move || writer.clone()).with_filter({
                let budget = budget.clone();
                move |at| budget.allows(at)
            }))
            .with_filter(is_diagnostic());
        let subscriber = tracing_subscriber::registry().with(layer);
        tracing::subscriber::with_default(subscriber, || {
            for peer in 0..1000 {
                tracing::warn!(peer, "refused");
            }
            tracing::warn!("another line");
            tracing::info!(target: AUDIT, verb = "get");
            budget.settle();
            tracing::warn!("refused");
        });
        let text = lines.text();
        assert_eq!(text.matches("refused peer=").count(), 50, "{text}");
        assert!(text.contains("another line"));
        assert!(text.contains("more lines like those were not written withheld=950"), "{text}");
        assert!(!text.contains("verb"));
    }
}

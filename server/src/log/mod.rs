//! The records of a long-lived process: diagnostics, within a budget, and the audit log, if asked to. The two never
//! mix: the audit log does not depend on `RUST_LOG`, and is in its file only.

mod audit;
mod budget;

use std::time::Duration;

use prometheus_client::registry::Registry;
use tracing::Metadata;
use tracing_subscriber::filter::{FilterExt as _, FilterFn, filter_fn};
use tracing_subscriber::fmt::writer::MakeWriterExt as _;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _};

pub use self::audit::AuditArgs;
use self::audit::AuditLog;
use self::budget::Budget;

/// The target of events for the audit log. They carry `who`, `from`, `verb`, `object`, `outcome` or
/// `code`, and names and ids beside; never a secret.
pub(crate) const AUDIT: &str = "ostler::audit";
/// How often held-back lines are reported, and budgets begin anew.
const INTERVAL: Duration = Duration::from_secs(10);

/// How diagnostics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStyle {
    /// Lines for people.
    Plain,
    /// The same for a terminal.
    Coloured,
    /// A JSON object a line.
    Json,
}

impl LogStyle {
    /// Lines for people, coloured on a terminal.
    pub const fn lines(terminal: bool) -> Self {
        if terminal { Self::Coloured } else { Self::Plain }
    }
}

/// The open log. Kept until the end of the process.
#[derive(Debug)]
pub struct Log {
    audit: Option<AuditLog>,
}

impl Log {
    /// Diagnostics to `writer`, the audit log to its file. Must be called on a tokio runtime. A second
    /// call in one process (tests) changes nothing.
    ///
    /// # Errors
    /// The audit log cannot be written.
    pub fn start<W>(
        filter: EnvFilter,
        writer: W,
        style: LogStyle,
        audit: &AuditArgs,
    ) -> anyhow::Result<Self>
    where
        W: for<'w> tracing_subscriber::fmt::MakeWriter<'w> + Send + Sync + 'static,
    {
        let audit = audit.open()?;
        let budget = Budget::default();
        let denied = audit.as_ref().map(AuditLog::denied);
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(writer.with_filter({
                let budget = budget.clone();
                move |at| budget.allows(at)
            }))
            .with_ansi(style == LogStyle::Coloured);
        let lines = if style == LogStyle::Json { lines.json().boxed() } else { lines.boxed() };
        let lines = lines.with_filter(filter.and(is_diagnostic()));
        let subscriber =
            tracing_subscriber::registry().with(lines).with(audit.as_ref().map(AuditLog::layer));
        let _already_set = subscriber.try_init();
        tokio::spawn(async move {
            let mut beats = tokio::time::interval(INTERVAL);
            beats.tick().await;
            loop {
                beats.tick().await;
                budget.settle();
                if let Some(denied) = &denied {
                    denied.settle();
                }
            }
        });
        Ok(Self { audit })
    }

    /// Registers the counters, once.
    pub fn register_metrics(registry: &mut Registry) {
        budget::register(registry);
        audit::register(registry);
    }

    /// Waits until the audit log has all that was said so far.
    pub fn finish(&self) {
        if let Some(audit) = &self.audit {
            audit.finish();
        }
    }
}

/// Everything but the audit log, which has a file of its own.
fn is_diagnostic() -> FilterFn<impl Fn(&Metadata<'_>) -> bool> {
    filter_fn(|at: &Metadata<'_>| at.target() != AUDIT)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    /// Where log lines go.
    #[derive(Debug, Clone, Default)]
    pub(super) struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Lines {
        pub(super) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut text = self.0.lock().map_err(|_| io::ErrorKind::Other)?;
            text.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}

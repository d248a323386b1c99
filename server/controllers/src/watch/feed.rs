//! One watch: its stream, its backoff, and where its changes go.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, watcher};
use serde::de::DeserializeOwned;
use tracing::warn;

use super::{Change, Mirror, Mirrored, WatchMetrics};
use crate::clock::Clock;

/// Told of every change. Must not block.
pub type OnChange<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// What a watch is made of.
pub struct Feed<K: Mirrored> {
    /// What to watch.
    pub api: Api<K>,
    /// Narrows it down.
    pub config: watcher::Config,
    /// What it keeps up to date.
    pub mirror: Arc<Mirror<K>>,
    /// Where changes go.
    pub on_change: OnChange<K>,
    /// Told of every failure. Must not block.
    pub on_failure: Box<dyn Fn() + Send + Sync>,
}

impl<K: Mirrored> Debug for Feed<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("kind", &K::KIND).finish_non_exhaustive()
    }
}

/// Watches for ever: an error is counted, logged and tried again after a backoff that only this
/// watch waits for.
pub async fn run<K>(feed: Feed<K>, metrics: &WatchMetrics, clock: Clock)
where
    K: Mirrored + Debug + DeserializeOwned,
{
    let metrics = metrics.of(K::KIND);
    let stream = watcher(feed.api, feed.config).backoff(Retry::default());
    tokio::pin!(stream);
    while let Some(item) = stream.next().await {
        let event = match item {
            Ok(event) => event,
            Err(failure) => {
                metrics.errors.inc();
                (feed.on_failure)();
                warn!(kind = K::KIND, error = %failure, "watch failed; trying again");
                continue;
            }
        };
        metrics.events.inc();
        metrics.last_event.set(clock().as_second());
        let relisted = matches!(event, watcher::Event::InitDone);
        let changes = feed.mirror.apply(event);
        if relisted {
            metrics.relists.inc();
        }
        metrics.objects.set(i64::try_from(feed.mirror.len()).unwrap_or(i64::MAX));
        for change in &changes {
            (feed.on_change)(change);
        }
    }
}

/// 100 ms, doubled up to 5 s; a success starts over. An API server that comes back is noticed soon,
/// and a handful of watches that ask every 5 s are no burden.
#[derive(Debug, Default)]
struct Retry {
    failures: u32,
}

impl Iterator for Retry {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        let policy =
            crate::queue::Backoff { base: Duration::from_millis(100), cap: Duration::from_secs(5) };
        Some(policy.delay(self.failures))
    }
}

impl Backoff for Retry {
    fn reset(&mut self) {
        self.failures = 0;
    }
}

//! One watch: its stream, its backoff, and where its changes go.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, watcher};
use prometheus_client::metrics::gauge::Gauge;
use serde::de::DeserializeOwned;
use tracing::warn;

use super::{Change, Mirror, Mirrored, WatchMetrics};
use crate::clock::Clock;
use crate::namespaces::Namespaces;

/// Told of every change. Must not block.
pub type OnChange<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// What a watch is made of.
pub struct Feed<K: Mirrored> {
    /// What to watch.
    pub api: Api<K>,
    /// Narrows it down.
    pub config: watcher::Config,
    /// The namespace that it watches, if it is one of several watches of the mirror.
    pub part: Option<String>,
    /// Objects of other namespaces are left out.
    pub only: Option<Namespaces>,
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
    let mut counted = Counted { objects: metrics.objects.clone(), count: 0 };
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
        if feed.only.as_ref().is_some_and(|only| is_elsewhere(&event, only)) {
            continue;
        }
        metrics.events.inc();
        metrics.last_event.set(clock().as_second());
        let relisted = matches!(event, watcher::Event::InitDone);
        let changes = feed.mirror.apply_part(feed.part.as_deref(), event);
        if relisted {
            metrics.relists.inc();
        }
        for change in &changes {
            counted.count(change);
            (feed.on_change)(change);
        }
    }
}

/// What one watch adds to the number of objects of its kind; several may mirror the same kind.
struct Counted {
    objects: Gauge,
    count: i64,
}

impl Counted {
    fn count<K>(&mut self, change: &Change<K>) {
        let more = i64::from(change.new.is_some()) - i64::from(change.old.is_some());
        self.count += more;
        self.objects.inc_by(more);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.objects.dec_by(self.count);
    }
}

fn is_elsewhere<K: Mirrored>(event: &watcher::Event<K>, only: &Namespaces) -> bool {
    match event {
        watcher::Event::Apply(object)
        | watcher::Event::InitApply(object)
        | watcher::Event::Delete(object) => {
            !only.contains(object.meta().namespace.as_deref().unwrap_or_default())
        }
        watcher::Event::Init | watcher::Event::InitDone => false,
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

//! One watch: stream, backoff, and receiver of changes.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Resource};
use prometheus_client::metrics::gauge::Gauge;
use serde::de::DeserializeOwned;
use tracing::warn;

use super::{Cache, CacheIndex, Change, Lenient, Seen, Unreadable, WatchMetrics, watch_failed};
use crate::clock::Clock;
use crate::namespaces::Namespaces;

/// Called with every change. Must not block.
type OnChange<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

/// The parts of a watch.
pub struct Reflector<I: CacheIndex> {
    /// The watched objects.
    pub api: Api<Lenient<I::Object>>,
    /// Selects objects.
    pub config: watcher::Config,
    /// The namespace of this watch, if the cache has several watches.
    pub part: Option<String>,
    /// Objects of other namespaces are dropped.
    pub only: Option<Namespaces>,
    /// The cache to fill.
    pub cache: Arc<Cache<I>>,
    /// Called with every change.
    pub on_change: OnChange<I::Object>,
    /// Called after every failure. Must not block.
    pub on_failure: Box<dyn Fn() + Send + Sync>,
}

impl<I: CacheIndex> Debug for Reflector<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector").field("kind", &I::KIND).finish_non_exhaustive()
    }
}

/// Watches for ever. An error is counted and logged, and the watch is retried after its own backoff.
pub async fn run<I>(reflector: Reflector<I>, metrics: &WatchMetrics, clock: Clock)
where
    I: CacheIndex<Object: Debug + DeserializeOwned>,
{
    let metrics = metrics.of(I::KIND);
    let stream = watcher(reflector.api, reflector.config).backoff(Retry::default());
    tokio::pin!(stream);
    let mut counted = Counted { objects: metrics.objects.clone(), count: 0 };
    while let Some(item) = stream.next().await {
        let event = match item {
            Ok(event) => event,
            Err(failure) => {
                metrics.errors.inc();
                (reflector.on_failure)();
                watch_failed(I::KIND, &failure);
                continue;
            }
        };
        if reflector.only.as_ref().is_some_and(|only| is_elsewhere(&event, only)) {
            continue;
        }
        metrics.events.inc();
        metrics.last_event.set(clock().as_second());
        let relisted = matches!(event, watcher::Event::InitDone);
        let part = reflector.part.as_deref();
        let changes = match sort(event) {
            Ok(event) => reflector.cache.apply_part(part, event),
            Err((seen, object)) => {
                let (news, change) = reflector.cache.skip(part, seen, &object);
                if news {
                    metrics.unreadable.inc();
                    warn_of::<I>(&object);
                }
                change.into_iter().collect()
            }
        };
        if relisted {
            metrics.relists.inc();
        }
        for change in &changes {
            counted.count(change);
            (reflector.on_change)(change);
        }
    }
}

/// Splits an event into a readable object, or how an unreadable one was observed.
fn sort<K>(
    event: watcher::Event<Lenient<K>>,
) -> Result<watcher::Event<K>, (Seen, Box<Unreadable>)> {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let of = |object, seen, event: fn(K) -> watcher::Event<K>| match object {
        Lenient::Read(object) => Ok(event(object)),
        Lenient::Unreadable(object) => Err((seen, object)),
    };
    match event {
        Init => Ok(Init),
        InitDone => Ok(InitDone),
        Apply(object) => of(object, Seen::Changed, Apply),
        InitApply(object) => of(object, Seen::Listed, InitApply),
        Delete(object) => of(object, Seen::Gone, Delete),
    }
}

/// Warns once for each revision, so no more often than a client writes the object.
fn warn_of<I: CacheIndex>(object: &Unreadable) {
    let meta = &object.meta;
    warn!(
        kind = I::KIND,
        namespace = meta.namespace.as_deref().unwrap_or_default(),
        name = meta.name.as_deref().unwrap_or_default(),
        version = meta.resource_version.as_deref().unwrap_or_default(),
        error = object.why,
        "an object cannot be read: its last readable version stays in use, and nothing is deleted because of \
         it; fix or delete it"
    );
}

/// The share of a watch in the object count of its kind; several watches may have the same kind.
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

fn is_elsewhere<K: Resource<DynamicType = ()>>(
    event: &watcher::Event<Lenient<K>>,
    only: &Namespaces,
) -> bool {
    match event {
        // An object without a name cannot be located.
        watcher::Event::Apply(Lenient::Unreadable(object))
        | watcher::Event::InitApply(Lenient::Unreadable(object))
        | watcher::Event::Delete(Lenient::Unreadable(object))
            if object.meta.namespace.is_none() =>
        {
            false
        }
        watcher::Event::Apply(object)
        | watcher::Event::InitApply(object)
        | watcher::Event::Delete(object) => {
            !only.contains(object.meta().namespace.as_deref().unwrap_or_default())
        }
        watcher::Event::Init | watcher::Event::InitDone => false,
    }
}

/// 100 ms, doubled up to 5 s; a success resets it. A recovered API server is noticed soon, and a handful of watches
/// that retry every 5 s are no burden.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use jiff::Timestamp;
    use k8s_openapi::api::apps::v1::ControllerRevision;
    use kube::Client;
    use kube::client::Body;
    use prometheus_client::registry::Registry;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::*;
    use crate::watch::ObjectName;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Revisions {}

    impl CacheIndex for Revisions {
        type Object = ControllerRevision;
        const KIND: &'static str = "ControllerRevision";
    }

    fn object(name: &str, version: &str, revision: &Value) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": revision,
            "metadata": { "name": name, "namespace": "default", "resourceVersion": version }
        })
    }

    /// Lists a valid class and an invalid class; the first watch makes the valid class invalid, and adds another class.
    async fn answer(asked: &AtomicUsize, request: Request<Body>) -> Response<Body> {
        let good = json!(1);
        let text = if request.uri().query().is_some_and(|query| query.contains("watch=")) {
            if asked.fetch_add(1, Ordering::Relaxed) > 0 {
                std::future::pending::<()>().await;
            }
            let bad = json!({"type": "MODIFIED", "object": object("a", "11", &json!("wrong"))});
            let new = json!({"type": "ADDED", "object": object("c", "12", &good)});
            format!("{bad}\n{bad}\n{new}\n")
        } else {
            let items = [object("a", "1", &good), object("b", "2", &json!(["wrong"]))];
            json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": "10"}, "items": items})
                .to_string()
        };
        Response::new(Body::from(text.into_bytes()))
    }

    #[tokio::test]
    async fn objects_that_cannot_be_read_are_skipped_and_counted_and_the_others_followed() {
        let asked = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn(move |request: Request<Body>| {
            let asked = Arc::clone(&asked);
            async move { Ok::<_, std::io::Error>(answer(&asked, request).await) }
        });
        let cache = Arc::new(Cache::<Revisions>::default());
        let (sender, mut changes) = mpsc::unbounded_channel();
        let reflector = Reflector {
            api: Api::namespaced(Client::new(service, "default"), "default"),
            config: watcher::Config::default(),
            part: None,
            only: None,
            cache: Arc::clone(&cache),
            on_change: Box::new(move |change: &Change<ControllerRevision>| {
                let name = change.latest().unwrap().metadata.name.clone();
                sender.send((name.unwrap(), change.new.is_some())).unwrap();
            }),
            on_failure: Box::new(|| panic!("the watch failed")),
        };
        let metrics = WatchMetrics::register(&mut Registry::default());
        let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        let counted = metrics.of(Revisions::KIND).unreadable;
        let task = tokio::spawn(async move { run(reflector, &metrics, clock).await });
        assert_eq!(changes.recv().await, Some(("a".to_owned(), true)));
        assert_eq!(changes.recv().await, Some(("c".to_owned(), true)));
        assert_eq!(counted.get(), 2, "b as listed, a as changed; each revision once");
        assert!(cache.has_unreadable());
        let kept = cache.get(&ObjectName::new("default", "a")).unwrap();
        assert_eq!(
            kept.metadata.resource_version.as_deref(),
            Some("1"),
            "the last readable version"
        );
        assert!(cache.get(&ObjectName::new("default", "b")).is_none());
        task.abort();
    }
}

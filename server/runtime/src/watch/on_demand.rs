//! A cache that exists only while it is used: what few reconciles need costs other clusters neither a watch nor
//! memory.

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::{Cache, CacheIndex};

/// Time without use after which the watch ends and the cache is cleared.
const IDLE: Duration = Duration::from_mins(10);

/// A cache on demand.
pub struct OnDemand<I: CacheIndex> {
    cache: Arc<Cache<I>>,
    asked: Mutex<Option<Instant>>,
    wanted: Notify,
}

impl<I: CacheIndex> Default for OnDemand<I> {
    fn default() -> Self {
        Self { cache: Arc::default(), asked: Mutex::default(), wanted: Notify::new() }
    }
}

impl<I: CacheIndex> fmt::Debug for OnDemand<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemand").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl<I: CacheIndex> OnDemand<I> {
    /// The cache once its first list is complete; `None` before, and for the first caller.
    pub fn get(&self) -> Option<&Cache<I>> {
        let new = self.asked.lock().replace(Instant::now()).is_none();
        if new {
            self.wanted.notify_one();
        }
        self.cache.is_synced().then_some(self.cache.as_ref())
    }

    /// Watches for ever, except while the cache is unused. `watch` keeps the cache up to date and never ends; `ready`
    /// is called whenever the first list is complete.
    pub async fn run<W>(&self, watch: impl Fn(Arc<Cache<I>>) -> W, ready: impl Fn())
    where
        W: Future<Output = ()>,
    {
        loop {
            self.wanted.notified().await;
            tokio::select! {
                () = watch(Arc::clone(&self.cache)) => {}
                () = self.announce(&ready) => {}
                () = self.idle() => {}
            }
            self.cache.clear();
        }
    }

    /// Calls `ready` when the list is complete. A refused watch never completes the list.
    async fn announce(&self, ready: &impl Fn()) {
        self.cache.synced().await;
        ready();
        std::future::pending::<()>().await;
    }

    /// Returns after the idle time.
    async fn idle(&self) {
        loop {
            let asked = *self.asked.lock();
            let end = asked.unwrap_or_else(Instant::now) + IDLE;
            sleep_until(end).await;
            let mut now = self.asked.lock();
            if *now == asked {
                *now = None;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use k8s_openapi::api::core::v1::PersistentVolume;
    use kube::runtime::watcher::Event;

    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum Volumes {}

    impl CacheIndex for Volumes {
        type Object = PersistentVolume;
        const KIND: &'static str = "PersistentVolume";
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_refused_ends_as_well_when_nobody_uses_it() {
        let volumes = Arc::new(OnDemand::<Volumes>::default());
        let tried = Arc::new(AtomicUsize::new(0));
        let task = tokio::spawn({
            let (volumes, tried) = (volumes.clone(), tried.clone());
            async move {
                let watch = |_| async {
                    loop {
                        tried.fetch_add(1, Ordering::SeqCst);
                        tokio::time::sleep(Duration::from_secs(5)).await;
                    }
                };
                volumes.run(watch, || panic!("it is never complete")).await;
            }
        });
        assert!(volumes.get().is_none());
        tokio::time::sleep(IDLE * 2).await;
        let before = tried.swap(0, Ordering::SeqCst);
        tokio::time::sleep(IDLE * 2).await;
        assert!(before > 1 && tried.load(Ordering::SeqCst) == 0);
        assert!(volumes.get().is_none());
        tokio::time::sleep(IDLE / 2).await;
        assert!(tried.load(Ordering::SeqCst) > 0, "it is used again");
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn it_watches_while_it_is_used_and_forgets_when_it_is_idle() {
        let volumes = Arc::new(OnDemand::<Volumes>::default());
        let (watches, synced) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let task = tokio::spawn({
            let (volumes, watches, synced) = (volumes.clone(), watches.clone(), synced.clone());
            async move {
                let watch = |cache: Arc<Cache<Volumes>>| {
                    watches.fetch_add(1, Ordering::SeqCst);
                    async move {
                        cache.apply(Event::Init);
                        let mut volume = PersistentVolume::default();
                        volume.metadata.name = Some("v".to_owned());
                        cache.apply(Event::InitApply(volume));
                        cache.apply(Event::InitDone);
                        std::future::pending::<()>().await;
                    }
                };
                volumes.run(watch, || synced.notify_one()).await;
            }
        });
        assert!(volumes.get().is_none(), "it was not used before");
        synced.notified().await;
        for _ in 0..5 {
            tokio::time::sleep(IDLE / 2).await;
            assert_eq!(volumes.get().map(Cache::len), Some(1), "it is in use");
        }
        tokio::time::sleep(IDLE * 2).await;
        assert_eq!(volumes.cache.len(), 0, "it is not used any more");
        assert!(volumes.get().is_none());
        synced.notified().await;
        assert_eq!(volumes.get().map(Cache::len), Some(1));
        assert_eq!(watches.load(Ordering::SeqCst), 2);
        task.abort();
    }
}

//! A mirror that exists only while somebody asks for it: what few reconciles need costs a cluster
//! without them neither a watch nor memory.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::{Mirror, Mirrored};

/// After how long without a question the watch ends and the objects are forgotten.
const IDLE: Duration = Duration::from_mins(10);

/// A mirror on demand.
pub struct OnDemand<K: Mirrored> {
    mirror: Arc<Mirror<K>>,
    asked: Mutex<Option<Instant>>,
    wanted: Notify,
}

impl<K: Mirrored> Default for OnDemand<K> {
    fn default() -> Self {
        Self { mirror: Arc::default(), asked: Mutex::default(), wanted: Notify::new() }
    }
}

impl<K: Mirrored> fmt::Debug for OnDemand<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemand").field("mirror", &self.mirror).finish_non_exhaustive()
    }
}

impl<K: Mirrored> OnDemand<K> {
    fn asked(&self) -> MutexGuard<'_, Option<Instant>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The objects, once they were listed; until then, and for the first one who asks, none.
    pub fn get(&self) -> Option<&Mirror<K>> {
        let new = self.asked().replace(Instant::now()).is_none();
        if new {
            self.wanted.notify_one();
        }
        self.mirror.is_synced().then_some(self.mirror.as_ref())
    }

    /// Watches for ever, with pauses while nobody asks. `watch` keeps the mirror up to date and
    /// never ends; `ready` is told whenever the first list is complete.
    pub(crate) async fn run<W>(&self, watch: impl Fn(Arc<Mirror<K>>) -> W, ready: impl Fn())
    where
        W: Future<Output = ()>,
    {
        loop {
            self.wanted.notified().await;
            tokio::select! {
                () = watch(Arc::clone(&self.mirror)) => {}
                () = self.announce(&ready) => {}
            }
            self.mirror.clear();
        }
    }

    /// Tells that the list is there, and ends when nobody has asked for long.
    async fn announce(&self, ready: &impl Fn()) {
        self.mirror.synced().await;
        ready();
        loop {
            let asked = *self.asked();
            let end = asked.unwrap_or_else(Instant::now) + IDLE;
            sleep_until(end).await;
            let mut now = self.asked();
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

    #[tokio::test(start_paused = true)]
    async fn it_watches_while_somebody_asks_and_forgets_when_nobody_does() {
        let volumes = Arc::new(OnDemand::<PersistentVolume>::default());
        let (watches, synced) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let task = tokio::spawn({
            let (volumes, watches, synced) = (volumes.clone(), watches.clone(), synced.clone());
            async move {
                let watch = |mirror: Arc<Mirror<PersistentVolume>>| {
                    watches.fetch_add(1, Ordering::SeqCst);
                    async move {
                        mirror.apply(Event::Init);
                        let mut volume = PersistentVolume::default();
                        volume.metadata.name = Some("v".to_owned());
                        mirror.apply(Event::InitApply(volume));
                        mirror.apply(Event::InitDone);
                        std::future::pending::<()>().await;
                    }
                };
                volumes.run(watch, || synced.notify_one()).await;
            }
        });
        assert!(volumes.get().is_none(), "nobody asked before");
        synced.notified().await;
        for _ in 0..5 {
            tokio::time::sleep(IDLE / 2).await;
            assert_eq!(volumes.get().map(Mirror::len), Some(1), "it is asked for");
        }
        tokio::time::sleep(IDLE * 2).await;
        assert_eq!(volumes.mirror.len(), 0, "nobody asks any more");
        assert!(volumes.get().is_none());
        synced.notified().await;
        assert_eq!(volumes.get().map(Mirror::len), Some(1));
        assert_eq!(watches.load(Ordering::SeqCst), 2);
        task.abort();
    }
}

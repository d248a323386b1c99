//! Drives the schedule on tokio's clock, with a bounded number of workers.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use ostler_rate::{Rate, TokenBucket};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::metrics::NamedMetrics;
use super::schedule::Schedule;
use super::{Backoff, Outcome, Priority, QueueMetrics};

/// How a queue behaves.
#[derive(Debug, Clone, Copy)]
pub struct QueueSettings {
    /// Name in metrics and logs.
    pub name: &'static str,
    /// Workers at the same time. At least one.
    pub concurrency: usize,
    /// Backoff of a key that fails.
    pub backoff: Backoff,
    /// Limit of keys handed out per second.
    pub rate: Rate,
}

impl QueueSettings {
    /// A queue with the usual backoff and rate: 2,000 keys a second is more writes than a large control plane can
    /// take, so only a hot loop reaches it.
    pub fn new(name: &'static str, concurrency: usize) -> Self {
        Self {
            name,
            concurrency,
            backoff: Backoff::default(),
            rate: Rate::every(Duration::from_micros(500), 4_000),
        }
    }
}

/// A work queue of keys. Adding never blocks and never fails.
#[derive(Debug)]
pub struct Queue<K> {
    settings: QueueSettings,
    schedule: Mutex<Schedule<K>>,
    changed: Notify,
    metrics: NamedMetrics,
}

impl<K> Queue<K>
where
    K: Clone + Debug + Eq + Hash + Send + 'static,
{
    /// An empty queue.
    pub fn new(settings: QueueSettings, metrics: &QueueMetrics) -> Arc<Self> {
        Arc::new(Self {
            settings,
            schedule: Mutex::new(Schedule::new(settings.backoff)),
            changed: Notify::new(),
            metrics: metrics.of(settings.name),
        })
    }

    fn note_depth(&self, schedule: &Schedule<K>) {
        self.metrics.depth.set(i64::try_from(schedule.depth()).unwrap_or(i64::MAX));
    }

    /// Adds `key` after an event: a worker takes it as soon as a worker is free and no backoff runs.
    pub fn add(&self, key: K, priority: Priority) {
        let mut schedule = self.schedule.lock();
        schedule.add(key, priority, Instant::now());
        self.note_depth(&schedule);
        drop(schedule);
        self.metrics.adds.inc();
        self.changed.notify_one();
    }

    /// Adds `key` after `delay`, unless processed earlier: the changes in between need a single pass.
    pub fn add_after(&self, key: &K, delay: Duration) {
        self.schedule.lock().add_after(key, delay, Instant::now());
        self.metrics.adds.inc();
        self.changed.notify_one();
    }

    /// Keys that wait for a worker.
    pub fn depth(&self) -> usize {
        self.schedule.lock().depth()
    }

    /// Runs `work` for each key until `stop`, then waits for the running ones. A panic of `work` counts as a failure
    /// of its key, and so does dropping this: another run may follow.
    pub async fn run<F, W>(self: Arc<Self>, stop: CancellationToken, work: F)
    where
        F: Fn(K) -> W,
        W: Future<Output = Outcome> + Send + 'static,
    {
        let mut bucket = TokenBucket::new(self.settings.rate);
        let mut running = Running { queue: &self, tasks: JoinSet::new(), keys: HashMap::new() };
        loop {
            let wake_at = self.start_ready(&mut bucket, &mut running, &work);
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.changed.notified() => {}
                () = sleep_until_some(wake_at) => {}
                Some(ended) = running.tasks.join_next_with_id() => self.end(ended, &mut running),
            }
        }
        while let Some(ended) = running.tasks.join_next_with_id().await {
            self.end(ended, &mut running);
        }
    }

    /// Starts as many workers as may run now; returns the latest time of the next check.
    fn start_ready<F, W>(
        &self,
        bucket: &mut TokenBucket,
        running: &mut Running<'_, K>,
        work: &F,
    ) -> Option<Instant>
    where
        F: Fn(K) -> W,
        W: Future<Output = Outcome> + Send + 'static,
    {
        let now = Instant::now();
        let mut schedule = self.schedule.lock();
        schedule.release_due(now);
        let mut next_token = None;
        while running.tasks.len() < self.settings.concurrency.max(1) && schedule.depth() > 0 {
            if let Err(at) = bucket.take(now) {
                next_token = Some(at);
                break;
            }
            let Some(ready) = schedule.pop(now) else { break };
            self.metrics.waited.observe(ready.waited.as_secs_f64());
            let work = work(ready.key.clone());
            let task = running.tasks.spawn(async move { (work.await, now) });
            running.keys.insert(task.id(), ready.key);
        }
        self.note_depth(&schedule);
        next_token.into_iter().chain(schedule.next_due()).min()
    }

    fn end(&self, ended: Ended, running: &mut Running<'_, K>) {
        let (id, outcome) = match ended {
            Ok((id, (outcome, started))) => {
                self.metrics.worked.observe(started.elapsed().as_secs_f64());
                (id, outcome)
            }
            Err(failure) => {
                error!(queue = self.settings.name, error = %failure, "a worker panicked");
                (failure.id(), Outcome::Failed)
            }
        };
        if matches!(outcome, Outcome::Failed | Outcome::Outdated) {
            self.metrics.retries.inc();
        }
        if let Some(key) = running.keys.remove(&id) {
            self.schedule.lock().finish(&key, outcome, Instant::now());
        }
    }
}

type Ended = Result<(tokio::task::Id, (Outcome, Instant)), tokio::task::JoinError>;

struct Running<'a, K: Clone + Eq + Hash> {
    queue: &'a Queue<K>,
    tasks: JoinSet<(Outcome, Instant)>,
    keys: HashMap<tokio::task::Id, K>,
}

impl<K: Clone + Eq + Hash> Drop for Running<'_, K> {
    /// A run that is broken off was not done, and no other run could begin while it counts as running.
    fn drop(&mut self) {
        self.tasks.abort_all();
        let mut schedule = self.queue.schedule.lock();
        for key in self.keys.values() {
            schedule.finish(key, Outcome::Failed, Instant::now());
        }
    }
}

async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use prometheus_client::registry::Registry;
    use tokio::sync::mpsc;

    use super::*;

    fn queue(concurrency: usize) -> Arc<Queue<u32>> {
        let metrics = QueueMetrics::register(&mut Registry::default());
        Queue::new(QueueSettings::new("test", concurrency), &metrics)
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_workers_run_than_allowed() {
        let queue = queue(3);
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, mut all) = mpsc::channel(100);
        let stop = CancellationToken::new();
        (0..20).for_each(|key| queue.add(key, Priority::Change));
        let counters = (now.clone(), most.clone());
        let run = tokio::spawn(queue.run(stop.clone(), move |_| {
            let (now, most, done) = (counters.0.clone(), counters.1.clone(), done.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(1)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                done.send(()).await.unwrap();
                Outcome::Done
            }
        }));
        for _ in 0..20 {
            all.recv().await.unwrap();
        }
        stop.cancel();
        run.await.unwrap();
        assert_eq!(most.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_panics_fails_its_key_and_no_other() {
        let queue = queue(1);
        let (seen, mut all) = mpsc::channel(10);
        let stop = CancellationToken::new();
        let attempts = Arc::new(AtomicUsize::new(0));
        queue.add(1, Priority::Change);
        queue.add(2, Priority::Change);
        let run = tokio::spawn(queue.clone().run(stop.clone(), move |key| {
            let (seen, attempts) = (seen.clone(), attempts.clone());
            async move {
                seen.send(key).await.unwrap();
                assert!(key == 2 || attempts.fetch_add(1, Ordering::SeqCst) > 0, "boom");
                Outcome::Done
            }
        }));
        let seen = [all.recv().await, all.recv().await, all.recv().await];
        assert_eq!(seen, [Some(1), Some(2), Some(1)]);
        stop.cancel();
        run.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn stopping_waits_for_running_work_and_starts_nothing_new() {
        let queue = queue(1);
        let (seen, mut all) = mpsc::channel(10);
        let stop = CancellationToken::new();
        queue.add(1, Priority::Change);
        queue.add(2, Priority::Change);
        let run = tokio::spawn(queue.clone().run(stop.clone(), move |key| {
            let seen = seen.clone();
            async move {
                seen.send((key, "begin")).await.unwrap();
                tokio::time::sleep(Duration::from_secs(5)).await;
                seen.send((key, "end")).await.unwrap();
                Outcome::Done
            }
        }));
        assert_eq!(all.recv().await, Some((1, "begin")));
        stop.cancel();
        run.await.unwrap();
        assert_eq!(all.recv().await, Some((1, "end")));
        assert_eq!(all.recv().await, None);
        assert_eq!(queue.depth(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_run_had_begun_when_it_was_dropped_the_next_run_begins_again() {
        let queue = queue(2);
        let (seen, mut all) = mpsc::channel(10);
        queue.add(1, Priority::Change);
        for hangs in [true, false] {
            let stop = CancellationToken::new();
            let seen = seen.clone();
            let run = queue.clone().run(stop.clone(), move |key| {
                let seen = seen.clone();
                async move {
                    seen.send(key).await.unwrap();
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    Outcome::Done
                }
            });
            let begun = tokio::time::timeout(Duration::from_hours(1), all.recv());
            tokio::select! {
                () = run => panic!("it was never stopped"),
                key = begun => assert_eq!(key, Ok(Some(1))),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_delayed_key_comes_on_time() {
        let queue = queue(1);
        let (seen, mut all) = mpsc::channel(10);
        let stop = CancellationToken::new();
        let start = Instant::now();
        queue.add_after(&7, Duration::from_hours(1));
        let run = tokio::spawn(queue.clone().run(stop.clone(), move |_| {
            let seen = seen.clone();
            async move {
                seen.send(start.elapsed()).await.unwrap();
                Outcome::Done
            }
        }));
        assert_eq!(all.recv().await.unwrap().as_secs(), 3_600);
        stop.cancel();
        run.await.unwrap();
    }
}

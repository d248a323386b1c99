//! What is known of the cluster while pages are open: one watch of each kind, however many they are.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use ostler_api::{Machine, MachineDeployment, MachinePool, MachineReserve, MachineSet};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::Source;
use super::model::{Around, Objects, Snapshot};
use super::rows::Rows;
use crate::describe;
use crate::kinds::Kind;
use crate::serving::Leases;
use crate::status::api_of;
use crate::watched::watch;

/// Between two snapshots: fast enough to follow and slow enough to read, as between two drawings of a terminal.
const EVERY: Duration = Duration::from_millis(250);
/// The admin listener and the Leases are asked so often: neither can be watched by their readers. A driver beats every 10 s.
const ASKED: Duration = Duration::from_secs(3);

/// Starts to follow a cluster with the first page, and ends with the last one.
pub(super) struct Hub {
    source: Arc<Source>,
    live: Mutex<Weak<Live>>,
}

/// The cluster, followed as long as this is held.
pub(super) struct Live {
    snapshots: watch::Receiver<Arc<Snapshot>>,
    _end: DropGuard,
}

impl Live {
    /// The last snapshot as if it were new, then every later snapshot.
    pub(super) fn snapshots(&self) -> watch::Receiver<Arc<Snapshot>> {
        let mut snapshots = self.snapshots.clone();
        snapshots.mark_changed();
        snapshots
    }
}

impl Hub {
    pub(super) fn new(source: Source) -> Self {
        Self { source: Arc::new(source), live: Mutex::default() }
    }

    /// The cluster as it is followed, from now on if no page is open.
    pub(super) fn join(&self) -> Arc<Live> {
        let mut live = self.live.lock();
        if let Some(live) = live.upgrade() {
            return live;
        }
        let (sender, snapshots) = watch::channel(Arc::new(Snapshot::unread()));
        let end = CancellationToken::new();
        let (source, ended) = (Arc::clone(&self.source), end.clone());
        tokio::spawn(
            async move { ended.run_until_cancelled(Box::pin(follow(&source, sender))).await },
        );
        let new = Arc::new(Live { snapshots, _end: end.drop_guard() });
        *live = Arc::downgrade(&new);
        new
    }

    /// What `ostler describe` says of an object.
    pub(super) async fn describe(
        &self,
        kind: Kind,
        namespace: &str,
        name: &str,
    ) -> anyhow::Result<String> {
        describe::page_of(&self.source.client, namespace, kind, name).await
    }
}

async fn follow(source: &Source, sender: watch::Sender<Arc<Snapshot>>) {
    let (client, place) = (&source.client, source.namespace.as_deref());
    let mut of_deployments = pin!(watch::<MachineDeployment>(client, place));
    let mut of_sets = pin!(watch::<MachineSet>(client, place));
    let mut of_pools = pin!(watch::<MachinePool>(client, place));
    let mut of_reserves = pin!(watch::<MachineReserve>(client, place));
    let mut of_machines = pin!(watch::<Machine>(client, place));
    let mut asked = pin!(stream::unfold(true, |first| async move {
        if !first {
            sleep(ASKED).await;
        }
        Some((ask(source).await, false))
    }));
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut all, mut rows, mut changed) = (Objects::default(), Rows::default(), true);
    let mut around = None;
    loop {
        tokio::select! {
            _ = ticks.tick(), if changed => {
                let snapshot = all.snapshot(source, around.as_ref(), &mut rows, Timestamp::now());
                sender.send_replace(Arc::new(snapshot));
                changed = false;
            }
            Some(event) = of_deployments.next() => changed |= all.deployments.take(event),
            Some(event) = of_sets.next() => changed |= all.sets.take(event),
            Some(event) = of_pools.next() => changed |= all.pools.take(event),
            Some(event) = of_reserves.next() => changed |= all.reserves.take(event),
            // There are many: they are shown as they are read.
            Some(event) = of_machines.next() => {
                changed |= all.machines.take(event) || all.machines.is_reading();
            }
            Some(answer) = asked.next() => {
                around = Some(answer);
                changed = true;
            }
        }
    }
}

/// Asks for what cannot be watched.
async fn ask(source: &Source) -> Around {
    let namespace = source.namespace.as_deref().unwrap_or("default");
    let (api, leases, known) = tokio::join!(
        api_of(&source.client),
        Leases::read(&source.client, namespace),
        source.admin.all(source.home.clone()),
    );
    Around { api, leases, known: known.map_err(|error| format!("{error:#}")) }
}

#[cfg(test)]
mod tests {
    use kube::Config;
    use ostler_dial::cluster;

    use super::*;
    use crate::drivers::AdminArgs;

    #[tokio::test]
    async fn the_cluster_is_followed_once_and_no_longer_than_a_page_is_open() {
        let client =
            cluster::client(Config::new(http::Uri::from_static("http://127.0.0.1:1/"))).unwrap();
        let (cluster, admin) = ("test".to_owned(), AdminArgs::default());
        let hub = Hub::new(Source { client, cluster, namespace: None, admin, home: None });
        let (first, second) = (hub.join(), hub.join());
        assert!(Arc::ptr_eq(&first, &second));
        let mut snapshots = first.snapshots();
        drop(first);
        assert!(snapshots.changed().await.is_ok());
        drop(second);
        while snapshots.changed().await.is_ok() {}
        assert!(hub.live.lock().upgrade().is_none());
        hub.join();
    }
}

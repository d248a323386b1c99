//! Watches: each change once, in order, and an honest end.

use std::time::Duration;

use futures::{FutureExt, StreamExt};

use super::{disk::SharedDisk, *};
use crate::store::{Backend, HistoryError, Retention, SharedEvent, Watch};

async fn next(watch: &mut Watch) -> SharedEvent {
    watch.next().await.unwrap().unwrap()
}

#[tokio::test]
async fn a_watch_starts_strictly_after_its_revision_and_carries_the_previous_state() {
    let store = memory().await;
    let first = create(&store, &pod("a"), "1").await;
    let mut watch = store.watch(Prefix::resource("", "pods"), first).unwrap();
    assert!(watch.next().now_or_never().is_none());
    let second = store.write(pod("a"), Expect::Revision(first), put("2")).await.unwrap();
    let third = store.write(pod("a"), Expect::Revision(second), delete("3")).await.unwrap();

    let event = next(&mut watch).await;
    assert_eq!((event.revision, &event.change), (second, &put("2")));
    assert_eq!(event.previous.as_ref().unwrap().value, text("1"));
    let event = next(&mut watch).await;
    assert_eq!((event.revision, &event.change), (third, &delete("3")));
    assert_eq!(event.previous.as_ref().unwrap().revision, second);
    assert!(watch.next().now_or_never().is_none());
    assert_eq!(watch.reached(), third);
}

#[tokio::test]
async fn a_watch_sees_only_its_range_but_reaches_every_revision() {
    let store = memory().await;
    let mut watch = store.watch(Prefix::namespace("", "pods", "default"), FIRST_REVISION).unwrap();
    create(&store, &node("n"), "{}").await;
    create(&store, &pod("a"), "{}").await;
    let last = create(&store, &Key::new("", "pods", "other", "b"), "{}").await;
    assert_eq!(next(&mut watch).await.key, pod("a"));
    assert!(watch.next().now_or_never().is_none());
    assert_eq!(watch.reached(), last);
}

#[tokio::test]
async fn concurrent_writers_give_every_watch_the_same_gapless_order() {
    const WRITERS: usize = 8;
    const WRITES: usize = 50;
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(StoreOptions::file(directory.path().join("log"))).await.unwrap();
    let watches: Vec<Watch> =
        (0..3).map(|_| store.watch(Prefix::all(), FIRST_REVISION).unwrap()).collect();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for write in 0..WRITES {
                create(&store, &pod(&format!("{writer}-{write}")), "{}").await;
            }
        });
    }
    writers.join_all().await;
    for watch in watches {
        let seen: Vec<u64> =
            watch.take(WRITERS * WRITES).map(|event| event.unwrap().revision).collect().await;
        let dense: Vec<u64> = (FIRST_REVISION + 1..).take(WRITERS * WRITES).collect();
        assert_eq!(seen, dense);
    }
    store.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_older_than_the_window_reads_the_log_and_misses_nothing() {
    const CHANGES: usize = 9_000;
    let store = memory().await;
    let mut revision = create(&store, &pod("a"), "0").await;
    for _ in 0..CHANGES {
        revision = store.write(pod("a"), Expect::Revision(revision), put("x")).await.unwrap();
    }
    let watch = store.watch(Prefix::all(), FIRST_REVISION).unwrap();
    let events: Vec<SharedEvent> =
        watch.take(CHANGES + 1).map(|event| event.unwrap()).collect().await;
    let dense: Vec<u64> = (FIRST_REVISION + 1..=revision).collect();
    assert_eq!(events.iter().map(|event| event.revision).collect::<Vec<_>>(), dense);
    assert!(events.iter().skip(1).all(|event| event.previous.is_some()));
}

/// A store that was just opened: memory has none of its changes.
pub(super) async fn store_with_old_nodes(nodes: usize) -> Store {
    let disk = SharedDisk::default();
    let store = disk::open(&disk);
    let keys: Vec<Key> = (0..nodes).map(|at| node(&format!("n{at:04}"))).collect();
    futures::future::join_all(keys.iter().map(|key| create(&store, key, "{}"))).await;
    store.close().await;
    disk::open(&disk)
}

#[tokio::test]
async fn a_watch_that_reads_the_log_lets_others_have_their_turn_also_where_nothing_is_its_own() {
    let store = store_with_old_nodes(2_000).await;
    let mut watch = store.watch(Prefix::resource("", "pods"), FIRST_REVISION).unwrap();
    assert!(watch.next().now_or_never().is_none());
    assert!(watch.reached() < FIRST_REVISION + 300, "{} in one turn", watch.reached());
    create(&store, &pod("a"), "{}").await;
    assert_eq!(next(&mut watch).await.key, pod("a"));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_compaction_overtakes_is_told_and_then_ended() {
    let retention = Retention {
        min_age: Duration::ZERO,
        min_revisions: 0,
        max_revisions: 1_000,
        max_bytes: u64::MAX,
    };
    let store = Store::open(StoreOptions { backend: Backend::Memory, retention }).await.unwrap();
    let mut watch = store.watch(Prefix::all(), FIRST_REVISION).unwrap();
    let mut revision = create(&store, &pod("a"), "0").await;
    for _ in 0..2_000 {
        revision = store.write(pod("a"), Expect::Revision(revision), put("x")).await.unwrap();
    }
    let end = watch.next().await.unwrap().unwrap_err();
    assert!(matches!(end, HistoryError::Compacted { revision: FIRST_REVISION, .. }));
    assert!(watch.next().await.is_none());
}

#[tokio::test]
async fn closing_the_store_ends_its_watches_after_what_was_written() {
    let store = memory().await;
    let mut watch = store.watch(Prefix::all(), FIRST_REVISION).unwrap();
    create(&store, &pod("a"), "{}").await;
    store.close().await;
    assert_eq!(next(&mut watch).await.key, pod("a"));
    assert!(watch.next().await.is_none());
}

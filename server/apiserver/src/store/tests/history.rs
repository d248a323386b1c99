//! Lists of the past, and what compaction leaves.

use std::time::Duration;

use futures::FutureExt;

use super::{watching::store_with_old_nodes, *};
use crate::store::{Backend, HistoryError, Retention};

fn pods() -> Prefix {
    Prefix::resource("", "pods")
}

fn short() -> StoreOptions {
    let retention = Retention {
        min_age: Duration::from_mins(5),
        min_revisions: 100,
        max_revisions: 2_000,
        max_bytes: 64 << 20,
    };
    StoreOptions { backend: Backend::Memory, retention }
}

async fn churn(store: &Store, times: usize) {
    let mut revision = match store.get(&node("churn")) {
        Some(record) => record.revision,
        None => create(store, &node("churn"), "0").await,
    };
    for _ in 0..times {
        let expect = Expect::Revision(revision);
        revision = store.write(node("churn"), expect, put("1")).await.unwrap();
    }
}

#[tokio::test]
async fn later_pages_are_of_the_first_pages_revision() {
    let store = memory().await;
    for name in ["a", "b", "c", "d"] {
        create(&store, &pod(name), name).await;
    }
    let first = store.list(&pods(), None, Some(2));
    assert_eq!((names(&first.records), first.remaining), (vec!["a", "b"], 2));

    let c = store.get(&pod("c")).unwrap().revision;
    store.write(pod("c"), Expect::Revision(c), put("changed")).await.unwrap();
    let d = store.get(&pod("d")).unwrap().revision;
    store.write(pod("d"), Expect::Revision(d), delete("d")).await.unwrap();
    create(&store, &pod("bb"), "new").await;

    let after = first.records.last().map(|record| record.key.clone());
    let second = store.list_at(&pods(), after.as_ref(), Some(9), first.revision).await.unwrap();
    assert_eq!(names(&second.records), ["c", "d"]);
    assert_eq!(second.records[0].value, text("c"));
    assert_eq!((second.records[0].revision, second.revision), (c, first.revision));
    let now = store.list(&pods(), None, None);
    assert_eq!(names(&now.records), ["a", "b", "bb", "c"]);
}

#[tokio::test]
async fn a_list_of_long_ago_lets_others_have_their_turn_and_is_as_it_was() {
    let store = store_with_old_nodes(2_000).await;
    let last = node("n1999");
    let expect = Expect::Revision(store.get(&last).unwrap().revision);
    store.write(last, expect, put("changed")).await.unwrap();
    let nodes = Prefix::resource("", "nodes");
    let mut listing = Box::pin(store.list_at(&nodes, None, None, FIRST_REVISION + 1_000));
    assert!(listing.as_mut().now_or_never().is_none(), "all of it in one turn");
    let page = listing.await.unwrap();
    assert_eq!((page.records.len(), page.remaining), (1_000, 0));
    assert!(page.records.iter().all(|record| record.value == text("{}")));
    assert!(page.records.iter().all(|record| record.revision <= FIRST_REVISION + 1_000));
}

#[tokio::test]
async fn a_list_of_the_future_is_refused() {
    let store = memory().await;
    let refused = store.list_at(&pods(), None, None, 999).await.unwrap_err();
    assert!(matches!(refused, HistoryError::Future { revision: 999, latest: FIRST_REVISION }));
}

#[tokio::test(start_paused = true)]
async fn history_within_its_age_is_kept_and_older_is_compacted() {
    let store = Store::open(short()).await.unwrap();
    create(&store, &pod("a"), "1").await;
    churn(&store, 1_000).await;
    assert_eq!(store.compacted(), FIRST_REVISION, "nothing is old enough");
    tokio::time::advance(Duration::from_mins(6)).await;
    churn(&store, 10).await;
    assert!(store.compacted() > FIRST_REVISION);
    assert!(store.revision() - store.compacted() >= 100);

    let refused = store.list_at(&pods(), None, None, FIRST_REVISION).await.unwrap_err();
    assert!(matches!(refused, HistoryError::Compacted { revision: FIRST_REVISION, .. }));
    assert!(matches!(
        store.watch(pods(), FIRST_REVISION).unwrap_err(),
        HistoryError::Compacted { .. }
    ));
    let kept = store.list_at(&pods(), None, None, store.compacted()).await.unwrap();
    assert_eq!(names(&kept.records), ["a"], "what is current survives compaction");
}

#[tokio::test(start_paused = true)]
async fn history_is_bounded_even_within_its_age() {
    let store = Store::open(short()).await.unwrap();
    churn(&store, 5_000).await;
    let kept = store.revision() - store.compacted();
    assert!(kept < 2_000 + 256, "kept {kept}");
}

#[tokio::test(start_paused = true)]
async fn the_last_state_before_a_kept_change_is_still_known_after_compaction() {
    let store = Store::open(short()).await.unwrap();
    let first = create(&store, &pod("a"), "before").await;
    churn(&store, 1_500).await;
    tokio::time::advance(Duration::from_mins(6)).await;
    churn(&store, 10).await;
    let from = store.compacted();
    store.write(pod("a"), Expect::Revision(first), put("after")).await.unwrap();
    let page = store.list_at(&pods(), None, None, from).await.unwrap();
    assert_eq!(page.records[0].value, text("before"));
}

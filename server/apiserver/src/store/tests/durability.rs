//! Power cuts, failing disks, and files that are not ours.

use proptest::prelude::*;

use super::{
    disk::{SharedDisk, open, open_keeping},
    *,
};
use crate::store::{OpenError, Retention};

#[tokio::test]
async fn a_failing_disk_refuses_this_write_and_every_later_one() {
    let disk = SharedDisk::default();
    let store = open(&disk);
    create(&store, &pod("a"), "1").await;
    disk.with(|disk| disk.syncs_left = Some(0));
    for name in ["b", "c"] {
        let refused = store.write(pod(name), Expect::Absent, put("2")).await.unwrap_err();
        assert!(matches!(refused, WriteError::Storage(_)), "{refused:?}");
    }
    assert!(store.get(&pod("b")).is_none(), "what is not durable is not visible");
}

#[tokio::test]
async fn a_second_opening_of_the_same_file_names_the_file_and_fails() {
    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions::file(directory.path().join("log"));
    let store = Store::open(options.clone()).await.unwrap();
    let refused = Store::open(options).await.unwrap_err();
    assert!(matches!(refused, OpenError::Locked { .. }), "{refused:?}");
    assert!(refused.to_string().contains("log is in use"));
    store.close().await;
}

#[tokio::test]
async fn a_file_that_is_no_store_is_called_corrupt() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    std::fs::write(&path, vec![7; 8192]).unwrap();
    let refused = Store::open(StoreOptions::file(path)).await.unwrap_err();
    assert!(matches!(refused, OpenError::Corrupt { .. }), "{refused:?}");
}

#[tokio::test]
async fn a_file_of_a_later_format_is_left_alone() {
    const META: redb::TableDefinition<'_, &str, u128> = redb::TableDefinition::new("meta");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    Store::open(StoreOptions::file(&path)).await.unwrap().close().await;
    let database = redb::Database::open(&path).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(META).unwrap().insert("format", 99).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let refused = Store::open(StoreOptions::file(path)).await.unwrap_err();
    assert!(matches!(refused, OpenError::Version { found: 99, supported: 1, .. }), "{refused:?}");
}

#[tokio::test]
async fn closing_frees_the_file_even_while_a_handle_and_a_watch_are_left() {
    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions::file(directory.path().join("log"));
    let store = Store::open(options.clone()).await.unwrap();
    let watch = store.watch(Prefix::all(), FIRST_REVISION).unwrap();
    create(&store, &pod("a"), "1").await;
    let uid = store.uid();
    store.clone().close().await;
    let again = Store::open(options).await.unwrap();
    assert_eq!(again.uid(), uid);
    assert_eq!(again.revision(), store.revision());
    again.close().await;
    drop(watch);
}

#[tokio::test]
async fn a_compacted_log_is_reopened_with_all_that_is_current_and_the_history_it_kept() {
    let retention = Retention {
        min_age: std::time::Duration::ZERO,
        min_revisions: 0,
        max_revisions: 300,
        max_bytes: u64::MAX,
    };
    let disk = SharedDisk::default();
    let store = open_keeping(&disk, retention);
    let untouched = create(&store, &pod("untouched"), "1").await;
    let gone = create(&store, &pod("gone"), "1").await;
    store.write(pod("gone"), Expect::Revision(gone), delete("1")).await.unwrap();
    let mut churned = create(&store, &pod("churned"), "0").await;
    for _ in 0..900 {
        churned = store.write(pod("churned"), Expect::Revision(churned), put("1")).await.unwrap();
    }
    store.clone().close().await;
    assert!(store.compacted() > gone + 1, "history was compacted");

    let reopened = open(&disk);
    assert_eq!(reopened.compacted(), store.compacted());
    assert_eq!(reopened.revision(), churned);
    assert_eq!(reopened.get(&pod("untouched")).unwrap().revision, untouched);
    assert!(reopened.get(&pod("gone")).is_none());
    let oldest = reopened.list_at(&Prefix::all(), None, None, reopened.compacted()).unwrap();
    assert_eq!(names(&oldest.records), ["churned", "untouched"]);
    assert_eq!(oldest.records[0].revision, reopened.compacted());
    let events = reopened.watch(Prefix::all(), reopened.compacted()).unwrap();
    let kept = usize::try_from(churned - reopened.compacted()).unwrap();
    let first = futures::StreamExt::take(events, kept);
    let events: Vec<_> = futures::StreamExt::collect(first).await;
    assert!(events.iter().all(|event| event.as_ref().unwrap().previous.is_some()));
}

async fn cut_power_while_writing(syncs: usize, kept: u64) {
    let disk = SharedDisk::default();
    let store = open(&disk);
    disk.with(|disk| disk.syncs_left = Some(syncs));
    let mut acknowledged = Vec::new();
    for index in 0..40 {
        let key = pod(&format!("p{index}"));
        match store.write(key.clone(), Expect::Absent, put("{\"n\":1}")).await {
            Ok(revision) => acknowledged.push((key, revision)),
            Err(_) => break,
        }
    }
    let reopened = open(&disk.cut(|index| (kept >> (index % 64)) & 1 == 1));
    for (key, revision) in &acknowledged {
        let record = reopened.get(key).expect("an acknowledged write was lost");
        assert_eq!(record.revision, *revision);
    }
    let found = reopened.list(&Prefix::all(), None, None).records.len();
    assert!(found <= acknowledged.len() + 1, "only the write in flight may be there as well");
    create(&reopened, &pod("later"), "{}").await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_power_cut_loses_no_acknowledged_write_whatever_of_the_rest_reached_the_disk(
        syncs in 0..60_usize,
        kept in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(cut_power_while_writing(syncs, kept));
    }
}

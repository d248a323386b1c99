//! Power cuts, failing disks, and files that are not ours.

use std::os::unix::fs::{PermissionsExt as _, symlink};

use futures::{FutureExt as _, future::join_all};
use proptest::prelude::*;

use super::{
    disk::{SharedDisk, Tmpfs, open, open_file, open_keeping},
    *,
};
use crate::store::{
    Health, OpenError, Retention, StorageError,
    disk::DiskLog,
    log::{Log, Opened, Row},
    shared::Shared,
    state::State,
    writer,
};

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
async fn writes_that_come_at_the_same_time_share_their_syncs() {
    let disk = SharedDisk::default();
    let store = open(&disk);
    create(&store, &pod("first"), "1").await;
    let write = |at| store.write(pod(&format!("p{at}")), Expect::Absent, put("1"));
    let mut writes: Vec<_> = (0..64).map(|at| Box::pin(write(at))).collect();
    // Whatever the writer has begun waits for the disk, and the others come meanwhile.
    disk.with(|disk| {
        disk.syncs = 0;
        assert!(writes.iter_mut().all(|it| it.now_or_never().is_none()));
    });
    assert!(join_all(writes).await.iter().all(Result::is_ok));
    let syncs = disk.with(|disk| disk.syncs);
    assert!(syncs < 16, "{syncs}");
}

/// Fails all writes from now on.
fn fail(disk: &SharedDisk, reason: std::io::ErrorKind) {
    disk.with(|disk| (disk.syncs_left, disk.reason) = (Some(0), Some(reason)));
}

#[tokio::test]
async fn a_full_disk_refuses_writes_reads_go_on_and_there_is_space_again() {
    let disk = SharedDisk::default();
    let store = open(&disk);
    let first = create(&store, &pod("a"), "1").await;
    assert_eq!(store.health(), Health::Good);
    fail(&disk, std::io::ErrorKind::StorageFull);
    for round in 0..20 {
        let refused = store.write(pod("b"), Expect::Absent, put("2")).await.unwrap_err();
        assert!(refused.to_string().contains("disk of the store is full"), "{round}: {refused}");
        let Health::Failing(reason) = store.health() else { panic!("{:?}", store.health()) };
        assert!(reason.contains("full"), "{reason}");
        assert_eq!(store.get(&pod("a")).unwrap().revision, first);
    }
    disk.with(|disk| disk.syncs_left = None);
    let second = create(&store, &pod("b"), "2").await;
    assert_eq!((second, store.health()), (first + 1, Health::Good));
    store.close().await;
    let reopened = open(&disk);
    assert_eq!(names(&reopened.list(&Prefix::all(), None, None).records), ["a", "b"]);
}

#[tokio::test]
async fn a_file_system_that_is_full_loses_nothing_and_goes_on_when_there_is_space() {
    let Some(tmpfs) = Tmpfs::mount(16) else {
        println!("skipped: a tmpfs cannot be mounted");
        return;
    };
    let (path, filler) = (tmpfs.path().join("objects.redb"), tmpfs.path().join("filler"));
    std::fs::write(&filler, vec![1; 6 << 20]).unwrap();
    let store = open_file(&path);
    let large = format!("\"{}\"", "x".repeat(16 << 10));
    let mut stored = 0;
    let refused = loop {
        match store.write(pod(&format!("p{stored:04}")), Expect::Absent, put(&large)).await {
            Ok(_) => stored += 1,
            Err(refused) => break refused,
        }
        assert!(stored < 4000, "the disk is never full");
    };
    assert!(refused.to_string().contains("disk of the store is full"), "{refused}");
    assert!(matches!(store.health(), Health::Failing(_)));
    store.write(pod("again"), Expect::Absent, put(&large)).await.unwrap_err();
    assert_eq!(store.list(&Prefix::all(), None, None).records.len(), stored, "reads go on");
    std::fs::remove_file(&filler).unwrap();
    create(&store, &pod("q"), &large).await;
    assert_eq!(store.health(), Health::Good);
    let held = store.list(&Prefix::all(), None, None).records;
    assert!(held.len() > stored, "{stored}");
    store.close().await;
    let reopened = open_file(&path);
    assert_eq!(reopened.list(&Prefix::all(), None, None).records, held);
    reopened.close().await;
}

#[tokio::test]
async fn looking_at_the_health_is_enough_to_heal() {
    let disk = SharedDisk::default();
    let store = open(&disk);
    create(&store, &pod("a"), "1").await;
    fail(&disk, std::io::ErrorKind::StorageFull);
    store.write(pod("b"), Expect::Absent, put("2")).await.unwrap_err();
    disk.with(|disk| disk.syncs_left = None);
    let mut health = store.shared.health();
    assert!(matches!(store.health(), Health::Failing(_)));
    health.wait_for(|health| *health == Health::Good).await.unwrap();
    assert_eq!(store.health(), Health::Good);
}

#[tokio::test]
async fn a_write_that_was_refused_and_is_on_the_disk_all_the_same_is_shown_when_the_store_heals() {
    let disk = SharedDisk::default();
    let store = open(&disk);
    let first = create(&store, &pod("a"), "1").await;
    let watch = store.watch(Prefix::all(), first).unwrap();
    disk.with(|disk| disk.lies = true);
    fail(&disk, std::io::ErrorKind::StorageFull);
    store.write(pod("b"), Expect::Absent, put("2")).await.unwrap_err();
    disk.with(|disk| disk.syncs_left = None);
    let last = create(&store, &pod("c"), "3").await;
    let events = futures::StreamExt::take(watch, usize::try_from(last - first).unwrap());
    let events: Vec<_> = futures::StreamExt::collect(events).await;
    let seen: Vec<u64> = events.iter().map(|event| event.as_ref().unwrap().revision).collect();
    assert_eq!(seen, (first + 1..=last).collect::<Vec<_>>(), "each revision once");
    let held = names(&store.list(&Prefix::all(), None, None).records).join(" ");
    store.close().await;
    let reopened = open(&disk);
    assert_eq!(names(&reopened.list(&Prefix::all(), None, None).records).join(" "), held);
}

#[tokio::test]
async fn after_a_sync_that_failed_nothing_is_acknowledged_that_a_power_cut_takes() {
    let large = format!("\"{}\"", "x".repeat(16 << 10));
    for syncs in 0..4 {
        let disk = SharedDisk::default();
        let store = open(&disk);
        let first = create(&store, &pod("a"), "1").await;
        let write = |at| store.write(pod(&format!("b{at}")), Expect::Absent, put(&large));
        let mut writes: Vec<_> = (0..8).map(|at| Box::pin(write(at))).collect();
        disk.with(|disk| {
            (disk.lies, disk.forgets, disk.syncs_left) = (true, true, Some(syncs));
            assert!(writes.iter_mut().all(|it| it.now_or_never().is_none()), "one commit has many");
        });
        join_all(writes).await;
        disk.with(|disk| disk.syncs_left = None);
        let later = store.write(pod("e"), Expect::Absent, put("3")).await;
        let reopened = open(&disk.cut(|_| false));
        assert_eq!(reopened.get(&pod("a")).unwrap().revision, first);
        assert!(later.is_err() || reopened.get(&pod("e")).is_some(), "{syncs}: it is gone");
    }
}

#[tokio::test]
async fn a_disk_that_is_broken_or_comes_back_without_what_was_acknowledged_ends_the_store() {
    let disk = SharedDisk::default();
    let store = open(&disk);
    create(&store, &pod("a"), "1").await;
    fail(&disk, std::io::ErrorKind::Other);
    store.write(pod("b"), Expect::Absent, put("2")).await.unwrap_err();
    assert!(store.failed().await.contains("the storage failed"));
    disk.with(|disk| disk.syncs_left = None);
    store.write(pod("b"), Expect::Absent, put("2")).await.unwrap_err();

    let disk = SharedDisk::default();
    let store = open(&disk);
    let before = disk.cut(|_| false);
    create(&store, &pod("a"), "1").await;
    fail(&disk, std::io::ErrorKind::StorageFull);
    store.write(pod("b"), Expect::Absent, put("2")).await.unwrap_err();
    disk.become_as(&before);
    store.write(pod("b"), Expect::Absent, put("2")).await.unwrap_err();
    let reason = store.failed().await;
    assert!(reason.contains("acknowledged changes are missing"), "{reason}");
}

#[tokio::test]
async fn a_writer_that_panics_ends_the_store_and_says_so() {
    /// A defect below the store.
    #[derive(Debug)]
    struct Defect;

    impl Log for Defect {
        fn append(&self, _: &[Row]) -> Result<(), StorageError> {
            panic!("a defect")
        }

        fn read(&self, _: u64, _: usize, _: usize) -> Result<Vec<Row>, StorageError> {
            Ok(Vec::new())
        }

        fn row(&self, _: u64) -> Result<Option<Row>, StorageError> {
            Ok(None)
        }

        fn compact(&self, _: u64) -> Result<(), StorageError> {
            Ok(())
        }

        fn reopen(&self) -> Result<(), StorageError> {
            Ok(())
        }

        fn close(&self) {}
    }

    let opened = Opened { uid: uuid::Uuid::nil(), compacted: FIRST_REVISION, history: 0 };
    let state = State::new(FIRST_REVISION, FIRST_REVISION);
    let shared = Shared::new(Box::new(Defect), &opened, state, Retention::default());
    let store = writer::start(shared).unwrap();
    store.write(pod("a"), Expect::Absent, put("1")).await.unwrap_err();
    assert!(store.failed().await.contains("panicked"));
    assert!(matches!(store.health(), Health::Failed(_)));
}

#[tokio::test]
async fn an_empty_file_is_an_error_that_names_it_and_a_new_one_is_never_empty() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.redb");
    std::fs::write(&path, "").unwrap();
    let refused = Store::open(StoreOptions::file(&path)).await.unwrap_err();
    assert!(matches!(refused, OpenError::Empty { .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("objects.redb is empty") && text.contains("backup"), "{text}");
    std::fs::remove_file(&path).unwrap();
    Store::open(StoreOptions::file(&path)).await.unwrap().close().await;
    let left: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(left, ["objects.redb"], "nothing of its making is left");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_link_or_a_file_that_others_can_write_is_no_store() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    Store::open(StoreOptions::file(at("real"))).await.unwrap().close().await;
    symlink(at("real"), at("link")).unwrap();
    let refused = Store::open(StoreOptions::file(at("link"))).await.unwrap_err();
    assert!(matches!(refused, OpenError::Io { .. }), "{refused:?}");
    std::fs::set_permissions(at("real"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let refused = Store::open(StoreOptions::file(at("real"))).await.unwrap_err();
    assert!(matches!(refused, OpenError::Io { .. }), "{refused:?}");
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
    let oldest = reopened.list_at(&Prefix::all(), None, None, reopened.compacted()).await.unwrap();
    assert_eq!(names(&oldest.records), ["churned", "untouched"]);
    assert_eq!(oldest.records[0].revision, reopened.compacted());
    let events = reopened.watch(Prefix::all(), reopened.compacted()).unwrap();
    let kept = usize::try_from(churned - reopened.compacted()).unwrap();
    let first = futures::StreamExt::take(events, kept);
    let events: Vec<_> = futures::StreamExt::collect(first).await;
    assert!(events.iter().all(|event| event.as_ref().unwrap().previous.is_some()));
}

#[tokio::test]
async fn history_is_bounded_over_many_short_runs() {
    let retention = Retention {
        min_age: std::time::Duration::from_hours(1),
        min_revisions: 0,
        max_revisions: 500,
        max_bytes: u64::MAX,
    };
    let disk = SharedDisk::default();
    for run in 0..30 {
        let store = open_keeping(&disk, retention);
        for name in 0..50 {
            create(&store, &pod(&format!("p{run}-{name}")), "{}").await;
        }
        store.clone().close().await;
        let kept = store.revision() - store.compacted();
        assert!(kept < 500 + 2 * 256, "run {run} kept {kept}");
    }
}

#[test]
fn what_was_deleted_stays_deleted_after_a_compaction_that_failed() {
    let disk = SharedDisk::default();
    let (log, ..) = DiskLog::open_over(disk.clone()).unwrap();
    let row = |revision, previous, change| Row { revision, previous, key: pod("a"), change };
    log.append(&[row(101, 0, put("1")), row(102, 101, put("2"))]).unwrap();
    fail(&disk, std::io::ErrorKind::StorageFull);
    log.compact(102).unwrap_err();
    disk.with(|disk| disk.syncs_left = None);
    log.reopen().unwrap();
    log.append(&[row(103, 102, delete("2"))]).unwrap();
    log.compact(103).unwrap();
    drop(log);
    let reopened = open(&disk);
    assert!(reopened.get(&pod("a")).is_none());
    assert_eq!((reopened.revision(), reopened.compacted()), (103, 103));
}

/// Writes that share a commit.
const AT_ONCE: usize = 8;

async fn cut_power_while_writing(syncs: usize, kept: u64) {
    let disk = SharedDisk::default();
    let store = open(&disk);
    disk.with(|disk| disk.syncs_left = Some(syncs));
    let mut acknowledged = Vec::new();
    for batch in 0..20 {
        let keys = (0..AT_ONCE).map(|index| pod(&format!("p{batch}-{index}")));
        let writes = keys.map(|key| async {
            let written = store.write(key.clone(), Expect::Absent, put("{\"n\":1}")).await;
            written.map(|revision| (key, revision))
        });
        let answers = futures::future::join_all(writes).await;
        let all = answers.iter().all(Result::is_ok);
        acknowledged.extend(answers.into_iter().flatten());
        if !all {
            break;
        }
    }
    let reopened = open(&disk.cut(|index| (kept >> (index % 64)) & 1 == 1));
    for (key, revision) in &acknowledged {
        let record = reopened.get(key).expect("an acknowledged write was lost");
        assert_eq!(record.revision, *revision);
    }
    let found = reopened.list(&Prefix::all(), None, None).records.len();
    assert!(found <= acknowledged.len() + AT_ONCE, "only writes in flight may be there as well");
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

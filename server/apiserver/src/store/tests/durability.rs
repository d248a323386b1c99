//! Power cuts, failing disks, and files that are not ours.

use std::{
    io,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use redb::StorageBackend;

use super::*;
use crate::store::{OpenError, Retention, disk::DiskLog, shared::Shared, writer};

/// A disk that loses what was not synced. After `syncs_left` syncs it fails for ever.
#[derive(Debug, Default)]
struct Disk {
    durable: Vec<u8>,
    cached: Vec<u8>,
    /// Writes since the last sync, in order: a power cut keeps any part of them.
    unsynced: Vec<(u64, Vec<u8>)>,
    syncs_left: Option<usize>,
}

#[derive(Clone, Debug, Default)]
struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    fn with<T>(&self, access: impl FnOnce(&mut Disk) -> T) -> T {
        access(&mut self.0.lock().unwrap())
    }

    /// What is left after the power was cut: all that was synced, and those unsynced writes that
    /// `kept` picks.
    fn cut(&self, kept: impl Fn(usize) -> bool) -> Self {
        let durable = self.with(|disk| {
            let mut durable = disk.durable.clone();
            for (index, (offset, data)) in disk.unsynced.iter().enumerate() {
                if kept(index) {
                    put_at(&mut durable, *offset, data);
                }
            }
            durable
        });
        let disk = Disk { cached: durable.clone(), durable, ..Disk::default() };
        Self(Arc::new(Mutex::new(disk)))
    }
}

fn put_at(bytes: &mut Vec<u8>, offset: u64, data: &[u8]) {
    let start = usize::try_from(offset).unwrap();
    if bytes.len() < start + data.len() {
        bytes.resize(start + data.len(), 0);
    }
    bytes[start..start + data.len()].copy_from_slice(data);
}

impl StorageBackend for SharedDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with(|disk| disk.cached.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|disk| {
            let start = usize::try_from(offset).unwrap();
            let found = disk.cached.get(start..start + out.len());
            out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.with(|disk| {
            let len = usize::try_from(len).unwrap();
            disk.cached.resize(len, 0);
            if disk.durable.len() < len {
                disk.durable.resize(len, 0);
            }
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.with(|disk| {
            if let Some(left) = &mut disk.syncs_left {
                *left = left.checked_sub(1).ok_or(io::ErrorKind::Other)?;
            }
            disk.durable = disk.cached.clone();
            disk.unsynced.clear();
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|disk| {
            if disk.syncs_left == Some(0) {
                return Err(io::ErrorKind::Other.into());
            }
            put_at(&mut disk.cached, offset, data);
            disk.unsynced.push((offset, data.to_vec()));
            Ok(())
        })
    }
}

fn open(disk: &SharedDisk) -> Store {
    let (log, opened, state) = DiskLog::open_over(disk.clone()).unwrap();
    let shared = Shared::new(Box::new(log), &opened, state, Retention::default());
    writer::start(shared).unwrap()
}

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
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_power_cut_loses_no_acknowledged_write_whatever_of_the_rest_reached_the_disk(
        syncs in 0..60_usize,
        kept in any::<u64>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(cut_power_while_writing(syncs, kept));
    }
}

//! A disk in memory that can fail and lose power.

use std::{
    io,
    sync::{Arc, Mutex},
};

use redb::StorageBackend;

use super::Store;
use crate::store::{Retention, disk::DiskLog, shared::Shared, writer};

/// A disk that loses what was not synced. After `syncs_left` syncs it fails for ever.
#[derive(Debug, Default)]
pub(super) struct Disk {
    durable: Vec<u8>,
    cached: Vec<u8>,
    /// Writes since the last sync, in order: a power cut keeps any part of them.
    unsynced: Vec<(u64, Vec<u8>)>,
    pub(super) syncs_left: Option<usize>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    pub(super) fn with<T>(&self, access: impl FnOnce(&mut Disk) -> T) -> T {
        access(&mut self.0.lock().unwrap())
    }

    /// What is left after the power was cut: all that was synced, and those unsynced writes that
    /// `kept` picks.
    pub(super) fn cut(&self, kept: impl Fn(usize) -> bool) -> Self {
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

/// Opens a store on such a disk.
pub(super) fn open(disk: &SharedDisk) -> Store {
    open_keeping(disk, Retention::default())
}

/// The same with another retention.
pub(super) fn open_keeping(disk: &SharedDisk, retention: Retention) -> Store {
    let (log, opened, state) = DiskLog::open_over(disk.clone()).unwrap();
    let shared = Shared::new(Box::new(log), &opened, state, retention);
    writer::start(shared).unwrap()
}

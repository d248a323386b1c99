//! A disk in memory that can fail and lose power.

use std::{
    io,
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};

use redb::StorageBackend;

use super::Store;
use crate::store::{Retention, disk::DiskLog, shared::Shared, writer};

/// A disk that loses unsynced writes. After `syncs_left` syncs it fails for ever.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    durable: Vec<u8>,
    cached: Vec<u8>,
    /// Writes since the last sync, in order: a power cut keeps any part of them.
    unsynced: Vec<(u64, Vec<u8>)>,
    pub(crate) syncs_left: Option<usize>,
    pub(crate) syncs: usize,
    /// Why it fails then; an unnamed error, if this says nothing.
    pub(crate) reason: Option<io::ErrorKind>,
    /// The sync that fails keeps what was written all the same.
    pub(crate) lies: bool,
    /// The sync that fails leaves what was written to be read, and no later one writes it: Linux says once that pages
    /// were lost, and takes them for written from then on.
    pub(crate) forgets: bool,
}

impl Disk {
    fn error(&self) -> io::Error {
        self.reason.unwrap_or(io::ErrorKind::Other).into()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SharedDisk(Arc<Mutex<Disk>>);

impl SharedDisk {
    pub(crate) fn with<T>(&self, access: impl FnOnce(&mut Disk) -> T) -> T {
        access(&mut self.0.lock().unwrap())
    }

    /// Takes the content of another disk, and works again.
    pub(crate) fn become_as(&self, other: &Self) {
        let durable = other.with(|disk| disk.durable.clone());
        self.with(|disk| {
            *disk = Disk { cached: durable.clone(), durable, ..Disk::default() };
        });
    }

    /// The content after a power cut: all synced writes, and the unsynced writes that `kept` picks.
    pub(crate) fn cut(&self, kept: impl Fn(usize) -> bool) -> Self {
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
            disk.syncs += 1;
            match disk.syncs_left {
                Some(0) => {
                    if !disk.lies {
                        disk.cached = disk.durable.clone();
                    }
                    if disk.forgets {
                        disk.unsynced.clear();
                    }
                    return Err(disk.error());
                }
                Some(left) => disk.syncs_left = Some(left - 1),
                None => {}
            }
            if disk.forgets {
                for (offset, data) in std::mem::take(&mut disk.unsynced) {
                    put_at(&mut disk.durable, offset, &data);
                }
            } else {
                disk.durable = disk.cached.clone();
                disk.unsynced.clear();
            }
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with(|disk| {
            if disk.syncs_left == Some(0) && !disk.lies {
                return Err(disk.error());
            }
            put_at(&mut disk.cached, offset, data);
            disk.unsynced.push((offset, data.to_vec()));
            Ok(())
        })
    }
}

/// Opens a store on such a disk.
pub(crate) fn open(disk: &SharedDisk) -> Store {
    open_keeping(disk, Retention::default())
}

/// The same with another retention.
pub(crate) fn open_keeping(disk: &SharedDisk, retention: Retention) -> Store {
    let (log, opened, state) = DiskLog::open_over(disk.clone()).unwrap();
    let shared = Shared::new(Box::new(log), &opened, state, retention);
    writer::start(shared.without_pause()).unwrap()
}

/// Opens a store in a file; like these, it tries a disk that failed again immediately.
pub(crate) fn open_file(path: &std::path::Path) -> Store {
    let (log, opened, state) = DiskLog::open(path).unwrap();
    let shared = Shared::new(Box::new(log), &opened, state, Retention::default());
    writer::start(shared.without_pause()).unwrap()
}

/// A small file system; it goes when this is dropped.
pub(crate) struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// None without the rights for it.
    pub(crate) fn mount(megabytes: u32) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=700"), "tmpfs"])
            .arg(directory.path())
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(directory))
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.path()).status().ok();
    }
}

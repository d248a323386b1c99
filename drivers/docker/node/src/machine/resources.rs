//! Capacity and pressure, from the limits of the container, its use, and what the host has.

use std::path::Path;

use super::cgroup::{self, Limits, Use};

/// As many pods as a kubelet takes by default.
pub(crate) const PODS: usize = 110;
/// Kept for the agent itself and not offered to pods.
const RESERVED: u64 = 32 * MIB;
const MIB: u64 = 1024 * 1024;
/// As a kubelet: below it, memory is short; a twentieth of a small machine is enough.
const LOW_MEMORY: u64 = 100 * MIB;
/// The disk is the host's, so only what no write survives counts.
const LOW_DISK: u64 = 100 * MIB;

/// What there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) cpu_millis: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) disk_bytes: Option<u64>,
    pub(crate) pressure: Pressure,
}

/// What is short.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    pub(crate) memory: bool,
    pub(crate) disk: bool,
    pub(crate) processes: bool,
}

/// The resources of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Host {
    cpus: u64,
    memory_bytes: Option<u64>,
    disk: Option<Disk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Disk {
    bytes: u64,
    free: u64,
}

impl Resources {
    /// CPU as Kubernetes writes it.
    pub(crate) fn cpu(&self) -> String {
        if self.cpu_millis.is_multiple_of(1000) {
            (self.cpu_millis / 1000).to_string()
        } else {
            format!("{}m", self.cpu_millis)
        }
    }

    /// Memory as kubelets write it.
    pub(crate) fn memory(&self) -> String {
        format!("{}Ki", self.memory_bytes / 1024)
    }

    /// Memory for pods.
    pub(crate) fn allocatable_memory(&self) -> String {
        format!("{}Ki", self.memory_bytes.saturating_sub(RESERVED) / 1024)
    }
}

/// What there is now; `disk` is on the file system that pods write to.
pub(crate) fn resources(disk: &Path) -> Resources {
    let read = |name: &str| std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(name)).ok();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").ok();
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok();
    let host = Host {
        cpus: online.and_then(|text| cgroup::count(&text)).unwrap_or(1),
        memory_bytes: meminfo.and_then(|text| total_memory(&text)),
        disk: nix::sys::statvfs::statvfs(disk).ok().map(|stat| Disk {
            bytes: stat.blocks().saturating_mul(stat.fragment_size()),
            free: stat.blocks_available().saturating_mul(stat.fragment_size()),
        }),
    };
    combine(cgroup::limits(&read), cgroup::usage(&read), host)
}

fn total_memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

fn combine(limits: Limits, used: Use, host: Host) -> Resources {
    let cpus = host.cpus.saturating_mul(1000);
    let memory = match (limits.memory_bytes, host.memory_bytes) {
        (Some(limit), Some(host)) => limit.min(host),
        (limit, host) => limit.or(host).unwrap_or_default(),
    };
    // Without a limit, the memory that the container uses says nothing about what is left.
    let left = limits.memory_bytes.zip(used.memory_bytes);
    let short_of_memory =
        left.is_some_and(|(limit, used)| limit.saturating_sub(used) < LOW_MEMORY.min(limit / 20));
    let short_of_processes =
        limits.processes.zip(used.processes).is_some_and(|(limit, used)| used >= limit / 10 * 9);
    Resources {
        cpu_millis: limits.cpu_millis.map_or(cpus, |limit| limit.min(cpus)),
        memory_bytes: memory,
        disk_bytes: host.disk.map(|disk| disk.bytes),
        pressure: Pressure {
            memory: short_of_memory,
            disk: host.disk.is_some_and(|disk| disk.free < LOW_DISK),
            processes: short_of_processes,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Host = Host {
        cpus: 4,
        memory_bytes: Some(8192 * MIB),
        disk: Some(Disk { bytes: 100 * MIB * 1024, free: 1024 * MIB }),
    };

    #[test]
    fn the_smaller_of_limit_and_host_is_what_there_is() {
        let none = (Limits::default(), "4", "8388608Ki");
        let small =
            Limits { cpu_millis: Some(500), memory_bytes: Some(256 * MIB), ..Limits::default() };
        let large =
            Limits { cpu_millis: Some(64_000), memory_bytes: Some(1 << 50), ..Limits::default() };
        for (limits, cpu, memory) in [none, (small, "500m", "262144Ki"), (large, "4", "8388608Ki")]
        {
            let found = combine(limits, Use::default(), HOST);
            assert_eq!((found.cpu().as_str(), found.memory().as_str()), (cpu, memory));
            assert_eq!(found.pressure, Pressure::default());
        }
        let found = combine(small, Use::default(), HOST);
        assert_eq!(found.allocatable_memory(), "229376Ki");
    }

    #[test]
    fn pressure_is_said_when_little_is_left() {
        let limits =
            Limits { memory_bytes: Some(1024 * MIB), processes: Some(100), ..Limits::default() };
        let used = |memory, processes| Use {
            memory_bytes: Some(memory * MIB),
            processes: Some(processes),
        };
        let free = |mib| Host { disk: Some(Disk { bytes: 1, free: mib * MIB }), ..HOST };
        for (used, host, expected) in [
            (used(900, 89), free(101), (false, false, false)),
            (used(990, 1), free(101), (true, false, false)),
            (used(1, 90), free(101), (false, false, true)),
            (used(1, 1), free(99), (false, true, false)),
        ] {
            let Pressure { memory, disk, processes } = combine(limits, used, host).pressure;
            assert_eq!((memory, disk, processes), expected, "{used:?}");
        }
    }

    #[test]
    fn the_memory_of_the_host_is_the_first_line_of_meminfo() {
        assert_eq!(total_memory("MemTotal:       2048 kB\nMemFree: 1 kB\n"), Some(2_097_152));
        assert_eq!(total_memory("nothing"), None);
    }
}

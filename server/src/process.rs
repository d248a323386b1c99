//! The usual metrics of a process (`process_*`), and `ostler_build_info`.

use std::fmt::Error;
use std::fs::{read_dir, read_to_string};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use nix::sys::time::TimeValLike as _;
use nix::unistd::{SysconfVar, sysconf};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

/// Adds the metrics of this process.
pub(crate) fn register(registry: &mut Registry) {
    let build = Info::new([
        ("version", env!("CARGO_PKG_VERSION")),
        ("commit", option_env!("OSTLER_COMMIT").unwrap_or("unknown")),
    ]);
    registry.register("ostler_build", "What the core was built from", build);
    registry.register_collector(Box::new(Process { started: started() }));
}

/// When the process started, in seconds since 1970.
fn started() -> Option<f64> {
    let boot = read_to_string("/proc/stat").ok()?;
    let boot: f64 =
        boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let own = read_to_string("/proc/self/stat").ok()?;
    // The name, in parentheses, may have spaces in it. The start is field 22, the first one after the name is 3.
    let ticks: f64 = own.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let per_second = sysconf(SysconfVar::CLK_TCK).ok()??;
    Some(boot + ticks / f64::from(u32::try_from(per_second).ok()?))
}

#[derive(Debug)]
struct Process {
    started: Option<f64>,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut tell = |name: &str, help: &str, unit: Option<&Unit>, value: &dyn EncodeMetric| {
            let metric = encoder.encode_descriptor(name, help, unit, value.metric_type())?;
            value.encode(metric)
        };
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            let micros = (usage.user_time() + usage.system_time()).num_microseconds();
            #[expect(clippy::cast_precision_loss, reason = "microseconds of 285 years are exact")]
            let used = ConstCounter::new(micros as f64 / 1e6);
            tell("process_cpu", "CPU time of the process", Some(&Unit::Seconds), &used)?;
        }
        if let Some(started) = self.started {
            let help = "When the process started, since 1970";
            tell("process_start_time", help, Some(&Unit::Seconds), &ConstGauge::new(started))?;
        }
        for (name, help, column) in [
            ("process_virtual_memory", "Virtual memory of the process", 0),
            ("process_resident_memory", "Resident memory of the process", 1),
        ] {
            if let Some(bytes) = memory(column) {
                tell(name, help, Some(&Unit::Bytes), &ConstGauge::new(bytes))?;
            }
        }
        if let Ok(open) = read_dir("/proc/self/fd") {
            let open = ConstGauge::new(u64::try_from(open.count()).unwrap_or(u64::MAX));
            tell("process_open_fds", "Open file descriptors", None, &open)?;
        }
        if let Ok((most, _)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let help = "File descriptors that may be open";
            tell("process_max_fds", help, None, &ConstGauge::new(most))?;
        }
        Ok(())
    }
}

/// A column of `/proc/self/statm`, which counts pages, in bytes.
fn memory(column: usize) -> Option<u64> {
    let text = read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(column)?.parse().ok()?;
    let page = sysconf(SysconfVar::PAGE_SIZE).ok()??;
    pages.checked_mul(u64::try_from(page).ok()?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn the_start_is_that_of_the_process_and_not_of_the_question() {
        let started = started().unwrap();
        // The kernel makes the entry with the process.
        let made = fs::metadata("/proc/self").unwrap().modified().unwrap();
        let made = made.duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((started - made).abs() < 5.0, "{started} {made}");
    }
}

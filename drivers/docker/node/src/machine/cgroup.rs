//! Limits and use of a container, from the files of control groups, version 1 or 2. Pure.

/// Version 1 says "no limit" by a number near the end of what it can say.
const UNLIMITED: u64 = 1 << 60;

/// The limits of the container; `None`: no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) cpu_millis: Option<u64>,
    pub(super) memory_bytes: Option<u64>,
    pub(super) processes: Option<u64>,
}

/// The usage; `None`: not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) memory_bytes: Option<u64>,
    pub(super) processes: Option<u64>,
}

/// Reads limits; `read` returns the text of a file below `/sys/fs/cgroup`.
pub(super) fn limits(read: &dyn Fn(&str) -> Option<String>) -> Limits {
    let quota = match read("cpu.max") {
        Some(text) => quota_v2(&text),
        None => quota_v1(read),
    };
    let set = first(read, &["cpuset.cpus.effective", "cpuset/cpuset.cpus", "cpuset.cpus"])
        .and_then(|text| count(&text))
        .map(|cpus| cpus.saturating_mul(1000));
    Limits {
        cpu_millis: match (quota, set) {
            (Some(quota), Some(set)) => Some(quota.min(set)),
            (quota, set) => quota.or(set),
        },
        memory_bytes: first(read, &["memory.max", "memory/memory.limit_in_bytes"])
            .and_then(|text| number(&text))
            .filter(|bytes| *bytes < UNLIMITED),
        processes: first(read, &["pids.max", "pids/pids.max"]).and_then(|text| number(&text)),
    }
}

/// Reads use. Memory is what cannot be given back: without files that were not used of late.
pub(super) fn usage(read: &dyn Fn(&str) -> Option<String>) -> Use {
    let used = first(read, &["memory.current", "memory/memory.usage_in_bytes"])
        .and_then(|text| number(&text));
    let idle = first(read, &["memory.stat", "memory/memory.stat"]).and_then(|text| {
        field(&text, "total_inactive_file").or_else(|| field(&text, "inactive_file"))
    });
    Use {
        memory_bytes: used.map(|used| used.saturating_sub(idle.unwrap_or_default())),
        processes: first(read, &["pids.current", "pids/pids.current"])
            .and_then(|text| number(&text)),
    }
}

fn first(read: &dyn Fn(&str) -> Option<String>, paths: &[&str]) -> Option<String> {
    paths.iter().find_map(|path| read(path))
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn quota_v2(text: &str) -> Option<u64> {
    let (quota, period) = text.trim().split_once(' ')?;
    millis(number(quota)?, number(period)?)
}

fn quota_v1(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    // -1 is no number without a sign: no limit.
    let quota = number(&read("cpu/cpu.cfs_quota_us")?)?;
    millis(quota, number(&read("cpu/cpu.cfs_period_us")?)?)
}

fn millis(quota: u64, period: u64) -> Option<u64> {
    quota.checked_mul(1000)?.checked_div(period).map(|millis| millis.max(1))
}

/// How many there are in a list such as `0-3,8`; `None`: none, or unreadable.
pub(super) fn count(list: &str) -> Option<u64> {
    let mut total: u64 = 0;
    for range in list.trim().split(',').filter(|range| !range.is_empty()) {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        total = total.checked_add(number(to)?.checked_sub(number(from)?)?.checked_add(1)?)?;
    }
    (total > 0).then_some(total)
}

fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| number(line.strip_prefix(name)?.strip_prefix(' ')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(
        files: &'static [(&'static str, &'static str)],
    ) -> impl Fn(&str) -> Option<String> + 'static {
        move |path| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned())
    }

    #[test]
    fn limits_of_both_versions_are_understood() {
        let none = Limits::default();
        let some = Limits {
            cpu_millis: Some(1500),
            memory_bytes: Some(536_870_912),
            processes: Some(200),
        };
        let cases: [(&'static [(&str, &str)], Limits); 6] = [
            (&[], none),
            (&[("cpu.max", "max 100000\n"), ("memory.max", "max\n"), ("pids.max", "max\n")], none),
            (
                &[
                    ("cpu.max", "150000 100000\n"),
                    ("memory.max", "536870912\n"),
                    ("pids.max", "200\n"),
                    ("cpuset.cpus.effective", "0-3\n"),
                ],
                some,
            ),
            (
                &[
                    ("cpu/cpu.cfs_quota_us", "75000\n"),
                    ("cpu/cpu.cfs_period_us", "50000\n"),
                    ("memory/memory.limit_in_bytes", "536870912\n"),
                    ("pids/pids.max", "200\n"),
                ],
                some,
            ),
            (
                &[
                    ("cpu/cpu.cfs_quota_us", "-1\n"),
                    ("cpu/cpu.cfs_period_us", "100000\n"),
                    ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ],
                none,
            ),
            (
                &[("cpu.max", "400000 100000\n"), ("cpuset/cpuset.cpus", "1,3\n")],
                Limits { cpu_millis: Some(2000), ..none },
            ),
        ];
        for (texts, expected) in cases {
            assert_eq!(limits(&files(texts)), expected, "{texts:?}");
        }
    }

    #[test]
    fn memory_that_can_be_given_back_is_not_used() {
        let v2 = files(&[
            ("memory.current", "1000\n"),
            ("memory.stat", "anon 5\ninactive_file 300\n"),
            ("pids.current", "7\n"),
        ]);
        assert_eq!(usage(&v2), Use { memory_bytes: Some(700), processes: Some(7) });
        let v1 = files(&[
            ("memory/memory.usage_in_bytes", "1000\n"),
            ("memory/memory.stat", "inactive_file 1\ntotal_inactive_file 400\n"),
        ]);
        assert_eq!(usage(&v1), Use { memory_bytes: Some(600), processes: None });
        assert_eq!(usage(&files(&[])), Use::default());
    }

    #[test]
    fn processors_are_counted_from_a_list() {
        for (list, expected) in [
            ("0\n", Some(1)),
            ("0-1", Some(2)),
            ("0-2,7,9-10", Some(6)),
            ("", None),
            ("3-1", None),
            ("x", None),
        ] {
            assert_eq!(count(list), expected, "{list}");
        }
    }
}

//! Instances and groups that have the cluster id, and that no machine or pool stands for: without the directory no later
//! `ostler up` would find them. The core finds and deletes them; here it is waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use ostler_sessions::{OrphanFate, OrphanReport, ReportedOrphan};
use tokio::time::{Instant, sleep};

use super::deletion::Patience;
use crate::log;
use crate::up::System;

/// How often the core is asked.
const ASK: Duration = Duration::from_secs(1);
/// How long every provider may take to list its instances.
const LISTS: Duration = Duration::from_mins(1);

/// Waits until the core has deleted all orphans. Returns the orphans that are left, and the providers that list
/// nothing, with the reason.
pub(super) async fn of_all(
    system: &System,
    patience: Patience,
) -> anyhow::Result<BTreeMap<String, String>> {
    let (started, mut known) = (Instant::now(), BTreeMap::new());
    loop {
        let report = system.orphans().await?;
        let left = left(&report);
        for name in known.keys().filter(|name| !left.contains_key(*name)) {
            log::say(format_args!("deleted: {name}"));
        }
        let waits = match goes_on(&report) {
            true => patience.timeout,
            false if report.not_listed.is_empty() => Duration::ZERO,
            false => LISTS.min(patience.timeout),
        };
        if started.elapsed() >= waits {
            return Ok(left);
        }
        known = left;
        known.retain(|name, _| !name.starts_with(PROVIDER));
        sleep(ASK).await;
    }
}

const PROVIDER: &str = "provider ";

/// Whether the core is about to delete one.
fn goes_on(report: &OrphanReport) -> bool {
    ours(report).any(|orphan| orphan.fate != OrphanFate::Reported)
}

/// Orphans with our cluster id: this directory has nothing to do with the others.
fn ours(report: &OrphanReport) -> impl Iterator<Item = &ReportedOrphan> {
    report.orphans.iter().filter(|orphan| !orphan.machine_uid.is_empty())
}

fn left(report: &OrphanReport) -> BTreeMap<String, String> {
    let orphan = |it: &ReportedOrphan| {
        let ids = if it.provider_ids.is_empty() { &it.parts } else { &it.provider_ids };
        let name = format!("orphan {} ({})", ids.join(", "), it.machine_name);
        let why = match it.failures {
            0 if it.kept.is_empty() => "no machine stands for it".to_owned(),
            0 => format!("it is kept {}", it.kept),
            failures => format!("its deletion failed {failures} times; see the log"),
        };
        (name, why)
    };
    let silent = |name: &String| {
        let why = "its driver did not list all instances, or no class says how: apply one";
        (format!("{PROVIDER}{name}"), why.to_owned())
    };
    ours(report).map(orphan).chain(report.not_listed.iter().map(silent)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_or_not_listed_is_left_and_what_has_no_tag_of_ours_is_none_of_our_business() {
        let orphan = |id: &str, uid: &str, fate, kept: &str| ReportedOrphan {
            provider: "p".to_owned(),
            provider_ids: vec![id.to_owned()],
            parts: Vec::new(),
            machine_name: "m".to_owned(),
            machine_uid: uid.to_owned(),
            machine_class: "default/c".to_owned(),
            known_for: Duration::ZERO,
            fate,
            failures: 0,
            kept: kept.to_owned(),
        };
        let mut report = OrphanReport {
            orphans: vec![
                orphan("p:///1", "u", OrphanFate::Reported, "because orphans are only reported"),
                orphan("p:///2", "", OrphanFate::Reported, "because it has no tags"),
            ],
            not_listed: vec!["q".to_owned()],
            ..OrphanReport::default()
        };
        assert!(!goes_on(&report));
        let names: Vec<_> = left(&report).into_keys().collect();
        assert_eq!(names, ["orphan p:///1 (m)", "provider q"]);
        report.orphans.push(orphan("p:///3", "v", OrphanFate::ToBeConfirmed, ""));
        assert!(goes_on(&report));
    }
}

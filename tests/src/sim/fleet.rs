//! Many lives, each in a process of its own that is forked from this one: lazy statics are warm, and
//! nothing of one life reaches another.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};

use super::plan::Plan;
use super::run::{Report, run};

/// Seconds of a processor that a life may take: one that takes longer goes round in circles.
const LIMIT: u32 = 120;

/// Lives a life, so that forked processes inherit whatever a process makes once. No thread may have run before.
pub fn warm_up() {
    drop(run(&Plan::of(0), false));
}

/// Runs the plans, `jobs` at a time, and hands over each report when it is there. Stops when `take`
/// says so.
///
/// # Errors
/// The system gives no process, or no file.
pub fn run_all(
    plans: impl IntoIterator<Item = Plan>,
    jobs: usize,
    keep: bool,
    mut take: impl FnMut(&Plan, Report) -> bool,
) -> io::Result<()> {
    let mut plans = plans.into_iter();
    let mut running: BTreeMap<u32, (Plan, File)> = BTreeMap::new();
    let mut more = true;
    loop {
        while more && running.len() < jobs.max(1) {
            let Some(plan) = plans.next() else {
                more = false;
                break;
            };
            let file = tempfile::tempfile()?;
            let child = start(&plan, &file, keep)?;
            running.insert(child, (plan, file));
        }
        if running.is_empty() {
            return Ok(());
        }
        let (child, code) = ostler_entropy::wait()?;
        if let Some((plan, file)) = running.remove(&child) {
            let report = read(file, &plan, code);
            more &= take(&plan, report);
        }
    }
}

/// Runs one plan.
///
/// # Errors
/// The system gives no process, or no file.
pub fn run_one(plan: &Plan, keep: bool) -> io::Result<Report> {
    let mut report = Report::default();
    run_all([plan.clone()], 1, keep, |_, one| {
        report = one;
        true
    })?;
    Ok(report)
}

fn start(plan: &Plan, mut file: &File, keep: bool) -> io::Result<u32> {
    if let Some(child) = ostler_entropy::fork()? {
        return Ok(child);
    }
    ostler_entropy::limit(LIMIT);
    let report = run(plan, keep);
    let text = serde_json::to_vec(&report).unwrap_or_default();
    ostler_entropy::leave(i32::from(file.write_all(&text).is_err()))
}

fn read(mut file: File, plan: &Plan, code: i32) -> Report {
    let mut text = Vec::new();
    let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut text));
    let report = read.ok().and_then(|_| serde_json::from_slice(&text).ok());
    report.unwrap_or_else(|| Report {
        seed: plan.seed,
        violations: vec![format!("the process ended with {code}")],
        ..Report::default()
    })
}

//! The shortest plan that still fails in the same way.

use std::io;

use super::fleet::run_one;
use super::plan::Plan;
use super::run::Report;

/// What a failure is of: its text up to the first colon after the time.
fn kind(report: &Report) -> Option<String> {
    let first = report.violations.first()?;
    let text = first.split_once(" s: ").map_or(first.as_str(), |(_, text)| text);
    Some(text.split(':').next().unwrap_or_default().to_owned())
}

/// Takes steps, replicas and drivers away for as long as the plan fails as it did.
///
/// # Errors
/// The system gives no process.
pub fn shrink(plan: &Plan, mut told: impl FnMut(usize)) -> io::Result<Plan> {
    let wanted = kind(&run_one(plan, false)?);
    let mut best = plan.clone();
    if wanted.is_none() {
        return Ok(best);
    }
    let fails = |plan: &Plan| -> io::Result<bool> { Ok(kind(&run_one(plan, false)?) == wanted) };
    let mut chunk = best.steps.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        let mut less = false;
        while at < best.steps.len() {
            let mut shorter = best.clone();
            shorter.steps.drain(at..(at + chunk).min(best.steps.len()));
            if fails(&shorter)? {
                best = shorter;
                less = true;
                told(best.steps.len());
            } else {
                at += chunk;
            }
        }
        // With single steps, go round until nothing can be left out.
        chunk = if chunk == 1 && less { 1 } else { chunk / 2 };
    }
    for fewer in [Plan { cores: 1, ..best.clone() }, Plan { drivers: 1, ..best.clone() }] {
        if fails(&fewer)? {
            best = Plan {
                cores: best.cores.min(fewer.cores),
                drivers: best.drivers.min(fewer.drivers),
                ..best
            };
        }
    }
    Ok(best)
}

//! The report for people.

use std::fmt::Write;

use super::Report;
use crate::outcome::Tier;
use crate::verdict::{CheckResult, Finding, Verdict};

/// A line; a failure has more lines that help to fix the driver.
pub(super) fn result(result: &CheckResult) -> String {
    let seconds = result.took.as_secs_f64();
    let tier = if result.tier == Tier::Must {
        String::new()
    } else {
        format!(" ({})", result.tier.word())
    };
    match &result.verdict {
        Verdict::Passed => format!("✓ {}{tier}  {seconds:.1} s", result.name),
        Verdict::Skipped { reason, .. } => {
            format!("– {}{tier}  skipped: {}", result.name, one_line(reason))
        }
        Verdict::Failed(finding) => {
            let mut text = format!("✗ {}{tier}  {seconds:.1} s\n", result.name);
            explain(&mut text, &result.sentence, finding);
            text
        }
    }
}

fn explain(text: &mut String, sentence: &str, finding: &Finding) {
    let mut row = |name: &str, value: &str| {
        let value = value.replace('\n', "\n             ");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    {name:<9}{value}");
    };
    row("rule", sentence);
    row("did", &finding.did.join("\n"));
    row("expected", &finding.expected);
    row("came", &finding.came);
    row("why", &finding.why);
    row("see", &finding.manual);
    if !finding.output.is_empty() {
        row("driver", &finding.output.join("\n"));
    }
}

/// What a driver says of itself begins no line of the report. The printer escapes everything else that could change a
/// terminal.
fn one_line(text: &str) -> String {
    text.replace('\r', "\\r").replace('\n', "\\n")
}

/// The summary.
pub(super) fn summary(report: &Report) -> String {
    let counts = report.counts();
    let mut text = String::new();
    let mut names = |title: &str, wanted: fn(Tier) -> bool| {
        let failed: Vec<&str> = report
            .results
            .iter()
            .filter(|it| matches!(it.verdict, Verdict::Failed(_)) && wanted(it.tier))
            .map(|it| it.name.as_str())
            .collect();
        if !failed.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{title}: {}", failed.join(", "));
        }
    };
    names("broken", |tier| tier != Tier::Should);
    names("should be better", |tier| tier == Tier::Should);
    let unchecked = report.not_checked();
    if report.passes() && !unchecked.is_empty() {
        let _ = writeln!(text, "not checked: {}", unchecked.join(", "));
    }
    let verdict = match (report.passes(), unchecked.len()) {
        (true, 0) => "is conformant".to_owned(),
        (true, count) => format!("passes what was checked, which is all but {count}"),
        (false, _) => "is not conformant".to_owned(),
    };
    let super::DriverName { provider, name, version, unary, by_name } = &report.driver;
    let kind = if *unary { "unary, behind the adapter" } else { "stream" };
    let identity = if *by_name { ", IDENTITY_BY_NAME" } else { "" };
    let _ = write!(
        text,
        "{} ({} {}; {kind}{identity}) {verdict}: {} passed, {} failed, {} warned, {} skipped in {:.0} s",
        one_line(provider),
        one_line(name),
        one_line(version),
        counts.passed,
        counts.failed,
        counts.warned,
        counts.skipped,
        report.took.as_secs_f64()
    );
    text
}

//! The report as JUnit XML.

use std::fmt::Write;

use super::Report;
use crate::verdict::{CheckResult, Verdict};

pub(super) fn render(report: &Report) -> String {
    let counts = report.counts();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        xml,
        "<testsuite name=\"ostler conformance: {}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" time=\"{:.3}\">",
        escaped(&report.driver.provider),
        report.results.len(),
        counts.failed + counts.warned,
        counts.skipped,
        report.took.as_secs_f64()
    );
    for result in &report.results {
        case(&mut xml, result);
    }
    xml.push_str("</testsuite>\n");
    xml
}

fn case(xml: &mut String, result: &CheckResult) {
    let (group, name) = result.name.split_once('/').unwrap_or(("", &result.name));
    let _ = write!(
        xml,
        "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
        escaped(group),
        escaped(name),
        result.took.as_secs_f64()
    );
    let _ = match &result.verdict {
        Verdict::Passed => writeln!(xml, "/>"),
        Verdict::Skipped { reason, .. } => {
            writeln!(xml, "><skipped message=\"{}\"/></testcase>", escaped(reason))
        }
        Verdict::Failed(finding) => writeln!(
            xml,
            "><failure type=\"{}\" message=\"{}\">{}</failure></testcase>",
            result.tier.word(),
            escaped(&format!("expected {}, came {}", finding.expected, finding.came)),
            escaped(&result.text())
        ),
    };
}

/// Text as XML takes it; control characters, which it does not, become spaces.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, letter| {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(letter),
            control if control.is_control() => out.push(' '),
            plain => out.push(plain),
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn text_of_a_driver_cannot_break_the_xml() {
        assert_eq!(escaped("a<b>&\"\u{1b}[0m\n"), "a&lt;b&gt;&amp;&quot; [0m\n");
    }
}

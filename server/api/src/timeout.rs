//! Durations as Go writes them (`20m0s`), never negative.

use std::{borrow::Cow, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A time limit in the spec of a Machine, kept as it was written. The schema takes all values of Go's
/// `time.ParseDuration`; a negative value counts as zero. A stored malformed value, or a value longer than Go's 292
/// years, counts as absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeout(String);

impl Timeout {
    /// The limit itself; `None` if the text is no Go duration. kube's parser panics if a number is too large.
    pub fn duration(&self) -> Option<Duration> {
        let unsigned = self.0.strip_prefix(['-', '+']).unwrap_or(&self.0);
        let mut rest = if unsigned == "0" { "0s" } else { unsigned };
        let mut total = Duration::ZERO;
        while !rest.is_empty() || unsigned.is_empty() {
            let (part, tail) = leading_part(rest)?;
            total = total.checked_add(part).filter(|sum| *sum <= LONGEST)?;
            rest = tail;
        }
        Some(if self.0.starts_with('-') { Duration::ZERO } else { total })
    }
}

/// The longest that Go can express.
const LONGEST: Duration = Duration::from_nanos(i64::MAX as u64);

/// The first number with its unit, and the rest.
fn leading_part(text: &str) -> Option<(Duration, &str)> {
    let is_number = |letter: char| letter.is_ascii_digit() || letter == '.';
    let (number, tail) = text.split_at(text.find(|it| !is_number(it))?);
    let (unit, tail) = tail.split_at(tail.find(is_number).unwrap_or(tail.len()));
    let seconds = match unit {
        "h" => 3600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" | "μs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Some((Duration::try_from_secs_f64(number * seconds).ok()?, tail))
}

impl From<&str> for Timeout {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// The syntax of Go's `time.ParseDuration`; both letters for micro, as there.
const PATTERN: &str = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$";

impl JsonSchema for Timeout {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Timeout".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": PATTERN,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_keeps_its_text_and_reads_as_go_reads_it() {
        let timeout: Timeout = serde_json::from_str(r#""20m0s""#).unwrap();
        assert_eq!(timeout.duration(), Some(Duration::from_mins(20)));
        assert_eq!(serde_json::to_string(&timeout).unwrap(), r#""20m0s""#);
        assert_eq!(Timeout::from("1h30m").duration(), Some(Duration::from_mins(90)));
    }

    #[test]
    fn what_go_parses_the_schema_takes_and_so_do_we() {
        let pattern = regex::Regex::new(PATTERN).unwrap();
        for (text, nanos) in [
            ("0", 0),
            ("20m0s", 1_200_000_000_000),
            ("+1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("1µs", 1_000),
            ("1μs", 1_000),
            ("1us1ns", 1_001),
            ("-5m", 0),
            ("-0", 0),
        ] {
            assert!(pattern.is_match(text), "{text}");
            let duration = Timeout::from(text).duration();
            assert_eq!(duration, Some(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "5", "-", ".", ".s", "1d", "1h 5m", "1e3s"] {
            assert!(!pattern.is_match(text), "{text}");
        }
    }

    #[test]
    fn a_malformed_timeout_counts_as_absent_and_a_negative_one_as_zero() {
        assert_eq!(Timeout::from("soon").duration(), None);
        assert_eq!(Timeout::from("-5m").duration(), Some(Duration::ZERO));
        for text in ["", "-", "+", "5", "-+5m", "1h-5m", "1d", "1h 5m", "1e3s", ".s", "1.2.3s"] {
            assert_eq!(Timeout::from(text).duration(), None, "{text}");
        }
    }

    #[test]
    fn a_timeout_that_is_too_long_for_go_counts_as_absent() {
        for text in
            ["10000000000000000h", "-10000000000000000h", "2562048h", "5000000000h5000000000h"]
        {
            assert_eq!(Timeout::from(text).duration(), None, "{text}");
        }
        assert!(Timeout::from("2562047h").duration().is_some());
    }
}

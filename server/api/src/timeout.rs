//! Durations as Go writes them (`20m0s`), never negative.

use std::{borrow::Cow, time::Duration};

use kube::core::Duration as GoDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A time limit in the spec of a Machine, kept as it was written. The schema refuses one that is
/// malformed or negative; where one is stored already, it counts as absent or as zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeout(String);

impl Timeout {
    /// The limit itself; `None` if the text is no Go duration.
    pub fn duration(&self) -> Option<Duration> {
        let go: GoDuration = self.0.parse().ok()?;
        Some(if go.is_negative() { Duration::ZERO } else { go.into() })
    }
}

impl From<&str> for Timeout {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

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
            "pattern": r"^\+?(0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$",
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
    fn a_malformed_timeout_counts_as_absent_and_a_negative_one_as_zero() {
        assert_eq!(Timeout::from("soon").duration(), None);
        assert_eq!(Timeout::from("-5m").duration(), Some(Duration::ZERO));
    }
}

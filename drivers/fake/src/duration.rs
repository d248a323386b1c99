//! Durations as Go writes them: `300ms`, `1m30s`, `1.5h`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration in the notation of Go.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub Duration);

/// The text is no Go duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: write for example 300ms, 10s or 1m30s")]
pub struct NotADuration(String);

/// A year: more than any simulation waits, and far from every overflow.
const LONGEST: Duration = Duration::from_hours(8784);

impl FromStr for GoDuration {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        let refused = || NotADuration(text.to_owned());
        if text == "0" {
            return Ok(Self::default());
        }
        let mut rest = text;
        let mut total = Duration::ZERO;
        while !rest.is_empty() {
            let (part, tail) = leading_part(rest).ok_or_else(refused)?;
            total = total.checked_add(part).filter(|sum| *sum <= LONGEST).ok_or_else(refused)?;
            rest = tail;
        }
        if text.is_empty() { Err(refused()) } else { Ok(Self(total)) }
    }
}

/// The first number with its unit, and the rest.
fn leading_part(text: &str) -> Option<(Duration, &str)> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, tail) = text.split_at(digits);
    let letters = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
    let (unit, tail) = tail.split_at(letters);
    let seconds = match unit {
        "h" => 3600.0,
        "m" => 60.0,
        "s" => 1.0,
        "ms" => 1e-3,
        "us" | "µs" => 1e-6,
        "ns" => 1e-9,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    Some((Duration::try_from_secs_f64(number * seconds).ok()?, tail))
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.subsec_nanos();
        if nanos == 0 {
            write!(f, "{}s", self.0.as_secs())
        } else if nanos.is_multiple_of(1_000_000) {
            write!(f, "{}ms", self.0.as_millis())
        } else {
            write!(f, "{}ns", self.0.as_nanos())
        }
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A duration as Go writes it, for example 300ms, 10s or 1m30s",
            "pattern": r"^(0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_go_writes_is_read() {
        for (text, millis) in
            [("0", 0), ("0s", 0), ("300ms", 300), ("1m30s", 90_000), ("1.5h", 5_400_000)]
        {
            let read: GoDuration = text.parse().unwrap();
            assert_eq!(read.0, Duration::from_millis(millis), "{text}");
        }
    }

    #[test]
    fn what_go_refuses_is_refused() {
        for text in ["", "5", "s", "-1s", "1 s", "1d", "1s2", "1..2s", "999999999h"] {
            assert!(text.parse::<GoDuration>().is_err(), "{text:?} was read");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for nanos in [0, 1, 1_000_000, 1_500_000_000, 90_000_000_000] {
            let duration = GoDuration(Duration::from_nanos(nanos));
            assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }
}

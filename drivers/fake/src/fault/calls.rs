//! The calls that a rule hits: `2`, `"1-3"`, `"4-"`, `"every"`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A range of call numbers, from 1, both ends in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Calls {
    first: u64,
    last: u64,
}

/// The text names no calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no calls: write 2, \"1-3\", \"4-\" or \"every\", counted from 1")]
pub struct NotACallNumber(String);

impl Default for Calls {
    fn default() -> Self {
        Self { first: 1, last: u64::MAX }
    }
}

impl Calls {
    /// Whether the `n`th call is among them.
    pub fn contains(self, n: u64) -> bool {
        (self.first..=self.last).contains(&n)
    }

    /// Whether all calls are, so that nothing needs to be counted.
    pub(crate) fn is_every(self) -> bool {
        self == Self::default()
    }
}

impl FromStr for Calls {
    type Err = NotACallNumber;

    fn from_str(text: &str) -> Result<Self, NotACallNumber> {
        let refused = || NotACallNumber(text.to_owned());
        let number = |text: &str| text.parse::<u64>().map_err(|_| refused());
        let calls = match text.split_once('-') {
            _ if text == "every" => Self::default(),
            None => number(text).map(|n| Self { first: n, last: n })?,
            Some((first, "")) => Self { first: number(first)?, last: u64::MAX },
            Some((first, last)) => Self { first: number(first)?, last: number(last)? },
        };
        if calls.first == 0 || calls.last < calls.first { Err(refused()) } else { Ok(calls) }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (1, u64::MAX) => f.write_str("every"),
            (first, u64::MAX) => write!(f, "{first}-"),
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Written<'a> {
    Number(u64),
    Text(Cow<'a, str>),
}

impl<'de> Deserialize<'de> for Calls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match Written::deserialize(deserializer)? {
            Written::Number(n) => Cow::Owned(n.to_string()),
            Written::Text(text) => text,
        };
        text.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Calls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Calls {
    fn schema_name() -> Cow<'static, str> {
        "Calls".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Which calls, counted from 1: 2, \"1-3\", \"4-\" or \"every\"",
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": "^([0-9]+(-[0-9]*)?|every)$"},
            ],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_both_its_ends() {
        let cases: [(&str, [bool; 4]); 5] = [
            ("1", [true, false, false, false]),
            ("2-3", [false, true, true, false]),
            ("2-", [false, true, true, true]),
            ("every", [true; 4]),
            ("1-", [true; 4]),
        ];
        for (text, expected) in cases {
            let calls: Calls = text.parse().unwrap();
            assert_eq!([1, 2, 3, 4].map(|n| calls.contains(n)), expected, "{text}");
            assert_eq!(calls.to_string().parse(), Ok(calls), "{text}");
        }
    }

    #[test]
    fn numbers_and_texts_are_both_read() {
        assert_eq!(serde_json::from_str::<Calls>("3").unwrap(), "3".parse().unwrap());
        assert_eq!(serde_json::from_str::<Calls>("\"3-\"").unwrap(), "3-".parse().unwrap());
    }

    #[test]
    fn what_names_no_calls_is_refused() {
        for text in ["0", "", "-", "3-1", "x", "1,2"] {
            assert!(text.parse::<Calls>().is_err(), "{text:?} was read");
        }
    }
}

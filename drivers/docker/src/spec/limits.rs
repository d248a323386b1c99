//! The limits of a container, as Kubernetes quantities.

use std::fmt;

use ostler_quantity::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Docker's smallest memory limit.
pub(super) const LEAST_MEMORY: i64 = 6 * 1024 * 1024;
/// Docker's smallest share of CPU, in nanos.
pub(super) const LEAST_CPU: i64 = 10_000_000;

/// The least that a machine needs for its initialization: its init, a shell and the shell's children.
pub(super) const LEAST_PROCESSES: i64 = 16;
/// What the kernel of a small host has for all of its processes (`kernel.pid_max`).
pub(super) const MOST_PROCESSES: i64 = 32_768;

/// A quantity that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what}: write e.g. {example}")]
pub struct NotAQuantity {
    text: String,
    what: &'static str,
    example: &'static str,
}

/// A quantity as it stands in a spec: a text, or a number.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Raw {
    Whole(i64),
    Part(f64),
    Text(String),
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Part(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// CPUs, in billionths of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "String")]
pub struct Cpu(i64);

impl Cpu {
    /// In billionths of a CPU, as Docker counts.
    pub fn nanos(self) -> i64 {
        self.0
    }
}

impl TryFrom<Raw> for Cpu {
    type Error = NotAQuantity;

    fn try_from(raw: Raw) -> Result<Self, NotAQuantity> {
        let text = raw.to_string();
        let wrong = || NotAQuantity {
            text: text.clone(),
            what: "amount of CPU",
            example: "2, 0.5 or 500m",
        };
        parse(&text, 1).map(Self).ok_or_else(wrong)
    }
}

impl From<Cpu> for String {
    fn from(cpu: Cpu) -> Self {
        format!("{}n", cpu.0)
    }
}

/// Memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "String")]
pub struct Memory(i64);

impl Memory {
    /// In bytes.
    pub fn bytes(self) -> i64 {
        self.0
    }
}

impl TryFrom<Raw> for Memory {
    type Error = NotAQuantity;

    fn try_from(raw: Raw) -> Result<Self, NotAQuantity> {
        let text = raw.to_string();
        let wrong = || NotAQuantity {
            text: text.clone(),
            what: "amount of memory",
            example: "256Mi or 1G",
        };
        parse(&text, 1_000_000_000).map(Self).ok_or_else(wrong)
    }
}

impl From<Memory> for String {
    fn from(memory: Memory) -> Self {
        memory.0.to_string()
    }
}

/// How many processes and threads a container may have at the same time.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Processes(u32);

impl Processes {
    /// As Docker counts them.
    pub fn count(self) -> i64 {
        i64::from(self.0)
    }
}

/// Enough for a node with many pods, and far below what the kernels of hosts have for all: a fork bomb ends in its machine.
impl Default for Processes {
    fn default() -> Self {
        Self(4096)
    }
}

/// An amount in units of so many billionths, rounded up.
fn parse(text: &str, unit: i128) -> Option<i64> {
    let nanos = Quantity::parse(text)?.nanos();
    let complete = nanos >= 0 && !text.ends_with('.');
    i64::try_from((nanos + unit - 1) / unit).ok().filter(|_| complete)
}

/// When Docker starts a container again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RestartPolicy {
    /// Never.
    Never,
    /// When its process ends with an error, and when the engine starts.
    OnFailure,
    /// Whenever its process ends, and when the engine starts.
    #[default]
    Always,
    /// As `Always`, but not after it was stopped, by a user or by an engine that was killed.
    UnlessStopped,
}

/// Both are texts or numbers.
macro_rules! schema {
    ($type:ident, $pattern:literal) => {
        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "anyOf": [{ "type": "string", "pattern": $pattern }, { "type": "number", "minimum": 0 }]
                })
            }
        }
    };
}
schema!(Cpu, "^[0-9]+(\\.[0-9]+)?[mun]?$");
schema!(Memory, "^[0-9]+(\\.[0-9]+)?([KMGT]i|[kMGT])?$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_read_as_kubernetes_writes_them() {
        for (text, nanos) in [
            ("\"500m\"", 500_000_000),
            ("2", 2_000_000_000),
            ("0.5", 500_000_000),
            ("\"1.25\"", 1_250_000_000),
        ] {
            assert_eq!(serde_json::from_str::<Cpu>(text).unwrap().nanos(), nanos, "{text}");
        }
        for text in [
            "\"\"",
            "\"half\"",
            "\"-1\"",
            "\"5x\"",
            "\"1.\"",
            "\"1.5.0\"",
            "true",
            "\"99999999999\"",
        ] {
            assert!(serde_json::from_str::<Cpu>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn memory_is_read_as_kubernetes_writes_it() {
        for (text, bytes) in [
            ("\"256Mi\"", 268_435_456),
            ("\"1G\"", 1_000_000_000),
            ("\"1.5Gi\"", 1_610_612_736),
            ("7000000", 7_000_000),
        ] {
            assert_eq!(serde_json::from_str::<Memory>(text).unwrap().bytes(), bytes, "{text}");
        }
        assert!(serde_json::from_str::<Memory>("\"16 GB\"").is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let cpu: Cpu = serde_json::from_str("\"750m\"").unwrap();
        assert_eq!(
            serde_json::from_str::<Cpu>(&serde_json::to_string(&cpu).unwrap()).unwrap(),
            cpu
        );
        let memory: Memory = serde_json::from_str("\"64Mi\"").unwrap();
        let again = serde_json::from_str::<Memory>(&serde_json::to_string(&memory).unwrap());
        assert_eq!(again.unwrap(), memory);
    }
}

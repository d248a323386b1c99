//! Codes and certainties by the names that people write: `Unavailable`, `NotApplied`.

use std::borrow::Cow;

use ostler_driver_sdk::{Certainty, Code};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const CODES: [(&str, Code); 17] = [
    ("Canceled", Code::Canceled),
    ("Unknown", Code::Unknown),
    ("InvalidArgument", Code::InvalidArgument),
    ("DeadlineExceeded", Code::DeadlineExceeded),
    ("NotFound", Code::NotFound),
    ("AlreadyExists", Code::AlreadyExists),
    ("PermissionDenied", Code::PermissionDenied),
    ("ResourceExhausted", Code::ResourceExhausted),
    ("FailedPrecondition", Code::FailedPrecondition),
    ("Aborted", Code::Aborted),
    ("OutOfRange", Code::OutOfRange),
    ("Unimplemented", Code::Unimplemented),
    ("Internal", Code::Internal),
    ("Unavailable", Code::Unavailable),
    ("DataLoss", Code::DataLoss),
    ("Unauthenticated", Code::Unauthenticated),
    ("Uninitialized", Code::Uninitialized),
];

/// A code, by its name in a Machine's `lastOperation.errorCode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeName(pub Code);

impl CodeName {
    /// The name.
    pub fn as_str(self) -> &'static str {
        CODES.iter().find(|(_, code)| *code == self.0).map_or("Unspecified", |(name, _)| name)
    }
}

impl<'de> Deserialize<'de> for CodeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let known = CODES.iter().find(|(name, _)| *name == text);
        known.map(|(_, code)| Self(*code)).ok_or_else(|| {
            let names = CODES.map(|(name, _)| name).join(", ");
            de::Error::custom(format_args!("{text:?} is no code: write one of {names}"))
        })
    }
}

impl Serialize for CodeName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl JsonSchema for CodeName {
    fn schema_name() -> Cow<'static, str> {
        "Code".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "enum": CODES.map(|(name, _)| name)})
    }
}

/// What a failure left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CertaintyName {
    /// Nothing changed.
    NotApplied,
    /// Something changed.
    Partial,
    /// The driver cannot tell.
    Unknown,
}

impl From<CertaintyName> for Certainty {
    fn from(name: CertaintyName) -> Self {
        match name {
            CertaintyName::NotApplied => Self::NotApplied,
            CertaintyName::Partial => Self::Partial,
            CertaintyName::Unknown => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_read_by_its_name_and_written_by_it() {
        for (name, code) in CODES {
            let json = format!("\"{name}\"");
            let read: CodeName = serde_json::from_str(&json).unwrap();
            assert_eq!(read.0, code);
            assert_eq!(serde_json::to_string(&read).unwrap(), json);
        }
    }

    #[test]
    fn an_unknown_code_is_told_what_to_write() {
        let error = serde_json::from_str::<CodeName>("\"UNAVAILABLE\"").unwrap_err();
        assert!(error.to_string().contains("Unavailable"), "{error}");
    }
}

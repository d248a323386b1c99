//! Values without parts: how they are checked, and their canonical form.

use serde_json::Value;

use ostler_quantity::Quantity;

use crate::kinds::schema::formats;

/// A value without parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    Text,
    Bytes,
    Time,
    MicroTime,
    Int32,
    Int64,
    Float,
    Bool,
    IntOrString,
    Quantity,
}

impl Leaf {
    /// The name of the expected type, for messages.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Bytes => "base64",
            Self::Time | Self::MicroTime => "RFC 3339 time",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Float => "float64",
            Self::Bool => "bool",
            Self::IntOrString => "int or string",
            Self::Quantity => "quantity",
        }
    }

    /// Whether the value fits; if so, it is brought to its canonical form.
    pub(super) fn accept(self, value: &mut Value) -> bool {
        match self {
            Self::Text => value.is_string(),
            Self::Bytes => value.as_str().is_some_and(|text| formats::matches("byte", text)),
            Self::Time => canonical_time(value, 0),
            Self::MicroTime => canonical_time(value, 6),
            Self::Int32 => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
            Self::Int64 => value.as_i64().is_some(),
            Self::Float => value.is_number(),
            Self::Bool => value.is_boolean(),
            Self::IntOrString => value.is_string() || value.as_i64().is_some(),
            Self::Quantity => canonical_quantity(value),
        }
    }

    /// The value of a null in a list or a map.
    pub(super) fn zero(self) -> Value {
        match self {
            Self::Text | Self::Bytes => Value::String(String::new()),
            Self::Int32 | Self::Int64 | Self::IntOrString => Value::from(0),
            Self::Bool => Value::Bool(false),
            Self::Quantity => Value::String("0".to_owned()),
            Self::Time | Self::MicroTime | Self::Float => Value::Null,
        }
    }
}

/// Brings a time to UTC with `digits` fractional digits.
fn canonical_time(value: &mut Value, digits: usize) -> bool {
    let Some(text) = value.as_str() else { return false };
    if !formats::is_date_time(text) {
        return false;
    }
    let Ok(time) = text.parse::<jiff::Timestamp>() else { return false };
    let whole = time.strftime("%Y-%m-%dT%H:%M:%S");
    *value = Value::String(if digits == 0 {
        format!("{whole}Z")
    } else {
        format!("{whole}.{:06}Z", time.subsec_nanosecond().unsigned_abs() / 1000)
    });
    true
}

fn canonical_quantity(value: &mut Value) -> bool {
    let text = match &*value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return false,
    };
    match Quantity::parse(&text) {
        Some(parsed) => {
            *value = Value::String(parsed.to_string());
            true
        }
        None => false,
    }
}

//! Dropping what a schema does not know.

use serde_json::Value;

use super::{Additional, Schema, catalogue};
use crate::kinds::{
    field::Path,
    schema::decode::{DecodeError, UnknownField},
};

impl Schema {
    /// Drops unknown fields of a whole custom object and returns them, sorted by path.
    ///
    /// # Errors
    /// `metadata` of the object, or of an embedded one, holds a value of the wrong type.
    pub(crate) fn prune(&self, object: &mut Value) -> Result<Vec<UnknownField>, DecodeError> {
        let mut unknown = Vec::new();
        shorten_numbers(object);
        if let Some(fields) = object.as_object_mut() {
            let envelope = take_envelope(fields, Path::Root(""), &mut unknown)?;
            let mut body = Value::Object(std::mem::take(fields));
            self.walk(&mut body, Path::Root(""), &mut unknown)?;
            if let Value::Object(kept) = body {
                *fields = kept;
            }
            fields.extend(envelope);
        }
        unknown.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(unknown)
    }

    /// Calls itself once for each level of the value, which are bounded where it was read or patched.
    fn walk(
        &self,
        value: &mut Value,
        path: Path<'_>,
        unknown: &mut Vec<UnknownField>,
    ) -> Result<(), DecodeError> {
        match value {
            Value::Array(items) => {
                let Some(schema) = &self.items else { return Ok(()) };
                for (position, item) in items.iter_mut().enumerate() {
                    schema.walk(item, Path::Index(&path, position), unknown)?;
                }
            }
            Value::Object(fields) => {
                let envelope =
                    if self.embedded { take_envelope(fields, path, unknown)? } else { Vec::new() };
                self.walk_fields(fields, path, unknown)?;
                fields.extend(envelope);
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(())
    }

    fn walk_fields(
        &self,
        fields: &mut serde_json::Map<String, Value>,
        path: Path<'_>,
        unknown: &mut Vec<UnknownField>,
    ) -> Result<(), DecodeError> {
        let keeps = self.preserve_unknown || matches!(self.additional, Additional::Any);
        let mut dropped = Vec::new();
        for (name, value) in fields.iter_mut() {
            match self.property(name) {
                Some(schema) => schema.walk(value, Path::Child(&path, name), unknown)?,
                None if keeps => {}
                None => dropped.push(name.clone()),
            }
        }
        for name in dropped {
            fields.remove(&name);
            UnknownField::note(unknown, Path::Child(&path, &name));
        }
        Ok(())
    }
}

/// The largest number up to which all whole numbers can be told apart.
pub(super) const EXACT: f64 = 9_007_199_254_740_992.0;

/// Writes `1.0` as `1`: a number is shown without a fraction that says nothing.
fn shorten_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(shorten_numbers),
        Value::Object(fields) => fields.values_mut().for_each(shorten_numbers),
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|one| one.fract() == 0.0 && one.abs() < EXACT);
            #[expect(clippy::cast_possible_truncation, reason = "it is whole and small")]
            if let Some(whole) = whole {
                *value = Value::from(whole as i64);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Takes `apiVersion`, `kind` and `metadata` out of an object, the latter pruned: they are known
/// everywhere, whatever the schema says.
fn take_envelope(
    fields: &mut serde_json::Map<String, Value>,
    path: Path<'_>,
    unknown: &mut Vec<UnknownField>,
) -> Result<Vec<(String, Value)>, DecodeError> {
    let mut taken = Vec::with_capacity(3);
    for name in ["apiVersion", "kind"] {
        taken.extend(fields.remove_entry(name));
    }
    if let Some((name, mut metadata)) = fields.remove_entry("metadata") {
        catalogue::object_meta(&mut metadata, Path::Child(&path, &name), unknown)?;
        taken.push((name, metadata));
    }
    Ok(taken)
}

//! Filling in defaults, and dropping nulls that are not allowed.

use serde_json::{Map, Value};

use super::Schema;

impl Schema {
    /// Fills in defaults; then drops nulls of named properties that are not nullable.
    pub(crate) fn default(&self, object: &mut Value) {
        self.fill(object);
        self.drop_nulls(object);
    }

    fn fill(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => self.fill_fields(fields),
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for item in items {
                    schema.replace_null(item);
                    schema.fill(item);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn fill_fields(&self, fields: &mut Map<String, Value>) {
        for (name, schema) in &self.properties {
            let Some(default) = &schema.default else { continue };
            match fields.get_mut(name) {
                Some(value) => schema.replace_null(value),
                None => {
                    fields.insert(name.clone(), default.clone());
                }
            }
        }
        for (name, value) in fields.iter_mut() {
            if let Some(schema) = self.property(name) {
                if !self.properties.contains_key(name) {
                    schema.replace_null(value);
                }
                schema.fill(value);
            }
        }
    }

    fn replace_null(&self, value: &mut Value) {
        if let (true, true, Some(default)) = (value.is_null(), self.refuses_null(), &self.default) {
            *value = default.clone();
        }
    }

    fn drop_nulls(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.retain(|name, value| match self.property(name) {
                    Some(schema) => !(value.is_null() && schema.refuses_null()),
                    None => true,
                });
                for (name, value) in fields.iter_mut() {
                    if let Some(schema) = self.property(name) {
                        schema.drop_nulls(value);
                    }
                }
            }
            Value::Array(items) => {
                let Some(schema) = &self.items else { return };
                for item in items {
                    schema.drop_nulls(item);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

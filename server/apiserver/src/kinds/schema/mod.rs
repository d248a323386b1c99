//! Structural schemas: what a custom object may contain, what is filled in, what is dropped.
//!
//! A definition's `openAPIV3Schema` is parsed once into a [`Schema`]; pruning, defaulting and
//! validation are walks over schema and object together. Built-in kinds have no structural schema
//! but a [`catalogue`] of types, made from the schemas that come with the API types.

pub(crate) mod catalogue;
pub(crate) mod decode;
mod default;
pub(crate) mod formats;
mod parse;
mod pattern;
mod prune;
mod ratchet;
pub(crate) mod rules;
pub(crate) mod structural;
mod validate;

use std::collections::BTreeMap;

use serde_json::Value;

use self::{pattern::Pattern, rules::Rule};

/// A JSON type that a schema can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonType {
    /// A map of names to values.
    Object,
    /// A list.
    Array,
    /// A text.
    String,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// True or false.
    Boolean,
}

impl JsonType {
    /// The name in schemas and messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    /// The type of that name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Object, Self::Array, Self::String, Self::Integer, Self::Number, Self::Boolean]
            .into_iter()
            .find(|one| one.name() == name)
    }
}

/// Properties of an object beyond the named ones.
#[derive(Clone, Debug, Default)]
pub(crate) enum Additional {
    /// None; they are pruned.
    #[default]
    None,
    /// Any.
    Any,
    /// Any, if their values match.
    Matching(Box<Schema>),
}

/// How the items of a list are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The list is atomic.
    #[default]
    Atomic,
    /// By their value.
    Set,
    /// By the values of these properties.
    Map(Vec<String>),
}

/// Limits of a value beyond its type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) enumeration: Option<Vec<Value>>,
    pub(crate) format: Option<String>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<usize>,
    pub(crate) max_length: Option<usize>,
    pub(crate) min_items: Option<usize>,
    pub(crate) max_items: Option<usize>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<usize>,
    pub(crate) max_properties: Option<usize>,
    pub(crate) required: Vec<String>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

/// A lower or upper bound of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    pub(crate) exclusive: bool,
}

/// A parsed schema of one value and everything below it.
#[expect(clippy::struct_excessive_bools, reason = "they are the schema's own keywords")]
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    pub(crate) kind: Option<JsonType>,
    pub(crate) nullable: bool,
    pub(crate) properties: BTreeMap<String, Self>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Self>>,
    pub(crate) default: Option<Value>,
    pub(crate) preserve_unknown: bool,
    pub(crate) int_or_string: bool,
    pub(crate) embedded: bool,
    pub(crate) list_type: ListType,
    pub(crate) limits: Limits,
    pub(crate) rules: Vec<Rule>,
    /// The schema or a schema below has rules.
    pub(crate) ruled: bool,
}

impl Schema {
    /// The schema of a property, named or additional.
    pub(crate) fn property(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or(match &self.additional {
            Additional::Matching(schema) => Some(schema),
            Additional::None | Additional::Any => None,
        })
    }

    fn refuses_null(&self) -> bool {
        !self.nullable
    }
}

#[cfg(test)]
mod tests;

//! Label and field selectors: the grammar of the query string, and of `LabelSelector` objects.

mod field;
mod label;
mod lexer;
mod parser;
mod requirement;

pub(crate) use self::{
    field::{FieldSelector, FieldTerm},
    label::LabelSelector,
};

/// A selector that cannot be read. The text is Kubernetes' own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SelectorError(pub(crate) String);

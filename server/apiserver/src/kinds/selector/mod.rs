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

/// About how many bytes of memory a separate piece of this length takes: allocators give multiples of 16, and keep
/// something beside each.
const fn allocated(length: usize) -> usize {
    if length == 0 { 0 } else { length.next_multiple_of(16) + 16 }
}

/// The same of texts, each a piece of its own.
fn allocated_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> usize {
    texts.into_iter().map(|text| allocated(text.len())).sum()
}

/// A selector that cannot be read. The text is Kubernetes' own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SelectorError(pub(crate) String);

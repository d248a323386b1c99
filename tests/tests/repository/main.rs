//! What the repository must look like: sizes, names, layers, licences, fresh pages, words.

mod hardening;
mod tidy;

//! What the repository must look like: sizes, names, layers, licences, fresh pages, words.

#![expect(clippy::expect_used, reason = "tests")]

mod hardening;
mod homonyms;
mod issues;
mod ledger;
mod mutations;
mod named;
mod owners;
mod pages;
mod plans;
mod sentences;
mod tidy;
mod words;

//! JSON text that drivers and the authors of classes write: provider specs, and what was noted of them.
#![no_main]

use std::collections::BTreeMap;

use ostler_lifecycle::{digest, last_known::LastKnown};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(text) = str::from_utf8(data) {
        if let Some(canonical) = digest::canonical_text(text) {
            // The text may change again: numbers with many digits are read to within their last digit.
            assert!(digest::canonical_text(&canonical).is_some(), "it cannot be read again");
        }
        ostler_legacy::fuzz::class_text(text);
    }
    let kept = BTreeMap::from([("class.json".to_owned(), data.to_vec())]);
    drop(LastKnown::decode(&kept));
});

//! An object of a built-in kind and a strategic merge patch of it: see `ostler_apiserver::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_apiserver::fuzz::strategic_merge(data));

//! A body in YAML: see `ostler_apiserver::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_apiserver::fuzz::yaml(data));

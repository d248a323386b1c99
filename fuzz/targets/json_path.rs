//! A path of a printer column: see `ostler_apiserver::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_apiserver::fuzz::json_path(data));

//! A driver of the first proposal that answers anything at all: see `ostler_sessions::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_sessions::fuzz::legacy_hears(data));

//! A client certificate that is anything at all: see `ostler_sessions::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_sessions::fuzz::certificate(data));

//! Drivers that say anything at all, in any order, while the core works: see `ostler_sessions::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_sessions::fuzz::core_hears(data));

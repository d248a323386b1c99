//! A core that says anything at all, in any order: see `ostler_driver_sdk::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_driver_sdk::fuzz::driver_hears(data));

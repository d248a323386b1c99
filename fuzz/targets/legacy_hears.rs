//! A driver of the first proposal that answers anything at all: see `ostler_legacy::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_legacy::fuzz::driver_says(data));

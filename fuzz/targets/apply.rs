//! An object with its managers, an applied configuration, and an update of another client: see
//! `ostler_apiserver::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_apiserver::fuzz::apply(data));

//! An object with its managers, what is applied to it, and what another client makes of it: see
//! `ostler_apiserver::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_apiserver::fuzz::apply(data));

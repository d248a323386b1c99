//! A body in Kubernetes' binary form: see `ostler_apiserver::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ostler_apiserver::fuzz::protobuf(data));

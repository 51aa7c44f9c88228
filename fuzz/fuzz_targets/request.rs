//! Requests, whole and cut: see `proto::testing::request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| proto::testing::request(input, highwire_fuzz::request));

//! Responses, whole and cut: see `proto::testing::response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| proto::testing::response(input, highwire_fuzz::response));

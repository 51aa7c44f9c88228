//! Fuzzes requests, whole and cut: see `highwire_proto::testing::request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::request(input, highwire_fuzz::request));

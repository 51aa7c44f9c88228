//! Fuzzes responses, whole and cut: see `highwire_proto::testing::response`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::response(input, highwire_fuzz::response));

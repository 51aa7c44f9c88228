//! Fuzzes chunked bodies: see `highwire_proto::testing::chunked`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::chunked(input));

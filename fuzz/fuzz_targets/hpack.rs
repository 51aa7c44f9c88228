//! Fuzzes HTTP/2 header blocks: see `highwire_proto::testing::hpack`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire_proto::testing::hpack(input));

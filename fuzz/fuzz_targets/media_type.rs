//! Fuzzes media types and lists: see `highwire::testing::fuzz::media_type`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::testing::fuzz::media_type(input));

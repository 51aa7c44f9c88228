//! Fuzzes `Accept-Encoding`: see `highwire::compress::testing::accepted`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| highwire::compress::testing::accepted(input));
